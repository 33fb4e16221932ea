use super::super::{ALLOW as ALLOW_FILE, ALLOW_ARCH, DENY, DENY_ARCH, DENY_ARGUMENTS, compile_one};
use super::{combined, evaluate, fold};

#[test]
fn the_folded_filter_answers_as_the_two_it_is_made_from() {
    let allow = compile_one("allow", ALLOW_FILE, ALLOW_ARCH).unwrap();
    let deny = compile_one("deny", DENY, DENY_ARCH).unwrap();
    let folded = fold(&allow, &deny).unwrap();
    for number in (0..3000).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
        assert_eq!(evaluate(&folded, number), combined(&allow, &deny, number), "call {number}");
    }
    assert!(folded.len() < 400, "{} instructions", folded.len());
}

#[test]
fn the_answers_are_those_of_the_data_files() {
    let allow = compile_one("allow", ALLOW_FILE, ALLOW_ARCH).unwrap();
    let deny = compile_one("deny", DENY, DENY_ARCH).unwrap();
    let folded = fold(&allow, &deny).unwrap();
    let answer = |call: libc::c_long| evaluate(&folded, u32::try_from(call).unwrap()).unwrap();
    assert_eq!(answer(libc::SYS_openat), super::ALLOW);
    assert_eq!(answer(libc::SYS_mount), 0x0005_0001);
    assert_eq!(answer(libc::SYS_clone3), 0x0005_0026);
    assert_eq!(answer(libc::SYS_clone), super::ALLOW);
}

#[test]
fn rules_on_arguments_are_not_folded() {
    let arguments = compile_one("deny_arguments", DENY_ARGUMENTS, None).unwrap();
    let allow = compile_one("allow", ALLOW_FILE, ALLOW_ARCH).unwrap();
    assert!(fold(&allow, &arguments).is_none());
}
