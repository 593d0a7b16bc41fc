//! The process that checks one SQLite database, as tests start it.

use std::ffi::OsString;
use std::io::Write;

fn main() -> std::io::Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let answer = stasis_disk::check::sqlite::child(&arguments);
    std::io::stdout().write_all(answer.as_bytes())
}
