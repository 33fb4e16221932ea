//! Where a symbolic link may lead.

use std::path::{Component, Path};

/// Whether a link at `path` leads to something below the root. Only leading `..` are allowed: after a name, the name may
/// itself be a link, and `..` from there is somewhere else than the text says.
pub fn stays_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    let mut named = false;
    for component in target.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(_) => named = true,
            Component::ParentDir if depth > 0 && !named => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_below_the_root_stay_inside() {
        let stays = |path: &str, target: &str| stays_inside(Path::new(path), Path::new(target));
        assert!(stays("a/b", "c"));
        assert!(stays("a/b", "../c/d"));
        assert!(stays("a/b", "./x"));
        assert!(stays("a/b", ".."));
        for (path, target) in
            [("a", ".."), ("a/b", "../../c"), ("a", "/etc"), ("a", "b/../../c"), ("a/b", "c/../d")]
        {
            assert!(!stays(path, target), "{path} -> {target}");
        }
    }
}
