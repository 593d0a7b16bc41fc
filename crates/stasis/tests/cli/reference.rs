//! The reference in the documentation is what the program says of itself.

use crate::session::{SCHEMAS, Session};
use std::path::Path;

#[test]
fn the_command_reference_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    assert_current(Path::new(path), "reference");
}

#[test]
fn the_published_schemas_are_current() {
    assert_current(Path::new(SCHEMAS), "schema");
}

/// Compares a file of the documentation with what a command prints, which it is made from.
fn assert_current(path: &Path, command: &str) {
    let current = Session::new().run(&[command]).out;

    if std::env::var_os("STASIS_UPDATE").is_some() {
        std::fs::write(path, &current).unwrap();
    }

    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == current,
        "{} is stale: run `STASIS_UPDATE=1 cargo test -p stasis reference`",
        path.display()
    );
}
