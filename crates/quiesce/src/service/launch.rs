//! The small program that becomes a service.
//!
//! Its standard input is a pipe to the process that started it. It says there why it failed; it says nothing when it became the
//! service, because that has another standard input.

use super::record;
use crate::process::Process;
use rustix::io::fcntl_dupfd_cloexec;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Becomes a service: returns only when that failed.
///
/// Its arguments are the path of the record, which is empty when none is wanted, and then the program with its arguments.
pub fn run(arguments: &[OsString]) -> io::Result<()> {
    let mut starter: File = fcntl_dupfd_cloexec(io::stdin(), 3)?.into();
    let error = become_service(arguments);
    let code = error.raw_os_error().unwrap_or_default();
    let _ = writeln!(starter, "{code} {error}");
    Err(error)
}

fn become_service(arguments: &[OsString]) -> io::Error {
    let [path, program, rest @ ..] = arguments else {
        return io::ErrorKind::InvalidInput.into();
    };
    // Refused only to one that leads a group already, which the one that starts this does not make it.
    if let Err(error) = rustix::process::setsid() {
        return error.into();
    }
    let path = Path::new(path);
    if !path.as_os_str().is_empty()
        && let Err(error) = write_down(path)
    {
        return error;
    }
    let error = Command::new(program).args(rest).stdin(Stdio::null()).exec();
    if !path.as_os_str().is_empty() {
        let _ = record::forget(path);
    }
    error
}

fn write_down(path: &Path) -> io::Result<()> {
    let ourselves = Process::open(std::process::id())?;
    let ourselves = ourselves.ok_or(io::ErrorKind::NotFound)?;
    record::write(path, ourselves.identity())
}
