//! Commands in the main service's container.

mod control;

use std::collections::BTreeMap;

use sandboxer_core::exec::{ExecSession, ExecSpec, TtySize};
use sandboxer_core::extension::Handle;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Stdin};

use crate::provision::Data;
use crate::site::Site;
use control::{Control, Inside};

/// Marks every process of one command inside; the value is the exec's id.
pub(crate) const MARKER: &str = "SANDBOXER_EXEC";
/// Values travel under these names: a caller's `PATH` or `DOCKER_HOST` must not reach the docker client itself.
const CARRIER: &str = "SBX_E_";

/// Notes the use for the guard, with the pid that stays while the command runs, then becomes the docker client.
const RUN: &str = r#"
g=$1; id=$2; shift 2
{ IFS= read -r x </proc/self/stat; me=${x%% *}; x=${x##*) }; } 2>/dev/null
n=0; for s in $x; do n=$((n+1)); [ $n = 20 ] && break; done
{ echo >"$g/activity"; echo "$me $s" >"$g/running/$id"; } 2>/dev/null
exec docker "$@"
"#;

/// A shell line for inside: puts the variables where they belong, goes to the folder, becomes the command.
pub(crate) fn wrapper<'a>(names: impl Iterator<Item = &'a String>, tty: Option<TtySize>) -> String {
    let mut text = String::new();
    if let Some(TtySize { rows, cols }) = tty {
        // The client tells the engine the size only after the start, when the command may have asked already.
        text += &format!("stty rows {rows} cols {cols} 2>/dev/null; ");
    }
    for (number, name) in names.enumerate() {
        text += &format!("export {name}=\"${CARRIER}{number}\"; unset {CARRIER}{number}; ");
    }
    text + "cd -- \"$1\" || exit 1; shift; exec \"$@\""
}

/// The arguments of `docker exec` before the container's name, and the variables that go with them.
pub(crate) fn carry(env: &BTreeMap<String, String>) -> (Vec<String>, Vec<(String, String)>) {
    let mut args = Vec::new();
    let mut carried = Vec::new();
    for (number, value) in env.values().enumerate() {
        let name = format!("{CARRIER}{number}");
        args.extend(["-e".to_owned(), name.clone()]);
        carried.push((name, value.clone()));
    }
    (args, carried)
}

/// Starts a command.
pub(crate) async fn start(site: &Site, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
    let data = Data::of(handle)?;
    must_run(site, handle, &data.container).await?;
    let mut env = data.variables.clone();
    env.extend(spec.env.clone());
    env.insert(MARKER.into(), spec.exec_id.to_string());
    let (carried_args, carried) = carry(&env);
    let mut argv = vec!["exec".to_owned()];
    if spec.stdin || spec.tty.is_some() {
        argv.push("-i".into());
    }
    if spec.tty.is_some() {
        argv.push("-t".into());
    }
    if let Some(user) = &spec.user {
        argv.extend(["-u".to_owned(), checked_user(user)?]);
    }
    argv.extend(carried_args);
    argv.extend([
        data.container.clone(),
        "/bin/sh".into(),
        "-c".into(),
        wrapper(env.keys(), spec.tty),
        "sh".into(),
    ]);
    argv.push(absolute(&data.workdir, spec.cwd.as_deref().unwrap_or(".")));
    argv.extend(spec.argv.iter().cloned());
    let guard = format!("{}/{}", site.folder(&handle.tag), sandboxer_remote::guard::FOLDER);
    let words = [guard, spec.exec_id.to_string()].into_iter().chain(argv);
    let mut command = site.with_engine(Command::script(RUN, words)).envs(carried);
    if spec.stdin {
        command = command.stdin(Stdin::Piped);
    }
    if let Some(size) = spec.tty {
        command = command.tty(size);
    }
    let session = site.remote.start(command).await?;
    let inside = Inside {
        site: site.clone(),
        container: data.container,
        user: spec.user,
        exec_id: spec.exec_id.to_string(),
    };
    let control = Control::start(session.control, inside, spec.timeout);
    Ok(ExecSession { stdin: session.stdin, stdout: session.stdout, stderr: session.stderr, control })
}

/// A name or a number, with or without a group; nothing that the docker client could take for an option.
fn checked_user(user: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    if user.is_empty() || user.starts_with(['-', ':']) || !user.chars().all(plain) {
        let shown = sandboxer_core::suggest::printable(user);
        return Err(Error::new(ErrorKind::InvalidInput, format!("`{shown}` is no user")));
    }
    Ok(user.to_owned())
}

/// Relative paths are relative to where commands start.
pub(crate) fn absolute(workdir: &str, path: &str) -> String {
    match path {
        "" | "." => workdir.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("{}/{path}", workdir.trim_end_matches('/')),
    }
}

/// The container is there and takes commands; otherwise why not.
pub(crate) async fn must_run(site: &Site, handle: &Handle, container: &str) -> Result<()> {
    let output =
        site.docker(&["inspect", "--type", "container", "-f", "{{.State.Status}}", container]).await?;
    let status = output.text();
    match status.as_str() {
        "running" => Ok(()),
        "paused" => Err(Error::new(ErrorKind::IllegalState, format!("{} is paused", handle.tag))
            .with_hint("resume it first")),
        "" => {
            let words = output.last_words();
            if words.contains("No such container") || words.contains("No such object") {
                return Err(Error::new(ErrorKind::SandboxNotFound, format!("{} is gone", handle.tag)));
            }
            Err(crate::site::engine_down(site.remote.name(), &words))
        }
        other => {
            Err(Error::new(ErrorKind::IllegalState, format!("the service that commands go to is {other}"))
                .with_hint("`sandboxer logs` shows why it ended; the input `service` chooses another one"))
        }
    }
}
