//! What the system says of this machine and of this process.

use std::fs;
use std::io;
use std::path::PathBuf;

/// This very program, even if its file was replaced since.
pub fn this_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// When the machine was started, in seconds of the calendar's clock as it is set now.
pub fn booted() -> io::Result<i64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let booted = line.and_then(|seconds| seconds.trim().parse().ok());
    booted.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What tells this machine from others: its id, or else its name; nothing where it has neither.
pub fn machine() -> String {
    let said = ["/etc/machine-id", "/proc/sys/kernel/hostname"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok());
    said.unwrap_or_default().trim().to_owned()
}

/// The most memory that this process ever had resident, if the system tells.
pub fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
