//! What the provider writes down, and what it bills.

use jiff::Timestamp;
use sandboxer_core::extension::Life;
use sandboxer_core::{Dur, ErrorKind, Extension, Money};

use crate::rig::{HOST, Rig, asking, is_kind, request, wait, with_key};

/// One line of the export by the names of its columns.
fn row<'a>(export: &'a str, tag: &str) -> std::collections::BTreeMap<&'a str, &'a str> {
    let mut lines = export.lines();
    let columns = lines.next().unwrap().split(',');
    let mut of_tag = lines.filter(|line| line.starts_with(&format!("{tag},")));
    let line = of_tag.next().unwrap();
    assert!(of_tag.next().is_none(), "billed twice:\n{export}");
    let cells: Vec<&str> = line.split(',').collect();
    let columns: Vec<&str> = columns.collect();
    assert_eq!(columns.len(), cells.len(), "{export}");
    columns.into_iter().zip(cells).collect()
}

fn thousandths(text: &str) -> u64 {
    text.replace('.', "").parse().unwrap()
}

/// The key itself is nowhere on disk; which one it was can be told.
pub(crate) async fn record_and_key() {
    let secret = "sk-a-key-that-nobody-else-has";
    let (rig, own, platform) = (Rig::new(""), request(), request());
    let theirs = with_key(&rig, secret);
    let handle = theirs.provision(own.clone()).await.unwrap();
    let other = rig.create(&platform).await.unwrap();
    let expected = format!("own:{}", &sandboxer_core::hash::sha256_hex(secret.as_bytes())[..12]);
    assert_eq!(theirs.status(&handle).await.unwrap().detail["key"], expected);
    assert_eq!(rig.stub.status(&other).await.unwrap().detail["key"], "platform");
    let record = rig.file("sandboxes", &own.tag).unwrap();
    assert!(record["id"].as_str().unwrap().starts_with("stub-"), "{record}");
    assert_eq!(
        (record["tag"].as_str(), record["key"].as_str()),
        (Some(own.tag.as_str()), Some(expected.as_str()))
    );
    assert!(!theirs.teardown(HOST, &own.tag, None).await.unwrap().removed.is_empty());
    rig.remove(&platform.tag).await;
    assert_eq!(rig.file("ended", &own.tag).unwrap()["key"], expected);
    let found =
        std::process::Command::new("grep").args(["-r", "-l", secret]).arg(&rig.folder).output().unwrap();
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
}

/// What was made with one key is not there for another one, nor for the platform: not seen, not used, not ended.
pub(crate) async fn accounts() {
    let (rig, wish) = (Rig::new(""), request());
    let (a, b) = (with_key(&rig, "a.1"), with_key(&rig, "b.1"));
    let handle = a.provision(wish.clone()).await.unwrap();
    a.wait_ready(&handle).await.unwrap();
    let platform = rig.again("").stub;
    for stranger in [&*b, &platform as &dyn Extension] {
        assert_eq!(stranger.list(HOST, "").await.unwrap(), []);
        assert_eq!(stranger.life(&handle).await.unwrap(), Life::ENDED);
        assert!(!stranger.status(&handle).await.unwrap().alive);
        let later = Dur::from_secs(900).after(Timestamp::now());
        let refusals = [
            stranger.file_stat(&handle, "/").await.err(),
            stranger.extend(&handle, later).await.err(),
            stranger.wait_ready(&handle).await.err(),
        ];
        for refusal in refusals {
            is_kind(&refusal.unwrap(), ErrorKind::SandboxNotFound, "no such sandbox");
        }
        is_kind(&stranger.provision(wish.clone()).await.unwrap_err(), ErrorKind::Conflict, "another account");
        assert_eq!(stranger.teardown(HOST, &wish.tag, Some(&handle)).await.unwrap(), Default::default());
    }
    // A key that took the other's place is of the same account.
    let renewed = with_key(&rig, "a.2");
    assert!(renewed.life(&handle).await.unwrap().is_alive());
    assert_eq!(renewed.list(HOST, "").await.unwrap().len(), 1);
    assert!(!renewed.teardown(HOST, &wish.tag, None).await.unwrap().removed.is_empty());
    assert_eq!(renewed.list(HOST, "").await.unwrap(), []);
}

pub(crate) async fn export() {
    let rig = Rig::new("vcpu_second=0.001,gib_second=0.002,create_fee=0.01");
    let mut request = request();
    request.spec.resources.cpu = Some(1.5);
    request.spec.resources.memory_mb = Some(256);
    assert_eq!(rig.stub.usage_export().unwrap().lines().count(), 1);
    rig.create(&request).await.unwrap();
    wait(300).await;
    let export = rig.stub.usage_export().unwrap();
    let living = row(&export, &request.tag);
    assert!(living["ended_at"].is_empty() && thousandths(living["seconds"]) >= 300, "{living:?}");
    rig.remove(&request.tag).await;
    let export = rig.again("").stub.usage_export().unwrap();
    assert_eq!(export, std::fs::read_to_string(rig.folder.join("usage.csv")).unwrap());
    let ended = row(&export, &request.tag);
    let ms = thousandths(ended["seconds"]);
    // Whole seconds: 1.5 processors at a thousandth of a dollar, a quarter of a gibibyte at two, and a cent for the create.
    let cost = Money::from_nanos(i128::from(ms.div_ceil(1_000)) * 2_000_000 + 10_000_000);
    assert_eq!(ended["cost"].parse::<Money>().unwrap(), cost, "{ended:?}");
    assert_eq!((ended["vcpu"], ended["memory_mb"], ended["currency"]), ("1.500", "256", "USD"));
    assert_eq!((ended["key"], ended["reason"]), ("platform", "destroyed"));
    let span: jiff::Timestamp = ended["ended_at"].parse().unwrap();
    let start: jiff::Timestamp = ended["started_at"].parse().unwrap();
    assert_eq!(u64::try_from(span.as_millisecond() - start.as_millisecond()).unwrap(), ms);
    for _ in 0..2 {
        rig.stub.teardown(HOST, &request.tag, None).await.unwrap();
    }
    row(&rig.stub.usage_export().unwrap(), &request.tag);
}

/// Broken off between the line and the end of the note, in either order: one line.
pub(crate) async fn export_once_after_a_crash() {
    let (rig, request) = (Rig::new("backing=none"), request());
    rig.create(&request).await.unwrap();
    let living = rig.folder.join(format!("sandboxes/{}.json", request.tag));
    rig.remove(&request.tag).await;
    let ended = rig.folder.join(format!("ended/{}.json", request.tag));
    // As if the process had been killed after the line: the note is marked and still there.
    std::fs::rename(&ended, &living).unwrap();
    assert!(!rig.found(&request.tag).await.unwrap().alive);
    rig.remove(&request.tag).await;
    row(&rig.stub.usage_export().unwrap(), &request.tag);
    // And before the line.
    std::fs::rename(&ended, &living).unwrap();
    std::fs::remove_file(rig.folder.join("usage.csv")).unwrap();
    rig.remove(&request.tag).await;
    row(&rig.stub.usage_export().unwrap(), &request.tag);
}

/// What ended by itself is billed until then, however late somebody clears it away.
pub(crate) async fn ends_of_its_own_are_billed_to_their_moment() {
    let rig = Rig::new("backing=none");
    for (words, reason) in [("death=300ms", "died"), ("lost=300ms", "lost")] {
        let request = asking(words);
        rig.create(&request).await.unwrap();
        wait(600).await;
        rig.remove(&request.tag).await;
        let export = rig.stub.usage_export().unwrap();
        let ended = row(&export, &request.tag);
        assert_eq!((ended["seconds"], ended["reason"]), ("0.300", reason));
        let billed: Dur =
            rig.file("ended", &request.tag).unwrap()["billed"].as_str().unwrap().parse().unwrap();
        assert_eq!(billed, Dur::from_millis(300));
    }
}

/// An `ext.native` in the home above has the same tags and meets none of the stub's.
pub(crate) async fn apart() {
    use sandboxer_ext_native::{Native, NativeConfig};
    let (rig, request) = (Rig::new(""), request());
    let native = Native::new(NativeConfig::new(rig.folder.parent().unwrap()));
    let handle = rig.create(&request).await.unwrap();
    assert!(native.list(HOST, "sbx_").await.unwrap().is_empty());
    let report = native.teardown(HOST, &request.tag, None).await.unwrap();
    assert!(report.is_clean() && report.removed.is_empty(), "{report:?}");
    rig.runs(&handle).await;
    rig.remove(&request.tag).await;
}
