//! Commands inside something on the host, such as a sandbox there, by a program that runs them in it.

use crate::command::{Command, Program, Stdin};

/// How to get in: `program OPTIONS target -- command`, where the options are those of `sandboxer exec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The program with its first arguments.
    pub program: Vec<String>,
    /// What it is told to enter.
    pub target: String,
    /// A directory of the host without which there is nothing to enter any more.
    pub dir: String,
}

impl Entry {
    /// The command as the host has to run it.
    ///
    /// Values of variables travel in the environment under names of our own: under theirs they would mean something to
    /// the program on the host, which is outside (a PATH, a library to load).
    pub(crate) fn adapt(&self, command: Command) -> Command {
        let mut inner = match command.program {
            Program::Argv(argv) => argv,
            Program::Script { text, args } => {
                let shell = ["/bin/sh", "-c", text, "sh"].map(str::to_owned);
                shell.into_iter().chain(args).collect()
            }
        };
        let mut argv = self.program.clone();
        if command.tty.is_some() {
            argv.push("-t".into());
        }
        if command.tty.is_some() || command.stdin != Stdin::Null {
            argv.push("-i".into());
        }
        if let Some(dir) = command.cwd {
            argv.push(format!("--cwd={dir}"));
        }
        let mut outer = Command::new([""; 0]).cwd(&self.dir).stdin(command.stdin);
        if !command.env.is_empty() {
            let (mut set, mut forget) = (String::new(), String::new());
            for (number, (name, value)) in command.env.into_iter().enumerate() {
                let carrier = format!("SANDBOXER_VALUE_{number}");
                set += &format!("{name}=${carrier}; export {name}; ");
                forget += &format!(" {carrier}");
                argv.push(format!("--env={carrier}"));
                outer = outer.env(carrier, value);
            }
            let script = format!("{set}unset{forget}; exec \"$@\"");
            inner.splice(0..0, ["/bin/sh".to_owned(), "-c".into(), script, "sh".into()]);
        }
        argv.extend([self.target.clone(), "--".into()]);
        argv.extend(inner);
        outer.program = Program::Argv(argv);
        outer.timeout = command.timeout;
        outer.tty = command.tty;
        outer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_no_argument_and_under_no_name_that_means_something() {
        let entry = Entry { program: vec!["enter".into()], target: "it".into(), dir: "/d".into() };
        let command = Command::new(["tool", "-x"]).env("PATH", "/secret").cwd("/w").stdin(Stdin::Piped);
        let adapted = entry.adapt(command);
        let Program::Argv(argv) = adapted.program else { panic!() };
        assert_eq!(argv[..6], ["enter", "-i", "--cwd=/w", "--env=SANDBOXER_VALUE_0", "it", "--"]);
        assert_eq!(argv[argv.len() - 2..], ["tool", "-x"]);
        assert!(!argv.iter().any(|piece| piece.contains("secret")));
        assert_eq!(
            adapted.env.into_iter().collect::<Vec<_>>(),
            [("SANDBOXER_VALUE_0".to_owned(), "/secret".to_owned())]
        );
        assert_eq!(adapted.cwd.as_deref(), Some("/d"));
    }
}
