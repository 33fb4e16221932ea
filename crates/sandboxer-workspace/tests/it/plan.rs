//! Properties of the three-way comparison, over small trees that clash as often as possible.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sandboxer_workspace::{Entry, Kind, Manifest, Plan, agreement, plan};

const PATHS: [&str; 10] = ["a", "a/x", "a/x/1", "a/x/2", "a/y", "a.b", "b", "b/x", "b/x/1", "c"];

/// What is put in a place; a path in the way is replaced, folders above are made.
#[derive(Clone, Debug)]
enum Edit {
    File(usize, u8),
    Run(usize, u8),
    Link(usize, u8),
    Dir(usize),
    Delete(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = 0..PATHS.len();
    prop_oneof![
        4 => (at.clone(), 0_u8..3).prop_map(|(at, text)| Edit::File(at, text)),
        1 => (at.clone(), 0_u8..3).prop_map(|(at, text)| Edit::Run(at, text)),
        1 => (at.clone(), 0_u8..2).prop_map(|(at, text)| Edit::Link(at, text)),
        1 => at.clone().prop_map(Edit::Dir),
        3 => at.prop_map(Edit::Delete),
    ]
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn remove(tree: &mut Manifest, path: &str) {
    tree.0.retain(|other, _| other != path && !is_below(other, path));
}

fn apply_edit(tree: &mut Manifest, edit: &Edit) {
    let (at, entry) = match edit {
        Edit::File(at, text) => (*at, Some(Entry::file(text.to_string(), false))),
        Edit::Run(at, text) => (*at, Some(Entry::file(text.to_string(), true))),
        Edit::Link(at, text) => (*at, Some(Entry::link(text.to_string()))),
        Edit::Dir(at) => (*at, Some(Entry::dir())),
        Edit::Delete(at) => (*at, None),
    };
    let path = PATHS[at];
    match entry {
        None => remove(tree, path),
        Some(entry) => {
            if entry.kind != Kind::Dir {
                remove(tree, path);
            } else if tree.get(path).is_some_and(|there| there.kind == Kind::Dir) {
                return;
            }
            for (end, _) in path.match_indices('/') {
                if tree.get(&path[..end]).is_none_or(|above| above.kind != Kind::Dir) {
                    tree.0.insert(path[..end].to_owned(), Entry::dir());
                }
            }
            tree.0.insert(path.to_owned(), entry);
        }
    }
}

fn edited(of: &Manifest, edits: &[Edit]) -> Manifest {
    let mut tree = of.clone();
    edits.iter().for_each(|edit| apply_edit(&mut tree, edit));
    tree
}

fn is_tree(tree: &Manifest) -> bool {
    tree.0.keys().all(|path| {
        path.match_indices('/')
            .all(|(end, _)| tree.get(&path[..end]).is_some_and(|above| above.kind == Kind::Dir))
    })
}

/// Carries a plan out on both sides, as they are.
fn carry_out(plan: &Plan, local: &Manifest, remote: &Manifest) -> (Manifest, Manifest) {
    let (mut new_local, mut new_remote) = (local.clone(), remote.clone());
    for path in &plan.delete_local {
        new_local.0.remove(path);
    }
    for path in &plan.delete_remote {
        new_remote.0.remove(path);
    }
    for path in &plan.upload {
        new_remote.0.insert(path.clone(), local.get(path).unwrap().clone());
    }
    for path in &plan.download {
        new_local.0.insert(path.clone(), remote.get(path).unwrap().clone());
    }
    (new_local, new_remote)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_brings_both_sides_together_and_overwrites_no_change(
        before in prop::collection::vec(edit(), 0..8),
        here in prop::collection::vec(edit(), 0..5),
        there in prop::collection::vec(edit(), 0..5),
    ) {
        let base = edited(&Manifest::default(), &before);
        let (local, remote) = (edited(&base, &here), edited(&base, &there));
        let plan = plan(&base, &local, &remote);
        let (new_local, new_remote) = carry_out(&plan, &local, &remote);

        let conflicts: BTreeSet<&str> = plan.conflicts.iter().map(|conflict| &*conflict.path).collect();
        let in_conflict =
            |path: &str| conflicts.iter().any(|conflict| *conflict == path || is_below(path, conflict));
        for path in PATHS {
            if in_conflict(path) {
                prop_assert_eq!(new_local.get(path), local.get(path), "{} was touched here", path);
                prop_assert_eq!(new_remote.get(path), remote.get(path), "{} was touched there", path);
            } else {
                prop_assert_eq!(new_local.get(path), new_remote.get(path), "{} differs", path);
            }
            // Whatever a side changed is still what that side has, or a folder that is in use again.
            if local.get(path) != base.get(path) && new_local.get(path) != local.get(path) {
                prop_assert!(local.get(path).is_none() && new_local.get(path) == Some(&Entry::dir()));
            }
            if remote.get(path) != base.get(path) && new_remote.get(path) != remote.get(path) {
                prop_assert!(remote.get(path).is_none() && new_remote.get(path) == Some(&Entry::dir()));
            }
        }
        prop_assert!(is_tree(&new_local) && is_tree(&new_remote));

        // A second plan has nothing more to do, and knows the same conflicts.
        let agreed = agreement(&base, (&local, &remote), (&new_local, &new_remote));
        let again = sandboxer_workspace::plan(&agreed, &new_local, &new_remote);
        prop_assert_eq!(again.changes(), 0);
        let still: BTreeSet<&str> = again.conflicts.iter().map(|conflict| &*conflict.path).collect();
        prop_assert_eq!(still, conflicts);
    }

    /// A sync that was killed after any part of its work: the next one, with the old agreement, finishes it.
    #[test]
    fn an_interrupted_plan_is_finished_by_the_next(
        before in prop::collection::vec(edit(), 0..8),
        here in prop::collection::vec(edit(), 0..5),
        there in prop::collection::vec(edit(), 0..5),
        cut in 0_usize..12,
    ) {
        let base = edited(&Manifest::default(), &before);
        let (local, remote) = (edited(&base, &here), edited(&base, &there));
        let whole = plan(&base, &local, &remote);
        let mut part = whole.clone();
        // In the order of the engine: first down, then up; deletions first.
        let mut left = cut;
        for list in [&mut part.delete_local, &mut part.download, &mut part.delete_remote, &mut part.upload] {
            let taken = list.len().min(left);
            list.truncate(taken);
            left -= taken;
        }
        let (half_local, half_remote) = carry_out(&part, &local, &remote);
        prop_assume!(is_tree(&half_local) && is_tree(&half_remote));
        let rest = plan(&base, &half_local, &half_remote);
        let (new_local, new_remote) = carry_out(&rest, &half_local, &half_remote);
        let whole_conflicts: BTreeSet<_> = whole.conflicts.iter().map(|conflict| &conflict.path).collect();
        if whole_conflicts.is_empty() {
            prop_assert!(rest.conflicts.is_empty(), "a new conflict: {:?}", rest.conflicts);
            prop_assert_eq!(new_local, new_remote);
        }
    }
}
