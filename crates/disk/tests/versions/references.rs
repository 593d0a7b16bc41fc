//! What all checkpoints need together is read from one table, and is what all of their lists say.

use super::{auto, check_versions, furnish, on_each, pool, pool_of, run, wanted};
use stasis_disk::form::slots::{HeldBound, Pool};
use stasis_model::workspace::Slot;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn table(session: &Path) -> PathBuf {
    session.join("references")
}

/// What is held at most, as the table says and as all lists say.
fn both_ways(session: &Path, pool: &Pool) -> [HeldBound; 2] {
    let by_table = pool.held_at_most().unwrap();
    let kept = fs::read(table(session)).ok();
    let _ = fs::remove_file(table(session));
    let by_lists = pool.held_at_most().unwrap();
    if let Some(kept) = kept {
        fs::write(table(session), kept).unwrap();
    }
    [by_table, by_lists]
}

fn write(session: &Path, name: &str, text: &str) {
    fs::write(session.join("workspace").join(name), text).unwrap();
}

#[test]
fn a_changed_checkpoint_reads_few_lists_however_many_there_are() {
    on_each(&["xfs"], |session| {
        furnish(session);
        for number in 2..12_u32 {
            write(session, "deep/file", &format!("number {number}"));
            let _ = auto(&pool(session), number, u64::from(number) + 1).unwrap();
        }
        write(session, "deep/file", "another one");
        let trace = "trace=read";
        let Some(status) = run(session, "create", &["-y", "-e", trace]) else {
            return;
        };

        let log = fs::read_to_string(session.join("log")).unwrap();
        let paths = log.lines().filter_map(|line| {
            let path = line.split_once(" read(")?.1.split_once('<')?.1;
            let path = path.split_once('>')?.0;
            path.ends_with("/versions").then_some(path)
        });
        let read: BTreeSet<&str> = paths.collect();
        assert!(status.success());
        // The newest, the one that goes, and the new one.
        assert!(read.len() <= 3, "{read:?}");
        check_versions(session, &pool(session), "one replaced");
    });
}

#[test]
fn the_table_says_what_all_lists_say_whatever_comes_and_goes() {
    on_each(&["xfs"], |session| {
        furnish(session);
        let mut random = 7_u32;
        let mut next = |most: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % most
        };
        let stale = fs::read(table(session)).unwrap();
        for round in 3..60_u64 {
            let when = format!("round {round}");
            for _ in 0..=next(3) {
                let (name, text) = (next(12).to_string(), next(5).to_string());
                write(session, &name, &text.repeat(100));
            }
            // Each time it is opened anew, as by another process.
            let pool = pool_of(session, if next(6) == 0 { 200_000 } else { 1 << 30 });
            match next(8) {
                0 => drop(pool.delete(Slot::new(next(6)))),
                1 => fs::write(table(session), &stale).unwrap(),
                2 => fs::write(table(session), "torn").unwrap(),
                3 => drop(fs::remove_file(table(session))),
                _ => drop(auto(&pool, next(6), round)),
            }
            let [by_table, by_lists] = both_ways(session, &pool);

            assert_eq!(by_table, by_lists, "{when}");
            check_versions(session, &pool, &when);
        }
        assert!(!wanted(&pool(session)).is_empty());
    });
}
