//! Saves that a server makes of the projects that were named to it.

#![expect(clippy::disallowed_methods, reason = "tests write what is saved")]

use super::proofs::run;
use super::{Server, World};
use crate::check::Spawn;
use crate::kind::project::{AutosavedProject, FILE, Home, Host, Project, ProjectSave, ServiceUse};
use stasis_model::format::job::{JobName, JobOutcome, JobRecord};
use stasis_model::format::manifest::SaveReason;
use stasis_quiesce::watchdog::HelperCommand;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A file that says nothing but what is needed.
pub(super) const PLAIN: &str =
    "id = \"shop\"\nlayout = \"in-place\"\n[retention]\nmax_snapshots = 2\n";

/// A project, and a server that saves it.
pub(super) struct Desk {
    world: World,
    pub(super) server: Server,
    pub(super) dir: PathBuf,
    pub(super) project: Project,
}

impl Desk {
    pub(super) async fn new(file: &str, services: ServiceUse) -> Self {
        let world = World::new();
        let server = world.server("one");
        let dir = world.home.path().join("shop");
        let project = Self::at(&server, &dir, file).await;
        let mut desk = Self {
            world,
            server,
            dir,
            project,
        };
        desk.look_after("shop", desk.project.clone(), services);
        desk
    }

    /// The project that lies in a new directory.
    async fn at(server: &Server, dir: &Path, file: &str) -> Project {
        fs::create_dir(dir).unwrap();
        if !file.is_empty() {
            fs::write(dir.join(FILE), file).unwrap();
        }
        let state = server.engine.local_dirs.state.clone();
        let home = Home::find(dir, state.as_deref()).await.unwrap();
        let host = Host {
            variables: BTreeMap::new(),
            check: Spawn {
                program: "/bin/false".into(),
                arguments: Vec::new(),
            },
            watchdog: HelperCommand::this_program(&[]),
        };
        let tenant = "acme".parse().unwrap();
        server.engine.project(home, &tenant, host)
    }

    fn look_after(&mut self, name: &str, project: Project, services: ServiceUse) {
        let saved = AutosavedProject::new(name.parse().unwrap(), project, services);
        self.server.host.projects.push(saved);
    }

    /// Another project, which is plain and comes after those that there are.
    pub(super) async fn another(&mut self) -> Project {
        let dir = self.world.home.path().join("till");
        let file = PLAIN.replace("shop", "till");
        let project = Self::at(&self.server, &dir, &file).await;
        self.look_after("till", project.clone(), ServiceUse::LeftAlone);
        project
    }

    /// Something that was not there before.
    pub(super) fn change(&self, length: usize) {
        fs::write(self.dir.join("orders"), vec![b'x'; length]).unwrap();
    }

    pub(super) async fn run(&self) -> JobRecord {
        run(&self.server, JobName::ProjectAutosave).await
    }

    /// Runs it, where nothing but a skip may come of it; says what was said.
    async fn skip(&self) -> String {
        let record = self.run().await;
        assert_eq!(record.outcome, JobOutcome::Done, "{record:?}");
        assert_eq!(record.counts["skipped"], 1, "{record:?}");
        record.message.unwrap()
    }

    async fn reasons(&self) -> Vec<SaveReason> {
        let rows = self.project.list().await.unwrap();
        rows.iter().map(|row| row.reason).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_is_saved_when_it_changed_and_only_automatic_snapshots_go_for_new_ones() {
    let desk = Desk::new(PLAIN, ServiceUse::LeftAlone).await;
    desk.change(1);
    let asked = ProjectSave::new(SaveReason::Manual);
    let _ = Box::pin(desk.project.save(asked)).await.unwrap();

    for _ in 0..2 {
        let same = desk.run().await;
        assert_eq!(same.outcome, JobOutcome::Done, "{same:?}");
        assert_eq!(same.counts["unchanged"], 1);
    }
    desk.change(2);
    let saved = desk.run().await;
    assert_eq!((saved.counts["saved"], saved.counts["forgotten"]), (1, 0));
    let rows = desk.project.list().await.unwrap();
    let first = rows.last().unwrap().snapshot_id.as_str().into();
    let label = "good".parse().unwrap();
    desk.project
        .label(&first, "note", Some(&label))
        .await
        .unwrap();
    let mut forgotten = 0;
    for length in 3..6 {
        desk.change(length);
        forgotten += desk.run().await.counts["forgotten"];
    }

    assert_eq!(forgotten, 1);
    let rows = desk.project.list().await.unwrap();
    assert!(rows.iter().any(|row| row.labels.contains_key("note")));
    // The one that was asked for is still what `latest` means.
    assert!(rows[0].active);
    let (manual, auto) = (SaveReason::Manual, SaveReason::Autosave);
    assert_eq!(desk.reasons().await, [manual, auto, auto, auto]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_program_is_paused_and_no_hook_is_run_unless_that_was_agreed_to() {
    let pausing = "id = \"shop\"\n[volumes.media]\nconsistency = \"generic\"\npath = \"media\"\nservices = [\"web\"]\n\
        [services.web]\npid_file = \"web.pid\"\n";
    let desk = Desk::new(pausing, ServiceUse::LeftAlone).await;
    desk.change(1);
    let said = desk.skip().await;
    assert!(said.contains("hold_services"), "{said}");
    assert!(desk.reasons().await.is_empty());

    for services in [ServiceUse::LeftAlone, ServiceUse::Held] {
        let place = tempfile::tempdir().unwrap();
        let ran = place.path().join("ran");
        let hook = format!(
            "id = \"shop\"\nlayout = \"in-place\"\n[services.web]\npid_file = \"web.pid\"\n[services.web.hooks]\npre_save = \"echo once >> '{}'\"\n",
            ran.display()
        );
        let desk = Desk::new(&hook, services).await;
        desk.change(1);
        if services == ServiceUse::LeftAlone {
            desk.skip().await;
            assert!(!ran.exists());
            continue;
        }
        let record = desk.run().await;
        assert_eq!(record.counts["saved"], 1, "{record:?}");
        // Where nothing changed nobody is asked to prepare for a save.
        assert_eq!(desk.run().await.counts["unchanged"], 1);
        assert_eq!(fs::read_to_string(&ran).unwrap(), "once\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_that_is_busy_is_skipped_and_what_kept_it_is_said() {
    let started = tempfile::tempdir().unwrap();
    let started = started.path().join("started");
    let file = format!(
        "{PLAIN}[services.web]\npid_file = \"web.pid\"\nstart = \"touch '{}'\"\n",
        started.display()
    );
    let desk = Desk::new(&file, ServiceUse::LeftAlone).await;
    desk.change(1);

    let held = desk.project.exclusive("restore").await.unwrap();
    let said = desk.skip().await;
    assert!(said.contains("shop was skipped"), "{said}");
    assert!(said.contains("restore by process"), "{said}");
    drop(held);
    // A restore that died had stopped a program: starting it is nothing for a job.
    let stopped = desk
        .world
        .home
        .path()
        .join("one/state/projects/shop/.stasis/stopped");
    fs::create_dir_all(stopped.parent().unwrap()).unwrap();
    fs::write(&stopped, "web").unwrap();
    let said = desk.skip().await;
    assert!(said.contains("stasis project start"), "{said}");
    assert!(!started.exists());
    fs::remove_file(stopped).unwrap();

    assert_eq!(desk.run().await.counts["saved"], 1);
    assert_eq!(desk.reasons().await, [SaveReason::Autosave]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_file_says_now_counts_and_another_subject_is_refused() {
    let desk = Desk::new(PLAIN, ServiceUse::LeftAlone).await;
    desk.change(1);
    let other = PLAIN.replace("shop", "till");
    fs::write(desk.dir.join(FILE), other).unwrap();

    let refused = desk.run().await;
    assert_eq!(refused.outcome, JobOutcome::Incomplete, "{refused:?}");
    assert!(refused.message.unwrap().contains("another subject"));

    let hooked = format!(
        "{PLAIN}[services.web]\npid_file = \"web.pid\"\n[services.web.hooks]\npost_save = \"true\"\n"
    );
    fs::write(desk.dir.join(FILE), hooked).unwrap();
    desk.skip().await;
    fs::write(desk.dir.join(FILE), PLAIN).unwrap();
    assert_eq!(desk.run().await.counts["saved"], 1);
    fs::remove_dir_all(&desk.dir).unwrap();
    assert!(desk.skip().await.contains("not there"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_directory_goes_on_under_the_id_under_which_somebody_saved_it_meanwhile() {
    let desk = Desk::new("", ServiceUse::LeftAlone).await;
    desk.change(1);
    let state = desk.server.engine.local_dirs.state.clone();
    let home = Home::find(&desk.dir, state.as_deref()).await.unwrap();
    assert_ne!(home.id, desk.project.home().id);
    let (tenant, host) = ("acme".parse().unwrap(), desk.project.host.clone());
    let by_hand = desk.server.engine.project(home, &tenant, host);
    let asked = ProjectSave::new(SaveReason::Manual);
    let _ = Box::pin(by_hand.save(asked)).await.unwrap();

    assert_eq!(desk.run().await.counts["unchanged"], 1);
    desk.change(2);
    assert_eq!(desk.run().await.counts["saved"], 1);

    assert_eq!(by_hand.list().await.unwrap().len(), 2);
}

/// Its own hook writes to what is saved, once, when all of it was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_during_a_save_that_found_nothing_is_saved_the_next_time() {
    for is_watched in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let once = place.path().join("once");
        let file = format!(
            "{PLAIN}[services.web]\npid_file = \"web.pid\"\n[services.web.hooks]\n\
             post_save = \"[ $STASIS_REASON != autosave ] || [ -e '{0}' ] || {{ touch '{0}'; echo more >> orders; }}\"\n",
            once.display()
        );
        let desk = Desk::new(&file, ServiceUse::Held).await;
        desk.change(1);
        let asked = ProjectSave::new(SaveReason::Manual);
        let _ = Box::pin(desk.project.save(asked)).await.unwrap();
        assert!(!once.exists());

        if is_watched {
            let mut saves = Vec::new();
            let watching = desk.project.autosave(Some(0), Arc::default(), |saved| {
                saves.push(saved.unwrap().saved.published);
                saves != [false, true]
            });
            let watching = tokio::time::timeout(Duration::from_mins(1), Box::pin(watching));
            watching.await.expect("it was never saved").unwrap();
            assert_eq!(saves, [false, true]);
            continue;
        }
        assert_eq!(desk.run().await.counts["unchanged"], 1);
        assert!(once.exists());
        assert_eq!(desk.run().await.counts["saved"], 1);
        assert_eq!(desk.run().await.counts["unchanged"], 1);
    }
}
