//! Directories of ours that may lie in somebody's tree: stores, and what this host keeps of workspaces.
//!
//! A store is remembered when a command opens it to write: `stores/<16 hex digits>` in the state directory of this host holds its path.
//! The session directory of a workspace lies in the state directory, or a file `elsewhere` there says where it lies.
//!
//! *Always true:* what is remembered here is in no checkpoint of a workspace around it, and no restore of that workspace touches it. What
//! cannot be read is passed over, as what is not there any more is; so is what somebody else put in its place.

use stasis_disk::fs::atomic_write::{atomic_write, read_bounded};
use stasis_model::digest::StoreDigest;
use stasis_model::tree::EntryPath;
use stasis_store::backend::file;
use stasis_store::layout;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const STORES: &str = "stores";
/// The session directories of this host, in its state directory.
pub(crate) const WORKSPACES: &str = "workspaces";
/// What makes a directory a session directory: which workspace it is of.
pub(crate) const IDENTITY: &str = "session.json";
/// Where a session directory is that lies elsewhere.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// No path of Linux is longer.
const LONGEST: u64 = 4096;

/// Remembers a store in a directory. A host that cannot remember it only leaves it out of nothing.
pub(crate) fn remember_store(state: &Path, root: &Path) {
    let Ok(root) = root.canonicalize() else {
        return;
    };
    let bytes = root.as_os_str().as_bytes();
    let name = StoreDigest::of(bytes).to_string();
    let record = state.join(STORES).join(&name[..16]);
    if read_bounded(&record, LONGEST).is_ok_and(|known| known == bytes) {
        return;
    }
    if let Err(error) = atomic_write(&record, bytes) {
        let store = root.display();
        tracing::debug!(%error, %store, "could not remember where a store is");
    }
}

/// Whether a store was opened to write at a path before, whatever lies there now.
pub(crate) fn knows_store(state: &Path, root: &Path) -> bool {
    let mut there = root.ancestors().filter_map(|above| {
        let rest = root.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    let root = there.next().unwrap_or_else(|| root.to_owned());
    recorded(&state.join(STORES), Path::to_owned).contains(&root)
}

/// Where our directories lie in a tree, outermost only. `directory` is a whole path.
pub(crate) fn within(directory: &Path, state: &Path) -> Vec<EntryPath> {
    let mut places = vec![state.to_owned()];
    let sessions = recorded(&state.join(WORKSPACES), |record| record.join(ELSEWHERE)).into_iter();
    places.extend(sessions.filter(|place| place.join(IDENTITY).is_file()));
    let stores = recorded(&state.join(STORES), Path::to_owned).into_iter();
    let stores = stores.filter(|root| file::is_store(root));
    places.extend(stores.flat_map(parts_of_store));
    let inside = places.iter().filter_map(|place| {
        let whole = place.canonicalize().ok()?;
        let inner = whole.strip_prefix(directory).ok()?;
        EntryPath::parse(inner.as_os_str().as_bytes()).ok()
    });
    let mut inside: Vec<EntryPath> = inside.filter(|path| !path.is_root()).collect();
    inside.sort();
    // What lies in another one comes right after it, and goes with it.
    let mut outermost: Vec<EntryPath> = Vec::new();
    for path in inside {
        if !outermost.iter().any(|one| path.is_within(one)) {
            outermost.push(path);
        }
    }
    outermost
}

/// The session directories of this host, each once.
pub(crate) fn sessions(state: &Path) -> Vec<PathBuf> {
    let place = state.join(WORKSPACES);
    let records = std::fs::read_dir(&place).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = records.map(|record| record.path()).collect();
    all.extend(recorded(&place, |record| record.join(ELSEWHERE)));
    let sessions = all
        .iter()
        .filter(|session| session.join(IDENTITY).is_file());
    let whole = sessions.filter_map(|session| session.canonicalize().ok());
    let whole: BTreeSet<PathBuf> = whole.collect();
    whole.into_iter().collect()
}

/// The paths that the files of a directory hold.
fn recorded(directory: &Path, file: impl Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let records = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = records.filter_map(|record| {
        let bytes = read_bounded(&file(&record.path()), LONGEST).ok()?;
        Some(PathBuf::from(OsStr::from_bytes(&bytes)))
    });
    paths.collect()
}

/// What of the directory of a store is the store's: all of it or, where anything else lies beside it, such as the `current` of a
/// project or files of somebody's, what stores have.
fn parts_of_store(root: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
    let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    let is_own = |name: &&OsString| {
        let text = name.to_str();
        text.is_some_and(|text| text == file::OWN || layout::is_part(text))
    };
    if names.iter().all(|name| is_own(&name)) {
        return vec![root];
    }
    let own = names.iter().filter(is_own);
    own.map(|name| root.join(name)).collect()
}

/// The pattern that leaves out exactly one entry, with everything in it.
pub(crate) fn pattern(path: &EntryPath) -> String {
    let mut pattern = String::new();
    for name in path.components() {
        pattern.push('/');
        for chunk in name.utf8_chunks() {
            pattern.extend(chunk.valid().chars().flat_map(|letter| ['\\', letter]));
            // Patterns are text: a byte that is none is matched by any that is not ASCII.
            pattern.push_str(&"[!\u{1}-\u{7f}]".repeat(chunk.invalid().len()));
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_disk::tree::walk::matcher;
    use std::fs;

    fn entry(path: &str) -> EntryPath {
        EntryPath::parse(path.as_bytes()).unwrap()
    }

    #[test]
    fn stores_and_sessions_are_found_where_they_lie_in_a_tree() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let (tree, state) = (top.join("tree"), top.join("state"));
        for path in ["tree/a/store", "tree/session", "tree/state", "outside"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        for path in ["tree/p/current", "tree/p/chunks", "state/workspaces/w"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        for store in ["tree/a/store", "tree/a", "tree/p", "outside"] {
            fs::create_dir_all(top.join(store).join(".stasis")).unwrap();
        }
        atomic_write(&tree.join("session").join(IDENTITY), b"{}").unwrap();

        for store in ["tree/a/store", "tree/a", "tree/p", "outside"] {
            remember_store(&state, &top.join(store));
        }
        let elsewhere = state.join(WORKSPACES).join("w").join(ELSEWHERE);
        atomic_write(&elsewhere, tree.join("session").as_os_str().as_bytes()).unwrap();

        let found = within(&tree, &state);
        // Of a directory that has something besides a store, only what is the store's.
        let own = ["a/.stasis", "a/store", "p/.stasis", "p/chunks", "session"].map(entry);
        assert_eq!(found, own);
        fs::remove_dir(tree.join("a/.stasis")).unwrap();
        assert_eq!(within(&tree, &state)[0], entry("a/store"));
        assert_eq!(within(&top, &state)[0], entry("outside"));
        assert_eq!(within(&tree, &tree.join("state"))[..], [entry("state")]);
    }

    #[test]
    fn what_somebody_put_in_the_place_of_a_store_or_a_session_is_theirs() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let (tree, state) = (top.join("tree"), top.join("state"));
        for place in ["tree/store", "tree/session", "state/workspaces/w"] {
            fs::create_dir_all(top.join(place)).unwrap();
        }
        remember_store(&state, &tree.join("store"));
        let elsewhere = state.join(WORKSPACES).join("w").join(ELSEWHERE);
        atomic_write(&elsewhere, tree.join("session").as_os_str().as_bytes()).unwrap();

        assert_eq!(within(&tree, &state), []);
    }

    #[test]
    fn a_name_that_is_no_text_leaves_out_nothing_that_is_text() {
        let path = EntryPath::parse(b"\xff\xfe").unwrap();
        let is_out = matcher(&[pattern(&path)]).unwrap();

        assert!(is_out(&path, true));
        for other in ["a", "ab", "abc", "\u{e9}\u{e9}"] {
            assert!(!is_out(&entry(other), true), "{other}");
        }
    }

    #[test]
    fn a_pattern_leaves_out_one_directory_and_nothing_like_it() {
        let is_out = matcher(&[pattern(&entry("a*b/[c]!"))]).unwrap();

        assert!(is_out(&entry("a*b/[c]!"), true));
        assert!(is_out(&entry("a*b/[c]!/inside"), false));
        for other in ["axb/c!", "a*b", "x/a*b/[c]!", "a*b/[c]!x"] {
            assert!(!is_out(&entry(other), true), "{other}");
        }
    }
}
