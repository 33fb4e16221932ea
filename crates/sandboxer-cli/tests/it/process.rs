//! Extensions in processes of their own, from the manifest to the end of a sandbox.

use std::path::Path;

use crate::support::{Home, eventually};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/registry/extensions");
const PLACE: &str = ".config/sandboxer/registry/extensions";

/// A home whose owner has put the documented example into the registry folder, and a profile for it.
fn home() -> Home {
    let home = Home::new();
    let root = home.path().join("example-root").display().to_string();
    let home = home.with("EXAMPLE_ROOT", root);
    for name in ["example.yaml", "example.py", "protocol.py"] {
        home.file(&format!("{PLACE}/{name}"), std::fs::read(Path::new(EXAMPLE).join(name)).unwrap());
    }
    home.profile(
        "example",
        "id: profile.example\nversion: \"1.0.0\"\nextension: ext.example\nisolation: { level: network }\n",
    );
    home
}

fn left(home: &Home) -> Vec<String> {
    let entries = std::fs::read_dir(home.path().join("example-root")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name != ".locks").collect()
}

fn end_to_end(home: &Home) {
    let list = home.run(["extensions", "list"]).ok();
    assert!(list.contains("ext.example"), "{list}");
    let id = home
        .run(["create", "--profile", "profile.example", "--extension", "ext.example", "--ttl", "5m"])
        .ok();
    let id = id.trim();
    let sandbox = home.run(["get", id, "--json"]).json();
    assert_eq!(
        (&sandbox["extension"], &sandbox["isolation"]["effective"]),
        (&"ext.example".into(), &"network".into())
    );
    let said = home.feed(["exec", id, "-i", "--", "sh", "-c", "cat; echo err >&2; exit 3"], b"in").exits(3);
    assert_eq!((said.stdout.as_slice(), said.stderr.as_str()), (&b"in"[..], "err\n"));
    let file = home.file("some file", "content");
    home.run(["cp", file.to_str().unwrap(), &format!("{id}:sub/file")]).ok();
    assert_eq!(home.run(["exec", id, "--", "cat", "sub/file"]).ok(), "content");
    home.run(["exec", id, "--timeout", "500ms", "--", "sleep", "60"]).exits(124);
    // What it does not declare is refused with its name.
    home.run(["exec", id, "--user", "nobody", "--", "true"]).exits(7).says("ext.example");
    home.run(["destroy", id]).ok();
    assert_eq!(left(home), Vec::<String>::new());
}

#[test]
fn a_manifest_is_found_and_its_extension_works() {
    end_to_end(&home());
}

#[test]
fn a_server_has_it_too() {
    end_to_end(&home().serving());
}

#[test]
fn a_trial_tells_whether_it_does_what_it_declares() {
    let home = home();
    let report = home.run(["extensions", "check", "ext.example", "--json"]).exits(0).json();
    let rows = report["conformance"]["rows"].as_array().unwrap();
    let passed = |name: &str| rows.iter().any(|row| row["name"] == name && row["verdict"] == "passed");
    assert!(passed("exec.codes") && passed("files.names") && passed("clean_up"), "{report:#}");
    assert_eq!(left(&home), Vec::<String>::new());
    // The same, but it says of every command that it succeeded.
    let script = std::fs::read_to_string(Path::new(EXAMPLE).join("example.py")).unwrap();
    let honest = "\"exit_code\": 128 - code if code < 0 else code";
    assert!(script.contains(honest));
    home.file(&format!("{PLACE}/example.py"), script.replace(honest, "\"exit_code\": 0"));
    let table = home.run(["extensions", "check", "ext.example"]).exits(1);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.lines().any(|line| line.contains("exec.codes") && line.contains("FAILED")), "{table}");
    assert_eq!(left(&home), Vec::<String>::new());
}

#[test]
fn the_native_extension_passes_its_trial() {
    let home = Home::new();
    let report = home.run(["extensions", "check", "ext.native", "--json"]).exits(0).json();
    assert_eq!(report["items"][0]["id"], "ext.native");
    assert!(report["conformance"]["rows"].as_array().unwrap().len() > 20);
    let listed = home.run(["inspect", "stale", "--json"]).ok();
    assert!(!listed.contains("sbx_"), "{listed}");
}

#[test]
fn what_cannot_be_used_is_said_and_harms_nothing_else() {
    let home = home();
    let manifest = std::fs::read_to_string(Path::new(EXAMPLE).join("example.yaml")).unwrap();
    home.file(&format!("{PLACE}/broken.yaml"), manifest.replace("exec: true", "exek: true"));
    home.file(&format!("{PLACE}/thief.yaml"), manifest.replace("ext.example", "ext.native"));
    home.file(
        &format!("{PLACE}/gone.yaml"),
        manifest.replace("ext.example", "ext.gone").replace("example.py", "gone.py"),
    );
    let list = home.run(["extensions", "list"]).exits(0);
    let list = list
        .says("broken.yaml:8:3: there is no capability `exek`")
        .says("`ext.native` is the name of a built-in");
    let table = String::from_utf8(list.stdout).unwrap();
    assert!(table.lines().any(|line| line.contains("ext.native") && line.contains("yes")), "{table}");
    assert!(table.lines().any(|line| line.contains("ext.gone") && line.contains("no")), "{table}");
    home.run(["extensions", "check", "ext.gone"]).exits(7);
    let id = home.create();
    home.run(["exec", &id, "--", "true"]).ok();
}

#[test]
fn the_working_directory_cannot_name_a_command() {
    let home = Home::new();
    let manifest = std::fs::read_to_string(Path::new(EXAMPLE).join("example.yaml")).unwrap();
    home.file(".sandboxer/registry/extensions/example.yaml", manifest);
    assert!(!home.run(["extensions", "list"]).ok().contains("ext.example"));
    // Unless somebody names the folder.
    let home = home.with("SANDBOXER_REGISTRY", ".sandboxer/registry");
    assert!(home.run(["extensions", "list"]).ok().contains("ext.example"));
}

#[test]
fn a_command_ends_with_whoever_waits_for_it() {
    let home = home();
    let id = home.run(["create", "--profile", "profile.example", "--ttl", "5m"]).ok();
    let id = id.trim();
    let beat = home.path().join(format!("example-root/{id}/workspace/beat"));
    let line = "setsid sh -c 'while :; do echo x >> beat; sleep 0.1; done' & sleep 60";
    let mut child = home.command(["exec", id, "--", "sh", "-c", line]).spawn().unwrap();
    let size = || std::fs::metadata(&beat).map(|about| about.len()).unwrap_or_default();
    eventually("it beats", || size() > 4);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("it beats no more", || {
        let before = size();
        std::thread::sleep(std::time::Duration::from_millis(500));
        size() == before
    });
}
