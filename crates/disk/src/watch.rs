//! Reports what happens to the files of a live tree.
//!
//! The kernel's events (of inotify) only say where to look; what is reported
//! is the difference between what the monitor recorded and what it sees. So nothing depends on how the kernel orders, merges or
//! loses its events, a rescan is the same act as an event of one file, and replaying what was reported over the first state gives the
//! present one.
//!
//! 1. A directory is opened from the root's descriptor through no symbolic link, watched *by that descriptor*, and only
//!    then listed: what came before is in the list, what comes later is heard of.
//! 2. Events are gathered for [`MonitorSettings::window`] after the first one.
//! 3. Each path with an event is looked at once, in the order of the first events; a directory with everything in it.
//! 4. Differences are reported, one per path: what was made and removed again is not reported, what was removed and made again
//!    was modified.
//!
//! *Always true:* every recorded directory is watched, has an event waiting, or is *unwatched*, and then it is read
//! again every [`MonitorSettings::rescan_every`]. When the kernel's queue overflows, or looking fails half-way, everything is read
//! again, after a rest. Both are reported as a [`Gap`]: the events are complete then, but states in between are not in them.
//!
//! Only regular files and symbolic links are reported, because `fs_events` has files in it: a directory is reported as the files in
//! it, and an empty one not at all. Other permissions are no modification; a new time of the content is one where a file was
//! closed after writing or a rescan finds it, because a write through a mapping shows in nothing else. A file with several names is
//! reported under each that is in the tree; only a write through a name that is outside, ignored, or gone before we look is heard
//! of late, by the next look. Ignored paths are neither reported nor watched. Mounts below the root do not belong to it.
//!
//! The crate `notify` is not used: it misses files in directories made at once (`mkdir -p a/b/c`), goes on
//! with the old path after a directory is renamed, and watches paths, which a hostile tree can swap for links.
//!
//! Nothing is kept on disk here and nothing is lost that was returned. [`Monitor::saved_state`], kept *together with* the events returned so
//! far, lets [`Monitor::resume`] report what happened meanwhile: a crash in between reports some events twice, or not at all when they are kept apart.
//! While it lives the monitor holds the root open: its filesystem cannot be unmounted, except lazily.

mod announce;
mod error;
mod file_event;
mod gap;
mod pending;
mod saved_state;
mod settings;
mod table;
mod tree_state;
mod watches;

pub use announce::{Announced, Announcer};
pub use error::{MonitorError, RootGone};
pub use file_event::{Action, FileEvent};
pub use gap::{EventBatch, Gap, GapReason};
pub use settings::MonitorSettings;
pub use watches::WatchCoverage;

use crate::fs::metadata;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::walk::Excludes;
use pending::PendingLooks;
use rustix::fs::{AtFlags, CWD, statat};
use stasis_model::failure::AtPath;
use stasis_model::time::Clock;
use stasis_model::tree::EntryPath;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use table::EntryTable;
use tree_state::{LookReason, Reread, TreeState};
use watches::{RawEvent, Watches};

/// After a rescan we rest this many times as long as it took: whoever makes the queue overflow all the time gets a fifth of a
/// processor, and no more.
const REST_FACTOR: u32 = 4;
/// How often the root is asked whether it is still there.
const ROOT_CHECK: Duration = Duration::from_secs(1);

/// How far a look went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    /// Everything that happened before it is known.
    Everywhere,
    /// A rescan is still to come.
    PendingOnly,
}

/// The watch on one tree. Blocking; all of it happens in the calls.
#[derive(Debug)]
pub struct Monitor {
    path: PathBuf,
    identity: (u64, u64),
    clock: Arc<dyn Clock>,
    settings: MonitorSettings,
    state: TreeState,
    pending: PendingLooks,
    announcer: Announcer,
    /// Set when everything must be read again, with the time since when.
    lost: Option<(GapReason, Duration)>,
    is_unmounted: bool,
    /// When unwatched directories are read again.
    next_rescan: Duration,
    /// Until when not everything is read again.
    rest: Duration,
    gap: Option<Gap>,
}

impl Monitor {
    /// Begins with what is there now, of which nothing is reported.
    ///
    /// Everything that happens after this returns is reported.
    pub fn start(
        root: &Path,
        clock: Arc<dyn Clock>,
        settings: MonitorSettings,
    ) -> Result<Self, MonitorError> {
        let mut monitor = Self::open(root, clock, settings)?;
        monitor.state.is_silent = true;
        monitor.read_all()?;
        monitor.state.is_silent = false;
        monitor.report_unwatched();
        Ok(monitor)
    }

    /// Begins with what an earlier monitor recorded; what happened since is reported by the first batch, as a gap.
    pub fn resume(
        root: &Path,
        clock: Arc<dyn Clock>,
        settings: MonitorSettings,
        saved_state: &[u8],
    ) -> Result<Self, MonitorError> {
        let table = saved_state::decode(saved_state)
            .map_err(|saved_state::Damaged| MonitorError::SavedState)?;
        let mut monitor = Self::open(root, clock, settings)?;
        monitor.forget_ignored(table);
        monitor.read_all()?;
        monitor.report_unwatched();
        let missed = monitor.state.outgoing.count;
        monitor.gap = Some(Gap {
            why: GapReason::Resumed,
            missed,
        });
        Ok(monitor)
    }

    fn open(
        root: &Path,
        clock: Arc<dyn Clock>,
        settings: MonitorSettings,
    ) -> Result<Self, MonitorError> {
        let path = std::path::absolute(root).at("open the root", root)?;
        let root_dir = RootDir::open(&path, Mounts::Stay).at("open the root", root)?;
        let own = root_dir.directory(b"").and_then(metadata::of);
        let identity = own.at("open the root", root)?.identity();
        let ignore = Excludes::new(&settings.ignore).map_err(MonitorError::Ignore)?;
        let root_dir = Arc::new(root_dir);
        let watches = Watches::new(&settings).on("hear of", EntryPath::root())?;
        let mut state = TreeState::new(root_dir.clone(), watches, ignore);
        state.most_entries = settings.most_entries;
        let next_rescan = clock.uptime() + settings.rescan_every;
        Ok(Self {
            path,
            identity,
            announcer: Announcer::new(root_dir, clock.clone()),
            clock,
            settings,
            state,
            pending: PendingLooks::default(),
            lost: None,
            is_unmounted: false,
            next_rescan,
            rest: Duration::ZERO,
            gap: None,
        })
    }

    /// Takes over a table, less what is ignored now: that is not gone, it is of no interest.
    fn forget_ignored(&mut self, mut table: EntryTable) {
        let ignore = &self.state.ignore;
        let ignored = table.iter().filter(|(path, fact)| {
            let is_directory = fact.kind == table::WatchedKind::Directory;
            ignore.names(path, is_directory)
        });
        let ignored: Vec<EntryPath> = ignored.map(|(path, _)| path).collect();
        for path in ignored {
            table.remove(&path);
        }
        self.state.table = table;
    }

    /// What is recorded now, for [`Monitor::resume`]; true of the tree as far as everything was returned.
    pub fn saved_state(&self) -> Vec<u8> {
        saved_state::encode(&self.state.table)
    }

    /// How many directories are watched.
    pub fn coverage(&self) -> WatchCoverage {
        self.state.watches.coverage()
    }

    /// The way to tell the monitor of changes that are not to be reported.
    pub fn announcer(&self) -> Announcer {
        self.announcer.clone()
    }

    /// Waits for events, at most `timeout`; an empty batch when there were none, or when a signal came.
    ///
    /// When the root is gone, what is known of its files is reported first, and [`MonitorError::RootGone`] after that.
    pub fn next(&mut self, timeout: Duration) -> Result<EventBatch, MonitorError> {
        let until = self.clock.uptime().saturating_add(timeout);
        loop {
            let ended = self.ended();
            let over = self.announcer.over();
            self.read_events()?;
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
            if !self.state.outgoing.is_empty() || self.gap.is_some() {
                return Ok(self.hand_out());
            }
            if let Some(why) = ended {
                return Err(MonitorError::RootGone { why });
            }
            if !self.is_waiting() && self.state.watches.unwatched().is_empty() {
                self.announcer.retire(&over);
            }
            if until <= now {
                return Ok(EventBatch::default());
            }
            let wake = until.min(due.unwrap_or(until)).min(now + ROOT_CHECK);
            if self.wait(wake.saturating_sub(now))? {
                return Ok(EventBatch::default());
            }
        }
    }

    /// Reports everything that happened before this call and was not reported yet, without waiting for anything.
    ///
    /// Unwatched directories are read again for it.
    pub fn flush(&mut self) -> Result<EventBatch, MonitorError> {
        self.next_rescan = self.clock.uptime();
        self.rest = Duration::ZERO;
        self.settle()
    }

    /// Whether there is anything to look at.
    fn is_waiting(&self) -> bool {
        self.pending.first().is_some() || self.lost.is_some()
    }

    /// When looking is due, on the clock that only goes forward.
    fn due(&self) -> Option<Duration> {
        let gathered = |since: Duration| since.saturating_add(self.settings.window);
        let pending_at = self.pending.first().map(gathered);
        let lost = self.lost.map(|(_, since)| gathered(since).max(self.rest));
        let has_unwatched = !self.state.watches.unwatched().is_empty();
        let rescan = has_unwatched.then_some(self.next_rescan);
        [pending_at, lost, rescan].into_iter().flatten().min()
    }

    /// Reads what the kernel has to say.
    fn read_events(&mut self) -> Result<(), MonitorError> {
        let events = self.state.watches.read_events();
        let events = events.on("hear of", EntryPath::root())?;
        if events.is_empty() {
            return Ok(());
        }
        let reason = self.look_reason();
        for event in events {
            match event {
                RawEvent::Name {
                    path,
                    is_directory,
                    is_certain,
                } => {
                    if !self.state.ignore.names(&path, is_directory) {
                        self.pending.add(
                            path,
                            LookReason {
                                is_certain,
                                ..reason
                            },
                        );
                    }
                }
                RawEvent::Lost(path) => self.pending.add(path, reason),
                RawEvent::Overflow => {
                    self.lost.get_or_insert((GapReason::Overflow, reason.first));
                }
                RawEvent::Unmounted => self.is_unmounted = true,
            }
        }
        Ok(())
    }

    /// Waits for the kernel; says whether a signal came instead.
    fn wait(&self, longest: Duration) -> Result<bool, MonitorError> {
        let waited = self.state.watches.wait(longest);
        Ok(waited.on("wait for", EntryPath::root())?)
    }

    /// A reason that something is worth a look now.
    fn look_reason(&self) -> LookReason {
        LookReason {
            at: self.clock.now(),
            first: self.clock.uptime(),
            is_certain: false,
        }
    }

    /// Looks wherever there was an event, and reports what is different.
    fn settle(&mut self) -> Result<EventBatch, MonitorError> {
        let over = self.announcer.over();
        self.read_events()?;
        self.state.announced = self.announcer.open();
        self.state.begin(self.clock.now());
        match self.look() {
            Ok(Looked::Everywhere) => self.announcer.retire(&over),
            Ok(Looked::PendingOnly) => {}
            Err(error) => {
                let why = self.lost.map_or(GapReason::Failed, |(why, _)| why);
                // A window passes before it is tried again.
                self.lost = Some((why, self.clock.uptime()));
                return Err(error);
            }
        }
        Ok(self.hand_out())
    }

    fn hand_out(&mut self) -> EventBatch {
        EventBatch {
            events: self.state.outgoing.take(),
            gap: self.gap.take(),
        }
    }

    fn look(&mut self) -> Result<Looked, MonitorError> {
        for (path, reason) in self.pending.take() {
            self.state.look(&path, reason)?;
        }
        let before = self.state.outgoing.count;
        let now = self.clock.uptime();
        let is_seen = self.lost.is_none() && self.state.watches.unwatched().is_empty();
        let mut looked = Looked::Everywhere;
        if let Some((why, _)) = self.lost.filter(|_| self.rest <= now) {
            self.read_all()?;
            self.lost = None;
            let missed = self.state.outgoing.count - before;
            self.gap = Some(Gap { why, missed });
        } else if self.lost.is_none() && self.next_rescan <= now {
            self.rescan_unwatched()?;
        } else if !is_seen {
            looked = Looked::PendingOnly;
        }
        self.state.look_at_other_names(self.look_reason())?;
        self.report_unwatched();
        Ok(looked)
    }

    fn read_all(&mut self) -> Result<(), MonitorError> {
        let reason = self.look_reason();
        self.state.begin(reason.at);
        let root = vec![EntryPath::root()];
        let read = self.state.read(root, Reread::All, reason);
        self.have_rest(reason.first);
        read
    }

    /// Puts off the next rescan for a while, after one that began at `since`.
    fn have_rest(&mut self, since: Duration) {
        let now = self.clock.uptime();
        let rest = now.saturating_sub(since).saturating_mul(REST_FACTOR);
        self.rest = now.saturating_add(rest);
        self.next_rescan = now.saturating_add(rest.max(self.settings.rescan_every));
    }

    fn rescan_unwatched(&mut self) -> Result<(), MonitorError> {
        let before = self.state.outgoing.count;
        let unwatched = self.state.watches.unwatched();
        let why = unwatched.values().next().copied();
        let unwatched = unwatched.keys().cloned().collect();
        let reason = self.look_reason();
        self.state.read(unwatched, Reread::New, reason)?;
        self.have_rest(reason.first);
        let missed = self.state.outgoing.count - before;
        if let Some(why) = why.filter(|_| missed > 0) {
            self.gap = Some(Gap { why, missed });
        }
        Ok(())
    }

    /// Reports directories that became unwatched, unless a gap is reported anyway.
    fn report_unwatched(&mut self) {
        if let Some(why) = self.state.watches.take_newly_unwatched() {
            self.gap.get_or_insert(Gap { why, missed: 0 });
        }
    }

    /// What became of the root, if it is not where it was.
    fn ended(&self) -> Option<RootGone> {
        if self.is_unmounted {
            return Some(RootGone::Unmounted);
        }
        let there = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        let is_there = there.is_ok_and(|there| (there.st_dev, there.st_ino) == self.identity);
        if is_there {
            return None;
        }
        let own = self.state.root.directory(b"").and_then(metadata::of);
        let is_deleted = own.map_or(true, |own| own.links == 0);
        Some(if is_deleted {
            RootGone::Deleted
        } else {
            RootGone::Moved
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests;
