use super::*;
use crate::error::ErrorKind;
use crate::system::{SystemClock, SystemRng};
use stasis_disk::check::Spawn;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// A machine with a shell and `rm`, and nothing else.
struct Machine {
    home: TempDir,
    cancel: Arc<AtomicBool>,
}

impl Machine {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for directory in ["bin", "tmp"] {
            fs::create_dir(home.path().join(directory)).unwrap();
        }
        for program in ["sh", "rm"] {
            let at = home.path().join("bin").join(program);
            symlink(Path::new("/bin").join(program), at).unwrap();
        }
        Self {
            home,
            cancel: Arc::default(),
        }
    }

    async fn begin(&self) -> Demo {
        let settings = DemoSettings {
            parent: self.home.path().join("tmp"),
            keep: false,
            search_path: self.home.path().join("bin").into(),
            browser: None,
            docker: stasis_quiesce::docker::Docker::from_variable(Some("unix:///nowhere")),
            spawn: Spawn {
                program: "/bin/false".into(),
                arguments: Vec::new(),
            },
            cancel: self.cancel.clone(),
        };
        Demo::begin(settings, Arc::new(SystemClock), Arc::new(SystemRng))
            .await
            .unwrap()
    }

    /// How many directories of demos there are.
    fn left(&self) -> usize {
        fs::read_dir(self.home.path().join("tmp")).unwrap().count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scene_is_played_in_order_and_every_claim_holds() {
    let machine = Machine::new();
    let mut demo = machine.begin().await;

    let mut scenes = Vec::new();
    while let Some(scene) = demo.next().await.unwrap() {
        scenes.push(scene);
    }
    let kept = demo.end().await.unwrap();

    let names = scenes.iter().map(|scene| {
        let value = serde_json::to_value(scene).unwrap();
        value["scene"].as_str().unwrap().to_owned()
    });
    // What is skipped, or shown besides, depends on the machine.
    let is_usual = |name: &String| !["skipped", "postgres", "session"].contains(&name.as_str());
    let names: Vec<String> = names.filter(is_usual).collect();
    assert_eq!(
        names.join(" "),
        "shop accident rewind checkpoints race undo"
    );
    for scene in &scenes {
        let failed: Vec<&DemoCheck> = scene.failed().collect();
        assert!(failed.is_empty(), "{failed:?}");
    }
    let rewind = scenes.iter().find_map(|scene| match &scene.facts {
        SceneFacts::Rewind(rewind) => Some((rewind.files, rewind.orders)),
        _ => None,
    });
    assert_eq!(rewind, Some((187, 1204)));
    let race = scenes.iter().find_map(|scene| match &scene.facts {
        SceneFacts::Race(race) => Some(race),
        _ => None,
    });
    let race = race.unwrap();
    let fastest = race.racers.iter().min_by_key(|racer| racer.report_ns);
    assert_eq!(fastest.map(|racer| &racer.fork), Some(&race.winner));
    assert_eq!((kept, machine.left()), (None, 0));
}

/// What a restore that leaves out a file, or changes one, would look like.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_did_not_come_back_as_it_was_is_noticed() {
    let machine = Machine::new();
    let mut demo = machine.begin().await;
    for _ in 0..4 {
        demo.next().await.unwrap();
    }
    let shop = demo.directory().join("shop");
    let tree = demo.tree.as_ref().unwrap();
    assert!(
        tree.still_good()
            .await
            .unwrap()
            .iter()
            .all(|check| check.holds)
    );

    stasis_disk::fs::remove::file_at(&shop.join("src/cart/api.py")).unwrap();
    let missing = tree.still_good().await.unwrap();
    stasis_disk::fs::atomic_write::replace_unsynced(&shop.join("README.md"), b"other").unwrap();
    let changed = tree.still_good().await.unwrap();

    let found = |checks: &[DemoCheck]| {
        let found = checks.iter().map(|check| check.found.clone());
        (
            checks.iter().any(|check| check.holds),
            found.collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        found(&missing),
        (false, vec!["186".to_owned(), "1".to_owned()])
    );
    assert_eq!(
        found(&changed),
        (false, vec!["185".to_owned(), "2".to_owned()])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_that_is_stopped_or_dropped_leaves_nothing() {
    let machine = Machine::new();
    let mut demo = machine.begin().await;
    demo.next().await.unwrap();
    assert_eq!(machine.left(), 1);

    machine.cancel.store(true, Ordering::Relaxed);
    let stopped = demo.next().await.unwrap_err();
    drop(demo);

    assert_eq!(stopped.kind(), ErrorKind::Cancelled);
    assert_eq!(machine.left(), 0);
}
