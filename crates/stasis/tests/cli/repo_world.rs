//! A home with a repository and a tree, for every test that has to do with `stasis repo`.

use crate::session::{Said, Session, said};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A tree as text: what each entry is, and what is in it.
pub(crate) type Shown = BTreeMap<OsString, String>;

/// A home with a repository and a tree.
pub(crate) struct World {
    pub(crate) session: Session,
}

impl World {
    /// A repository in a directory.
    pub(crate) fn new() -> Self {
        Self::with(Session::new())
    }

    /// A repository in a store.
    pub(crate) fn with(session: Session) -> Self {
        session.data(0, &["repo", "init"]);
        let world = Self { session };
        fs::create_dir(world.tree()).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.session.home().join(name)
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.path("tree")
    }

    /// Where the default store keeps what is saved without a name, and its pool.
    pub(crate) fn object(&self, key: &str) -> PathBuf {
        let place = match key.split('/').next() {
            Some("chunks" | "repo.json" | "gc.json" | "quarantine") => "pools/default/",
            Some("index.json" | "snapshots") => "subjects/default/dir/default/",
            _ => "",
        };
        self.session.object(&format!("{place}{key}"))
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        write(&self.tree(), path, bytes);
    }

    fn arguments<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["--json", "repo"];
        all.extend(arguments);
        all
    }

    /// Runs `stasis --json repo …`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.session.run(&Self::arguments(arguments))
    }

    /// The same, which must end with `code`.
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let data = self.session.data(code, &Self::arguments(arguments));
        serde_json::from_str(&data).unwrap()
    }

    /// Starts `stasis --json repo …`.
    pub(crate) fn start(&self, arguments: &[&str]) -> std::process::Child {
        self.session
            .command(&Self::arguments(arguments))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Saves the tree and returns what was said.
    pub(crate) fn save(&self, more: &[&str]) -> Value {
        let tree = self.tree();
        let mut arguments = vec!["save", tree.to_str().unwrap()];
        arguments.extend(more);
        self.json(0, &arguments)
    }

    /// Saves the tree and returns the snapshot's id.
    pub(crate) fn saved(&self) -> String {
        id(&self.save(&[]))
    }

    pub(crate) fn snapshots(&self) -> Vec<String> {
        let rows = self.json(0, &["snapshots"]);
        rows["items"].as_array().unwrap().iter().map(id).collect()
    }

    /// Restores a snapshot to a place where nothing is and shows it; the place is empty again afterwards.
    pub(crate) fn restored(&self, snapshot: &str) -> Shown {
        let target = self.path("restored");
        self.json(
            0,
            &["restore", snapshot, target.to_str().unwrap(), "--owner"],
        );
        let shown = show(&target);
        fs::remove_dir_all(&target).unwrap();
        shown
    }

    /// Everything is there and is what its name says.
    pub(crate) fn check(&self) {
        let checked = self.json(0, &["check", "--read-data"]);
        assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
    }

    /// Names beneath the store's workshop, which is empty while nobody works.
    pub(crate) fn temps(&self) -> Vec<OsString> {
        names(&self.object(".stasis/tmp"))
    }
}

/// The id of a snapshot in a result.
pub(crate) fn id(value: &Value) -> String {
    value["snapshot_id"].as_str().unwrap().to_owned()
}

pub(crate) fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(crate) fn names(directory: &Path) -> Vec<OsString> {
    let Ok(listed) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<_> = listed.map(|one| one.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Waits for a process and hears what it said.
pub(crate) fn ended(child: std::process::Child) -> Said {
    said(child.wait_with_output().unwrap())
}

/// Bytes that do not compress, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Everything that a snapshot keeps of a tree. Names of one file are shown by the first of them.
pub(crate) fn show(root: &Path) -> Shown {
    let (mut shown, mut firsts) = (Shown::new(), BTreeMap::new());
    show_directory(root, Path::new(""), &mut shown, &mut firsts);
    shown
}

fn show_directory(
    root: &Path,
    below: &Path,
    shown: &mut Shown,
    firsts: &mut BTreeMap<(u64, u64), PathBuf>,
) {
    for name in names(&root.join(below)) {
        let path = below.join(&name);
        let full = root.join(&path);
        let seen = fs::symlink_metadata(&full).unwrap();
        let content = if seen.is_dir() {
            show_directory(root, &path, shown, firsts);
            String::new()
        } else if seen.is_symlink() {
            fs::read_link(&full).unwrap().display().to_string()
        } else if !seen.is_file() {
            "special".to_owned()
        } else {
            let first = firsts.entry((seen.dev(), seen.ino()));
            let first = first.or_insert_with(|| path.clone());
            let bytes = fs::read(&full).unwrap();
            format!("{} {} {}", first.display(), bytes.len(), digest(&bytes))
        };
        let text = format!(
            "{:o} {}:{} {}.{:09} {content}",
            seen.mode(),
            seen.uid(),
            seen.gid(),
            seen.mtime(),
            seen.mtime_nsec()
        );
        shown.insert(path.into_os_string(), text);
    }
}

/// Good enough to tell two files of a test apart.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A name that is no text.
pub(crate) fn odd_name() -> &'static std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(b"odd \xff\n name")
}
