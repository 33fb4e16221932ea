//! Folds the two filters that look at nothing but the number of the call into one that finds it by
//! halving. The kernel walks a filter once for every possible call when it is installed, and a chain of
//! four hundred comparisons makes that the most expensive step of a launch.

use seccompiler::{BpfProgram, sock_filter};

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
/// Calls are numbered from zero and the kernel is far from this one; above it the default holds.
const LIMIT: u32 = 2048;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCH: u32 = 0xc000_00f3;

/// One filter with the answers of both; what is denied wins. `None` if one of them looks at arguments.
pub(super) fn fold(allow: &[sock_filter], deny: &[sock_filter]) -> Option<BpfProgram> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in 0..=LIMIT {
        let action = combined(allow, deny, number)?;
        if ranges.last().is_none_or(|(_, last)| *last != action) {
            ranges.push((number, action));
        }
    }
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut program = vec![
        instruction(LOAD, 0, 0, OFFSET_ARCH),
        instruction(JUMP_EQUAL, 1, 0, ARCH),
        instruction(RETURN, 0, 0, KILL_PROCESS),
        instruction(LOAD, 0, 0, OFFSET_NUMBER),
    ];
    program.extend(search(&ranges));
    Some(program)
}

fn combined(allow: &[sock_filter], deny: &[sock_filter], number: u32) -> Option<u32> {
    match evaluate(deny, number)? {
        ALLOW => evaluate(allow, number),
        denied => Some(denied),
    }
}

/// Code that finds the range of the loaded number; each range goes up to the start of the next.
fn search(ranges: &[(u32, u32)]) -> BpfProgram {
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    if let [(_, action)] = ranges {
        return vec![instruction(RETURN, 0, 0, *action)];
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let (left, right) = (search(low), search(high));
    let pivot = high.first().map_or(0, |(start, _)| *start);
    let mut code = match u8::try_from(left.len()) {
        Ok(distance) => vec![instruction(JUMP_GREATER_EQUAL, distance, 0, pivot)],
        // Conditional jumps reach 255 instructions, unconditional ones any number.
        Err(_) => vec![
            instruction(JUMP_GREATER_EQUAL, 0, 1, pivot),
            instruction(JUMP, 0, 0, u32::try_from(left.len()).unwrap_or(0)),
        ],
    };
    code.extend(left);
    code.extend(right);
    code
}

/// What a filter answers to a call, if that does not depend on its arguments.
fn evaluate(program: &[sock_filter], number: u32) -> Option<u32> {
    let mut accumulator = 0;
    let mut at = 0;
    loop {
        let step = program.get(at)?;
        at += 1;
        let taken = match step.code {
            LOAD if step.k == OFFSET_NUMBER => {
                accumulator = number;
                continue;
            }
            LOAD if step.k == OFFSET_ARCH => {
                accumulator = ARCH;
                continue;
            }
            RETURN => return Some(step.k),
            JUMP => {
                at += step.k as usize;
                continue;
            }
            JUMP_EQUAL => accumulator == step.k,
            JUMP_GREATER => accumulator > step.k,
            JUMP_GREATER_EQUAL => accumulator >= step.k,
            _ => return None,
        };
        at += usize::from(if taken { step.jt } else { step.jf });
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
