//! The reference in the documentation is what the program says of itself.

use crate::session::Session;
use std::path::Path;

#[test]
fn the_command_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let current = Session::new().run(&["reference"]).out;

    if std::env::var_os("STASIS_UPDATE").is_some() {
        std::fs::write(&path, &current).unwrap();
    }

    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == current,
        "docs/reference/cli.md is stale: run `STASIS_UPDATE=1 cargo test -p stasis reference`"
    );
}
