//! How many bytes the checkpoints hold.
//!
//! What counts is every byte of the disk that some checkpoint refers to, once, whether the live tree still shares it or not: the
//! live tree may change at any time, and what it lets go of is theirs from then on. So nothing that happens to the live tree makes them
//! hold more. Names cost something too: 512 bytes each, and the blocks of directories.
//!
//! As long as even the sum of what each could hold at most is within the budget, nobody looks at the disk. Otherwise the kernel is
//! asked where each file lies (`FIEMAP`), once for each checkpoint. What it does not tell: how much smaller btrfs keeps a compressed
//! stretch (counted in full), and what it cannot free of a stretch of which only a part is used (not counted).
//!
//! Chunks are counted as the files they are, each once.

use super::chunks::{Chunks, names_from_bytes};
use super::cost::{BLOCK, everything, whole};
use super::error::SlotError;
use super::extents::{self, Extents};
use super::packed::{self, NAMES, SYSTEM_DOCUMENT, WORKSPACE_DOCUMENT};
use super::place::SlotDir;
use super::staged::StagedSlot;
use super::{SYSTEM, WORKSPACE};
use crate::fs::facilities::{self, Support};
use crate::fs::free_space;
use crate::fs::metadata;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::progress::Progress;
use crate::tree::clone::SourceSurvey;
use crate::tree::survey;
use crate::tree::walk::WalkSettings;
use rustix::fs;
use rustix::io::Errno;
use stasis_model::digest::ChunkDigest;
use stasis_model::failure::AtPath;
use stasis_model::filesystem::Filesystem;
use stasis_model::workspace::{Occupant, Slot};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What all checkpoints hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// All of them together: what several share is counted once.
    pub held: u64,
    /// Each of them, in the order of slots.
    pub slots: Vec<SlotUsage>,
    /// What nothing but the undo checkpoints refers to.
    pub undos: u64,
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

/// Whether a new checkpoint must be counted to see that all stay within the budget.
pub(super) fn survey(accounts: &Accounts<'_>, path: &Path, budget: u64) -> SourceSurvey {
    let others = accounts.at_most(&[]);
    let others = others.map(|others| others.saturating_add(accounts.in_chunks(&[])));
    // Twice: there may be a system too.
    let new = everything(path).map(|new| new.saturating_mul(2));
    match others.zip(new) {
        Some((others, new)) if others.saturating_add(new) <= budget => SourceSurvey::Skip,
        _ => SourceSurvey::Count,
    }
}

/// What a copy of a workspace would hold at most; nothing where it would be shared.
pub(super) fn expected(
    workspace: &Path,
    system: Option<&Path>,
    settings: &WalkSettings,
) -> Result<u64, SlotError> {
    let mut expected = 0;
    for path in std::iter::once(workspace).chain(system) {
        let seen = fs::stat(path).at("look at", path)?;
        let seen = metadata::Seen::from(&seen);
        if !seen.file_type().is_dir() {
            expected += whole(1, seen.size);
            continue;
        }
        let root = RootDir::open(path, Mounts::Stay).at("open", path)?;
        let survey = survey::survey(&root, settings, &Progress::default())?;
        let walk = &survey.walk;
        let entries = walk.files + walk.directories + walk.symlinks + walk.hard_links;
        expected += whole(entries, survey.bytes);
    }
    Ok(expected)
}

/// Whether what is cloned from one place to the other shares its bytes. On a disk so full that this cannot be tried there is no room
/// for a checkpoint of any form.
pub(super) fn is_shared(workspace: &Path, pool: &Path) -> Result<bool, SlotError> {
    let device = |path: &Path| fs::stat(path).map(|seen| seen.st_dev);
    let Ok(here) = facilities::examine(pool) else {
        return Ok(false);
    };
    if here.reflinks == Support::Unknown {
        free_space::check(pool, BLOCK).at("make a checkpoint in", pool)?;
    }
    // The subvolumes of one btrfs are different devices, and share.
    let is_same = device(workspace) == device(pool) || here.filesystem == Filesystem::Btrfs;
    Ok(is_same && here.reflinks == Support::Yes)
}

/// The checkpoint that is to come.
pub(super) enum New<'a> {
    /// It will hold so many bytes, shared with nobody.
    Expected(u64),
    /// It is there already, under another name.
    Staged(&'a StagedSlot<'a>),
    /// It needs these chunks, and so many bytes besides that are not there yet.
    Packed {
        /// The chunks, there or not.
        needs: &'a HashSet<ChunkDigest>,
        /// What those take that are not there, and its names.
        bytes: u64,
    },
}

/// One checkpoint, wherever it is.
struct Account {
    /// Its slot, if it is in one of the pools.
    slot: Option<Slot>,
    path: PathBuf,
    at_most: Option<u64>,
    /// The chunks it needs.
    chunks: Vec<ChunkDigest>,
}

/// What is known of all checkpoints and the one to come; found out only as far as it matters.
pub(super) struct Accounts<'a> {
    all: Vec<Account>,
    new: New<'a>,
    costs: HashMap<ChunkDigest, u64>,
    measured: Option<(Vec<Extents>, Extents)>,
}

impl<'a> Accounts<'a> {
    /// Of the checkpoints in the pools, and those that take something back.
    pub(super) fn new(
        chunks: &Chunks,
        pools: [(&SlotDir, &[Occupant]); 2],
        new: New<'a>,
    ) -> Result<Self, SlotError> {
        let [(slots, occupants), (undo, undos)] = pools;
        let in_pools = occupants.iter().map(|one| (Some(one.slot()), slots, one));
        let undos = undos.iter().map(|one| (None, undo, one));
        let accounts = in_pools.chain(undos).map(|(slot, place, one)| Account {
            slot,
            path: place.slot(one.slot()),
            at_most: one.known().and_then(|known| known.bytes_at_most),
            chunks: named(&place.slot(one.slot())).unwrap_or_default(),
        });
        Ok(Self {
            all: accounts.collect(),
            new,
            costs: chunks.costs()?,
            measured: None,
        })
    }

    /// What they hold when some have gone: exactly, or at most if that is within the budget.
    pub(super) fn held(&mut self, gone: &[Slot], budget: u64) -> Result<u64, SlotError> {
        let in_chunks = self.in_chunks(gone);
        if self.measured.is_none() {
            let most = self
                .at_most(gone)
                .map(|most| most.saturating_add(in_chunks));
            if let Some(most) = most.filter(|most| *most <= budget) {
                return Ok(most);
            }
            self.measured = Some(self.measure()?);
        }
        let (all, new) = self.measured.as_ref().expect("they were just measured");
        let stay = self.all.iter().zip(all).filter(|(one, _)| !one.is_in(gone));
        let all: Vec<&Extents> = stay.map(|(_, one)| one).chain([new]).collect();
        let expected = match self.new {
            New::Expected(bytes) | New::Packed { bytes, .. } => bytes,
            New::Staged(_) => 0,
        };
        let held = extents::held(&all).0.saturating_add(in_chunks);
        Ok(held.saturating_add(expected))
    }

    /// What the chunks take that are needed when some have gone.
    fn in_chunks(&self, gone: &[Slot]) -> u64 {
        let stay = self.all.iter().filter(|one| !one.is_in(gone));
        let mut needed: HashSet<&ChunkDigest> = stay.flat_map(|one| &one.chunks).collect();
        if let New::Packed { needs, .. } = &self.new {
            needed.extend(needs.iter());
        }
        let costs = needed.iter().filter_map(|digest| self.costs.get(*digest));
        costs.sum()
    }

    fn at_most(&self, gone: &[Slot]) -> Option<u64> {
        let mut most = match &self.new {
            New::Expected(bytes) | New::Packed { bytes, .. } => *bytes,
            New::Staged(staged) => staged.at_most()?,
        };
        for one in self.all.iter().filter(|one| !one.is_in(gone)) {
            most = most.saturating_add(one.at_most?);
        }
        Some(most)
    }

    fn measure(&self) -> Result<(Vec<Extents>, Extents), SlotError> {
        let all = self
            .all
            .iter()
            .map(|one| measure(&one.path))
            .collect::<Result<_, _>>()?;
        let new = match &self.new {
            New::Expected(_) | New::Packed { .. } => Extents::default(),
            New::Staged(staged) => measure(&staged.path())?,
        };
        Ok((all, new))
    }
}

impl Account {
    fn is_in(&self, gone: &[Slot]) -> bool {
        self.slot.is_some_and(|slot| gone.contains(&slot))
    }
}

/// The chunks that the checkpoint in a directory needs; none if it is in no chunks, `None` if nobody can tell.
pub(super) fn named(slot: &Path) -> Option<Vec<ChunkDigest>> {
    match std::fs::read(slot.join(NAMES)) {
        Ok(bytes) => names_from_bytes(&bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_clone = !slot.join(WORKSPACE_DOCUMENT).exists();
            is_clone.then(Vec::new)
        }
        Err(_) => None,
    }
}

/// Finds out what is in a slot, or reads what was found before.
fn measure(slot: &Path) -> Result<Extents, SlotError> {
    if let Some(kept) = Extents::read(slot) {
        return Ok(kept);
    }
    let mut found = Extents::default();
    let trees = [slot.join(WORKSPACE), slot.join(SYSTEM)];
    // What takes a change back may lie beside the workspace.
    for path in trees.into_iter().chain(super::undo::elsewhere(slot)) {
        match RootDir::open(&path, Mounts::Stay) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            opened => {
                let root = opened.at("open", &path)?;
                let settings = WalkSettings {
                    deepest: usize::MAX,
                    ..WalkSettings::default()
                };
                found.add(&Extents::find(&root, &settings)?);
            }
        }
    }
    for document in [WORKSPACE_DOCUMENT, SYSTEM_DOCUMENT] {
        if let Some(document) = packed::read(slot, document)? {
            found.add_names(document.totals.entries());
        }
    }
    found.keep(slot);
    Ok(found)
}

/// What a live tree holds.
pub(super) fn live(workspace: &Path, settings: &WalkSettings) -> Result<Extents, SlotError> {
    let root = RootDir::open(workspace, Mounts::Stay).at("open", workspace)?;
    Ok(Extents::find(&root, settings)?)
}

/// What all of them hold now; those of the pools also each. What `beside` refers to as well is nobody's alone.
pub(super) fn usage(
    chunks: &Chunks,
    pools: [(&SlotDir, &[Occupant]); 2],
    beside: Option<&Extents>,
) -> Result<Usage, SlotError> {
    let accounts = Accounts::new(chunks, pools, New::Expected(0))?;
    let (all, _) = accounts.measure()?;
    let refs: Vec<&Extents> = all.iter().chain(beside).collect();
    let (held, alone) = extents::held(&refs);
    let undos = accounts.all.iter().zip(&alone);
    let undos = undos.filter(|(one, _)| one.slot.is_none());
    let undos = undos.map(|(_, alone)| *alone).sum();
    let mut needs: HashMap<&ChunkDigest, u32> = HashMap::new();
    for digest in accounts.all.iter().flat_map(|one| &one.chunks) {
        *needs.entry(digest).or_default() += 1;
    }
    let cost = |digest: &ChunkDigest| accounts.costs.get(digest).copied().unwrap_or_default();
    let slots = accounts.all.iter().zip(all.iter().zip(alone));
    let slots = slots.filter_map(|(one, (extents, exclusive))| {
        let only = one.chunks.iter().filter(|digest| needs[digest] == 1);
        Some(SlotUsage {
            slot: one.slot?,
            total: extents.total() + one.chunks.iter().map(cost).sum::<u64>(),
            exclusive: exclusive + only.map(cost).sum::<u64>(),
        })
    });
    Ok(Usage {
        held: held + accounts.in_chunks(&[]),
        slots: slots.collect(),
        undos,
    })
}
