//! Where sandboxes are put, what they are made from, and which folders they see.

use std::sync::Arc;

use sandboxer_core::ErrorKind;
use sandboxer_core::host::LOCAL;
use sandboxer_core::profile::{Image, Mount, MountAccess};

use super::Case;
use crate::conformance::rig::{Outcome, Rig, Stop, ensure, fail};
use crate::conformance::sandbox::script;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("host", "the kind of host that the run is on is declared", &[], host)
            .about(&["host_local", "host_ssh"])
            .safe(),
        Case::new("image", "an image of a kind that is not declared is refused", &[], image).about(&[
            "image_host",
            "image_oci",
            "image_rootfs_tar",
        ]),
        Case::new("mounts", "a host folder appears, read-only where it must", &["mounts", "exec"], mounts),
        Case::new("mounts.refused", "a mount of the whole machine is refused", &["mounts"], mounts_refused),
    ]
}

async fn host(rig: Arc<Rig>) -> Outcome {
    let (local, ssh) = (rig.capability.host_local, rig.capability.host_ssh);
    // A service elsewhere has no hosts of ours; the engine asks it from its own machine.
    let fits = if rig.subject.host == LOCAL { local || !ssh } else { ssh };
    ensure(fits, || format!("a sandbox on `{}` is not declared", rig.subject.host))
}

async fn image(rig: Arc<Rig>) -> Outcome {
    let capability = &rig.capability;
    let declared = match rig.subject.spec.image {
        Image::Host => capability.image_host,
        Image::Oci(_) => capability.image_oci,
        Image::RootfsTar(_) => capability.image_rootfs_tar,
    };
    ensure(declared, || format!("the run's own image `{:?}` is not declared", rig.subject.spec.image))?;
    for (declared, image) in [
        (capability.image_host, Image::Host),
        (capability.image_oci, Image::Oci("conformance.invalid/none:1".into())),
        (capability.image_rootfs_tar, Image::RootfsTar("/conformance-none.tar".into())),
    ] {
        if declared {
            continue;
        }
        let extension = rig.instance();
        let mut wish = rig.wish();
        let tag = wish.request.tag.clone();
        wish.request.spec.image = image.clone();
        match extension.provision(wish.request).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return fail(format!("{image:?} is refused as {error:?}")),
            Ok(_) => return fail(format!("{image:?} is accepted")),
        }
        let found = extension.list(&rig.subject.host, &tag).await?;
        ensure(found.is_empty(), || format!("a refusal left {found:?}"))?;
    }
    Ok(())
}

/// The folder is on this machine, so the sandbox must be, too.
fn only_local(rig: &Rig) -> Outcome {
    if rig.subject.host == LOCAL {
        return Ok(());
    }
    Err(Stop::NotDeclared("the suite has no folder on another host".into()))
}

async fn mounts(rig: Arc<Rig>) -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;
    only_local(&rig)?;
    let folder = tempfile::tempdir()?;
    let mut wish = rig.wish();
    for (name, access) in [("ro", MountAccess::Ro), ("rw", MountAccess::Rw)] {
        let source = folder.path().join(name);
        std::fs::create_dir(&source)?;
        std::fs::write(source.join("file"), name)?;
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o777))?;
        let (source, target) = (source.display().to_string(), format!("/mnt/{name}"));
        wish.request.spec.mounts.push(Mount { source, target, access });
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let sandbox = rig.provision(&rig.instance(), wish).await?;
    let seen = sandbox.sh("cat /mnt/ro/file /mnt/rw/file", &[]).await?;
    ensure(seen == "rorw", || format!("the mounts have {seen:?}"))?;
    let output = sandbox.run(script("echo x > /mnt/ro/new", &[])).await?;
    ensure(output.outcome.exit_code != 0, || "a read-only mount can be written".into())?;
    sandbox.sh("echo out > /mnt/rw/new", &[]).await?;
    ensure(std::fs::read(folder.path().join("rw/new"))? == b"out\n", || "a write did not come out".into())?;
    sandbox.teardown().await?;
    ensure(folder.path().join("rw/new").exists(), || "the teardown removed a mounted folder's content".into())
}

async fn mounts_refused(rig: Arc<Rig>) -> Outcome {
    only_local(&rig)?;
    for source in ["/", "/proc", "/etc"] {
        let extension = rig.instance();
        let mut wish = rig.wish();
        let tag = wish.request.tag.clone();
        let (source, target) = (source.to_owned(), "/mnt/all".to_owned());
        wish.request.spec.mounts.push(Mount { source: source.clone(), target, access: MountAccess::Rw });
        match extension.provision(wish.request).await {
            Err(error) if error.kind() == ErrorKind::MountRefused => {}
            Err(error) => return fail(format!("{source} is refused as {error:?}")),
            Ok(_) => return fail(format!("{source} is mounted")),
        }
        let report = extension.teardown(&rig.subject.host, &tag, None).await?;
        ensure(report.is_clean(), || format!("a refusal left {:?}", report.left))?;
    }
    Ok(())
}
