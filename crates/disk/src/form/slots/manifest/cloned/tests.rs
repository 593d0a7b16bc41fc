#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use super::*;
use crate::form::slots::{ManifestKind, manifest};
use crate::fs::root_dir::Mounts;
use crate::tree::clone::{CloneSettings, clone};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// Later than anything that a test makes: everything is old enough.
const LATER: Timestamp = Timestamp::from_millis(10_000_000_000_000);
/// What was there in the beginning has this time.
const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

struct World {
    home: TempDir,
}

impl World {
    /// A live tree of which everything is remembered.
    fn new(names: &[&str]) -> Self {
        let world = Self {
            home: tempfile::tempdir().unwrap(),
        };
        for name in names {
            std::fs::create_dir_all(world.at(name).parent().unwrap()).unwrap();
            world.write(name, name);
        }
        let _ = world.list_live();
        world
    }

    fn live(&self) -> PathBuf {
        self.home.path().join("live")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.live().join(name)
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.home.path().join("kept").join(name)
    }

    /// Writes a file that looks as if nobody had.
    fn write(&self, name: &str, content: &str) {
        rewrite(&self.at(name), content);
    }

    fn clone(&self) {
        let target = self.home.path().join("kept");
        let _ = clone(&self.live(), &target, &CloneSettings::default()).unwrap();
    }

    fn cache(&self) -> StatCache {
        StatCache::open(&self.home.path().join("stats"), LATER)
    }

    fn list_live(&self) -> Manifest {
        let (mut cache, live) = (self.cache(), open(&self.live()));
        let listed = manifest(&live, &mut cache, &WalkSettings::default()).unwrap();
        cache.save().unwrap();
        listed.0
    }

    fn list_clone(&self, began: Timestamp) -> (Manifest, usize) {
        let (tree, live) = (open(&self.home.path().join("kept")), open(&self.live()));
        let (mut cache, settings) = (self.cache(), WalkSettings::default());
        let listed = manifest_of_clone(&tree, &live, &mut cache, began, &settings);
        cache.save().unwrap();
        (listed.unwrap().0, cache.len())
    }

    /// A moment by which everything that was done so far is old enough, and nothing that is done from now on.
    fn moment(&self) -> Timestamp {
        let probe = self.home.path().join("probe");
        std::fs::write(&probe, "").unwrap();
        let seen = std::fs::metadata(probe).unwrap();
        let millis = seen.ctime() * 1000 + seen.ctime_nsec() / 1_000_000;
        std::thread::sleep(Duration::from_millis(40));
        Timestamp::from_millis(u64::try_from(millis).unwrap() + 2_020)
    }
}

fn open(root: &Path) -> RootDir {
    RootDir::open(root, Mounts::Stay).unwrap()
}

fn rewrite(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(EPOCH).unwrap();
}

/// Whether a manifest says that a file holds this.
fn holds(manifest: &Manifest, name: &str, content: &str) -> bool {
    let path = EntryPath::parse(name.as_bytes()).unwrap();
    let mut hasher = stasis_model::digest::FileHasher::default();
    hasher.update(content.as_bytes());
    let (size, digest) = (content.len() as u64, hasher.finish());
    manifest.find(&path).unwrap().what == ManifestKind::File { size, digest }
}

#[test]
fn what_is_known_of_the_live_tree_is_not_read_in_the_clone() {
    let world = World::new(&["deep/er/file", "other", "linked"]);
    std::fs::hard_link(world.at("linked"), world.at("deep/linked")).unwrap();
    std::os::unix::fs::symlink("nowhere", world.at("link")).unwrap();
    let live = world.list_live();
    world.clone();
    let (all, _) = world.list_clone(LATER);
    // Not a byte of it is looked at: what no longer is in it is still listed.
    for (name, content) in [("deep/er/file", "DEEP/ER/FILE"), ("other", "OTHER")] {
        rewrite(&world.kept(name), content);
    }

    let (listed, remembered) = world.list_clone(LATER);

    assert_eq!((&all, &listed), (&live, &live));
    assert_eq!(remembered, 3);
}

#[test]
fn what_changed_before_the_clone_is_read_though_it_looks_the_same() {
    let world = World::new(&["edited", "touched", "replaced"]);
    std::thread::sleep(Duration::from_millis(20));
    world.write("edited", "EDITED");
    std::fs::write(world.at("new"), "REPLACED").unwrap();
    rewrite(&world.at("new"), "REPLACED");
    std::fs::rename(world.at("new"), world.at("replaced")).unwrap();
    let touched = File::options().write(true).open(world.at("touched"));
    touched
        .unwrap()
        .set_modified(EPOCH + Duration::from_secs(9))
        .unwrap();
    world.clone();

    let (listed, remembered) = world.list_clone(LATER);
    let again = world.list_clone(LATER).0;

    assert!(holds(&listed, "edited", "EDITED"));
    assert!(holds(&listed, "replaced", "REPLACED"));
    assert!(holds(&listed, "touched", "touched"));
    assert_eq!((again, world.list_live()), (listed.clone(), listed));
    assert_eq!(
        remembered, 3,
        "what was read is remembered for the live file"
    );
}

#[test]
fn what_changed_after_the_clone_is_listed_as_it_was_and_not_remembered() {
    let world = World::new(&["edited", "gone", "deep/file", "same"]);
    let began = world.moment();
    world.clone();
    world.write("edited", "EDITED");
    std::fs::remove_file(world.at("gone")).unwrap();
    std::fs::rename(world.at("deep"), world.at("elsewhere")).unwrap();

    let (listed, remembered) = world.list_clone(began);

    for name in ["edited", "gone", "deep/file", "same"] {
        assert!(holds(&listed, name, name), "{name}");
    }
    assert_eq!(remembered, 1);
    assert!(holds(&world.list_live(), "edited", "EDITED"));
    // Even if the cache has learned of it since: it is younger than the clone.
    let (listed, _) = world.list_clone(began);
    assert!(holds(&listed, "edited", "edited"));
}

#[test]
fn directories_that_changed_places_after_the_clone_deceive_nobody() {
    for is_known in [true, false] {
        let world = World::new(&["one/er/file", "two/er/file", "three/er/file"]);
        if !is_known {
            std::fs::remove_file(world.home.path().join("stats")).unwrap();
        }
        let began = world.moment();
        world.clone();
        let swap = |from: &str, to: &str| std::fs::rename(world.at(from), world.at(to)).unwrap();
        swap("one", "x");
        swap("two", "one");
        swap("x", "two");

        let (listed, remembered) = world.list_clone(began);

        for name in ["one/er/file", "two/er/file", "three/er/file"] {
            assert!(holds(&listed, name, name), "{name}");
        }
        // What is known of the two stays true, wherever they are; of what was read nothing is learned of them.
        assert_eq!(remembered, if is_known { 3 } else { 1 });
        assert!(holds(&world.list_live(), "one/er/file", "two/er/file"));
    }
}

#[test]
fn what_is_too_young_is_read_again_the_next_time() {
    let world = World::new(&["file"]);
    std::fs::remove_file(world.home.path().join("stats")).unwrap();
    world.clone();
    let now = Timestamp::from_millis(world.moment().millis() - 2_000);

    let (young, remembered) = world.list_clone(now);

    assert!(holds(&young, "file", "file"));
    assert_eq!(remembered, 0);
    let (old, remembered) = world.list_clone(LATER);
    assert_eq!((old, remembered), (young, 1));
}
