use super::*;

fn set(own: &[&str], git: &[&str], docker: &[&str]) -> IgnoreSet {
    let mut set = IgnoreSet::new(&Rules { dockerignore: true, ..Rules::workspace() });
    set.own.insert(PathBuf::new(), build(own.iter().copied()));
    set.of_git.insert(PathBuf::new(), build(git.iter().copied()));
    let docker: Vec<String> = docker.iter().map(|line| docker_line(line)).collect();
    set.docker = Some(build(docker.iter().map(String::as_str)));
    set
}

fn ignores(set: &IgnoreSet, path: &str) -> bool {
    set.ignores(Path::new(path.trim_end_matches('/')), path.ends_with('/'))
}

#[test]
fn our_own_file_has_the_last_word() {
    let set = set(&["!keep.log", "notes/", "!.env"], &["*.log", "target/"], &[]);
    assert!(ignores(&set, "a.log") && ignores(&set, "sub/a.log"));
    assert!(!ignores(&set, "keep.log"));
    assert!(ignores(&set, "notes/a/b") && ignores(&set, "target/debug/x"));
    assert!(!ignores(&set, ".env"), "taken back by name");
}

#[test]
fn credentials_and_hooks_stay_behind() {
    let mut set = set(&[], &["config"], &[]);
    for path in [".env", "a/.env.local", "deploy/server.pem", ".ssh/config", ".git/hooks/post-checkout"] {
        assert!(ignores(&set, path), "{path}");
    }
    assert!(!ignores(&set, ".env.example") && !ignores(&set, ".git/config") && ignores(&set, "a/config"));
    set.git = false;
    assert!(ignores(&set, ".git/HEAD") && ignores(&set, "sub/.git"));
    assert!(ignores(&set, "a/.sandboxer-tmp-1"));
}

#[test]
fn docker_reads_its_file_from_the_top() {
    let set = set(&[], &[], &["node_modules", "**/*.tmp", "data", "!data/keep"]);
    assert!(ignores(&set, "node_modules/x") && !ignores(&set, "sub/node_modules/x"));
    assert!(ignores(&set, "a/b.tmp") && ignores(&set, "data/big") && !ignores(&set, "data/keep"));
}

#[test]
fn the_nearest_file_decides() {
    let mut set = set(&[], &["*.txt"], &[]);
    set.of_git.insert(PathBuf::from("docs"), build(["!*.txt"].into_iter()));
    assert!(ignores(&set, "a.txt") && !ignores(&set, "docs/a.txt") && !ignores(&set, "docs/deep/a.txt"));
}
