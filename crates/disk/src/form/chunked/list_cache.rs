//! The list of the newest snapshot of a tree on this host, with the stat of each file: which files need not be read again.
//!
//! A file of its own for every tree and repository, in blocks. A block is a section of the snapshot's list, the stat of
//! each file in it, and a digest of both. It is written beside the old one and renamed, without waiting for the disk: a
//! crash can leave it torn, a torn block is noticed, and whatever is missing is only read again.
//!
//! *Always true:* a file counts as unchanged only if device, inode, size, mtime and ctime are those that were cached,
//! and only if mtime and ctime were more than two seconds old when it was cached. Whether they were more than a minute old when the file
//! was read is kept with it: only then was nothing of it waiting in a mapping as well.

use crate::fs::fd::open_dir;
use crate::fs::stale;
use crate::tree::stat_cache::{FileStat, RacyLimit};
use rustix::fs::{self, Mode, OFlags};
use stasis_model::format::manifest::StoredAs;
use stasis_model::id::{OpId, SnapshotId};
use stasis_model::invalid::Invalid;
use stasis_model::time::Timestamp;
use stasis_model::tree::list::{ListRow, SectionPlace, SectionWriter, read_section};
use stasis_model::tree::{EntryKind, FileTime};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"STCACHE3";
/// More than any block has.
const LONGEST: u32 = 64 << 20;
const STAT: usize = 32;

/// Where the cache of a tree lies, and what it belongs to.
#[derive(Clone, Debug)]
pub struct ListCacheKey {
    /// The file.
    pub file: PathBuf,
    /// The repository, by the operation that made it.
    pub repo: OpId,
}

/// A cache in the making. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub(super) struct ListCacheWriter {
    out: BufWriter<File>,
    temp: PathBuf,
    file: PathBuf,
    section: SectionWriter,
    stats: Vec<u8>,
    racy: RacyLimit,
    mapped: RacyLimit,
    id_length: usize,
    is_done: bool,
}

/// How a database is stored, in one byte; 0 for what is none.
fn database_byte(stored: Option<StoredAs>) -> u8 {
    match stored {
        None => 0,
        Some(StoredAs::Consistent) => 1,
        Some(StoredAs::CrashConsistent) => 2,
        Some(StoredAs::Torn) => 3,
    }
}

fn database_of(byte: u8) -> Option<StoredAs> {
    match byte {
        1 => Some(StoredAs::Consistent),
        2 => Some(StoredAs::CrashConsistent),
        3 => Some(StoredAs::Torn),
        _ => None,
    }
}

fn stat_bytes(cached: Option<&CachedStat>) -> [u8; STAT] {
    let mut bytes = [0; STAT];
    if let Some(CachedStat {
        stat,
        database,
        was_old,
    }) = cached
    {
        bytes[..8].copy_from_slice(&stat.device.to_le_bytes());
        bytes[8..16].copy_from_slice(&stat.inode.to_le_bytes());
        bytes[16..24].copy_from_slice(&stat.changed.seconds.to_le_bytes());
        bytes[24..28].copy_from_slice(&stat.changed.nanos.to_le_bytes());
        bytes[28] = 1;
        bytes[29] = database_byte(*database);
        bytes[30] = u8::from(*was_old);
    }
    bytes
}

fn header(repo: OpId, snapshot: &SnapshotId) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(repo.to_string().as_bytes());
    let id = snapshot.as_str().as_bytes();
    header.push(u8::try_from(id.len()).expect("an id is short"));
    header.extend_from_slice(id);
    header
}

impl ListCacheWriter {
    /// Begins the cache of a tree as it is in `snapshot`, saved or restored since `started`.
    pub(super) fn create(
        key: &ListCacheKey,
        snapshot: &SnapshotId,
        started: Timestamp,
    ) -> io::Result<Self> {
        let mut temp = key.file.clone().into_os_string();
        temp.push(format!(".{}", rustix::process::getpid().as_raw_nonzero()));
        let temp = PathBuf::from(temp);
        collect(&key.file);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::open(&temp, flags, Mode::RUSR | Mode::WUSR)?;
        if !stale::hold(&file)? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        fs::ftruncate(&file, 0)?;
        let mut writer = Self {
            out: BufWriter::with_capacity(256 << 10, file.into()),
            temp,
            file: key.file.clone(),
            section: SectionWriter::default(),
            stats: Vec::new(),
            racy: RacyLimit::at(started),
            mapped: RacyLimit::of_mappings(started),
            id_length: snapshot.as_str().len(),
            is_done: false,
        };
        writer.out.write_all(&header(key.repo, snapshot))?;
        Ok(writer)
    }

    /// Whether a file that is read now is old enough for nothing of it to wait in a mapping.
    pub(super) fn is_old(&self, stat: &FileStat) -> bool {
        self.mapped.is_settled(stat)
    }

    /// Adds an entry, and of a file what it was when it was read.
    pub(super) fn push(&mut self, row: &ListRow, stat: Option<&CachedStat>) -> io::Result<()> {
        if let EntryKind::File { .. } = row.entry.kind {
            let stat = stat.filter(|cached| self.racy.is_settled(&cached.stat));
            self.stats.extend_from_slice(&stat_bytes(stat));
        }
        if self.section.push(row) {
            self.block()?;
        }
        Ok(())
    }

    fn block(&mut self) -> io::Result<()> {
        let mut block = self.section.finish();
        let section = u32::try_from(block.len()).unwrap_or(u32::MAX);
        block.append(&mut self.stats);
        let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
        self.out.write_all(&section.to_le_bytes())?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&SectionPlace::digest_of(&block))?;
        self.out.write_all(&block)
    }

    /// Whether it can be said afterwards that it is of another snapshot.
    pub(super) fn can_belong_to(&self, snapshot: &SnapshotId) -> bool {
        self.id_length == snapshot.as_str().len()
    }

    /// Puts the cache in its place.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.section.entries() > 0 {
            self.block()?;
        }
        self.out.flush()?;
        fs::rename(&self.temp, &self.file)?;
        self.is_done = true;
        Ok(())
    }
}

/// Removes what saves that were killed left beside a cache: `DIGEST.PID`.
fn collect(file: &Path) {
    let Some(above) = file.parent() else {
        return;
    };
    let Ok(directory) = open_dir(above) else {
        return;
    };
    stale::collect(&directory, |name| {
        let end = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        end.len() < name.len() && !end.is_empty() && end.iter().all(u8::is_ascii_digit)
    });
}

impl Drop for ListCacheWriter {
    fn drop(&mut self) {
        if !self.is_done {
            // A file that stays is only untidy: the next save removes it.
            let _ = fs::unlink(&self.temp);
        }
    }
}

/// Whether the id of one snapshot can be written over that of another.
pub(super) fn can_belong_to(before: &SnapshotId, now: &SnapshotId) -> bool {
    before.as_str().len() == now.as_str().len()
}

/// Says that what is cached is as it is in another snapshot, of the same tree, whose id is as long.
///
/// A crash in between leaves an id that no index leads to, or the old one: then everything is read, or it still counts.
pub(super) fn belongs_to(key: &ListCacheKey, snapshot: &SnapshotId) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = fs::open(&key.file, flags, Mode::empty())?;
    let header = header(key.repo, snapshot);
    let at = header.len() - snapshot.as_str().len();
    let written = rustix::io::pwrite(&file, &header[at..], at as u64)?;
    if written == header.len() - at {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// What this host knows of a file: while it looks like that, it has the content that was cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CachedStat {
    pub(super) stat: FileStat,
    pub(super) database: Option<StoredAs>,
    /// Whether its times were more than a minute old when it was read.
    pub(super) was_old: bool,
}

/// Reads what was cached, entry by entry.
#[derive(Debug)]
pub(super) struct ListCacheReader {
    input: BufReader<File>,
    rows: VecDeque<(ListRow, Option<CachedStat>)>,
    pub(super) snapshot: SnapshotId,
}

impl ListCacheReader {
    /// Opens a cache; `None` when there is none, or it is of another repository.
    pub(super) fn open(key: &ListCacheKey) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::open(&key.file, flags, Mode::empty()).ok()?;
        let mut input = BufReader::with_capacity(256 << 10, File::from(file));
        let mut start = [0; 8 + 36 + 1];
        input.read_exact(&mut start).ok()?;
        let mut id = vec![0; usize::from(start[44])];
        input.read_exact(&mut id).ok()?;
        let snapshot: SnapshotId = String::from_utf8(id).ok()?.parse().ok()?;
        let wanted = header(key.repo, &snapshot);
        (start[..] == wanted[..45]).then_some(Self {
            input,
            rows: VecDeque::new(),
            snapshot,
        })
    }

    /// The next entry; what is torn reads as the end.
    pub(super) fn next_row(&mut self) -> Option<(ListRow, Option<CachedStat>)> {
        if self.rows.is_empty() {
            self.block()?;
        }
        self.rows.pop_front()
    }

    fn block(&mut self) -> Option<()> {
        let (mut section, mut length, mut digest) = ([0; 4], [0; 4], [0; 16]);
        self.input.read_exact(&mut section).ok()?;
        self.input.read_exact(&mut length).ok()?;
        self.input.read_exact(&mut digest).ok()?;
        let length = u32::from_le_bytes(length);
        if length > LONGEST {
            return None;
        }
        let mut block = vec![0; length as usize];
        self.input.read_exact(&mut block).ok()?;
        if SectionPlace::digest_of(&block) != digest {
            return None;
        }
        let (section, stats) = block.split_at_checked(u32::from_le_bytes(section) as usize)?;
        let mut stats = stats.as_chunks::<STAT>().0.iter();
        let rows = &mut self.rows;
        let read = read_section(section, None, |row| {
            let stat = match row.entry.kind {
                EntryKind::File { size } => stats.next().and_then(|bytes| stat(bytes, size, &row)),
                _ => None,
            };
            rows.push_back((row, stat));
            Ok::<(), Invalid>(())
        });
        read.ok()
    }
}

fn stat(bytes: &[u8; STAT], size: u64, row: &ListRow) -> Option<CachedStat> {
    let eight = |from: usize| {
        bytes[from..from + 8]
            .try_into()
            .map(u64::from_le_bytes)
            .ok()
    };
    let nanos = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
    let stat = FileStat {
        device: eight(0)?,
        inode: eight(8)?,
        size,
        modified: row.entry.metadata.modified,
        changed: FileTime {
            seconds: eight(16)?.cast_signed(),
            nanos,
        },
    };
    let database = database_of(bytes[29]);
    (bytes[28] == 1).then_some(CachedStat {
        stat,
        database,
        was_old: bytes[30] == 1,
    })
}
