//! Who may name a source, what becomes of its seed, and what a mirror does with a sandbox that talks nonsense.

use std::fs;
use std::path::PathBuf;

use sandboxer_core::exec::ExecSpec;
use sandboxer_core::profile::{WorkspaceAccess, WorkspaceMode};
use sandboxer_core::request::{CreateRequest, WorkspaceRequest};
use sandboxer_core::{Actor, ErrorKind, ExecId, KeyId};
use sandboxer_engine::{Caller, CreateOptions};
use sandboxer_store::EventFilter;
use sandboxer_testkit::Workshop;

struct Room {
    workshop: Workshop,
    project: PathBuf,
}

impl Room {
    async fn new() -> Self {
        let workshop = Workshop::new().await.unwrap();
        let project = workshop.folder.path().join("project");
        fs::create_dir(&project).unwrap();
        fs::write(project.join("file"), "content").unwrap();
        workshop.engine.keep_workspaces_in(workshop.folder.path().join("home"));
        Self { workshop, project }
    }

    fn request(&self, access: WorkspaceAccess) -> CreateRequest {
        let workspace = WorkspaceRequest {
            mode: Some(WorkspaceMode::Mirror),
            access: Some(access),
            source: Some(self.project.display().to_string()),
        };
        CreateRequest {
            profile: Some("profile.agent-dev".into()),
            workspace: Some(workspace),
            ..CreateRequest::default()
        }
    }

    fn kept(&self, what: &str) -> usize {
        fs::read_dir(self.workshop.folder.path().join("home").join(what)).into_iter().flatten().count()
    }
}

#[tokio::test]
async fn only_operators_name_folders_and_only_for_a_workspace_that_there_is() {
    let room = Room::new().await;
    let engine = &room.workshop.engine;
    for actor in [Actor::Agt, Actor::Atm] {
        let caller = Caller::with_key(actor, KeyId::generate());
        let request = room.request(WorkspaceAccess::Rw);
        let error = engine.create(&caller, request, CreateOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
    let request = room.request(WorkspaceAccess::None);
    let error = engine.create(&Caller::local_admin(), request, CreateOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!((room.workshop.extension.provisioned(), room.kept("staging")), (0, 0));
}

#[tokio::test]
async fn an_engine_without_a_place_for_it_takes_no_source() {
    let room = Room::new().await;
    let engine = room.workshop.second_engine();
    let request = room.request(WorkspaceAccess::Rw);
    let error = engine.create(&Caller::local_admin(), request, CreateOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_seed_and_a_mirror_go_with_a_create_that_failed() {
    let room = Room::new().await;
    room.workshop.extension.script(|script| script.provision_fails = true);
    let (engine, caller) = (&room.workshop.engine, Caller::local_admin());
    let request = room.request(WorkspaceAccess::Rw);
    engine.create(&caller, request, CreateOptions::default()).await.unwrap_err();
    assert_eq!((room.kept("staging"), room.kept("mirrors")), (0, 0));
}

#[tokio::test]
async fn a_sandbox_that_talks_nonsense_deletes_nothing_here() {
    let room = Room::new().await;
    let (engine, caller) = (&room.workshop.engine, Caller::local_admin());
    let request = room.request(WorkspaceAccess::Rw);
    let id = engine.create(&caller, request, CreateOptions::default()).await.unwrap().sandbox.sandbox_id;
    assert_eq!((room.kept("staging"), room.kept("mirrors")), (0, 1));
    // The scripted sandbox answers every command with nothing at all, as one would in which everything is gone.
    let spec = ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["true".into()],
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: None,
        tty: None,
        stdin: false,
    };
    let refused = engine.exec(&caller, id, spec).await.err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::BackendFailed));
    assert!(engine.sync(&caller, id, Default::default()).await.is_err());
    engine.destroy(&caller, id).await.unwrap();
    assert_eq!(fs::read_to_string(room.project.join("file")).unwrap(), "content");
    let filter = EventFilter { subject: Some(id), owner_key: None };
    let events = room.workshop.store.events(&filter, 0, Default::default()).await;
    let told = format!("{events:?}");
    assert!(told.contains("workspace_not_synced"), "{told}");
}
