//! What was agreed to is what is done, or nothing is.

#![expect(
    clippy::disallowed_methods,
    reason = "tests write the files that they save"
)]

use super::ProjectRestore;
use crate::error::ErrorKind;
use crate::kind::project::{Home, Host, Project, ProjectGc, ProjectSave};
use crate::open::{AwsSettings, Engine, LocalDirs, Open};
use crate::system::{SystemClock, SystemRng};
use stasis_disk::check;
use stasis_disk::progress::Progress;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::SnapshotId;
use stasis_model::policy::retention::Repository;
use stasis_quiesce::watchdog::HelperCommand;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A plain directory and a store for it.
struct Desk {
    home: TempDir,
    dir: PathBuf,
    project: Project,
}

impl Desk {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (dir, state) = (home.path().join("notes"), home.path().join("state"));
        fs::create_dir(&dir).unwrap();
        let open = Open {
            location: format!("file://{}", home.path().join("store").display())
                .parse()
                .unwrap(),
            create: true,
            aws: AwsSettings::default(),
            local_dirs: LocalDirs {
                cache: None,
                state: Some(state.clone()),
            },
        };
        let engine = Engine::open(open, Arc::new(SystemClock), Arc::new(SystemRng));
        let host = Host {
            variables: BTreeMap::new(),
            // No test here has a database, or a program that is paused.
            check: check::Spawn {
                program: "/bin/false".into(),
                arguments: Vec::new(),
            },
            watchdog: HelperCommand::this_program(&[]),
        };
        let found = Home::find(&dir, Some(&state)).await.unwrap();
        let tenant = "default".parse().unwrap();
        let project = engine.await.unwrap().project(found, &tenant, host);
        Self { home, dir, project }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).unwrap();
    }

    /// Everything in the directory, by name.
    fn contents(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(&self.dir).unwrap().map(Result::unwrap);
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, read(entry.path()))
            })
            .collect()
    }

    async fn save(&self) -> SnapshotId {
        let saved = self.project.save(ProjectSave::new(SaveReason::Manual));
        saved.await.unwrap().saved.snapshot_id
    }

    async fn snapshots(&self) -> Vec<SnapshotId> {
        let rows = self.project.list().await.unwrap();
        rows.into_iter().map(|row| row.snapshot_id).collect()
    }
}

#[tokio::test]
async fn a_restore_does_what_was_agreed_to() {
    let desk = Desk::new().await;
    desk.write("plan", "one");
    let first = desk.save().await;
    desk.write("plan", "two");
    let command = ProjectRestore::new(first.to_string());
    let shown = ProjectRestore {
        dry_run: true,
        ..command.clone()
    };
    let shown = Box::pin(desk.project.restore(shown)).await.unwrap();

    let agreed = ProjectRestore {
        agreed: Some(shown.changes),
        ..command
    };
    let restored = Box::pin(desk.project.restore(agreed)).await.unwrap();

    assert_eq!(desk.contents()["plan"], "one");
    assert!(restored.safety_snapshot_id.is_some());
}

#[tokio::test]
async fn a_directory_that_changed_since_it_was_shown_is_not_restored() {
    let desk = Desk::new().await;
    desk.write("plan", "one");
    desk.write("same", "same");
    let first = desk.save().await;
    desk.write("plan", "two");
    let command = ProjectRestore::new(first.to_string());
    let shown = ProjectRestore {
        dry_run: true,
        ..command.clone()
    };
    let shown = Box::pin(desk.project.restore(shown)).await.unwrap();
    let snapshots = desk.snapshots().await;
    let changes: [(&str, Option<&str>); 3] = [
        // Made, changed, and gone since then.
        ("new", Some("somebody's work")),
        ("same", Some("edited")),
        ("same", None),
    ];

    for (name, text) in changes {
        let before = fs::read_to_string(desk.dir.join(name)).ok();
        match text {
            Some(text) => desk.write(name, text),
            None => fs::remove_file(desk.dir.join(name)).unwrap(),
        }
        let now = desk.contents();
        let agreed = ProjectRestore {
            agreed: Some(shown.changes.clone()),
            ..command.clone()
        };
        let refused = Box::pin(desk.project.restore(agreed)).await.unwrap_err();

        assert_eq!(refused.kind(), ErrorKind::Retry, "{name}: {refused}");
        assert_eq!(desk.contents(), now, "{name}: nothing changes");
        assert_eq!(
            desk.snapshots().await,
            snapshots,
            "{name}: nothing is saved"
        );
        let beside = fs::read_dir(desk.home.path()).unwrap();
        let beside = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let beside: Vec<String> = beside.filter(|name| name.contains("stasis-")).collect();
        assert!(beside.is_empty(), "{name}: {beside:?} is left");
        match before {
            Some(before) => desk.write(name, &before),
            None => fs::remove_file(desk.dir.join(name)).unwrap(),
        }
    }
}

fn keep(last: u64) -> ProjectGc {
    ProjectGc {
        keep: Some(Repository {
            keep_last: Some(last),
            ..Repository::default()
        }),
        ..ProjectGc::default()
    }
}

#[tokio::test]
async fn gc_removes_what_was_agreed_to_and_nothing_if_other_snapshots_would_go() {
    let desk = Desk::new().await;
    for text in ["one", "two", "three"] {
        desk.write("plan", text);
        desk.save().await;
    }
    let shown = ProjectGc {
        dry_run: true,
        ..keep(2)
    };
    let shown = desk.project.gc(shown).await.unwrap().collected;
    let going = shown.verdicts.iter().filter(|verdict| !verdict.kept);
    let going: Vec<SnapshotId> = going.map(|one| one.snapshot_id.clone()).collect();
    desk.write("plan", "four");
    desk.save().await;
    let before = desk.snapshots().await;

    let late = ProjectGc {
        agreed: Some(going.clone()),
        ..keep(2)
    };
    let refused = desk.project.gc(late).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    assert_eq!(desk.snapshots().await, before);
    let same = ProjectGc {
        agreed: Some(going.clone()),
        ..keep(3)
    };
    let collected = desk.project.gc(same).await.unwrap().collected;
    assert_eq!(collected.verdicts.iter().filter(|one| !one.kept).count(), 1);
    let left = desk.snapshots().await;
    assert!(left.iter().all(|id| !going.contains(id)), "{left:?}");
}

/// What was announced is what was done, and there was something.
fn is_complete(progress: &Progress) {
    let reached = progress.reached();
    assert_eq!(
        (reached.files, reached.bytes),
        (reached.files_expected, reached.bytes_expected),
        "{reached:?}"
    );
    assert!(reached.files + reached.bytes > 0, "{reached:?}");
}

#[tokio::test]
async fn long_commands_say_how_much_there_is_and_reach_it() {
    let desk = Desk::new().await;
    for number in 0..4_u8 {
        let word = |at: u32| {
            at.wrapping_mul(2_654_435_761)
                .rotate_left(u32::from(number))
        };
        let noise: Vec<u8> = (0..10_000).flat_map(|at| word(at).to_le_bytes()).collect();
        fs::write(desk.dir.join("large"), noise).unwrap();
        desk.write("small", &number.to_string());
        desk.save().await;
    }
    let new = Arc::<Progress>::default;

    let (look, read) = (new(), new());
    for (progress, data) in [(&look, false), (&read, true)] {
        let checked = desk.project.check(data, Arc::clone(progress)).await;
        assert!(checked.unwrap().damage.is_empty());
        is_complete(progress);
        assert_eq!(progress.reached().files, 4, "snapshots");
    }
    assert_eq!(look.reached().bytes, 0);
    assert!(read.reached().bytes > 40_000, "{:?}", read.reached());

    let verified = new();
    let latest = "latest".into();
    let done = desk.project.verify(&latest, Arc::clone(&verified)).await;
    assert_eq!(done.unwrap().files, 2);
    is_complete(&verified);
    assert_eq!(verified.reached().files, 2);

    let collected = new();
    let command = ProjectGc {
        progress: Arc::clone(&collected),
        ..keep(1)
    };
    let gone = desk.project.gc(command).await.unwrap().collected;
    assert!(gone.bytes_removed > 0);
    is_complete(&collected);
    assert_eq!(collected.reached().bytes, gone.bytes_removed);
}
