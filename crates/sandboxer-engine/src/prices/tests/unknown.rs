//! Folders with something in them that is not a readable price.

use std::os::unix::fs::symlink;

use super::*;

fn refusal(prices: &Prices, extension: &str) -> String {
    let error = prices.book().tariff(extension, "local", &usual(), false, now()).unwrap_err();
    assert_eq!(error.kind(), sandboxer_core::ErrorKind::NoBackend, "{error}");
    error.to_string()
}

/// A folder with one thing in it, which must take every metered price and leave those of one's own machines.
fn spoils(name: &str, put: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    put(&path);
    let prices = Prices::load(vec![folder.path().to_owned()]);
    let problems = prices.problems();
    assert_eq!(problems.len(), 1, "{name}: {problems:?}");
    let shown = path.display().to_string();
    assert!(problems[0].to_string().starts_with(&shown), "{name}: {}", problems[0]);
    for extension in ["ext.e2b", "ext.modal"] {
        assert!(refusal(&prices, extension).contains(&shown), "{name}: {}", refusal(&prices, extension));
    }
    let own = prices.book().tariff("ext.native", "local", &usual(), true, now()).unwrap();
    assert!(own.lines.is_empty(), "{name}");
}

#[test]
fn what_cannot_be_read_as_a_price_takes_every_metered_one() {
    spoils("a.yaml", |path| fs::write(path, "").unwrap());
    spoils("a.yaml", |path| fs::write(path, "garbage: [").unwrap());
    spoils("a.yaml", |path| fs::write(path, b"source: \xff\nextension: ext.e2b\n").unwrap());
    spoils("a.yaml", |path| fs::write(path, own_price("1").replace("extension", "extention")).unwrap());
    spoils("a.yaml", |path| fs::write(path, "# x\n".repeat(100_000)).unwrap());
    spoils("A.YAML", |path| fs::write(path, "garbage: [").unwrap());
    spoils("a.Yml", |path| fs::write(path, "garbage: [").unwrap());
    spoils("folder.yaml", |path| fs::create_dir(path).unwrap());
    spoils("dangling.yaml", |path| symlink("nowhere", path).unwrap());
    spoils("device.yaml", |path| symlink("/dev/zero", path).unwrap());
    spoils("terminal.yml", |path| symlink("/dev/tty", path).unwrap());
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        spoils("pipe.yaml", |path| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        });
        done.send(()).unwrap();
    });
    waits.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[test]
fn a_mark_before_the_text_and_any_ending_are_read() {
    for (name, text) in [
        ("a.yaml", format!("\u{feff}{}", own_price("0.5"))),
        ("a.yml", own_price("0.5")),
        ("A.YAML", own_price("0.5")),
        ("A.YmL", own_price("0.5").replace("extension:", "\"extension\" :")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), text).unwrap();
        let prices = Prices::load(vec![folder.path().to_owned()]);
        assert!(prices.problems().is_empty(), "{name}: {:?}", prices.problems());
        assert_eq!(hourly(&prices, "ext.e2b").to_string(), "0.50 USD", "{name}");
    }
}

#[test]
fn a_broken_file_with_the_name_of_its_extension_harms_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("ext.modal.YAML")).unwrap();
    let prices = Prices::load(vec![folder.path().to_owned()]);
    assert!(refusal(&prices, "ext.modal").contains("not a regular file"));
    assert_eq!(hourly(&prices, "ext.e2b").to_string(), "0.0828 USD");
}

#[test]
fn a_folder_that_was_named_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    assert!(Prices::load(vec![nowhere.clone()]).problems().is_empty());
    let prices = Prices::load_with(Vec::new(), vec![nowhere.clone()]);
    assert_eq!(prices.problems().len(), 1);
    assert!(refusal(&prices, "ext.e2b").contains("nowhere: the folder of prices cannot be read"));
    assert!(prices.book().tariff("ext.native", "local", &usual(), true, now()).is_ok());
    let file = folder.path().join("file");
    fs::write(&file, own_price("1")).unwrap();
    assert_eq!(Prices::load_with(Vec::new(), vec![file]).problems().len(), 1);
    // It is seen when it comes.
    fs::create_dir(&nowhere).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !prices.problems().is_empty() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(hourly(&prices, "ext.e2b").to_string(), "0.0828 USD");
}

#[test]
fn a_price_of_what_is_not_registered_is_only_noted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("acme.yaml");
    fs::write(&file, own_price("1").replace("ext.e2b", "ext.acme")).unwrap();
    let prices = Prices::load(vec![folder.path().to_owned()]);
    assert!(prices.problems().is_empty());
    let strangers = prices.strangers(|extension| extension == "ext.native");
    assert_eq!(strangers, [(file.display().to_string(), "ext.acme".to_owned())]);
    assert!(prices.strangers(|_| true).is_empty());
}
