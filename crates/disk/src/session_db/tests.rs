//! What is written down, and what it means.

mod files;
mod own;

use super::*;
use crate::watch::Action::{self, Created, Deleted, Modified};
use crate::watch::{FileEvent, Gap, GapReason};
use stasis_model::workspace::{CheckpointOrigin, Slot};
use tempfile::TempDir;

const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_123);

/// The query of the contract, as it stands there.
const FOUR_COUNTS: &str = "SELECT (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'created') as created, (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'modified') as modified, (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'deleted') as deleted, (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'restored') as restored
FROM snapshot_events s
WHERE s.id IN (SELECT MAX(id) FROM snapshot_events GROUP BY slot)";

/// A database in a directory of its own.
struct Home {
    directory: TempDir,
    ledger: SessionDb,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ledger = SessionDb::open(&directory.path().join(DATABASE)).unwrap();
        Self { directory, ledger }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(DATABASE)
    }

    /// Another handle, as another process would have it.
    fn again(&self) -> SessionDb {
        SessionDb::open(&self.path()).unwrap()
    }

    /// What somebody else reads with SQL of their own.
    fn ask<T: rusqlite::types::FromSql>(&self, sql: &str) -> Vec<Vec<T>> {
        let connection = Connection::open(self.path()).unwrap();
        let mut asked = connection.prepare(sql).unwrap();
        let columns = asked.column_count();
        let rows = asked.query_map([], |row| (0..columns).map(|at| row.get(at)).collect());
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Records events that are nobody's of ours.
    fn tell(&self, events: &[(Action, &str)]) -> RecordedEvents {
        tell(&self.ledger, events, &mut |_| panic!("nothing is ours"))
    }

    /// Every event, as `action path`.
    fn written(&self) -> Vec<String> {
        let events = self.ledger.events(0, None, usize::MAX).unwrap();
        let line = |event: &EventRow| format!("{} {}", event.action, event.path);
        events.iter().map(line).collect()
    }
}

fn path(path: impl AsRef<[u8]>) -> EntryPath {
    EntryPath::parse(path.as_ref()).unwrap()
}

fn event(action: Action, at: impl AsRef<[u8]>) -> FileEvent {
    FileEvent {
        action,
        path: path(at),
        size: (action != Action::Deleted).then_some(7),
        at: NOON,
    }
}

fn batch(events: &[(Action, &str)]) -> EventBatch {
    let events = events.iter().map(|(action, at)| event(*action, at));
    EventBatch {
        events: events.collect(),
        gap: None,
    }
}

fn tell(
    ledger: &SessionDb,
    events: &[(Action, &str)],
    look: &mut dyn FnMut(&EntryPath) -> Option<LeftEntry>,
) -> RecordedEvents {
    ledger.record(&batch(events), NOON, None, look).unwrap()
}

fn made(slot: u32, origin: CheckpointOrigin) -> SlotMetadata {
    SlotMetadata::new(Slot::new(slot), origin, NOON, 1)
}

fn restored(at: &str, slot: u32, left: Option<LeftEntry>) -> RestoredFile {
    RestoredFile {
        path: path(at),
        from: RestoredFrom::Checkpoint(Slot::new(slot)),
        size: left.map(|left| left.size),
        left,
    }
}

#[test]
fn the_two_tables_are_those_of_the_contract() {
    let home = Home::new();
    let columns = |table| {
        let sql = format!(
            "SELECT name || ' ' || type || iif(pk, ' PRIMARY KEY', '') || iif(\"notnull\", ' NOT NULL', '')
                || ifnull(' DEFAULT ' || dflt_value, '') FROM pragma_table_info('{table}')"
        );
        home.ask::<String>(&sql).concat()
    };

    assert_eq!(
        columns("fs_events"),
        [
            "id INTEGER PRIMARY KEY",
            "timestamp TEXT NOT NULL",
            "action TEXT NOT NULL",
            "path TEXT NOT NULL",
            "size INTEGER"
        ]
    );
    assert_eq!(
        columns("snapshot_events"),
        [
            "id INTEGER PRIMARY KEY",
            "timestamp TEXT NOT NULL",
            "slot INTEGER NOT NULL",
            "origin TEXT NOT NULL",
            "name TEXT",
            "files_count INTEGER DEFAULT 0",
            "start_fs_event_id INTEGER DEFAULT 0",
            "stop_fs_event_id INTEGER DEFAULT 0"
        ]
    );
    let counted = home.ask::<String>(
        "SELECT name FROM sqlite_master WHERE sql LIKE '%id INTEGER PRIMARY KEY AUTOINCREMENT%' AND name NOT LIKE 'stasis!_%' ESCAPE '!'",
    );
    assert_eq!(counted.concat(), ["fs_events", "snapshot_events"]);
    let strangers = home.ask::<String>(
        "SELECT name FROM sqlite_master WHERE name NOT LIKE 'stasis!_%' ESCAPE '!' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
    );
    assert_eq!(strangers.len(), 2, "what else there is has our prefix");
}

#[test]
fn an_event_is_a_row_as_the_contract_has_it() {
    let home = Home::new();

    let recorded = home.tell(&[(Created, "src/main.py"), (Deleted, "old")]);

    assert_eq!(
        recorded,
        RecordedEvents {
            written: 2,
            own: 0,
            held: 0
        }
    );
    let rows = home.ask::<String>(
        "SELECT timestamp, action, path, ifnull(size, 'NULL') || ' ' || typeof(size) FROM fs_events",
    );
    let noon = NOON.to_string();
    assert_eq!(rows[0], [&*noon, "created", "src/main.py", "7 integer"]);
    assert_eq!(rows[1], [&*noon, "deleted", "old", "NULL null"]);
    assert_eq!(home.ledger.last_event_id().unwrap(), 2);
}

#[test]
fn the_query_of_the_contract_counts_what_each_slot_covers() {
    let home = Home::new();
    home.tell(&[(Created, "a"), (Created, "b"), (Modified, "a")]);
    home.ledger
        .checkpoint(&made(0, CheckpointOrigin::Auto))
        .unwrap();
    home.tell(&[(Modified, "a"), (Deleted, "b")]);
    let act = [restored("b", 0, None), restored("a", 0, None)];
    home.ledger.settle("act", NOON, &act).unwrap();
    home.ledger
        .checkpoint(&made(1, CheckpointOrigin::Auto))
        .unwrap();
    home.ledger
        .checkpoint(&made(10, CheckpointOrigin::Manual))
        .unwrap();
    home.tell(&[(Created, "c")]);
    home.ledger
        .checkpoint(&made(0, CheckpointOrigin::Auto))
        .unwrap();

    let theirs = home.ask::<i64>(FOUR_COUNTS);
    let ours = home.ledger.counts(&|_| true).unwrap();

    let mut theirs: Vec<[u64; 4]> = theirs
        .iter()
        .map(|row| [row[0], row[1], row[2], row[3]].map(i64::cast_unsigned))
        .collect();
    let four = |one: &CoveredCounts| [one.created, one.modified, one.deleted, one.restored];
    let with_slots: Vec<_> = ours
        .iter()
        .map(|one| (one.slot.index(), four(one)))
        .collect();
    let expected = [(0, [1, 0, 0, 0]), (1, [0, 1, 1, 2]), (10, [2, 2, 1, 2])];
    assert_eq!(with_slots, expected);
    let mut ours: Vec<[u64; 4]> = ours.iter().map(four).collect();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(theirs, ours);
}

#[test]
fn automatic_checkpoints_are_a_chain_across_restarts_and_manual_ones_begin_at_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let open = || SessionDb::open(&directory.path().join(DATABASE)).unwrap();
    let range = |ledger: &SessionDb, slot, origin| {
        let row = ledger.checkpoint(&made(slot, origin)).unwrap();
        (row.start, row.stop)
    };
    let mut nothing = |_: &EntryPath| None;

    let ledger = open();
    assert_eq!(range(&ledger, 10, CheckpointOrigin::Manual), (0, 0));
    assert_eq!(range(&ledger, 0, CheckpointOrigin::Auto), (0, 0));
    tell(&ledger, &[(Created, "a"), (Created, "b")], &mut nothing);
    assert_eq!(range(&ledger, 1, CheckpointOrigin::Auto), (0, 2));
    drop(ledger);
    let ledger = open();
    tell(&ledger, &[(Modified, "a")], &mut nothing);
    assert_eq!(range(&ledger, 10, CheckpointOrigin::Manual), (0, 3));
    assert_eq!(range(&ledger, 0, CheckpointOrigin::Auto), (2, 3));
    assert_eq!(range(&ledger, 1, CheckpointOrigin::Auto), (3, 3));
    tell(&ledger, &[(Modified, "a")], &mut nothing);
    ledger.prune(0, i64::MAX).unwrap();
    assert_eq!(
        range(&ledger, 0, CheckpointOrigin::Auto),
        (3, 4),
        "after pruning"
    );
}

#[test]
fn a_checkpoint_is_a_row_as_the_contract_has_it() {
    let home = Home::new();
    let mut named = made(12, CheckpointOrigin::Manual);
    named.name = Some("before the refactoring".parse().unwrap());
    named.files_count = 321;

    let row = home.ledger.checkpoint(&named).unwrap();
    home.ledger
        .checkpoint(&made(3, CheckpointOrigin::Auto))
        .unwrap();

    assert_eq!(row.id, 1);
    let columns =
        "timestamp, CAST(slot AS TEXT), origin, ifnull(name, '-'), CAST(files_count AS TEXT)";
    let rows = home.ask::<String>(&format!("SELECT {columns} FROM snapshot_events"));
    let noon = NOON.to_string();
    let name = "before the refactoring";
    assert_eq!(rows[0], [&*noon, "12", "manual", name, "321"]);
    assert_eq!(rows[1], [&*noon, "3", "auto", "-", "0"]);
}

#[test]
fn events_are_read_after_an_id_of_one_file_and_so_many() {
    let home = Home::new();
    home.tell(&[(Created, "x"), (Created, "y"), (Created, "x (from cp-3)")]);
    let act = [restored("x", 3, None), restored("x (from cp-3)", 1, None)];
    home.ledger.settle("act", NOON, &act).unwrap();
    let ids = |since, of: Option<&str>, limit| {
        let of = of.map(path);
        let events = home.ledger.events(since, of.as_ref(), limit).unwrap();
        events.iter().map(|event| event.id).collect::<Vec<_>>()
    };

    assert_eq!(ids(0, None, 9), [1, 2, 3, 4, 5]);
    assert_eq!(ids(2, None, 2), [3, 4]);
    assert_eq!(ids(0, Some("x"), 9), [1, 4]);
    assert_eq!(ids(1, Some("x"), 9), [4]);
    assert_eq!(ids(0, Some("x (from cp-3)"), 9), [3, 5]);
    assert_eq!(ids(0, Some("z"), 9), [0; 0]);
    let events = home.ledger.events(3, None, 9).unwrap();
    assert_eq!(events[0].path, "x (from cp-3)");
    assert_eq!((events[0].file(), events[0].from()), ("x", Some("cp-3")));
    assert_eq!(events[1].from(), Some("cp-1"));
}

#[test]
fn a_path_that_is_no_text_is_shown_without_loss_and_found_again() {
    let home = Home::new();
    let odd = path(b"caf\xe9/\n\\");
    let batch = EventBatch {
        events: vec![event(Created, odd.as_bytes())],
        gap: None,
    };
    home.ledger
        .announce("act", std::slice::from_ref(&odd))
        .unwrap();
    let held = home
        .ledger
        .record(&batch, NOON, None, &mut |_| None)
        .unwrap();
    home.ledger.abandon("act").unwrap();

    let freed = home.tell(&[]);

    assert_eq!((held.held, freed.written), (1, 1));
    assert_eq!(home.written(), ["created caf\\xe9/\\x0a\\\\"]);
    assert_eq!(home.ledger.events(0, Some(&odd), 9).unwrap().len(), 1);
}

#[test]
fn the_oldest_events_are_pruned_never_those_to_be_kept_and_no_id_comes_twice() {
    let home = Home::new();
    for _ in 0..10 {
        home.tell(&[(Modified, "a")]);
    }
    let left = || {
        home.ask::<i64>("SELECT MIN(id), COUNT(*) FROM fs_events")
            .concat()
    };

    assert_eq!(home.ledger.prune(10, i64::MAX).unwrap(), 0);
    assert_eq!(home.ledger.prune(4, 2).unwrap(), 2);
    assert_eq!(left(), [3, 8]);
    assert_eq!(home.ledger.prune(4, i64::MAX).unwrap(), 4);
    assert_eq!(left(), [7, 4]);
    assert_eq!(home.ledger.prune(0, i64::MAX).unwrap(), 4);
    assert_eq!(home.ledger.last_event_id().unwrap(), 10);
    home.tell(&[(Modified, "a")]);
    assert_eq!(left(), [11, 1]);
}

#[test]
fn events_gap_and_beliefs_are_written_together_or_not_at_all() {
    let home = Home::new();
    let gap = Some(Gap {
        why: GapReason::Overflow,
        missed: 3,
    });
    let told = EventBatch {
        gap,
        ..batch(&[(Created, "a"), (Created, "b")])
    };
    home.ledger
        .record(&told, NOON, Some(b"one"), &mut |_| None)
        .unwrap();
    home.ledger
        .settle("act", NOON, &[restored("c", 1, None)])
        .unwrap();

    let more = batch(&[(Created, "d"), (Created, "c")]);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut look = |_: &EntryPath| panic!("in the middle of it");
        home.ledger.record(&more, NOON, Some(b"two"), &mut look)
    }));

    assert!(failed.is_err());
    assert_eq!(
        home.written(),
        ["created a", "created b", "restored c (from cp-1)"]
    );
    assert_eq!(
        home.ledger.kept(WATCH_STATE).unwrap().as_deref(),
        Some(&b"one"[..])
    );
    let gap = GapRow {
        timestamp: NOON.to_string(),
        at_ms: NOON.millis() / 1000 * 1000,
        why: "overflow".to_owned(),
        missed: 3,
        last_event_id: 2,
    };
    assert_eq!(home.ledger.gaps(9).unwrap(), [gap]);
}

#[test]
fn what_is_kept_is_replaced_and_found_by_its_key() {
    let home = Home::new();
    home.ledger.keep("a", b"first").unwrap();
    home.ledger.keep("b", b"\0\xff").unwrap();
    home.ledger.keep("a", b"second").unwrap();

    assert_eq!(home.ledger.kept("a").unwrap().unwrap(), b"second");
    assert_eq!(home.again().kept("b").unwrap().unwrap(), b"\0\xff");
    assert_eq!(home.ledger.kept("c").unwrap(), None);
}

#[test]
fn the_last_reason_for_a_skipped_checkpoint_is_told_and_old_ones_go() {
    let home = Home::new();
    assert_eq!(home.ledger.last_skipped().unwrap(), None);
    for number in 0..=1000 {
        let because = format!("reason {number}");
        home.ledger.skipped(NOON, &because).unwrap();
    }

    let last = home.ledger.last_skipped().unwrap().unwrap();

    assert_eq!(last.because, "reason 1000");
    assert_eq!(last.timestamp, NOON.to_string());
    let count = home.ask::<i64>("SELECT COUNT(*) FROM stasis_skipped");
    assert_eq!(count.concat(), [1000]);
}

#[test]
fn two_that_write_at_once_lose_nothing_and_are_never_turned_away() {
    let home = Home::new();

    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let ledger = home.again();
            scope.spawn(move || {
                for _ in 0..1000 {
                    tell(&ledger, &[(Modified, name)], &mut |_| None);
                }
            });
        }
    });

    for name in ["a", "b"] {
        let events = home.ledger.events(0, Some(&path(name)), 9999).unwrap();
        assert_eq!(events.len(), 1000);
    }
    assert_eq!(home.ledger.last_event_id().unwrap(), 2000);
}

#[test]
fn a_hundred_thousand_events_are_all_there_in_their_order() {
    let home = Home::new();
    home.ledger
        .settle("act", NOON, &[restored("elsewhere", 1, None)])
        .unwrap();
    for chunk in 0..100 {
        let names = (0..1000).map(|number| format!("some/where/{chunk}/{number}"));
        let events = names.map(|name| event(Created, name)).collect();
        let batch = EventBatch { events, gap: None };
        home.ledger
            .record(&batch, NOON, None, &mut |_| None)
            .unwrap();
    }

    let events = home.ledger.events(1, None, usize::MAX).unwrap();

    assert_eq!(events.len(), 100_000);
    let names = (0..100).flat_map(|chunk| (0..1000).map(move |number| (chunk, number)));
    for (event, (chunk, number)) in events.iter().zip(names) {
        assert_eq!(event.path, format!("some/where/{chunk}/{number}"));
    }
}
