//! `shell` and `exec -t` on a real terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::{Home, eventually};

/// A terminal of which this test is the screen and the keyboard.
pub(crate) struct Screen {
    keyboard: File,
    line: File,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let ours: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let line = File::options().read(true).write(true).open(name).unwrap();
        let keyboard = File::from(ours);
        let (mut reader, shown) = (keyboard.try_clone().unwrap(), Arc::new(Mutex::new(String::new())));
        let written = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0_u8; 4_096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let screen = Self { keyboard, line, shown };
        screen.resize(30, 100);
        screen
    }

    fn resize(&self, rows: u16, cols: u16) {
        tcsetwinsize(&self.line, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    pub(crate) fn run(&self, mut command: Command) -> Child {
        let line = || Stdio::from(self.line.try_clone().unwrap());
        command.stdin(line()).stdout(line()).stderr(line()).env("TERM", "xterm").spawn().unwrap()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    pub(crate) fn waits_for(&self, what: &str) {
        let shown = self.shown.clone();
        eventually(&format!("{what:?} on the screen"), || shown.lock().unwrap().contains(what));
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.line).unwrap().local_modes.contains(LocalModes::ICANON)
    }
}

fn shell_on(home: Home) {
    let id = home.create();
    let mut screen = Screen::new();
    let mut child = screen.run(home.command(["shell", &id]));
    screen.waits_for("[sbx …");
    assert!(screen.is_raw());
    screen.press("echo $((6*7)) $TERM; stty size\r");
    screen.waits_for("42 xterm");
    screen.waits_for("30 100");
    screen.resize(41, 123);
    // The line belongs to no session here, so the kernel does not tell anybody: the test does.
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::WINCH)
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    screen.press("stty size\r");
    screen.waits_for("41 123");
    screen.press("sleep 1000\r");
    std::thread::sleep(std::time::Duration::from_millis(300));
    screen.press("\u{3}");
    screen.press("echo still $((1+1)) here\r");
    screen.waits_for("still 2 here");
    screen.press("exit 7\r");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(!screen.is_raw(), "the terminal is as it was");
}

#[test]
fn a_shell() {
    shell_on(Home::new());
}

#[test]
fn a_shell_through_a_server() {
    shell_on(Home::served());
}

#[test]
fn the_terminal_is_restored_after_a_signal() {
    let home = Home::new();
    let id = home.create();
    let screen = Screen::new();
    let mut child =
        screen.run(home.command(["exec", "-t", "-i", &id, "--", "sh", "-c", "echo up; sleep 1000"]));
    screen.waits_for("up");
    assert!(screen.is_raw());
    for _ in 0..3 {
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(matches!(child.wait().unwrap().code(), Some(143 | 137)));
    assert!(!screen.is_raw());
}

#[test]
fn the_canary_on_a_terminal_says_what_to_type_next() {
    let home = Home::new();
    let screen = Screen::new();
    assert!(screen.run(home.command(["create"])).wait().unwrap().success());
    screen.waits_for("sandboxer shell sbx_");
    screen.waits_for("sandboxer destroy sbx_");
}

#[test]
fn a_terminal_gets_colour_unless_it_does_not_want_any() {
    let home = Home::new();
    let screen = Screen::new();
    screen.run(home.command(["get", "sbx_x"])).wait().unwrap();
    screen.waits_for("\u{1b}[");
    let plain = Screen::new();
    let mut command = home.command(["get", "sbx_x"]);
    command.env("NO_COLOR", "1");
    plain.run(command).wait().unwrap();
    plain.waits_for("error:");
    assert!(!plain.shown.lock().unwrap().contains("\u{1b}["));
}

#[test]
fn a_shell_has_no_json_form() {
    let home = Home::new();
    home.run(["shell", "--json", "sbx_x"]).exits(2);
}
