//! How many bytes the checkpoints hold.
//!
//! What counts is every byte of the disk that some checkpoint refers to, once, whether the live tree still shares it or not: the
//! live tree may change at any time, and what it lets go of is theirs from then on. So nothing that happens to the live tree makes them
//! hold more. Names cost something too: 512 bytes each, and the blocks of directories.
//!
//! As long as even the sum of what each could hold at most is within the budget, nobody looks at the disk. Otherwise the kernel is
//! asked where each file lies (`FIEMAP`), once for each checkpoint. What it does not tell: how much smaller btrfs keeps a compressed
//! stretch (counted in full), and what it cannot free of a stretch of which only a part is used (not counted).

use super::error::{SlotError, failed};
use super::extents::{self, ENTRY, Extents};
use super::place::Place;
use super::staged::Staged;
use super::{SYSTEM, WORKSPACE};
use crate::beneath::{Beneath, Mounts};
use crate::clone::CloneReport;
use crate::facilities::{self, Support};
use crate::metadata;
use crate::progress::Progress;
use crate::survey::survey;
use crate::walk::WalkSettings;
use rustix::fs;
use rustix::io::Errno;
use stasis_model::workspace::{Occupant, Slot};
use std::collections::BTreeMap;
use std::path::Path;

/// The last block of a file, of which it may use only one byte.
const BLOCK: u64 = 4096;

/// What all checkpoints hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// All of them together: what several share is counted once.
    pub held: u64,
    /// Each of them, in the order of slots.
    pub slots: Vec<SlotUsage>,
}

/// What one checkpoint holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotUsage {
    /// Which one.
    pub slot: Slot,
    /// Everything it refers to.
    pub total: u64,
    /// What no other checkpoint refers to.
    pub exclusive: u64,
}

/// What so many entries with so many bytes hold at most.
pub(super) fn whole(entries: u64, bytes: u64) -> u64 {
    let names = entries.saturating_add(1).saturating_mul(BLOCK + ENTRY);
    bytes.saturating_add(names)
}

/// What a clone holds at most.
pub(super) fn at_most(report: &CloneReport) -> u64 {
    let entries = report.files + report.directories + report.symlinks + report.hard_links;
    whole(entries, report.bytes)
}

/// What a copy of a workspace would hold at most; nothing where it would be shared.
pub(super) fn expected(
    workspace: &Path,
    system: Option<&Path>,
    settings: &WalkSettings,
) -> Result<u64, SlotError> {
    let mut expected = 0;
    for path in std::iter::once(workspace).chain(system) {
        let seen = fs::stat(path).map_err(failed("look at", path))?;
        let seen = metadata::Seen::from(&seen);
        if !seen.file_type().is_dir() {
            expected += whole(1, seen.size);
            continue;
        }
        let root = Beneath::open(path, Mounts::Stay).map_err(failed("open", path))?;
        let survey = survey(&root, settings, &Progress::default())?;
        let walk = &survey.walk;
        let entries = walk.files + walk.directories + walk.symlinks + walk.hard_links;
        expected += whole(entries, survey.bytes);
    }
    Ok(expected)
}

/// Whether what is cloned from one place to the other shares its bytes.
pub(super) fn is_shared(workspace: &Path, pool: &Path) -> bool {
    let device = |path: &Path| fs::stat(path).map(|seen| seen.st_dev);
    let Ok(here) = facilities::examine(pool) else {
        return false;
    };
    // The subvolumes of one btrfs are different devices, and share.
    let is_same = device(workspace) == device(pool) || here.filesystem == "btrfs";
    is_same && here.reflinks == Support::Yes
}

/// The checkpoint that is to come.
pub(super) enum New<'a> {
    /// It will hold so many bytes, shared with nobody.
    Expected(u64),
    /// It is there already, under another name.
    Staged(&'a Staged<'a>),
}

/// What is known of all checkpoints and the one to come; found out only as far as it matters.
pub(super) struct Accounts<'a> {
    place: &'a Place,
    occupants: &'a [Occupant],
    new: New<'a>,
    measured: Option<(BTreeMap<Slot, Extents>, Extents)>,
}

impl<'a> Accounts<'a> {
    pub(super) fn new(place: &'a Place, occupants: &'a [Occupant], new: New<'a>) -> Self {
        Self {
            place,
            occupants,
            new,
            measured: None,
        }
    }

    /// What they hold when some have gone: exactly, or at most if that is within the budget.
    pub(super) fn held(&mut self, gone: &[Slot], budget: u64) -> Result<u64, SlotError> {
        if self.measured.is_none() {
            if let Some(most) = self.at_most(gone).filter(|most| *most <= budget) {
                return Ok(most);
            }
            self.measured = Some(self.measure()?);
        }
        let (slots, new) = self.measured.as_ref().expect("they were just measured");
        let stay = slots.iter().filter(|(slot, _)| !gone.contains(slot));
        let all: Vec<&Extents> = stay.map(|(_, one)| one).chain([new]).collect();
        let expected = match self.new {
            New::Expected(bytes) => bytes,
            New::Staged(_) => 0,
        };
        Ok(extents::held(&all).0.saturating_add(expected))
    }

    fn at_most(&self, gone: &[Slot]) -> Option<u64> {
        let mut most = match &self.new {
            New::Expected(bytes) => *bytes,
            New::Staged(staged) => staged.at_most()?,
        };
        for one in self.occupants {
            if !gone.contains(&one.slot()) {
                most = most.saturating_add(one.known()?.bytes_at_most?);
            }
        }
        Some(most)
    }

    fn measure(&self) -> Result<(BTreeMap<Slot, Extents>, Extents), SlotError> {
        let mut slots = BTreeMap::new();
        for one in self.occupants {
            let slot = one.slot();
            slots.insert(slot, measure(&self.place.slot(slot))?);
        }
        let new = match &self.new {
            New::Expected(_) => Extents::default(),
            New::Staged(staged) => measure(&staged.path())?,
        };
        Ok((slots, new))
    }
}

/// Finds out what is in a slot, or reads what was found before.
fn measure(slot: &Path) -> Result<Extents, SlotError> {
    if let Some(kept) = Extents::read(slot) {
        return Ok(kept);
    }
    let mut found = Extents::default();
    for tree in [WORKSPACE, SYSTEM] {
        let path = slot.join(tree);
        match Beneath::open(&path, Mounts::Stay) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            opened => {
                let root = opened.map_err(failed("open", &path))?;
                let settings = WalkSettings {
                    deepest: usize::MAX,
                    ..WalkSettings::default()
                };
                found.add(&Extents::find(&root, &settings)?);
            }
        }
    }
    found.keep(slot);
    Ok(found)
}

/// What all of them hold now.
pub(super) fn usage(place: &Place, occupants: &[Occupant]) -> Result<Usage, SlotError> {
    let mut found = Vec::with_capacity(occupants.len());
    for one in occupants {
        found.push((one.slot(), measure(&place.slot(one.slot()))?));
    }
    let all: Vec<&Extents> = found.iter().map(|(_, one)| one).collect();
    let (held, alone) = extents::held(&all);
    let slots = found.iter().zip(alone);
    let slots = slots.map(|((slot, one), exclusive)| SlotUsage {
        slot: *slot,
        total: one.total(),
        exclusive,
    });
    let slots = slots.collect();
    Ok(Usage { held, slots })
}
