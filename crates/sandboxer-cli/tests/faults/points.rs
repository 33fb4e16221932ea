//! No point is forgotten: what the sources name is what is declared, and each of them is died at by one of these tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) type Point = &'static str;

/// Points at which no process is killed, each with the reason.
const NOT_DIED_AT: &[(Point, &str)] = &[];

/// Who dies where. Each of these lists is what its tests go through.
fn died_at() -> Vec<Point> {
    let lists = [
        crate::life::points(),
        crate::routes::points(),
        crate::checkpoints::points(),
        crate::syncs::points(),
        crate::runtime::points(),
    ];
    lists.concat()
}

#[test]
fn every_point_is_died_at() {
    let mut count: BTreeMap<String, usize> = in_sources().into_iter().map(|point| (point, 0)).collect();
    for point in died_at().into_iter().chain(NOT_DIED_AT.iter().map(|(point, _)| *point)) {
        let known = count.get_mut(point).unwrap_or_else(|| panic!("{point} is in no source any more"));
        *known += 1;
    }
    count.retain(|_, times| *times != 1);
    assert!(count.is_empty(), "died at never or more than once: {count:#?}");
}

#[test]
fn every_point_is_declared_once() {
    let mut declared: Vec<String> = sandboxer_engine::fault::POINTS
        .iter()
        .chain(sandboxer_runtime::fault::POINTS)
        .map(|point| (*point).to_owned())
        .collect();
    let mut sources = in_sources();
    declared.sort();
    sources.sort();
    assert_eq!(declared, sources);
}

/// Every `fault::point("…")` of the workspace.
fn in_sources() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut out = Vec::new();
    for group in ["crates", "extensions"] {
        for package in std::fs::read_dir(root.join(group)).unwrap().flatten() {
            for file in sources(&package.path().join("src")) {
                let text = std::fs::read_to_string(&file).unwrap();
                for rest in text.split("fault::point(").skip(1) {
                    let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
                    let (name, _) =
                        name.unwrap_or_else(|| panic!("a point without a name in {}", file.display()));
                    out.push(name.to_owned());
                }
            }
        }
    }
    out
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            out.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
    out
}
