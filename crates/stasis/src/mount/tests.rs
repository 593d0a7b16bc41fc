//! The mounted tree as a kernel would ask it, without one.

use super::tree::{BELIEVED, Listing, MountedTree, Refusal, WhatIsMounted};
use stasis_engine::Stasis;
use stasis_engine::browser::{Browser, BrowserSettings, NodeKind};
use stasis_engine::model::time::{Clock, Timestamp};
use stasis_engine::open::{AwsSettings, LocalDirs, Open, StoreLocation};
use stasis_engine::save::RepoSave;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A clock that somebody sets.
#[derive(Clone, Debug, Default)]
struct SetClock(Arc<AtomicU64>);

impl SetClock {
    fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

struct World {
    scratch: TempDir,
    stasis: Stasis,
    clock: SetClock,
    said: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let stasis = Stasis::open_with(Open {
            location: StoreLocation::File(scratch.path().join("store")),
            create: true,
            aws: AwsSettings::default(),
            local_dirs: LocalDirs {
                cache: None,
                state: None,
            },
        });
        let stasis = stasis.await.unwrap();
        stasis.dirs().init().await.unwrap();
        fs::create_dir(scratch.path().join("notes")).unwrap();
        Self {
            scratch,
            stasis,
            clock: SetClock::default(),
            said: Arc::default(),
        }
    }

    async fn save(&self, content: &str) {
        let notes = self.scratch.path().join("notes");
        write(&notes.join("todo"), content);
        let name = "notes".parse().unwrap();
        let saved = self.stasis.dirs().save(RepoSave::new(&notes, name)).await;
        let _ = saved.unwrap();
    }

    fn mounted(&self) -> MountedTree {
        let what = WhatIsMounted::Store {
            engine: Box::new((*self.stasis).clone()),
            directories_of: "default".parse().unwrap(),
            profiles_of: None,
        };
        let browser = Browser::new(BrowserSettings::default());
        let said = self.said.clone();
        let warn = move |text: &str| said.lock().unwrap().push(text.to_owned());
        MountedTree::new(browser, what, Arc::new(self.clock.clone()), Box::new(warn))
    }
}

#[expect(clippy::disallowed_methods, reason = "a test makes what is saved")]
fn write(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
}

/// Asks from a thread that may block, as the kernel's questions come from one.
async fn asked<T: Send + 'static>(
    tree: &Arc<MountedTree>,
    ask: impl FnOnce(&MountedTree) -> T + Send + 'static,
) -> T {
    let tree = tree.clone();
    stasis_engine::bridge::blocking(move || ask(&tree)).await
}

fn find(tree: &MountedTree, path: &str) -> Result<u64, Refusal> {
    let mut names = path.split('/');
    names.try_fold(1, |inode, name| {
        let found = tree.lookup(inode, OsStr::new(name))?;
        if found.kind != NodeKind::Symlink {
            return Ok(found.inode);
        }
        // As a kernel does: from the directory that the link lies in.
        let target = String::from_utf8(tree.target(found.inode)?).unwrap();
        let mut names = target.split('/').filter(|name| *name != "..");
        names.try_fold(inode, |at, name| {
            Ok(tree.lookup(at, OsStr::new(name))?.inode)
        })
    })
}

fn names(tree: &MountedTree, path: &str) -> Vec<String> {
    let listing: Listing = tree.list(find(tree, path).unwrap()).unwrap();
    let listed = (0..).map_while(|place| listing.get(place));
    listed
        .map(|one| String::from_utf8(one.name).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_walked_to_the_content_of_a_file() {
    let world = World::new().await;
    world.save("first").await;
    let tree = Arc::new(world.mounted());

    asked(&tree, |tree| {
        assert_eq!(names(tree, "dir"), ["notes"]);
        let sections = ["by-time", "by-id", "by-name", "pinned", "latest"];
        assert_eq!(names(tree, "dir/notes"), sections);
        assert_eq!(names(tree, "dir/notes/latest"), ["todo"]);
        let todo = find(tree, "dir/notes/latest/todo").unwrap();
        assert_eq!(tree.read(todo, 0, 100).unwrap(), b"first");
        assert_eq!(tree.read(todo, 2, 2).unwrap(), b"rs");
        assert_eq!(tree.read(todo, 5, 9).unwrap(), b"");
        let facts = tree.attributes(todo).unwrap();
        assert_eq!(
            (facts.kind, facts.size, facts.is_fixed),
            (NodeKind::File, 5, true)
        );
        assert_eq!(find(tree, "dir/notes/latest/none"), Err(Refusal::Absent));
        assert_eq!(find(tree, "dir/none"), Err(Refusal::Absent));
        assert_eq!(tree.read(1, 0, 1), Err(Refusal::IsADirectory));
        assert_eq!(tree.attributes(77 << 32), Err(Refusal::Absent));
        assert_eq!(tree.attributes(77), Err(Refusal::Absent));
    })
    .await;
    assert_eq!(*world.said.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn which_snapshots_there_are_is_believed_for_a_while() {
    let world = World::new().await;
    world.save("first").await;
    let tree = Arc::new(world.mounted());
    let read = |tree: &MountedTree| {
        let todo = find(tree, "dir/notes/latest/todo").unwrap();
        String::from_utf8(tree.read(todo, 0, 100).unwrap()).unwrap()
    };
    assert_eq!(asked(&tree, read).await, "first");

    world.save("second").await;

    assert_eq!(asked(&tree, read).await, "first");
    world.clock.pass(BELIEVED);
    assert_eq!(asked(&tree, read).await, "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_breaks_is_said_once_and_what_was_known_stays() {
    let world = World::new().await;
    world.save("first").await;
    let tree = Arc::new(world.mounted());
    let todo = |tree: &MountedTree| find(tree, "dir/notes/latest/todo");
    let inode = asked(&tree, todo).await.unwrap();
    let store = world.scratch.path().join("store");
    write(&store.join("subjects/default/dir/notes/index.json"), "{");
    #[expect(clippy::disallowed_methods, reason = "the store breaks")]
    fs::rename(store.join("pools"), store.join("gone")).unwrap();
    world.clock.pass(BELIEVED);

    let now = asked(&tree, todo).await;
    let again = asked(&tree, todo).await;

    assert_eq!((now, again), (Ok(inode), Ok(inode)));
    let content = asked(&tree, move |tree| tree.read(inode, 0, 10)).await;
    assert_eq!(content, Err(Refusal::Unreadable));
    let said = world.said.lock().unwrap();
    assert!(
        said.iter().any(|line| line.contains("could not read todo")),
        "{said:?}"
    );
    let mut once = said.clone();
    once.dedup();
    assert_eq!(*said, once);
}
