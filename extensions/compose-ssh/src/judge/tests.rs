use super::*;

use crate::bundle::{Origin, prepare};

async fn bundle(files: &[(&str, &str)], links: &[(&str, &str)], include: &[&str]) -> Bundle {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("repo");
    std::fs::create_dir(&root).unwrap();
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    for (path, target) in links {
        std::os::unix::fs::symlink(target, root.join(path)).unwrap();
    }
    let include: Vec<String> = include.iter().map(|path| (*path).to_owned()).collect();
    prepare(Origin::Folder(root), &include, None, &std::env::temp_dir()).await.unwrap()
}

async fn verdict(yaml: &str, allowed: &[Danger]) -> Result<Stack> {
    let bundle = bundle(
        &[
            ("compose.yaml", yaml),
            ("conf/app.conf", "x"),
            ("Dockerfile", "FROM scratch"),
            ("app.env.txt", "A=1"),
        ],
        &[("inside", "conf")],
        &[],
    )
    .await;
    judge(&bundle, "compose.yaml", &BTreeMap::from([("ON".to_owned(), "true".to_owned())]), allowed)
}

/// A service with these further lines; the first of them is line 4.
fn service(lines: &str) -> String {
    format!("services:\n  web:\n    image: box\n{lines}")
}

#[tokio::test]
async fn everything_that_reaches_out_is_refused_with_its_line_and_its_key() {
    let cases: &[(&str, u64, Danger)] = &[
        ("    privileged: true\n", 4, Danger::Privileged),
        ("    privileged: yes\n", 4, Danger::Privileged),
        ("    privileged: ${ON}\n", 4, Danger::Privileged),
        ("    cap_add:\n      - SYS_ADMIN\n", 5, Danger::Privileged),
        ("    security_opt:\n      - label:x\n      - seccomp:unconfined\n", 6, Danger::Privileged),
        ("    security_opt: [\"apparmor=unconfined\"]\n", 4, Danger::Privileged),
        ("    security_opt: [\"no-new-privileges:false\"]\n", 4, Danger::Privileged),
        ("    devices:\n      - /dev/sda\n", 5, Danger::Privileged),
        ("    device_cgroup_rules: [\"c 1:3 rwm\"]\n", 4, Danger::Privileged),
        ("    cgroup_parent: /x\n", 4, Danger::Privileged),
        ("    runtime: sysbox\n", 4, Danger::Privileged),
        ("    gpus: all\n", 4, Danger::Privileged),
        ("    oom_score_adj: -500\n", 4, Danger::Privileged),
        ("    network_mode: host\n", 4, Danger::HostNamespaces),
        ("    network_mode: \"container:other\"\n", 4, Danger::HostNamespaces),
        ("    network_mode: bridge\n", 4, Danger::OpenNetwork),
        ("    pid: host\n", 4, Danger::HostNamespaces),
        ("    pid: container:x\n", 4, Danger::HostNamespaces),
        ("    ipc: host\n", 4, Danger::HostNamespaces),
        ("    uts: host\n", 4, Danger::HostNamespaces),
        ("    userns_mode: host\n", 4, Danger::HostNamespaces),
        ("    cgroup: host\n", 4, Danger::HostNamespaces),
        ("    volumes:\n      - /var/run/docker.sock:/var/run/docker.sock\n", 5, Danger::DockerSocket),
        ("    volumes:\n      - /var/run/../run/docker.sock:/s\n", 5, Danger::DockerSocket),
        ("    volumes:\n      - /etc:/host/etc:ro\n", 5, Danger::HostPaths),
        ("    volumes:\n      - ../other:/x\n", 5, Danger::HostPaths),
        ("    volumes:\n      - ~/.ssh:/x\n", 5, Danger::HostPaths),
        (
            "    volumes:\n      - type: bind\n        source: /srv\n        target: /x\n",
            5,
            Danger::HostPaths,
        ),
        ("    volumes_from: [\"container:db\"]\n", 4, Danger::HostPaths),
        ("    external_links: [db]\n", 4, Danger::OpenNetwork),
        ("networks:\n  n:\n    external: true\n", 6, Danger::OpenNetwork),
        ("volumes:\n  v:\n    external: true\n", 6, Danger::HostPaths),
        ("volumes:\n  v:\n    driver_opts: {type: none, o: bind, device: /etc}\n", 6, Danger::HostPaths),
        ("volumes:\n  v:\n    driver: nfs\n", 6, Danger::HostPaths),
        ("secrets:\n  s:\n    file: /etc/shadow\n", 6, Danger::HostPaths),
    ];
    for (lines, line, danger) in cases {
        let error = verdict(&service(lines), &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{lines}: {error}");
        assert!(error.to_string().starts_with(&format!("compose.yaml:{line}: ")), "{lines}: {error}");
        assert!(error.hint().unwrap().contains(word(*danger)), "{lines}: {:?}", error.hint());
    }
}

#[tokio::test]
async fn what_no_key_lifts_is_refused_with_its_line() {
    for (lines, line) in [
        ("    env_file: ../x.env\n", 4),
        ("    build: ../other\n", 4),
        ("    build: https://example.org/x.git\n", 4),
        ("    build:\n      context: .\n      dockerfile: ../Dockerfile\n", 6),
        ("    build:\n      context: .\n      ssh: [default]\n", 6),
        ("include: [other.yaml]\n", 4),
        ("networks:\n  n:\n    driver: macvlan\n", 6),
        ("    extends:\n      file: ../base.yaml\n      service: x\n", 4),
    ] {
        let error = verdict(&service(lines), &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{lines}: {error}");
        assert!(error.to_string().starts_with(&format!("compose.yaml:{line}: ")), "{lines}: {error}");
    }
}

#[tokio::test]
async fn links_that_lead_out_are_refused() {
    let yaml = service("    volumes:\n      - ./data/etc:/x\n");
    // The packer leaves such links behind; a tar of somebody else's making may hold them.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.tar");
    let mut builder = tar::Builder::new(std::fs::File::create(&path).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(yaml.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "compose.yaml", yaml.as_bytes()).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "data", "/").unwrap();
    builder.finish().unwrap();
    let bundle = prepare(Origin::Tar(path), &[], None, dir.path()).await.unwrap();
    let error = judge(&bundle, "compose.yaml", &BTreeMap::new(), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().starts_with("compose.yaml:5: "), "{error}");
}

#[tokio::test]
async fn mistakes_have_their_line() {
    for (yaml, start) in [
        ("services: [", "compose.yaml:1: "),
        ("services:\n  web:\n    imagee: x\n", "compose.yaml:3: "),
        ("services:\n  web:\n    ports: [\"80\"]\n", "compose.yaml:3: "),
        ("services:\n  web:\n    image: a\n    ports: [\"x:y\"]\n", "compose.yaml:4: "),
        ("services:\n  web:\n    image: a\n    volumes: [\"data:/x\"]\n", "compose.yaml:2: "),
        ("services:\n  web:\n    image: a\n    depends_on: [db]\n", "compose.yaml:2: "),
        ("services:\n  web:\n    image: a\n    networks: [n]\n", "compose.yaml:2: "),
        ("services:\n  web:\n    image: a\n    image: b\n", "compose.yaml:4: "),
        ("services:\n  web:\n    image: a\n    env_file: nothing.env\n", "compose.yaml:4: "),
        (
            "services:\n  web:\n    image: a\n    networks: {default: {ipv4_address: 10.0.0.2}}\n",
            "compose.yaml:4: ",
        ),
        ("services:\n  \"a b\":\n    image: a\n", "compose.yaml:2: "),
        ("a: 1\n", "compose.yaml:1: "),
        ("- a\n", "compose.yaml:1: "),
        ("", "compose.yaml"),
    ] {
        let error = verdict(yaml, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{yaml}: {error}");
        assert!(error.to_string().starts_with(start), "{yaml}: {error}");
    }
}

#[tokio::test]
async fn break_glass_lifts_and_remembers() {
    let yaml = service("    privileged: true\n    pid: host\n    volumes: [\"/srv:/srv\"]\n");
    let all = [Danger::Privileged, Danger::HostNamespaces, Danger::HostPaths];
    let stack = verdict(&yaml, &all).await.unwrap();
    assert_eq!(stack.lifted.iter().map(|one| one.danger).collect::<Vec<_>>(), all);
    assert_eq!(stack.lifted[0].place, "compose.yaml:4");
    assert_eq!(stack.services[0].config["privileged"], true);
    assert_eq!(stack.services[0].mounts[0].source, Source::Host("/srv".into()));
}

#[tokio::test]
async fn anchors_merge_keys_and_extends_are_followed() {
    let yaml = "x-base: &base\n  image: box\n  privileged: true\nservices:\n  web:\n    <<: *base\n    command: [a]\n";
    let error = verdict(yaml, &[]).await.unwrap_err();
    assert!(error.to_string().starts_with("compose.yaml:3: "), "{error}");

    let yaml = "services:\n  base:\n    image: box\n    environment: [A=1, B=2]\n    volumes: [\"./conf:/c\"]\n  web:\n    extends: base\n    environment: {B: 3}\n    volumes: [\"./inside:/c:ro\"]\n";
    let stack = verdict(yaml, &[]).await.unwrap();
    let web = &stack.services[1];
    assert_eq!(web.config["environment"], serde_json::json!({ "A": "1", "B": "3" }));
    assert_eq!(web.mounts.len(), 1);
    assert_eq!(web.mounts[0].source, Source::Bundle { path: "conf".into(), missing: false });
    assert!(web.mounts[0].read_only);
}

#[tokio::test]
async fn overriding_a_merged_key_wins() {
    let yaml = "x-base: &base\n  image: box\n  privileged: true\nservices:\n  web:\n    <<: *base\n    privileged: false\n";
    assert!(verdict(yaml, &[]).await.is_ok());
    let yaml = "x-base: &base\n  image: box\n  privileged: true\nservices:\n  web:\n    privileged: false\n    <<: *base\n";
    assert!(verdict(yaml, &[]).await.is_ok());
}

#[tokio::test]
async fn the_host_environment_stays_out_and_dollars_survive() {
    let yaml = service(
        "    environment:\n      - PATH\n      - ON\n      - A=x$$y\n    command: [sh, -c, \"echo $$HOME\"]\n",
    );
    let stack = verdict(&yaml, &[]).await.unwrap();
    assert_eq!(stack.services[0].config["environment"], serde_json::json!({ "ON": "true", "A": "x$$y" }));
    assert_eq!(stack.services[0].config["command"][2], "echo $$HOME");
}

#[tokio::test]
async fn env_files_that_look_like_credentials_say_how_to_take_them_along() {
    let yaml = service("    env_file: .env\n");
    let files = [("compose.yaml", yaml.as_str()), (".env", "TOKEN=1\n")];
    let without = bundle(&files, &[], &[]).await;
    assert_eq!(without.left_out, [".env"]);
    let error = judge(&without, "compose.yaml", &BTreeMap::new(), &[]).unwrap_err();
    assert!(error.to_string().starts_with("compose.yaml:4: `.env` looks like credentials"), "{error}");
    assert!(error.hint().unwrap().contains("--input include=.env"), "{:?}", error.hint());
    let with = bundle(&files, &[], &[".env"]).await;
    let stack = judge(&with, "compose.yaml", &BTreeMap::new(), &[]).unwrap();
    assert_eq!(stack.services[0].env_files, [".env"]);
}

#[tokio::test]
async fn ports_keep_only_their_number_inside() {
    let yaml = service(
        "    ports:\n      - 8080\n      - \"80:81\"\n      - \"127.0.0.1:5000-5001:6000-6001/udp\"\n      - {target: 90, published: 91}\n",
    );
    let stack = verdict(&yaml, &[]).await.unwrap();
    let ports: Vec<(u16, bool)> =
        stack.services[0].ports.iter().map(|port| (port.number, port.udp)).collect();
    assert_eq!(ports, [(8080, false), (81, false), (6000, true), (6001, true), (90, false)]);
}

#[tokio::test]
async fn builds_stay_inside_and_without_network() {
    let yaml = service("    build: .\n");
    let stack = verdict(&yaml, &[]).await.unwrap();
    let build = stack.services[0].build.clone().unwrap();
    assert_eq!((build.context.as_str(), &build.config["network"]), ("", &serde_json::json!("none")));
    assert!(!stack.services[0].config.contains_key("image"), "the name of a built image is ours");
}
