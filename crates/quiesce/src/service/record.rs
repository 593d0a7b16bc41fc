//! Which process is a service of ours, in a file that outlives us.
//!
//! One line: the format, the boot and the namespace in which the number means something, the number and the time of the
//! start. It is replaced as a whole.

use super::ServiceLookup;
use crate::process::{Process, ProcessId, ProcessInfo, ProcessTable};
use rustix::fs::{Mode, OFlags, fsync, open, rename, unlink};
use rustix::io::Errno;
use stasis_sys::processes::{boot, namespace};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const FORMAT: &str = "stasis-service-1";

/// Writes down a process, durably.
pub(super) fn write(path: &Path, process: ProcessId) -> io::Result<()> {
    let (pid, started) = (process.pid(), process.started());
    let line = format!("{FORMAT} {} {} {pid} {started}\n", boot()?, namespace()?);
    let mut name = OsString::from(path);
    name.push(format!(".{pid}.tmp"));
    let new = PathBuf::from(name);
    let flags =
        OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file: File = open(&new, flags, Mode::RUSR | Mode::WUSR)?.into();
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    rename(&new, path)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    fsync(File::open(directory.unwrap_or(Path::new(".")))?)?;
    Ok(())
}

/// Removes a record, if there is one.
pub(super) fn forget(path: &Path) -> io::Result<()> {
    match unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The process that a record names, if that one still runs.
pub(super) fn find(path: &Path) -> io::Result<ServiceLookup> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ServiceLookup::Nothing),
        Err(error) => return Err(error),
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [FORMAT, written_boot, written_namespace, pid, started] = words[..] else {
        return Ok(ServiceLookup::Unclear(
            "its record is not understood".to_owned(),
        ));
    };
    if written_boot != boot()? {
        return Ok(ServiceLookup::Nothing);
    }
    if written_namespace != namespace()? {
        let elsewhere = "it was started where other processes are seen than here";
        return Ok(ServiceLookup::Unclear(elsewhere.to_owned()));
    }
    let (Ok(pid), Ok(started)) = (pid.parse(), started.parse()) else {
        return Ok(ServiceLookup::Unclear(
            "its record is not understood".to_owned(),
        ));
    };
    let identity = ProcessId::new(pid, started);
    if let Some(process) = Process::reopen(identity)? {
        return Ok(ServiceLookup::Process(process));
    }
    left_behind(identity)
}

/// Whether something goes on in the session of a service whose first process has ended.
fn left_behind(first: ProcessId) -> io::Result<ServiceLookup> {
    // The number of a session is free again when no process is in it any more: then it may lead another one.
    if ProcessInfo::read(first.pid()).is_some_and(|row| row.identity != first) {
        return Ok(ServiceLookup::Nothing);
    }
    let table = ProcessTable::read()?;
    let left = table.living().filter(|row| row.session == first.pid());
    let pids: Vec<String> = left.map(|row| row.pid().to_string()).collect();
    if pids.is_empty() {
        return Ok(ServiceLookup::Nothing);
    }
    let pids = pids.join(", ");
    let why = format!("its first process has ended, but of its session there is still {pids}");
    Ok(ServiceLookup::Unclear(why))
}
