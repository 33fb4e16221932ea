use super::*;

/// Source, target, read-only.
type Bind<'a> = (&'a str, &'a str, bool);

fn stack(mounts: &[(&str, &[Bind<'_>])]) -> Stack {
    let services = mounts.iter().map(|(name, mounts)| Service {
        name: (*name).into(),
        replicas: 1,
        config: Map::from_iter([("image".to_owned(), json!("x"))]),
        mounts: mounts
            .iter()
            .map(|(source, target, read_only)| Mount {
                source: Source::Bundle { path: (*source).into(), missing: false },
                target: (*target).into(),
                read_only: *read_only,
                rest: Map::new(),
            })
            .collect(),
        ..Service::default()
    });
    Stack { services: services.collect(), ..Stack::default() }
}

fn plan<'a>(resources: &'a Resources, allowed: &'a [Danger]) -> Plan<'a> {
    Plan { tag: "sbx_a", project: "/p", resources, allowed, main: "web", access: WorkspaceAccess::Rw }
}

fn targets(file: &Json, service: &str) -> Vec<String> {
    let volumes = file["services"][service]["volumes"].as_array().unwrap();
    volumes
        .iter()
        .map(|one| format!("{}>{}", one["source"].as_str().unwrap(), one["target"].as_str().unwrap()))
        .collect()
}

#[test]
fn sources_below_a_writable_mount_are_pinned_with_their_folders() {
    let stack = stack(&[("web", &[]), ("proxy", &[("conf/a/nginx.conf", "/etc/nginx.conf", true)])]);
    let file = rewrite(&stack, &plan(&Resources::default(), &[]));
    assert_eq!(
        targets(&file, "web"),
        [
            "/p>/workspace",
            "/p/conf>/workspace/conf",
            "/p/conf/a>/workspace/conf/a",
            "/p/conf/a/nginx.conf>/workspace/conf/a/nginx.conf"
        ]
    );
    // The other one cannot write, so there is nothing to pin.
    assert_eq!(targets(&file, "proxy"), ["/p/conf/a/nginx.conf>/etc/nginx.conf"]);
}

#[test]
fn networks_are_internal_and_everything_is_labelled() {
    let file = rewrite(&stack(&[("web", &[])]), &plan(&Resources::default(), &[]));
    assert_eq!(file["networks"]["default"], json!({ "internal": true, "labels": { TAG_LABEL: "sbx_a" } }));
    let web = &file["services"]["web"];
    assert_eq!(web["labels"][TAG_LABEL], "sbx_a");
    assert_eq!(web["security_opt"], json!(["no-new-privileges:true"]));
    assert_eq!(web["cap_drop"], json!(["MKNOD", "NET_RAW"]));
    let open = rewrite(&stack(&[("web", &[])]), &plan(&Resources::default(), &[Danger::OpenNetwork]));
    assert_eq!(open["networks"]["default"], json!({ "labels": { TAG_LABEL: "sbx_a" } }));
}

#[test]
fn the_workspace_gives_way_to_what_the_service_has_there() {
    let own = stack(&[("web", &[("src", "/workspace", false)])]);
    assert_eq!(targets(&rewrite(&own, &plan(&Resources::default(), &[])), "web"), ["/p/src>/workspace"]);
}
