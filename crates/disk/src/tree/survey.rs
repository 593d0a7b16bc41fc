//! How large a tree is, and where it is large, before anything is done with it.

use crate::fs::root_dir::RootDir;
use crate::progress::Progress;
use crate::tree::walk::{
    self, Visitor, WalkError, WalkReport, WalkSettings, WalkedDir, WalkedEntry,
};
use crate::worker_pool::{into_inner, lock};
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::HashMap;
use std::sync::Mutex;

/// How many directories deep sizes are told apart.
const DEPTH: usize = 2;

/// What a tree would cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeSurvey {
    /// Regular files, each counted once.
    pub files: u64,
    /// Their length, holes included.
    pub bytes: u64,
    /// Directories near the root with everything in them, the largest first; a tree's own files are under its root.
    pub directories: Vec<(EntryPath, u64)>,
    /// What was met.
    pub walk: WalkReport,
}

/// Looks at everything beneath `root`, and tells `progress` what is to be expected.
pub fn survey(
    root: &RootDir,
    settings: &WalkSettings,
    progress: &Progress,
) -> Result<TreeSurvey, WalkError> {
    let counter = Counter {
        sizes: Mutex::default(),
        progress,
    };
    let walk = walk::walk(root, &counter, settings)?;
    let sizes = into_inner(counter.sizes);
    let files = sizes.values().map(|(files, _)| files).sum();
    let bytes = sizes.values().map(|(_, bytes)| bytes).sum();
    let mut directories: Vec<(EntryPath, u64)> = sizes
        .into_iter()
        .map(|(path, (_, bytes))| (path, bytes))
        .collect();
    directories.sort_by(|(one, small), (other, large)| large.cmp(small).then(one.cmp(other)));
    Ok(TreeSurvey {
        files,
        bytes,
        directories,
        walk,
    })
}

struct Counter<'a> {
    sizes: Mutex<HashMap<EntryPath, (u64, u64)>>,
    progress: &'a Progress,
}

impl Visitor for Counter<'_> {
    type Error = WalkError;

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        let (mut files, mut bytes) = (0, 0_u64);
        for found in entries {
            if let EntryKind::File { size } = found.kind {
                files += 1;
                bytes = bytes.saturating_add(size);
            }
        }
        self.progress.expect(files, bytes);
        let near = near_root(place.path);
        let mut sizes = lock(&self.sizes);
        let sum = sizes.entry(near).or_default();
        sum.0 += files;
        sum.1 = sum.1.saturating_add(bytes);
        Ok(())
    }
}

/// The directory near the root that `path` is, or lies in.
fn near_root(path: &EntryPath) -> EntryPath {
    let near = path.components().take(DEPTH);
    let near: Vec<&[u8]> = near.collect();
    EntryPath::parse(&near.join(&b'/')).expect("the beginning of a path is a path")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::root_dir::Mounts;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
    fn sizes_are_told_by_directory_and_links_count_once() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::create_dir_all(at("z")).unwrap();
        std::fs::write(at("top"), [0; 3]).unwrap();
        std::fs::write(at("a/b/c/deep"), [0; 100]).unwrap();
        std::fs::write(at("a/b/near"), [0; 10]).unwrap();
        std::fs::hard_link(at("a/b/near"), at("z/again")).unwrap();
        let root = RootDir::open(home.path(), Mounts::Stay).unwrap();
        let progress = Progress::default();

        let survey = survey(&root, &WalkSettings::default(), &progress).unwrap();

        assert_eq!((survey.files, survey.bytes), (3, 113));
        let path = |name: &str| EntryPath::parse(name.as_bytes()).unwrap();
        assert_eq!(survey.directories[0], (path("a/b"), 110));
        assert_eq!(survey.directories[1], (EntryPath::root(), 3));
        assert_eq!(progress.reached().bytes_expected, 113);
    }
}
