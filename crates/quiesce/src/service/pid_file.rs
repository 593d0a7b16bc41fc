//! A process that wrote its number into a file.
//!
//! The file says nothing about when the process began. The process that has the number now began before the file was written, or is
//! another process; then we do not know what became of the service, and touch nothing.

use super::ServiceLookup;
use crate::process::Process;
use stasis_sys::host;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// More of it is not read.
const LONGEST: u64 = 64 << 10;
/// How far the two clocks may be apart: the boot is known to a second, and so is the time of some files.
const SLACK: i64 = 2;

/// The process that a file names, if it runs.
pub(super) fn find(path: &Path) -> io::Result<ServiceLookup> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ServiceLookup::Nothing),
        Err(error) => return Err(error),
    };
    let written = file.metadata()?.mtime();
    let mut text = String::new();
    (&mut file).take(LONGEST).read_to_string(&mut text)?;
    let first = text.lines().next().unwrap_or_default().trim();
    let Ok(pid) = first.parse::<u32>() else {
        let why = format!("`{}` does not begin with a number", path.display());
        return Ok(ServiceLookup::Unclear(why));
    };
    let Some(process) = Process::open(pid)? else {
        return Ok(ServiceLookup::Nothing);
    };
    let began = host::booted()? + began_after_boot(&process);
    if began > written + SLACK {
        let path = path.display();
        let why = format!(
            "process {pid} began after `{path}` was written: it is another one, or the clock was set"
        );
        return Ok(ServiceLookup::Unclear(why));
    }
    Ok(ServiceLookup::Process(process))
}

fn began_after_boot(process: &Process) -> i64 {
    let began = process.identity().after_boot().as_secs();
    i64::try_from(began).unwrap_or(i64::MAX / 2)
}
