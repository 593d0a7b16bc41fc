//! A tree that changes a little again and again, of which ten snapshots are kept: how large the repository becomes.
//!
//! *The bound:* at most twice as large as a new repository that holds exactly the ten; in a short run, closer. A hundred snapshots in a normal run;
//! `STASIS_CHURN_SNAPSHOTS` says otherwise.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "proofs say what they counted")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use stasis_engine::bridge;
use stasis_engine::catalog::SnapshotSelector;
use stasis_engine::gc::RepoGc;
use stasis_engine::open::{AwsSettings, Engine, LocalDirs, Open};
use stasis_engine::restore::RepoRestore;
use stasis_engine::save::{RepoSave, RepoSaved};
use stasis_model::policy::retention::{Repository, RetentionPolicy};
use stasis_store::location::StoreLocation;
use stasis_testkit::real_time::{RealClock, SystemRng};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const KEPT: usize = 10;
const FILES: u64 = 600;
/// The rows of a database of about 4 MB, each on a page of its own.
const ROWS: u32 = 1000;
const ROW: u64 = 3000;

/// Numbers that look random, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let words =
            std::iter::repeat_with(|| self.next()).take(length.div_ceil(8).try_into().unwrap());
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length.try_into().unwrap());
        bytes
    }
}

fn small(tree: &Path, number: u64) -> PathBuf {
    tree.join(format!("d{}/f{number}", number % 23))
}

fn init(tree: &Path, draw: &mut Draw) {
    for number in 0..FILES {
        let path = small(tree, number);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let length = 500 + draw.below(20_000);
        fs::write(path, draw.bytes(length)).unwrap();
    }
    fs::write(tree.join("large"), draw.bytes(4 << 20)).unwrap();
    let mut database = rusqlite::Connection::open(tree.join("app.db")).unwrap();
    let all = database.transaction().unwrap();
    let make = "create table t(id integer primary key, row blob)";
    all.execute(make, ()).unwrap();
    for id in 0..ROWS {
        let row = draw.bytes(ROW);
        all.execute("insert into t values(?, ?)", (id, row))
            .unwrap();
    }
    all.commit().unwrap();
}

/// Changes about one byte in a hundred.
fn churn(tree: &Path, draw: &mut Draw, turn: u64) {
    for _ in 0..FILES / 100 {
        let number = draw.below(FILES);
        let length = 500 + draw.below(20_000);
        fs::write(small(tree, number), draw.bytes(length)).unwrap();
    }
    let database = rusqlite::Connection::open(tree.join("app.db")).unwrap();
    database.execute_batch("pragma synchronous = off").unwrap();
    for _ in 0..3 {
        let id = u32::try_from(draw.below(ROWS.into())).unwrap();
        let row = draw.bytes(ROW);
        let change = "update t set row = ? where id = ?";
        database.execute(change, (row, id)).unwrap();
    }
    drop(database);
    if turn.is_multiple_of(5) {
        let mut large = fs::read(tree.join("large")).unwrap();
        let at = usize::try_from(draw.below(3 << 20)).unwrap();
        large.splice(at..at + 900, draw.bytes(1000));
        fs::write(tree.join("large"), large).unwrap();
    }
    if turn.is_multiple_of(7) {
        let from = small(tree, draw.below(FILES));
        let bytes = fs::read(&from).unwrap();
        fs::write(tree.join(format!("copy{}", turn % 3)), bytes).unwrap();
    }
}

async fn engine(home: &Path) -> Engine {
    let open = Open {
        location: StoreLocation::File(home.join("store")),
        create: true,
        aws: AwsSettings::default(),
        local_dirs: LocalDirs {
            cache: Some(home.join("cache")),
            state: None,
        },
    };
    let engine = Engine::open(open, Arc::new(RealClock), Arc::new(SystemRng))
        .await
        .unwrap();
    engine.dirs().init().await.unwrap();
    engine
}

async fn save(engine: &Engine, tree: &Path) -> RepoSaved {
    let command = RepoSave {
        strict: true,
        ..RepoSave::new(tree, "churn".parse().unwrap())
    };
    engine.dirs().save(command).await.unwrap()
}

async fn collect(engine: &Engine) {
    let keep_last = Some(KEPT as u64);
    let policy = RetentionPolicy::Repository(Repository {
        keep_last,
        ..Repository::default()
    });
    engine.dirs().gc(RepoGc::new(policy)).await.unwrap();
}

async fn restore(engine: &Engine, snapshot: &str, target: &Path) {
    let wanted = SnapshotSelector {
        snapshot: snapshot.into(),
        name: None,
    };
    let command = RepoRestore::new(wanted, target);
    let _ = engine.dirs().restore(command).await.unwrap();
}

fn call(program: &str, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?} {}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// The bytes of all objects: of chunks, and of everything else.
fn size(store: &Path) -> (u64, u64) {
    let mut sizes = (0, 0);
    let mut waiting = vec![store.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let seen = entry.metadata().unwrap();
            let name = entry.file_name().into_string().unwrap();
            if seen.is_dir() {
                waiting.push(entry.path());
            } else if name.starts_with("sha256:") {
                sizes.0 += seen.len();
            } else {
                sizes.1 += seen.len();
            }
        }
    }
    sizes
}

async fn churned(snapshots: u64) {
    let home = tempfile::tempdir().unwrap();
    let (tree, fresh) = (home.path().join("tree"), home.path().join("fresh"));
    fs::create_dir_all(&fresh).unwrap();
    let mut draw = Draw(0x5eed_cafe);
    init(&tree, &mut draw);
    let old = engine(home.path()).await;
    let mut kept: VecDeque<(RepoSaved, PathBuf)> = VecDeque::new();
    for turn in 0..snapshots {
        churn(&tree, &mut draw, turn);
        let saved = save(&old, &tree).await;
        assert!(saved.left_out_entries.is_empty(), "{saved:?}");
        if turn + (KEPT as u64) >= snapshots {
            let copy = home.path().join(format!("copy{turn}"));
            call("cp", &[Path::new("-a"), &tree, &copy]);
            kept.push_back((saved, copy));
        }
        if turn % 4 == 3 {
            collect(&old).await;
        }
    }
    collect(&old).await;

    let new = engine(&fresh).await;
    for (saved, copy) in &kept {
        let again = save(&new, copy).await;
        assert_eq!(
            again.state_digest, saved.state_digest,
            "the copy is what was saved"
        );
        let target = home.path().join("back");
        restore(&old, saved.snapshot_id.as_str(), &target).await;
        call(
            "diff",
            &[
                Path::new("-r"),
                Path::new("--no-dereference"),
                copy,
                &target,
            ],
        );
        fs::remove_dir_all(target).unwrap();
    }
    let checked = old.dirs().check(true, Arc::default()).await.unwrap();
    assert!(checked.damage.is_empty(), "{checked:?}");
    assert_eq!(checked.snapshots, KEPT as u64);
    let (chunks, rest) = size(&home.path().join("store"));
    let (ideal_chunks, ideal_rest) = size(&fresh.join("store"));
    println!(
        "{snapshots} snapshots: {chunks} + {rest} bytes; a new repository: {ideal_chunks} + {ideal_rest}"
    );
    let (is, ideal) = (chunks + rest, ideal_chunks + ideal_rest);
    assert!(is <= 2 * ideal, "{is} bytes are more than twice {ideal}");
    // It was 1.25 times as large when this was written, and 1.5 when bundles that are mostly unused were not left.
    assert!(
        10 * is <= 14 * ideal,
        "{is} bytes are much more than {ideal}"
    );
}

#[test]
fn a_repository_of_ten_kept_snapshots_stays_within_twice_the_ideal_size() {
    let asked = std::env::var("STASIS_CHURN_SNAPSHOTS").ok();
    let snapshots = asked.and_then(|asked| asked.parse().ok()).unwrap_or(100);

    bridge::run(churned(snapshots)).unwrap();
}
