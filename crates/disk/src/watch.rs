//! Tells what happens to the files of a live tree.
//!
//! The kernel's events (of inotify, and of fanotify where that is not enough) are only *signs* of where to look; what is told
//! is the difference between what the monitor believed and what it sees. So nothing depends on how the kernel orders, merges or
//! loses its events, a rescan is the same act as hearing of one file, and replaying what was told over the first state gives the
//! present one.
//!
//! 1. A directory is opened from the root's descriptor through no symbolic link, watched *by that descriptor*, and only
//!    then listed: what came before is in the list, what comes later is heard of.
//! 2. Signs are gathered for [`MonitorSettings::window`] after the first one.
//! 3. Each path with a sign is looked at once, in the order of the first signs; a directory with everything in it.
//! 4. Differences are told, one per path: what was made and removed again is not told, what was removed and made again
//!    was modified.
//!
//! *Always true:* every directory that is believed in is watched, has a sign waiting, or is *blind*, and then it is read
//! again every [`MonitorSettings::rescan_every`]. When the kernel's queue overflows, or looking fails half-way, everything is read
//! again, after a rest. Both are reported as a [`Gap`]: the events are complete then, but states in between are not in them.
//!
//! Only regular files and symbolic links are told, because `fs_events` has files in it: a directory is told as the files in
//! it, and an empty one not at all. Other permissions are no modification; a new time of the content is one where a file was
//! closed after writing or a rescan finds it, because a write through a mapping shows in nothing else. A file with several names is
//! told under each that is in the tree; only a write through a name that is outside, ignored, or gone before we look is heard
//! of late, by the next look. Ignored paths are neither told nor watched. Mounts below the root do not belong to it.
//!
//! The crate `notify` is not used: it misses files in directories made at once (`mkdir -p a/b/c`), goes on
//! with the old path after a directory is renamed, and watches paths, which a hostile tree can swap for links.
//!
//! Nothing is kept on disk here and nothing is lost that was returned. [`Monitor::beliefs`], kept *together with* the events returned so
//! far, let [`Monitor::resume`] tell what happened meanwhile: a crash in between tells some events twice, or not at all when they are kept apart.
//! While it lives the monitor holds the root open: its filesystem cannot be unmounted, except lazily.

mod announce;
mod belief;
mod error;
mod gap;
mod hints;
mod kept;
mod settings;
mod table;
mod told;
mod watches;

pub use announce::{Announced, Announcer};
pub use error::{Ended, MonitorError};
pub use gap::{Batch, Gap, Why};
pub use settings::{Hearer, MonitorSettings};
pub use told::{Action, FileEvent};
pub use watches::Hearing;

use crate::fs::metadata;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::walk::Excludes;
use belief::{Belief, Hint, Reread};
use hints::Hints;
use rustix::fs::{AtFlags, CWD, statat};
use stasis_model::time::Clock;
use stasis_model::tree::EntryPath;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use table::Table;
use watches::{Sign, Watches};

/// After a rescan we rest this many times as long as it took: whoever makes the queue overflow all the time gets a fifth of a
/// processor, and no more.
const REST: u32 = 4;
/// How often the root is asked whether it is still there.
const ROOT_CHECK: Duration = Duration::from_secs(1);

/// How far a look went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    /// Everything that happened before it is known.
    Everywhere,
    /// A rescan is still to come.
    WhereHinted,
}

/// The watch on one tree. Blocking; all of it happens in the calls.
#[derive(Debug)]
pub struct Monitor {
    path: PathBuf,
    identity: (u64, u64),
    clock: Arc<dyn Clock>,
    settings: MonitorSettings,
    belief: Belief,
    hints: Hints,
    announcer: Announcer,
    /// Set when everything must be read again, with the time since when.
    lost: Option<(Why, Duration)>,
    is_unmounted: bool,
    /// When blind directories are read again.
    next_rescan: Duration,
    /// Until when not everything is read again.
    rest: Duration,
    gap: Option<Gap>,
}

impl Monitor {
    /// Begins with what is there now, of which nothing is told.
    ///
    /// Everything that happens after this returns is told.
    pub fn start(
        root: &Path,
        clock: Arc<dyn Clock>,
        settings: MonitorSettings,
    ) -> Result<Self, MonitorError> {
        let mut monitor = Self::open(root, clock, settings)?;
        monitor.belief.is_silent = true;
        monitor.read_all()?;
        monitor.belief.is_silent = false;
        monitor.note_blindness();
        Ok(monitor)
    }

    /// Begins with what an earlier monitor believed; what happened since is told by the first batch, as a gap.
    pub fn resume(
        root: &Path,
        clock: Arc<dyn Clock>,
        settings: MonitorSettings,
        beliefs: &[u8],
    ) -> Result<Self, MonitorError> {
        let table = kept::decode(beliefs).map_err(|kept::Damaged| MonitorError::Beliefs)?;
        let mut monitor = Self::open(root, clock, settings)?;
        monitor.forget_ignored(table);
        monitor.read_all()?;
        monitor.note_blindness();
        let missed = monitor.belief.told.count;
        monitor.gap = Some(Gap {
            why: Why::Resumed,
            missed,
        });
        Ok(monitor)
    }

    fn open(
        root: &Path,
        clock: Arc<dyn Clock>,
        settings: MonitorSettings,
    ) -> Result<Self, MonitorError> {
        let bad_root = |source: std::io::Error| MonitorError::Root {
            path: root.to_owned(),
            source,
        };
        let path = std::path::absolute(root).map_err(bad_root)?;
        let beneath = RootDir::open(&path, Mounts::Stay).map_err(|e| bad_root(e.into()))?;
        let own = beneath.directory(b"").and_then(metadata::of);
        let identity = own.map_err(|e| bad_root(e.into()))?.identity();
        let ignore = Excludes::new(&settings.ignore).map_err(MonitorError::Ignore)?;
        let beneath = Arc::new(beneath);
        let watches = Watches::new(beneath.clone(), &settings)
            .map_err(|error| MonitorError::failed("hear of", &EntryPath::root(), error))?;
        let mut belief = Belief::new(beneath.clone(), watches, ignore);
        belief.most_entries = settings.most_entries;
        let next_rescan = clock.uptime() + settings.rescan_every;
        Ok(Self {
            path,
            identity,
            announcer: Announcer::new(beneath, clock.clone()),
            clock,
            settings,
            belief,
            hints: Hints::default(),
            lost: None,
            is_unmounted: false,
            next_rescan,
            rest: Duration::ZERO,
            gap: None,
        })
    }

    /// Takes over a table, less what is ignored now: that is not gone, it is of no interest.
    fn forget_ignored(&mut self, mut table: Table) {
        let ignore = &self.belief.ignore;
        let ignored = table.iter().filter(|(path, fact)| {
            let is_directory = fact.kind == table::Kind::Directory;
            ignore.names(path, is_directory)
        });
        let ignored: Vec<EntryPath> = ignored.map(|(path, _)| path).collect();
        for path in ignored {
            table.remove(&path);
        }
        self.belief.table = table;
    }

    /// What is believed now, for [`Monitor::resume`]; true of the tree as far as everything was returned.
    pub fn beliefs(&self) -> Vec<u8> {
        kept::encode(&self.belief.table)
    }

    /// How many directories are watched, and how many are blind.
    pub fn reach(&self) -> (usize, usize) {
        let hearing = self.hearing();
        (hearing.inotify + hearing.fanotify, hearing.blind)
    }

    /// Who hears of how many directories.
    pub fn hearing(&self) -> Hearing {
        self.belief.watches.hearing()
    }

    /// The way to tell the monitor of changes that are not to be told.
    pub fn announcer(&self) -> Announcer {
        self.announcer.clone()
    }

    /// Waits for events, at most `timeout`; an empty batch when there were none, or when a signal came.
    ///
    /// When the root is gone, what is known of its files is told first, and [`MonitorError::Ended`] after that.
    pub fn next(&mut self, timeout: Duration) -> Result<Batch, MonitorError> {
        let until = self.clock.uptime().saturating_add(timeout);
        loop {
            let ended = self.ended();
            let over = self.announcer.over();
            self.hear()?;
            let now = self.clock.uptime();
            let due = self.due();
            let is_last = ended.is_some() && self.is_waiting();
            if is_last {
                return self.flush();
            }
            if due.is_some_and(|due| due <= now) {
                return self.settle();
            }
            // Found by resuming, or before something failed.
            if !self.belief.told.is_empty() || self.gap.is_some() {
                return Ok(self.hand_out());
            }
            if let Some(why) = ended {
                return Err(MonitorError::Ended { why });
            }
            if !self.is_waiting() && self.belief.watches.blind().is_empty() {
                self.announcer.retire(&over);
            }
            if until <= now {
                return Ok(Batch::default());
            }
            let wake = until.min(due.unwrap_or(until)).min(now + ROOT_CHECK);
            if self.wait(wake.saturating_sub(now))? {
                return Ok(Batch::default());
            }
        }
    }

    /// Tells everything that happened before this call and was not told yet, without waiting for anything.
    ///
    /// Blind directories are read again for it.
    pub fn flush(&mut self) -> Result<Batch, MonitorError> {
        self.next_rescan = self.clock.uptime();
        self.rest = Duration::ZERO;
        self.settle()
    }

    /// Whether there is anything to look at.
    fn is_waiting(&self) -> bool {
        self.hints.first().is_some() || self.lost.is_some()
    }

    /// When looking is due, on the clock that only goes forward.
    fn due(&self) -> Option<Duration> {
        let gathered = |since: Duration| since.saturating_add(self.settings.window);
        let hinted = self.hints.first().map(gathered);
        let lost = self.lost.map(|(_, since)| gathered(since).max(self.rest));
        let is_blind = !self.belief.watches.blind().is_empty();
        let rescan = is_blind.then_some(self.next_rescan);
        [hinted, lost, rescan].into_iter().flatten().min()
    }

    /// Reads what the kernel has to say.
    fn hear(&mut self) -> Result<(), MonitorError> {
        let signs = self.belief.watches.hear();
        let root = EntryPath::root();
        let signs = signs.map_err(|error| MonitorError::failed("hear of", &root, error))?;
        if signs.is_empty() {
            return Ok(());
        }
        let hint = self.hint();
        for sign in signs {
            match sign {
                Sign::Name {
                    path,
                    is_directory,
                    is_certain,
                } => {
                    if !self.belief.ignore.names(&path, is_directory) {
                        self.hints.add(path, Hint { is_certain, ..hint });
                    }
                }
                Sign::Lost(path) => self.hints.add(path, hint),
                Sign::Overflow => {
                    self.lost.get_or_insert((Why::Overflow, hint.first));
                }
                Sign::Unmounted => self.is_unmounted = true,
            }
        }
        Ok(())
    }

    /// Waits for the kernel; says whether a signal came instead.
    fn wait(&self, longest: Duration) -> Result<bool, MonitorError> {
        let waited = self.belief.watches.wait(longest);
        waited.map_err(|error| MonitorError::failed("wait for", &EntryPath::root(), error))
    }

    /// A hint that something is worth a look now.
    fn hint(&self) -> Hint {
        Hint {
            at: self.clock.now(),
            first: self.clock.uptime(),
            is_certain: false,
        }
    }

    /// Looks wherever there was a sign, and tells what is different.
    fn settle(&mut self) -> Result<Batch, MonitorError> {
        let over = self.announcer.over();
        self.hear()?;
        self.belief.announced = self.announcer.open();
        self.belief.begin(self.clock.now());
        match self.look() {
            Ok(Looked::Everywhere) => self.announcer.retire(&over),
            Ok(Looked::WhereHinted) => {}
            Err(error) => {
                let why = self.lost.map_or(Why::Failed, |(why, _)| why);
                // A window passes before it is tried again.
                self.lost = Some((why, self.clock.uptime()));
                return Err(error);
            }
        }
        Ok(self.hand_out())
    }

    fn hand_out(&mut self) -> Batch {
        Batch {
            events: self.belief.told.take(),
            gap: self.gap.take(),
        }
    }

    fn look(&mut self) -> Result<Looked, MonitorError> {
        for (path, hint) in self.hints.take() {
            self.belief.look(&path, hint)?;
        }
        let before = self.belief.told.count;
        let now = self.clock.uptime();
        let is_seen = self.lost.is_none() && self.belief.watches.blind().is_empty();
        let mut looked = Looked::Everywhere;
        if let Some((why, _)) = self.lost.filter(|_| self.rest <= now) {
            self.read_all()?;
            self.lost = None;
            let missed = self.belief.told.count - before;
            self.gap = Some(Gap { why, missed });
        } else if self.lost.is_none() && self.next_rescan <= now {
            self.read_blind()?;
        } else if !is_seen {
            looked = Looked::WhereHinted;
        }
        self.belief.look_at_other_names(self.hint())?;
        self.note_blindness();
        Ok(looked)
    }

    fn read_all(&mut self) -> Result<(), MonitorError> {
        let hint = self.hint();
        self.belief.begin(hint.at);
        let root = vec![EntryPath::root()];
        let read = self.belief.read(root, Reread::All, hint);
        self.have_rest(hint.first);
        read
    }

    /// Puts off the next rescan for a while, after one that began at `since`.
    fn have_rest(&mut self, since: Duration) {
        let now = self.clock.uptime();
        let rest = now.saturating_sub(since).saturating_mul(REST);
        self.rest = now.saturating_add(rest);
        self.next_rescan = now.saturating_add(rest.max(self.settings.rescan_every));
    }

    fn read_blind(&mut self) -> Result<(), MonitorError> {
        let before = self.belief.told.count;
        let blind = self.belief.watches.blind();
        let why = blind.values().next().copied();
        let blind = blind.keys().cloned().collect();
        let hint = self.hint();
        self.belief.read(blind, Reread::New, hint)?;
        self.have_rest(hint.first);
        let missed = self.belief.told.count - before;
        if let Some(why) = why.filter(|_| missed > 0) {
            self.gap = Some(Gap { why, missed });
        }
        Ok(())
    }

    /// Reports directories that became blind, unless a gap is reported anyway.
    fn note_blindness(&mut self) {
        if let Some(why) = self.belief.watches.take_newly_blind() {
            self.gap.get_or_insert(Gap { why, missed: 0 });
        }
    }

    /// What became of the root, if it is not where it was.
    fn ended(&self) -> Option<Ended> {
        if self.is_unmounted {
            return Some(Ended::Unmounted);
        }
        let there = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        let is_there = there.is_ok_and(|there| (there.st_dev, there.st_ino) == self.identity);
        if is_there {
            return None;
        }
        let own = self.belief.root.directory(b"").and_then(metadata::of);
        let is_deleted = own.map_or(true, |own| own.links == 0);
        Some(if is_deleted {
            Ended::Deleted
        } else {
            Ended::Moved
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests;
