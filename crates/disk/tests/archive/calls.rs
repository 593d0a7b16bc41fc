//! How often the kernel is asked for each entry that is unpacked: what a timing would only notice on a quiet machine.
//!
//! The archive is unpacked in a process of its own (this test binary again, told what to do by its environment) under
//! strace, once with some entries and once with twice as many: the difference is what the entries cost.

use crate::differential::{extract, settings};
use stasis_disk::form::archive::create;
use std::path::Path;
use std::process::Command;

/// The directory with the archive, for the process that unpacks it.
const HOME: &str = "STASIS_TEST_UNPACK";
/// Calls that are no work on an entry: of the allocator, and of the library, which asks about descriptors that it closes
/// when it is built for tests.
const OTHERS: [&str; 3] = ["mmap", "fcntl", "read"];

/// Entries of a tree, all in the directory `d`.
struct Flat {
    files: usize,
    directories: usize,
}

#[test]
#[ignore = "unpacks for the tests of this file"]
fn unpacks_when_it_is_told_to() {
    let Some(home) = std::env::var_os(HOME) else {
        return;
    };
    let home = Path::new(&home);
    let _ = extract(&home.join("a.tar.zst"), &home.join("unpacked")).unwrap();
}

/// How often anything was asked while a tree was unpacked; `None` when there is no strace.
fn calls(flat: &Flat) -> Option<i64> {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir_all(at("tree/d")).unwrap();
    for file in 0..flat.files {
        std::fs::write(at(&format!("tree/d/f{file}")), "small").unwrap();
    }
    for directory in 0..flat.directories {
        std::fs::create_dir(at(&format!("tree/d/d{directory}"))).unwrap();
    }
    let _ = create(&at("tree"), &at("a.tar.zst"), &settings(1)).unwrap();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-e", "trace=%file,%desc", "-o"])
        .arg(at("log"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "calls::unpacks_when_it_is_told_to", "--ignored"])
        .env(HOME, home.path());
    match command.output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => {
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "strace is not there ({error}): run scripts/test");
            println!("skipped: strace is not there");
            return None;
        }
    }
    let log = std::fs::read_to_string(at("log")).unwrap();
    // A call that another thread interrupted has a second line.
    let begun = log.lines().filter(|line| !line.contains(" resumed>"));
    let calls = begun.filter_map(|line| {
        let call = line.split_once('(')?.0.split(' ').next_back()?;
        (!OTHERS.contains(&call)).then_some(call)
    });
    Some(i64::try_from(calls.count()).unwrap())
}

/// What one more of `number` entries costs, when there are twice as many.
fn cost(number: usize, flat: impl Fn(usize) -> Flat) -> Option<f64> {
    let (some, twice) = (calls(&flat(number))?, calls(&flat(2 * number))?);
    let number = i32::try_from(number).unwrap();
    Some(f64::from(i32::try_from(twice - some).unwrap()) / f64::from(number))
}

#[test]
fn a_small_file_costs_four_calls_and_a_directory_two() {
    let file = cost(100, |files| Flat {
        files,
        directories: 0,
    });
    let directory = cost(100, |directories| Flat {
        files: 0,
        directories,
    });

    // Create, write, set the time, close.
    assert!(file.is_none_or(|file| file <= 4.1), "{file:?}");
    // Make, set the time.
    assert!(directory.is_none_or(|cost| cost <= 2.1), "{directory:?}");
}
