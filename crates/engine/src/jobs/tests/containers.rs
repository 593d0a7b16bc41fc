//! What servers do for containers, with an engine that answers what a test says. With a real one: `crates/stasis/tests/cli/container_periodic.rs`.

#![expect(clippy::disallowed_methods, reason = "tests write what is saved")]

use super::proofs::{run, run_with};
use super::{LIMIT, Server, World, settings};
use crate::kind::container::AutosavedContainer;
use crate::rigged::Turn;
use crate::save::RepoSave;
use serde_json::json;
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_model::container::subject::engine_digits;
use stasis_model::format::job::{JobName, JobOutcome};
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{ContainerSubject, SnapshotId};
use stasis_quiesce::docker::Docker;
use stasis_store::layout::ChunkRoot;
use stasis_testkit::fake_docker::FakeDocker;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The id of the engine.
pub(super) const ENGINE: &str = "the-engine";
/// The beginning of the id of a container that is being replaced.
const ASIDE: &str = "ffffffffffff";

/// What an engine says of itself, and of a container: nothing if it does not answer.
fn engine_with(
    containers: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
) -> FakeDocker {
    FakeDocker::scripted(move |asked| {
        let (path, _) = asked.split_once('?').unwrap_or((asked, ""));
        if path.ends_with("/version") {
            let version = json!({"Version": "24.0", "ApiVersion": "1.43", "MinAPIVersion": "1.12"});
            return Some((200, version.to_string()));
        }
        if path.ends_with("/info") {
            return Some((200, json!({ "ID": ENGINE }).to_string()));
        }
        if path.ends_with("/images/json") || path.ends_with("/containers/json") {
            return Some((200, "[]".to_owned()));
        }
        let container = path.strip_suffix("/json");
        let container = container.and_then(|path| path.rsplit_once("/containers/"));
        match container {
            Some((_, container)) => containers(container),
            None => Some(none()),
        }
    })
}

fn none() -> (u16, String) {
    (404, json!({"message": "No such container"}).to_string())
}

fn one(id: &str, name: &str, status: &str) -> (u16, String) {
    let found = json!({"Id": id, "Name": format!("/{name}"), "State": {"Status": status}});
    (200, found.to_string())
}

fn named(name: &str) -> AutosavedContainer {
    let tenant = "acme".parse().unwrap();
    AutosavedContainer::new(name.parse().unwrap(), name.to_owned(), tenant)
}

/// A host with an engine, and the containers that its server was told of.
fn server(world: &World, engine: &FakeDocker, containers: &[&str]) -> Server {
    let mut server = world.server("one");
    server.host.docker = Some(Docker::at(engine.host()));
    server.host.containers = containers.iter().map(|name| named(name)).collect();
    server
}

fn subject(name: &str) -> ContainerSubject {
    ContainerSubject::new(name, &engine_digits(ENGINE))
}

/// The containers that were looked at, in order.
fn looked_at(engine: &FakeDocker) -> Vec<String> {
    let all = engine.asked().into_iter();
    let names = all.filter_map(|asked| {
        let (_, name) = asked.strip_suffix("/json")?.rsplit_once("/containers/")?;
        Some(name.to_owned())
    });
    names.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_saved_is_passed_over_with_the_reason_and_keeps_nobody_from_his_turn() {
    let id = "cafe".repeat(16);
    let engine = engine_with(move |name| {
        Some(match name {
            // An engine finds a container by the beginning of its id: this one is not the one that was named.
            "cafe" => one(&id, "other", "running"),
            "restless" => one(&"1".repeat(64), "restless", "restarting"),
            "busy" => one(&"2".repeat(64), "busy", "running"),
            id if id == "2".repeat(64) => one(id, "busy", "running"),
            // Another one takes its place, and it keeps its id.
            id if "f".repeat(64).starts_with(id) => {
                one(&"f".repeat(64), "web_replaced_ffffffffffff", "running")
            }
            "broken" => (500, json!({"message": "no"}).to_string()),
            _ => none(),
        })
    });
    let world = World::new();
    let server = server(
        &world,
        &engine,
        &["broken", "gone", "cafe", "restless", "busy", ASIDE],
    );
    let locks = world.home.path().join("one/state/containers");
    let mut made = fs::DirBuilder::new();
    made.recursive(true).mode(0o700).create(&locks).unwrap();
    let lock = locks.join(format!("{}.lock", subject("busy")));
    let held = LockFile::take(&lock, "saved by process 7").unwrap();
    assert!(matches!(held, LockAttempt::Taken(_)));

    let record = run(&server, JobName::ContainerSnapshot).await;

    assert_eq!(record.outcome, JobOutcome::Incomplete, "{record:?}");
    assert_eq!(record.place.as_ref().unwrap().as_str(), ENGINE);
    assert_eq!((record.counts["scanned"], record.counts["skipped"]), (6, 5));
    let said = record.message.unwrap();
    for part in [
        "broken: ",
        "gone was skipped: there is no such container",
        "cafe was skipped: there is no such container",
        "restless was skipped: it is restarting",
        "busy was skipped: the container `busy` is in use: saved by process 7",
        "ffffffffffff was skipped: another container is taking the place of",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // Each has had its turn, and the next one comes in an hour; that one of them failed is said until then.
    let before = looked_at(&engine).len();
    let again = run(&server, JobName::ContainerSnapshot).await;
    assert_eq!(again.outcome, JobOutcome::Incomplete, "{again:?}");
    let said = again.message.unwrap();
    assert!(
        said.starts_with("broken: ") && !said.contains("skipped"),
        "{said}"
    );
    assert_eq!(looked_at(&engine).len(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_costs_a_container_no_turn_and_is_said_until_a_snapshot_is_made() {
    let is_restarting = Arc::new(AtomicBool::new(false));
    let restarting = is_restarting.clone();
    let engine = engine_with(move |_| {
        let is_so = restarting.load(Ordering::Relaxed);
        let status = if is_so { "restarting" } else { "running" };
        Some(one(&"7".repeat(64), "web", status))
    });
    let world = World::new();
    let server = server(&world, &engine, &["web"]);
    server.bucket.decide(|asked| {
        if asked.reads("index.json") {
            Turn::Fail
        } else {
            Turn::Work
        }
    });
    let away = run(&server, JobName::ContainerSnapshot).await;
    assert_eq!(away.outcome, JobOutcome::Incomplete, "{away:?}");
    let why = away.message.unwrap();
    assert!(why.starts_with("web: "), "{why}");
    let before = looked_at(&engine).len();

    server.bucket.mend();
    is_restarting.store(true, Ordering::Relaxed);
    let next = run(&server, JobName::ContainerSnapshot).await;

    assert_eq!(looked_at(&engine).len(), before + 1);
    assert_eq!(next.counts["skipped"], 1, "{next:?}");
    assert!(next.message.unwrap().contains(&why));
    // Now it has had its turn, and there is no snapshot yet.
    let last = run(&server, JobName::ContainerSnapshot).await;
    assert_eq!(looked_at(&engine).len(), before + 1);
    assert_eq!(last.outcome, JobOutcome::Incomplete, "{last:?}");
    assert_eq!(last.message, Some(why));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_hangs_does_not_come_before_those_that_were_not_tried() {
    let engine = engine_with(|name| (name != "hung").then(none));
    let world = World::new();
    let mut server = server(&world, &engine, &["hung", "later"]);
    for container in &mut server.host.containers {
        container.every = Duration::from_millis(1);
    }
    let limit = Duration::from_secs(1);

    let first = run_with(&server, JobName::ContainerSnapshot, settings(limit)).await;
    assert_eq!(first.outcome, JobOutcome::Stuck, "{first:?}");
    assert_eq!(looked_at(&engine), ["hung"]);
    let _ = run_with(&server, JobName::ContainerSnapshot, settings(limit)).await;

    assert_eq!(looked_at(&engine)[1], "later");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_containers_to_save_asks_nobody_for_any() {
    let engine = engine_with(|_| Some(none()));
    let world = World::new();
    let server = server(&world, &engine, &[]);
    let running = server.start(LIMIT);
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.end(Duration::from_secs(30)).await;

    let row = server.row(JobName::ContainerSnapshot).await;
    assert!(row.outcome.is_none() && row.running.is_none(), "{row:?}");
    assert!(
        server
            .row(JobName::ContainerCleanup)
            .await
            .outcome
            .is_some()
    );
}

/// A container of which there are snapshots.
struct Shelf {
    world: World,
    server: Server,
    _engine: FakeDocker,
}

impl Shelf {
    fn new() -> Self {
        let (engine, world) = (engine_with(|_| Some(none())), World::new());
        let server = server(&world, &engine, &[]);
        Self {
            world,
            server,
            _engine: engine,
        }
    }

    /// What keeps the snapshots of the container.
    fn of(&self) -> crate::open::Engine {
        self.of_another("web")
    }

    fn of_another(&self, name: &str) -> crate::open::Engine {
        let root = ChunkRoot::container(&"acme".parse().unwrap(), &subject(name));
        self.server.engine.rooted(root)
    }

    async fn save(&self, reason: SaveReason) -> SnapshotId {
        self.save_another("web", reason).await
    }

    async fn save_another(&self, name: &str, reason: SaveReason) -> SnapshotId {
        let dir = self.world.home.path().join("tree");
        fs::create_dir_all(&dir).unwrap();
        // No two are alike, or of one moment.
        let file = vec![b'x'; self.left().await.len()];
        fs::write(dir.join("file"), file).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let of = self.of_another(name);
        of.dirs().ensure_pool().await.unwrap();
        let save = RepoSave {
            reason,
            ..RepoSave::new(&dir, subject(name).as_str().parse().unwrap())
        };
        of.dirs().save(save).await.unwrap().snapshot_id
    }

    /// What is left, the oldest first.
    async fn left(&self) -> Vec<SnapshotId> {
        self.left_of("web").await
    }

    async fn left_of(&self, name: &str) -> Vec<SnapshotId> {
        let index = self.of_another(name).dirs().index_to_look().await.unwrap();
        index.finished().map(|one| one.id.clone()).collect()
    }

    async fn limit(&self, settings: &[(&str, &str)]) {
        let settings = settings.iter();
        let settings: Vec<(String, String)> = settings
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let tenants = self.server.engine.tenants();
        let (tenant, actor) = ("acme".parse().unwrap(), "admin".parse().unwrap());
        let _ = tenants.set_policy(tenant, &settings, &actor).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn automatic_snapshots_of_a_container_push_out_none_that_somebody_asked_for_or_named() {
    let shelf = Shelf::new();
    shelf
        .limit(&[
            ("containers.max_per_container", "2"),
            ("containers.max_snapshots", "4"),
        ])
        .await;
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(shelf.save(SaveReason::Manual).await);
    }
    let pinned = shelf.save(SaveReason::Autosave).await;
    let _ = shelf.of().dirs().pin(&pinned, true).await.unwrap();
    let mut automatic = Vec::new();
    for _ in 0..4 {
        automatic.push(shelf.save(SaveReason::Autosave).await);
    }

    let record = run(&shelf.server, JobName::ContainerCleanup).await;

    // Of this container two automatic ones may stay, of which one is pinned.
    assert_eq!(record.counts["snapshots_removed"], 3, "{record:?}");
    assert_eq!(record.place.as_ref().unwrap().as_str(), ENGINE);
    let mut wanted = asked.clone();
    wanted.extend([pinned.clone(), automatic[3].clone()]);
    assert_eq!(shelf.left().await, wanted);

    // Where those that were asked for take all the room, of the others only the newest and what is pinned stay.
    shelf.limit(&[("containers.max_snapshots", "2")]).await;
    automatic.push(shelf.save(SaveReason::Autosave).await);
    let record = run(&shelf.server, JobName::ContainerCleanup).await;
    assert_eq!(record.counts["snapshots_removed"], 1, "{record:?}");
    asked.extend([pinned, automatic[4].clone()]);
    assert_eq!(shelf.left().await, asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_for_which_there_is_no_room_do_not_push_out_the_last_snapshot_of_each_other() {
    let shelf = Shelf::new();
    shelf.limit(&[("containers.max_snapshots", "1")]).await;
    let first = shelf.save_another("web", SaveReason::Autosave).await;
    let other = shelf.save_another("db", SaveReason::Autosave).await;

    let record = run(&shelf.server, JobName::ContainerCleanup).await;
    assert_eq!(record.counts["snapshots_removed"], 0, "{record:?}");
    assert_eq!(shelf.left_of("web").await, [first]);
    assert_eq!(record.outcome, JobOutcome::Incomplete, "{record:?}");
    let said = record.message.unwrap();
    assert!(said.contains("the last one of a container stays"), "{said}");

    let newer = shelf.save_another("web", SaveReason::Autosave).await;
    let record = run(&shelf.server, JobName::ContainerCleanup).await;
    assert_eq!(record.counts["snapshots_removed"], 1, "{record:?}");
    assert_eq!(shelf.left_of("web").await, [newer]);
    assert_eq!(shelf.left_of("db").await, [other]);

    // One that somebody asked for needs none of them beside it.
    let asked = shelf.save_another("db", SaveReason::Manual).await;
    let record = run(&shelf.server, JobName::ContainerCleanup).await;
    assert_eq!(record.counts["snapshots_removed"], 1, "{record:?}");
    assert_eq!(shelf.left_of("db").await, [asked]);
}
