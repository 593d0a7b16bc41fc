//! Where the numbers of processes mean something: on one boot of the machine, in one namespace.

use std::fs;
use std::io;

/// Which boot of the machine this is.
pub(crate) fn boot() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// In which namespace of process numbers we are; a word without spaces.
pub(crate) fn namespace() -> io::Result<String> {
    let link = fs::read_link("/proc/self/ns/pid")?;
    Ok(link.to_string_lossy().replace(' ', "_"))
}
