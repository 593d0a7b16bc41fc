#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use super::*;
use crate::form::slots::manifest;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::clone::{CloneSettings, clone_before};
use crate::tree::walk::WalkSettings;
use stasis_model::digest::FileDigest;
use stasis_model::time::Timestamp;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::TempDir;

/// Later than anything that a test makes: everything is old enough to be remembered.
const LATER: Timestamp = Timestamp::from_millis(10_000_000_000_000);

struct World {
    home: TempDir,
}

impl World {
    /// A live tree with one of everything.
    fn new() -> Self {
        let world = Self {
            home: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(world.live().join("deep/er")).unwrap();
        fs::create_dir(world.live().join("empty")).unwrap();
        world.write("deep/er/file", "content");
        world.write("large", &"0123456789abcdef".repeat(5000));
        world.write("none", "");
        world.write("tool", "#!");
        let runs = Permissions::from_mode(0o4755);
        fs::set_permissions(world.live().join("tool"), runs).unwrap();
        let (first, other) = (world.live().join("tool"), world.live().join("deep/again"));
        fs::hard_link(first, other).unwrap();
        symlink("/nowhere", world.live().join("link")).unwrap();
        world
    }

    fn live(&self) -> PathBuf {
        self.home.path().join("live")
    }

    /// Writes a file that looks as old as any other.
    fn write(&self, name: &str, content: &str) {
        let path = self.live().join(name);
        fs::write(&path, content).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }

    fn cache(&self) -> StatCache {
        StatCache::open(&self.home.path().join("stats"), LATER)
    }

    /// Clones the live tree before a witness; what that gathered is remembered.
    fn clone(&self, name: &str, cache: &mut StatCache) -> EncodedManifest {
        let go_on = AtomicBool::new(false);
        let gatherer = Gatherer::new(cache, &go_on);
        let settings = CloneSettings::default();
        let target = self.home.path().join(name);
        let _ = clone_before(&self.live(), &target, &settings, Some(&gatherer)).unwrap();
        let encoded = gatherer.into_contents().unwrap().remember(cache);
        cache.save().unwrap();
        encoded
    }
}

/// What a tree contains, by reading all of it.
fn read(tree: &Path) -> Manifest {
    let root = RootDir::open(tree, Mounts::Stay).unwrap();
    let mut nothing = StatCache::open(Path::new(""), Timestamp::default());
    let listed = manifest(&root, &mut nothing, &WalkSettings::default());
    listed.unwrap().0
}

#[test]
fn what_is_gathered_is_what_reading_the_clone_finds() {
    let world = World::new();

    let first = world.clone("one", &mut world.cache());
    let second = world.clone("two", &mut world.cache());

    assert_eq!(first.bytes, read(&world.home.path().join("one")).to_bytes());
    assert_eq!(
        second.bytes,
        read(&world.home.path().join("two")).to_bytes()
    );
    assert_eq!(first.hash, second.hash);
}

#[test]
fn a_file_that_is_known_is_not_read() {
    let world = World::new();
    let _ = world.clone("one", &mut world.cache());
    // Nothing but the memory says so: whoever reads finds something else.
    let mut cache = world.cache();
    cache.replace(cache.with_digest(FileDigest::of(b"a lie")));

    let second = world.clone("two", &mut cache);

    let read = read(&world.home.path().join("two"));
    let lied = Manifest::from_bytes(&second.bytes).unwrap();
    let files = |of: &Manifest| {
        let files = of.entries().iter().filter(|one| is_file(one)).cloned();
        files.map(|one| one.what).collect::<Vec<_>>()
    };
    assert_eq!(files(&read).len(), files(&lied).len());
    assert!(
        files(&read)
            .iter()
            .zip(files(&lied))
            .all(|(read, lied)| *read != lied)
    );
}

fn is_file(one: &ManifestEntry) -> bool {
    matches!(one.what, ManifestKind::File { .. })
}

#[test]
fn a_file_that_changed_is_read_although_it_looks_as_large_and_as_old() {
    let world = World::new();
    let _ = world.clone("one", &mut world.cache());
    world.write("deep/er/file", "CONTENT");

    let second = world.clone("two", &mut world.cache());

    assert_eq!(
        second.bytes,
        read(&world.home.path().join("two")).to_bytes()
    );
}

#[test]
fn a_file_that_is_too_young_is_not_remembered() {
    let world = World::new();
    let stats = world.home.path().join("stats");
    let mut cache = StatCache::open(&stats, Timestamp::from_millis(3_000));

    let _ = world.clone("one", &mut cache);

    assert!(cache.is_empty(), "its time of change is later than that");
}

/// A witness that says when it was shown which file, and when everything was there.
struct Recorder {
    shown: Mutex<Vec<String>>,
}

impl CloneWitness for Recorder {
    fn file(&self, path: EntryPath, _: &ClonedFile) {
        lock(&self.shown).push(path.to_string());
    }
    fn link(&self, path: EntryPath, _: &EntryPath) {
        lock(&self.shown).push(path.to_string());
    }
    fn symlink(&self, path: EntryPath, _: &[u8]) {
        lock(&self.shown).push(path.to_string());
    }
    fn directory(&self, path: &EntryPath, _: u32, _: &[stasis_model::tree::Attribute]) {
        lock(&self.shown).push(path.to_string());
    }
    fn finish(&self, clone: &RootDir) {
        let shown = std::mem::take(&mut *lock(&self.shown));
        let all = shown.iter().all(|path| {
            let path = EntryPath::parse(path.as_bytes()).unwrap();
            super::super::super::fact(clone, &path).is_some()
        });
        assert!(all && shown.len() == 9, "{shown:?}");
        lock(&self.shown).push("finished".to_owned());
    }
}

#[test]
fn everything_is_shown_once_and_is_in_the_clone_when_it_is_said_to_be() {
    let world = World::new();
    let recorder = Recorder {
        shown: Mutex::default(),
    };
    let target = world.home.path().join("one");

    let settings = CloneSettings::default();
    let _ = clone_before(&world.live(), &target, &settings, Some(&recorder)).unwrap();

    assert_eq!(*lock(&recorder.shown), ["finished"]);
}

#[test]
fn a_witness_that_is_asked_to_stop_has_no_list_and_the_clone_is_there() {
    let world = World::new();
    let (cache, stop) = (world.cache(), AtomicBool::new(true));
    let gatherer = Gatherer::new(&cache, &stop);
    let target = world.home.path().join("one");

    let settings = CloneSettings::default();
    let cloned = clone_before(&world.live(), &target, &settings, Some(&gatherer)).unwrap();

    assert_eq!(cloned.files, 4);
    assert!(gatherer.into_contents().is_none());
}

#[test]
fn an_empty_tree_is_not_listed_along_the_way() {
    let home = tempfile::tempdir().unwrap();
    let (live, target) = (home.path().join("live"), home.path().join("one"));
    fs::create_dir(&live).unwrap();
    let cache = StatCache::open(Path::new(""), LATER);
    let go_on = AtomicBool::new(false);
    let gatherer = Gatherer::new(&cache, &go_on);

    let _ = clone_before(&live, &target, &CloneSettings::default(), Some(&gatherer)).unwrap();

    assert!(gatherer.into_contents().is_none());
}
