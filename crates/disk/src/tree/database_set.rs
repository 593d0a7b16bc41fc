//! A SQLite database together with its rollback journal and its WAL, as they belong together.
//!
//! What is taken is the files themselves, so that a checkpoint is the tree that was there; SQLite makes one committed state of them when
//! it opens them. That they fit each other is arranged as any reader of SQLite does:
//!
//! 1. the database is locked shared: nobody writes to it outside a WAL, ends a transaction in it, or removes its WAL. Whoever has it
//!    for himself is waited for, no longer than [`WAIT`]
//! 2. in WAL mode one of the marks of readers is locked as well: the WAL grows, but nobody begins it anew
//! 3. the database is carried over first, then what lies beside it: whatever a checkpoint of SQLite wrote into the database meanwhile is
//!    in the WAL that comes after it. A journal whose transaction has not touched the database yet is left out
//!
//! A rollback journal makes writers wait for us: no longer than [`HOLD`]. What cannot be copied by then is copied without the lock, and counts if
//! under the next lock no file looks different. In WAL mode nobody waits for a reader, and the lock is held until everything is carried over.
//!
//! *Always true:* [`StoredAs::Consistent`] means that the locks were held from the first byte to the last, or that nothing was written in between.
//! [`StoredAs::CrashConsistent`] means that somebody else had the lock, and that nothing was written in between: what a power cut would
//! have left, from which SQLite recovers. Everything else is [`StoredAs::Torn`]. Nothing of a live database is ever written or made.
//!
//! That nothing was written is known by the times of the files, once those are older than the clock that the kernel takes them from:
//! whatever is written later gets a later time.

use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::RootDir;
use crate::fs::sys::{clock, record_lock};
use crate::tree::content::{self, CarryError};
use rustix::io::{self, Errno};
use stasis_model::format::manifest::StoredAs;
use stasis_model::sqlite_file::{
    COMPANIONS, HEADER, LOGS, LockRange, PENDING_LOCK, RESERVED_LOCK, SHARED_LOCK,
};
use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// So long a lock is waited for.
pub(crate) const WAIT: Duration = Duration::from_millis(50);
/// So long for all databases of one tree together.
const WAIT_FOR_ALL: Duration = Duration::from_millis(500);
/// So long a writer is kept waiting.
pub(crate) const HOLD: Duration = Duration::from_millis(50);
/// How often a set is taken before it is called torn.
const ATTEMPTS: usize = 3;
/// How long between two looks at a lock.
const LOOK: Duration = Duration::from_micros(100);
/// No clock that gives files their times is coarser than this, but for those that know whole seconds only.
const TICK: Duration = Duration::from_millis(12);

/// Those of the readers' marks in the index of a WAL; the first mark means that the WAL is not read, and does not keep it.
const MARKS: RangeInclusive<i64> = 124..=127;
/// What the version bytes of the header say in WAL mode.
const IN_WAL: u8 = 2;

/// Whether a file of this size may be a database, so that its first bytes are worth a look.
pub(crate) fn may_be(size: u64) -> bool {
    size >= 512 && size.is_multiple_of(512)
}

/// Whether a file is a database.
pub(crate) fn is_database(file: impl AsFd) -> bool {
    let mut start = [0; HEADER.len()];
    let read = io::retry_on_intr(|| io::pread(&file, &mut start, 0));
    read == Ok(start.len()) && start == *HEADER
}

/// Where a database is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set<'a> {
    pub(crate) root: &'a RootDir,
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    pub(crate) wait_budget: &'a SetWaitBudget,
}

/// How long all databases of a tree may be waited for.
#[derive(Debug)]
pub(crate) struct SetWaitBudget(AtomicU64);

impl Default for SetWaitBudget {
    fn default() -> Self {
        Self(AtomicU64::new(
            u64::try_from(WAIT_FOR_ALL.as_micros()).unwrap_or(u64::MAX),
        ))
    }
}

impl SetWaitBudget {
    fn left(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed)).min(WAIT)
    }

    fn spend(&self, spent: Duration) {
        let spent = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
        let less = |left: u64| Some(left.saturating_sub(spent));
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// One file of a set.
#[derive(Debug)]
pub(crate) struct SetMember {
    /// What its name has after that of the database.
    pub(crate) suffix: &'static [u8],
    pub(crate) source: OwnedFd,
    /// What it was when it was carried over.
    pub(crate) seen: Seen,
}

/// A database that was taken.
#[derive(Debug)]
pub(crate) struct TakenSet {
    /// The database, then what belongs to it; nothing if there is no database any more.
    pub(crate) members: Vec<SetMember>,
    pub(crate) state: StoredAs,
    /// Why it is not consistent, for people.
    pub(crate) why: Option<String>,
}

/// Whoever carries a file over, from the beginning each time, by the deadline if there is one.
pub(crate) type Put<'p> = dyn FnMut(&SetMember, Option<Instant>) -> Result<(), CarryError> + 'p;

/// What came of an attempt.
enum SetAttempt {
    Taken(TakenSet),
    Again(String),
}

/// Takes a database with all that belongs to it.
pub(crate) fn take(set: &Set<'_>, put: &mut Put<'_>) -> Result<TakenSet, CarryError> {
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        if let Some(suffix) = set.unreadable() {
            let suffix = String::from_utf8_lossy(suffix);
            why = format!("what SQLite keeps beside it ({suffix}) may not be read");
            break;
        }
        match set.attempt(put)? {
            SetAttempt::Taken(taken) => return Ok(taken),
            SetAttempt::Again(reason) => why = reason,
        }
    }
    let state = StoredAs::Torn;
    let members = set.carry_all(put)?;
    let why = Some(why);
    Ok(TakenSet {
        members,
        state,
        why,
    })
}

impl Set<'_> {
    fn attempt(&self, put: &mut Put<'_>) -> Result<SetAttempt, CarryError> {
        let Some(database) = self.open(b"")? else {
            return Ok(consistent(Vec::new()));
        };
        match SetHold::take(self, database.source)? {
            Ok(hold) if hold.is_in_wal => self.in_wal(&hold, put),
            Ok(hold) => self.with_journal(hold, put),
            Err(why) => self.without(&why, put),
        }
    }

    /// Under the locks of a reader of the WAL, for as long as it takes.
    fn in_wal(&self, hold: &SetHold, put: &mut Put<'_>) -> Result<SetAttempt, CarryError> {
        // The order matters: what is written into the database while it is carried over is in the WAL afterwards.
        let members = self.carry_all(put)?;
        let was_open = hold.index.is_some();
        if !self.is_same_database(&members, hold)? || (!was_open && self.open(b"-shm")?.is_some()) {
            let why = "it was opened or replaced while it was read";
            return Ok(SetAttempt::Again(why.to_owned()));
        }
        Ok(consistent(members))
    }

    /// Under the lock that keeps writers waiting, if it can be done in time; else between two such locks.
    fn with_journal(&self, hold: SetHold, put: &mut Put<'_>) -> Result<SetAttempt, CarryError> {
        let deadline = hold.since + HOLD;
        let mut members = self.look(Some(&hold))?;
        let carried = members
            .iter()
            .try_for_each(|member| put(member, Some(deadline)));
        match carried {
            Ok(()) if self.is_same_database(&members, &hold)? => return Ok(consistent(members)),
            Ok(()) => return Ok(SetAttempt::Again("it was replaced".to_owned())),
            Err(CarryError::Late) => {}
            Err(trouble) => return Err(trouble),
        }
        // Nobody writes while the lock is held: it is waited only for the clock.
        let is_settled = settle(&members);
        drop(hold);
        members.iter().try_for_each(|member| put(member, None))?;
        let hold = match self.open(b"")? {
            Some(database) => SetHold::take(self, database.source)?.ok(),
            None => None,
        };
        let now = self.look(hold.as_ref())?;
        if !is_settled || !is_same(&members, &now) {
            let why = "it was written each time it was read, and is too large to be read while writers wait";
            return Ok(SetAttempt::Again(why.to_owned()));
        }
        members = now;
        Ok(match hold {
            Some(_) => consistent(members),
            None => crash_consistent(members, "another program keeps it locked"),
        })
    }

    /// While somebody else has the lock.
    fn without(&self, why: &str, put: &mut Put<'_>) -> Result<SetAttempt, CarryError> {
        let members = self.look(None)?;
        let is_settled = settle(&members);
        members.iter().try_for_each(|member| put(member, None))?;
        let now = self.look(None)?;
        if is_settled && is_same(&members, &now) {
            return Ok(SetAttempt::Taken(crash_consistent_of(members, why)));
        }
        let why = format!("{why}, and it was written while it was read");
        Ok(SetAttempt::Again(why))
    }

    /// Carries over the database, then looks for what lies beside it and carries that over.
    fn carry_all(&self, put: &mut Put<'_>) -> Result<Vec<SetMember>, CarryError> {
        let mut members = Vec::new();
        for suffix in std::iter::once(&b""[..]).chain(LOGS) {
            if let Some(member) = self.open(suffix)? {
                put(&member, None)?;
                members.push(member);
            } else if suffix.is_empty() {
                break;
            }
        }
        Ok(members)
    }

    /// Everything that belongs together now; without the journal of somebody who has not begun to write into the database.
    fn look(&self, hold: Option<&SetHold>) -> Result<Vec<SetMember>, CarryError> {
        let mut members = Vec::new();
        for suffix in std::iter::once(&b""[..]).chain(LOGS) {
            let is_not_hot = suffix == b"-journal" && hold.is_some_and(SetHold::is_reserved);
            if !is_not_hot {
                members.extend(self.open(suffix)?);
            }
        }
        Ok(members)
    }

    /// Whether the files that were carried over still have their names.
    fn is_same_database(&self, members: &[SetMember], hold: &SetHold) -> Result<bool, CarryError> {
        let locked = metadata::of(&hold.database)?.identity();
        let is_held = members
            .first()
            .is_some_and(|first| first.seen.identity() == locked);
        for member in members {
            let now = self.open(member.suffix)?;
            if now.is_none_or(|now| now.seen.identity() != member.seen.identity()) {
                // A journal comes and goes with its transaction, which has not touched the database.
                if member.suffix != b"-journal" {
                    return Ok(false);
                }
            }
        }
        Ok(is_held)
    }

    /// What belongs to it and is closed to us.
    fn unreadable(&self) -> Option<&'static [u8]> {
        let mut all = COMPANIONS.into_iter();
        all.find(|suffix| matches!(self.file(suffix), Err(Errno::ACCESS | Errno::PERM)))
    }

    fn file(&self, suffix: &[u8]) -> io::Result<OwnedFd> {
        let name = [self.name.to_bytes(), suffix].concat();
        let name = c_name(name)?;
        self.root.file(self.directory, &name)
    }

    fn open(&self, suffix: &'static [u8]) -> Result<Option<SetMember>, CarryError> {
        let source = match self.file(suffix) {
            Ok(source) => source,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::XDEV) => return Ok(None),
            // Said once, before anything is taken.
            Err(Errno::ACCESS | Errno::PERM) if !suffix.is_empty() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let seen = metadata::of(&source)?;
        Ok(seen.file_type().is_file().then_some(SetMember {
            suffix,
            source,
            seen,
        }))
    }
}

fn consistent(members: Vec<SetMember>) -> SetAttempt {
    SetAttempt::Taken(TakenSet {
        members,
        state: StoredAs::Consistent,
        why: None,
    })
}

fn crash_consistent(members: Vec<SetMember>, why: &str) -> SetAttempt {
    SetAttempt::Taken(crash_consistent_of(members, why))
}

fn crash_consistent_of(members: Vec<SetMember>, why: &str) -> TakenSet {
    TakenSet {
        members,
        state: StoredAs::CrashConsistent,
        why: Some(why.to_owned()),
    }
}

fn is_same(before: &[SetMember], now: &[SetMember]) -> bool {
    before.len() == now.len()
        && before.iter().zip(now).all(|(before, now)| {
            before.suffix == now.suffix && now.seen.is_unchanged_since(&before.seen)
        })
}

/// Waits until whatever is written from now on gives a file another time than it has; says whether it does.
fn settle(members: &[SetMember]) -> bool {
    let until = content::now() + TICK;
    loop {
        if members.iter().all(|member| is_settled(&member.seen)) {
            return true;
        }
        if content::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

fn is_settled(seen: &Seen) -> bool {
    let now = clock::file_time();
    if seen.changed.nanos == 0 {
        // As those have it that know whole seconds only.
        return seen.changed.seconds < now.seconds;
    }
    seen.changed < now
}

/// The locks of a reader. They belong to the descriptors, and go with them.
struct SetHold {
    database: OwnedFd,
    since: Instant,
    is_in_wal: bool,
    /// The index of the WAL with a reader's mark locked; `None` while nobody has the database open in WAL mode.
    index: Option<OwnedFd>,
}

impl SetHold {
    /// Takes the locks; says for people why not.
    fn take(set: &Set<'_>, database: OwnedFd) -> Result<Result<Self, String>, CarryError> {
        let began = content::now();
        let deadline = began + set.wait_budget.left();
        let taken = Self::until(set, database, deadline);
        set.wait_budget.spend(began.elapsed());
        taken
    }

    fn until(
        set: &Set<'_>,
        database: OwnedFd,
        deadline: Instant,
    ) -> Result<Result<Self, String>, CarryError> {
        let locked = || Ok(Err("another program keeps it locked".to_owned()));
        let unable = |error: Errno| {
            let error = std::io::Error::from(error);
            Ok(Err(format!("it could not be locked: {error}")))
        };
        match within(deadline, || share(database.as_fd())) {
            Ok(true) => {}
            Ok(false) => return locked(),
            Err(error) => return unable(error),
        }
        let mut hold = Self {
            since: content::now(),
            is_in_wal: is_in_wal(database.as_fd()),
            database,
            index: None,
        };
        if !hold.is_in_wal {
            return Ok(Ok(hold));
        }
        let Some(index) = set.open(b"-shm")? else {
            return Ok(Ok(hold));
        };
        match within(deadline, || mark(index.source.as_fd())) {
            Ok(true) => hold.index = Some(index.source),
            Ok(false) => return locked(),
            Err(error) => return unable(error),
        }
        Ok(Ok(hold))
    }

    /// Whether somebody writes a transaction, which has not touched the database while we hold it.
    fn is_reserved(&self) -> bool {
        record_lock::is_locked(self.database.as_fd(), RESERVED_LOCK).unwrap_or(false)
    }
}

/// Tries until it succeeds or time is up; once in any case.
fn within(deadline: Instant, attempt: impl Fn() -> io::Result<bool>) -> io::Result<bool> {
    loop {
        if attempt()? {
            return Ok(true);
        }
        if content::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
}

/// Locks a database as a reader does: past the byte of those who wait to write.
fn share(database: BorrowedFd<'_>) -> io::Result<bool> {
    if !record_lock::try_share(database, PENDING_LOCK)? {
        return Ok(false);
    }
    let shared = record_lock::try_share(database, SHARED_LOCK);
    record_lock::unlock(database, PENDING_LOCK)?;
    shared
}

/// Locks any mark of readers: while one is, nobody begins the WAL anew.
fn mark(index: BorrowedFd<'_>) -> io::Result<bool> {
    for at in MARKS {
        if record_lock::try_share(
            index,
            LockRange {
                start: at,
                length: 1,
            },
        )? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_in_wal(database: BorrowedFd<'_>) -> bool {
    let mut versions = [0; 2];
    let read = io::retry_on_intr(|| io::pread(database, &mut versions, 18));
    read.is_ok() && versions.contains(&IN_WAL)
}

#[cfg(test)]
mod tests;
