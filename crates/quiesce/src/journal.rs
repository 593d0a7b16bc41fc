//! What was stopped, written down before it is, for the next process after a crash.
//!
//! One file per freeze: a line that says on which boot and in which process namespace the numbers mean something, then one
//! line per process (`stopped PID START`) or container (`paused ID DAEMON docker`). A reader that knows only processes must not
//! take a journal with containers for one without: those that may name containers begin with another word. The file is locked for as long as its engine lives: the kernel unlocks what a dead process held. Lines
//! are durable before their process is stopped, so that a line cut short names no process that was.

use crate::docker::Container;
use crate::process::ProcessId;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use stasis_sys::processes::{boot, namespace};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "freeze-";
const SUFFIX: &str = ".journal";
/// Names processes only.
const FORMAT: &str = "stasis-freeze-1";
/// Names processes and containers.
const FORMAT_2: &str = "stasis-freeze-2";
/// A tree of processes is not larger than this; a longer file was not written here.
const LARGEST: u64 = 4 << 20;

/// Something that stands still because of us, or is about to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FrozenTarget {
    Process(ProcessId),
    Container(Container),
}

impl FrozenTarget {
    fn to_line(&self) -> String {
        match self {
            Self::Process(process) => {
                format!("stopped {} {}\n", process.pid(), process.started())
            }
            Self::Container(container) => format!("paused {}\n", container.to_line()),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        if let Some(words) = line.strip_prefix("paused ") {
            return Container::parse(words).map(Self::Container);
        }
        let (pid, started) = line.strip_prefix("stopped ")?.split_once(' ')?;
        let identity = ProcessId::new(pid.parse().ok()?, started.parse().ok()?);
        Some(Self::Process(identity))
    }
}

/// What a journal may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JournalScope {
    Processes,
    Containers,
}

/// The journal of a freeze of ours.
#[derive(Debug)]
pub(crate) struct FreezeJournal {
    file: File,
    path: PathBuf,
}

impl FreezeJournal {
    /// Begins a journal that names no process yet; makes the directory when there is none.
    pub(crate) fn create(directory: &Path, scope: JournalScope) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let directory = fs::canonicalize(directory)?;
        let (mut file, path) = new_file(&directory)?;
        let format = match scope {
            JournalScope::Processes => FORMAT,
            JournalScope::Containers => FORMAT_2,
        };
        writeln!(file, "{format} {} {}", boot()?, namespace()?)?;
        file.sync_all()?;
        File::open(&directory)?.sync_all()?;
        Ok(Self { file, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down some; they are named durably when this returns.
    pub(crate) fn name(&mut self, held: &[FrozenTarget]) -> io::Result<()> {
        let lines = held.iter().map(FrozenTarget::to_line);
        self.file.write_all(lines.collect::<String>().as_bytes())?;
        self.file.sync_data()
    }

    /// Removes it: everything runs again.
    pub(crate) fn remove(self) -> io::Result<()> {
        Ok(rustix::fs::unlink(&self.path)?)
    }
}

/// A new file with a name of its own, locked by us before another process could take it for an abandoned one.
fn new_file(directory: &Path) -> io::Result<(File, PathBuf)> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for number in 0..10_000 {
        let name = format!("{PREFIX}{}-{number}{SUFFIX}", std::process::id());
        let path = directory.join(name);
        match open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
                // A process that looked in between may have removed it.
                if locked && fstat(&file)?.st_nlink > 0 {
                    return Ok((file.into(), path));
                }
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// What became of a journal.
#[derive(Debug)]
pub(crate) enum JournalState {
    /// Its engine lives.
    Live,
    /// Its numbers mean nothing here, or it is not understood.
    Foreign,
    /// Its engine has died: these were stopped. The file stays locked until this is dropped.
    Abandoned(Vec<FrozenTarget>, File),
}

/// The journals in a directory.
pub(crate) fn all(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads a journal, if it is still there.
pub(crate) fn read(path: &Path) -> io::Result<Option<JournalState>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file: File = match open(path, flags, Mode::empty()) {
        Ok(file) => file.into(),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(Some(JournalState::Live)),
        Err(error) => return Err(error.into()),
    }
    let mut text = String::new();
    (&file).take(LARGEST).read_to_string(&mut text)?;
    let stopped = parse(&text, &boot()?, &namespace()?);
    Ok(Some(match stopped {
        Some(stopped) => JournalState::Abandoned(stopped, file),
        None => JournalState::Foreign,
    }))
}

/// What a journal names, or `None` when it is not for us. After a reboot no process stands still any more.
fn parse(text: &str, boot: &str, namespace: &str) -> Option<Vec<FrozenTarget>> {
    let whole = text
        .rfind('\n')
        .map_or("", |end| text.get(..end).unwrap_or(""));
    let mut lines = whole.lines();
    let Some(first) = lines.next() else {
        return Some(Vec::new());
    };
    let words: Vec<&str> = first.split(' ').collect();
    let [FORMAT | FORMAT_2, written_boot, written_namespace] = words[..] else {
        return None;
    };
    if written_boot != boot {
        return Some(Vec::new());
    }
    (written_namespace == namespace).then(|| lines.filter_map(FrozenTarget::parse).collect())
}

/// Removes the journal of an engine that has died; one that lives keeps its own. Returns whether it is gone.
pub(crate) fn forget(path: &Path) -> io::Result<bool> {
    match read(path)? {
        None => Ok(true),
        Some(JournalState::Abandoned(..)) => {
            rustix::fs::unlink(path)?;
            Ok(true)
        }
        Some(JournalState::Live | JournalState::Foreign) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "stasis-freeze-1 boot ns\nstopped 5 100\nstopped 6 200\n";

    #[test]
    fn a_journal_names_whole_lines_only() {
        let all =
            [(5, 100), (6, 200)].map(|(pid, at)| FrozenTarget::Process(ProcessId::new(pid, at)));

        assert_eq!(parse(WHOLE, "boot", "ns").unwrap(), all);
        for cut in WHOLE.len() - 14..WHOLE.len() {
            assert_eq!(parse(&WHOLE[..cut], "boot", "ns").unwrap(), all[..1]);
        }
        assert!(parse("stasis-fre", "boot", "ns").unwrap().is_empty());
        assert!(parse("", "boot", "ns").unwrap().is_empty());
    }

    #[test]
    fn numbers_of_another_boot_or_namespace_name_nobody() {
        assert!(parse(WHOLE, "other", "ns").unwrap().is_empty());
        assert!(parse(WHOLE, "boot", "other").is_none());
        assert!(parse("stasis-freeze-3 boot ns\nstopped 5 100\n", "boot", "ns").is_none());
    }

    #[test]
    fn a_container_is_named_beside_processes_in_a_journal_of_its_own_kind() {
        let home = tempfile::tempdir().unwrap();
        let container = Container::parse("0123456789ab unix:///a%20b docker").unwrap();
        let both = [
            FrozenTarget::Process(ProcessId::new(5, 100)),
            FrozenTarget::Container(container),
        ];
        let mut journal = FreezeJournal::create(home.path(), JournalScope::Containers).unwrap();

        journal.name(&both).unwrap();

        let path = journal.path().to_owned();
        drop(journal);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("stasis-freeze-2 "), "{text}");
        assert!(text.ends_with("\npaused 0123456789ab unix:///a%20b docker\n"));
        let Some(JournalState::Abandoned(named, _)) = read(&path).unwrap() else {
            panic!("abandoned");
        };
        assert_eq!(named, both);
    }

    #[test]
    fn a_journal_is_live_while_it_is_held_and_abandoned_afterwards() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/b");
        let seven = FrozenTarget::Process(ProcessId::new(7, 70));
        let mut journal = FreezeJournal::create(&directory, JournalScope::Processes).unwrap();
        journal.name(std::slice::from_ref(&seven)).unwrap();
        let [path] = &all(&directory).unwrap()[..] else {
            panic!("one journal");
        };

        assert!(matches!(read(path).unwrap(), Some(JournalState::Live)));
        assert!(!forget(path).unwrap() && path.exists(), "a live one stays");
        drop(journal);
        let Some(JournalState::Abandoned(named, _)) = read(path).unwrap() else {
            panic!("abandoned");
        };
        assert_eq!(named, [seven]);
        assert!(forget(path).unwrap() && !path.exists());
    }

    #[test]
    fn two_freezes_at_once_have_two_journals() {
        let home = tempfile::tempdir().unwrap();
        let one = FreezeJournal::create(home.path(), JournalScope::Processes).unwrap();
        let two = FreezeJournal::create(home.path(), JournalScope::Processes).unwrap();

        assert_eq!(all(home.path()).unwrap().len(), 2);
        one.remove().unwrap();
        two.remove().unwrap();
        assert!(all(home.path()).unwrap().is_empty());
    }
}
