//! The processes of this machine, as far as this one may look at them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// Where the system lists its processes, for messages.
pub const TABLE: &str = "/proc";

/// Which process, for as long as the machine runs: no other process has the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId {
    pid: u32,
    started: u64,
}

impl ProcessId {
    /// The process `pid` that started `started` clock ticks after boot.
    pub fn new(pid: u32, started: u64) -> Self {
        Self { pid, started }
    }

    /// Its number; another process may have it later.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// When it started, in clock ticks after boot.
    pub fn started(self) -> u64 {
        self.started
    }

    /// When it started, as time after boot.
    pub fn after_boot(self) -> Duration {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_secs(self.started / ticks)
            + Duration::from_secs(self.started % ticks) / u32::try_from(ticks).unwrap_or(u32::MAX)
    }
}

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessState {
    /// It runs or sleeps, and may change things at any moment.
    Alive,
    /// It stands still, by a signal or by a debugger.
    Stopped,
    /// It has ended; perhaps not waited for yet.
    Ended,
}

/// One process as the kernel describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessInfo {
    /// Which process.
    pub identity: ProcessId,
    /// Who started it, or who took it over when that one ended.
    pub parent: u32,
    /// The number of its process group.
    pub group: u32,
    /// The number of its session.
    pub session: u32,
    /// What its first thread does.
    pub state: ProcessState,
}

impl ProcessInfo {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.identity.pid()
    }

    /// Reads one process, or `None` when there is none of this number.
    pub fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(file(pid)).ok()?)
    }

    /// Reads this process; fails where the system lists none, as in a container without `/proc`.
    pub fn of_this() -> io::Result<Self> {
        let line = fs::read(file(std::process::id()))?;
        Self::parse(&line).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reads the line of `/proc/PID/stat`. The name may hold anything, also spaces and brackets.
    fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|byte| *byte == b'(')?;
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let number = std::str::from_utf8(line.get(..open)?).ok()?;
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Field 3 of the manual page, the state, is the first after the name.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            identity: ProcessId::new(number.trim().parse().ok()?, field(22)?.parse().ok()?),
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            state: match field(3)? {
                "T" | "t" => ProcessState::Stopped,
                "Z" | "X" | "x" => ProcessState::Ended,
                _ => ProcessState::Alive,
            },
        })
    }

    /// Whether no thread of the process can change anything: all stand still or have ended.
    ///
    /// The process's own line tells only of its first thread, which may stand still while others are still on their way.
    pub fn is_stopped(pid: u32) -> bool {
        Self::all_threads(pid, |state| state != ProcessState::Alive)
    }

    /// Whether every thread of the process has ended, though perhaps nobody waited for it yet.
    pub fn has_ended(pid: u32) -> bool {
        Self::all_threads(pid, |state| state == ProcessState::Ended)
    }

    fn all_threads(pid: u32, is_so: impl Fn(ProcessState) -> bool) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return true;
        };
        threads.flatten().all(|thread| {
            let line = fs::read(thread.path().join("stat"));
            let row = line.ok().and_then(|line| Self::parse(&line));
            row.is_none_or(|row| is_so(row.state))
        })
    }
}

/// What is read of one process, for messages.
pub fn file(pid: u32) -> String {
    format!("/proc/{pid}/stat")
}

/// Whether a process has this number, ended and not waited for included.
pub fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// The numbers of all processes. They come and go meanwhile.
pub fn all() -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(TABLE)? {
        all.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok()),
        );
    }
    Ok(all)
}

/// Which boot of the machine this is.
pub fn boot() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// In which namespace of process numbers we are; a word without spaces.
pub fn namespace() -> io::Result<String> {
    let link = fs::read_link("/proc/self/ns/pid")?;
    Ok(link.to_string_lossy().replace(' ', "_"))
}

/// The command line of a process, a NUL after each argument; nothing where it may not be looked at, or has none.
pub fn command_line(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// The variables of a process as it was started with them, a NUL after each; nothing where it may not be looked at, or has none.
pub fn environment(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

/// A path that leads to the root directory of a process, where other paths of it begin.
pub fn root_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// Whether we may know what the root directory of a process is.
pub fn is_root_known(pid: u32) -> bool {
    fs::read_link(root_of(pid)).is_ok()
}

/// A path that leads to where a process is.
pub fn working_directory_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/cwd"))
}

/// Whether a process may call the same directory by another path than we do, because other things are mounted for it.
pub fn sees_other_mounts(pid: u32) -> bool {
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    mounts(&pid.to_string()) != mounts("self")
}

/// Something that a process has open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenFile {
    /// Whose it is.
    pub pid: u32,
    link: PathBuf,
}

impl OpenFile {
    /// What it is called, by whoever has it open; not a path for what has none, such as a socket.
    pub fn path(&self) -> Option<PathBuf> {
        fs::read_link(&self.link).ok()
    }

    /// Its device and inode.
    pub fn identity(&self) -> Option<(u64, u64)> {
        let seen = fs::metadata(&self.link).ok()?;
        Some((seen.dev(), seen.ino()))
    }
}

/// What a process has open; an error where that may not be looked at.
pub fn open_files(pid: u32) -> io::Result<impl Iterator<Item = OpenFile>> {
    let all = fs::read_dir(format!("/proc/{pid}/fd"))?;
    Ok(all.flatten().map(move |one| OpenFile {
        pid,
        link: one.path(),
    }))
}

/// What all other processes that may be looked at have open.
pub fn files_open_elsewhere() -> impl Iterator<Item = OpenFile> {
    let others = all().into_iter().flatten();
    let others = others.filter(|pid| *pid != std::process::id());
    others.flat_map(|pid| open_files(pid).into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_confuse_the_fields() {
        let line = b"42 (a) R 1 (b) T 7 8 9 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 5555 1 2";

        let row = ProcessInfo::parse(line).unwrap();

        assert_eq!(row.identity, ProcessId::new(42, 5555));
        assert_eq!((row.parent, row.group, row.session), (7, 8, 9));
        assert_eq!(row.state, ProcessState::Stopped);
        assert_eq!(ProcessInfo::parse(b"42 (cut off"), None);
        assert_eq!(ProcessInfo::parse(b"42 (x) R 1"), None);
    }

    #[test]
    fn this_process_is_there_and_has_open_what_it_opened() {
        let home = tempfile::tempdir().unwrap();
        let opened = fs::File::open(home.path()).unwrap();
        let pid = std::process::id();

        let mut files = open_files(pid).unwrap();

        let canonical = home.path().canonicalize().unwrap();
        let seen = opened.metadata().unwrap();
        let identity = Some((seen.dev(), seen.ino()));
        assert!(files.any(|file| file.path().as_ref() == Some(&canonical) && file.identity() == identity));
        assert!(exists(pid) && !exists(u32::MAX) && all().unwrap().contains(&pid));
        assert!(!command_line(pid).is_empty() && command_line(u32::MAX).is_empty());
        assert!(!sees_other_mounts(pid));
    }
}
