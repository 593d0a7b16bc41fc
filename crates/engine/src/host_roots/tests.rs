#![expect(clippy::disallowed_methods, reason = "tests make and move directories")]

use super::*;
use stasis_disk::tree::restore;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A root with a directory in it, and one beside it.
struct World {
    home: TempDir,
    roots: HostRoots,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for dir in ["root/above", "outside/above"] {
            fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        let root = HostRoot::open(&home.path().join("root")).unwrap();
        let all = vec![Arc::new(root)];
        Self {
            roots: HostRoots { all },
            home,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    async fn place(&self, path: &str) -> Result<HostPlace, RefusedPath> {
        self.roots.place(self.at(path).to_str().unwrap()).await
    }
}

#[tokio::test]
async fn only_what_lies_beneath_a_root_is_a_place() {
    let world = World::new();
    symlink(world.at("outside"), world.at("root/out")).unwrap();
    symlink("above", world.at("root/in")).unwrap();

    for good in [
        "root/new",
        "root/above",
        "root/above/new",
        "root//above/./new/",
    ] {
        assert!(world.place(good).await.is_ok(), "{good}");
    }
    for bad in [
        "root",
        "root/",
        "root/.",
        "root/..",
        "root/../outside/new",
        "root/above/../new",
        "root/out",
        "root/out/above",
        "root/out/nothing/new",
        "root/in/new",
        "root/nothing/new",
        "roots/new",
        "outside/above",
        "outside/nothing",
        "root/a\0b",
    ] {
        let refused = world.place(bad).await.map(|_| ());
        assert_eq!(refused, Err(RefusedPath::Outside), "{bad}");
    }
    for bad in ["", "/", "root/new", "above/new"] {
        let refused = world.roots.place(bad).await.map(|_| ());
        assert_eq!(refused, Err(RefusedPath::Outside), "{bad}");
    }
    let none = HostRoots::default().place("/srv/x").await.map(|_| ());
    assert_eq!(none, Err(RefusedPath::NoRoots));
}

#[test]
fn what_is_not_there_yet_is_known_by_what_is_above_it() {
    let world = World::new();
    symlink(world.at("root"), world.at("link")).unwrap();

    let whole = whole_of(&world.at("link/state/stasis"));

    let root = world.at("root").canonicalize().unwrap();
    assert_eq!(whole, root.join("state/stasis"));
    assert_eq!(whole_of(&root), root);
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_after_the_look_leads_nowhere_else() {
    let world = World::new();
    let place = world.place("root/above/new").await.unwrap();

    fs::rename(world.at("root/above"), world.at("root/moved")).unwrap();
    symlink(world.at("outside/above"), world.at("root/above")).unwrap();
    restore::ensure_free(&place.path()).unwrap();
    fs::create_dir(place.path()).unwrap();

    assert!(world.at("root/moved/new").is_dir());
    assert!(!world.at("outside/above/new").exists());
    // What is called so itself is followed by nobody either.
    let place = world.place("root/late").await.unwrap();
    symlink(world.at("outside/above"), world.at("root/late")).unwrap();
    assert!(restore::ensure_free(&place.path()).is_err());
    assert!(RootDir::open(&place.path(), Mounts::Stay).is_err());
}

#[test]
fn a_root_is_an_absolute_directory_and_not_everything() {
    let world = World::new();
    fs::write(world.at("file"), "").unwrap();
    for bad in ["root", "/", "./root"] {
        assert!(HostRoot::open(Path::new(bad)).is_err(), "{bad}");
    }
    for bad in ["nothing", "file"] {
        assert!(HostRoot::open(&world.at(bad)).is_err(), "{bad}");
    }
}
