//! What the program asks of itself in another process.

use crate::session::STASIS;
use std::process::Command;

/// Starts the checker as the library does: in a directory with nothing but a copy.
fn answer(arguments: &[&str], database: &[u8]) -> String {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("db"), database).unwrap();
    let output = Command::new(STASIS)
        .args(["internal", "check-sqlite"])
        .args(arguments)
        .current_dir(scratch.path())
        .env("STASIS_LOG", "what is no filter at all =")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_program_checks_a_database_in_a_process_of_its_own() {
    let limits = ["quick", "268435456", "10", "67108864", "20"];

    let empty = answer(&limits, b"");
    let letter = answer(&limits, &b"a letter to somebody ".repeat(300));
    let wrong = answer(&["quick", "much"], b"");

    assert_eq!(empty, "pages 0\nrecovered nothing\nclaim sound\n");
    assert!(letter.ends_with("claim not_a_database\n"), "{letter}");
    assert!(wrong.ends_with("claim unable\n"), "{wrong}");
}
