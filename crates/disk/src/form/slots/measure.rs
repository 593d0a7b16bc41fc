//! How many bytes the checkpoints hold.
//!
//! What counts is every byte of the disk that some checkpoint refers to, once, whether the live tree still shares it or not: the
//! live tree may change at any time, and what it lets go of is theirs from then on. So nothing that happens to the live tree makes them
//! hold more. Names cost something too: 512 bytes each, and the blocks of directories. A list costs what its documents take; those
//! that an unchanged checkpoint shares with the one before are counted once.
//!
//! As long as even the sum of what each could hold at most is within the budget, nobody looks at the disk. Otherwise the kernel is
//! asked where each file lies (`FIEMAP`), once for each checkpoint. What it does not tell: how much smaller btrfs keeps a compressed
//! stretch (counted in full), and what it cannot free of a stretch of which only a part is used (not counted).
//!
//! Chunks are counted as the files they are, each once, and so is what was set aside as damaged. Versions of files are counted by the bytes that each takes, and only where that
//! is too much by the places where they lie, because versions of one file share most of them.

use super::chunks::{Chunks, names_from_bytes};
use super::cost::{self, BLOCK, everything, whole};
use super::error::SlotError;
use super::extents::{self, Extents};
use super::packed::{NAMES, SYSTEM_DOCUMENT, WORKSPACE_DOCUMENT};
use super::place::SlotDir;
use super::references::{ListKey, References};
use super::staged::StagedSlot;
use super::versions::{self, KeepReferences, SlotList, VERSIONS, VersionCosts, VersionNames};
use super::{MANIFEST, METADATA, SYSTEM, WORKSPACE};
use crate::form::chunked::ChunkSource;
use crate::fs::facilities::{self, Support};
use crate::fs::fd::open_dir;
use crate::fs::free_space;
use crate::fs::metadata;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::progress::Progress;
use crate::tree::clone::SourceSurvey;
use crate::tree::survey;
use crate::tree::walk::WalkSettings;
use rustix::fs;
use rustix::io::Errno;
use stasis_model::digest::{ChunkDigest, FileDigest};
use stasis_model::failure::AtPath;
use stasis_model::filesystem::Filesystem;
use stasis_model::workspace::{Occupant, Slot, SlotForm};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    let others = others.map(|others| others.saturating_add(accounts.in_parts(&[])));
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

/// What a checkpoint needs of what all of a session share.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotNeeds {
    /// Its chunks.
    pub(super) chunks: HashSet<ChunkDigest>,
    /// The versions of files that are held whole.
    pub(super) versions: VersionCosts,
}

/// The checkpoint that is to come.
pub(super) enum New<'a> {
    /// It will hold so many bytes, shared with nobody.
    Expected(u64),
    /// It is there already, under another name.
    Staged(&'a StagedSlot<'a>),
    /// It needs these chunks and versions, and so many bytes besides that are not there yet.
    Packed {
        /// What it needs, there or not.
        needs: &'a SlotNeeds,
        /// What those chunks take that are not there, and its own documents.
        bytes: u64,
        /// Its slot in the making, for a system that lies there.
        staged: &'a StagedSlot<'a>,
        /// Opens a version that may not have its name yet.
        open: &'a dyn Fn(&FileDigest) -> Option<OwnedFd>,
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
    form: Option<SlotForm>,
    /// The list of the versions it needs.
    list: Option<ListKey>,
    /// What says what is in it, each by its inode with what it takes: those of an unchanged checkpoint are those of the one before.
    documents: Vec<(u64, u64)>,
}

/// Where all trees and versions lie.
struct MeasuredExtents {
    all: Vec<Extents>,
    new: Extents,
    versions: HashMap<FileDigest, Extents>,
}

/// What is known of all checkpoints and the one to come; found out only as far as it matters.
pub(super) struct Accounts<'a> {
    all: Vec<Account>,
    new: New<'a>,
    store: &'a Chunks,
    costs: HashMap<ChunkDigest, u64>,
    /// What is damaged takes room as long as a checkpoint names it.
    aside: u64,
    /// What all of them need, but for the one to come.
    needed: Arc<References>,
    measured: Option<MeasuredExtents>,
}

impl<'a> Accounts<'a> {
    /// Of the checkpoints in the pools, and those that take something back.
    pub(super) fn new(
        chunks: &'a Chunks,
        pools: [(&SlotDir, &[Occupant]); 2],
        new: New<'a>,
    ) -> Result<Self, SlotError> {
        Self::read(chunks, pools, new, KeepReferences::Yes)
    }

    /// The same for somebody who holds no lock.
    pub(super) fn glance(
        chunks: &'a Chunks,
        pools: [(&SlotDir, &[Occupant]); 2],
    ) -> Result<Self, SlotError> {
        Self::read(chunks, pools, New::Expected(0), KeepReferences::No)
    }

    fn read(
        chunks: &'a Chunks,
        pools: [(&SlotDir, &[Occupant]); 2],
        new: New<'a>,
        keep: KeepReferences,
    ) -> Result<Self, SlotError> {
        let [(slots, occupants), (undo, undos)] = pools;
        let in_pools = occupants.iter().map(|one| (Some(one.slot()), slots, one));
        let undos = undos.iter().map(|one| (None, undo, one));
        let mut lists = Vec::new();
        let accounts = in_pools.chain(undos).map(|(slot, place, one)| {
            let (path, form) = (place.slot(one.slot()), one.known().map(|known| known.form));
            let list = open_dir(&path).ok().map(|slot| SlotList::of(slot, form));
            let key = list.as_ref().and_then(|list| list.needs.list());
            lists.extend(list);
            Account {
                slot,
                at_most: one.known().and_then(|known| known.bytes_at_most),
                chunks: named(&path).unwrap_or_default(),
                form,
                list: key,
                documents: documents(&path, form),
                path,
            }
        });
        let all = accounts.collect();
        let needed = chunks.versions().needed(&lists, None, keep);
        Ok(Self {
            all,
            new,
            store: chunks,
            costs: chunks.costs()?,
            aside: chunks.aside()?.iter().map(|one| one.bytes).sum(),
            needed: needed.references,
            measured: None,
        })
    }

    /// What they hold when some have gone: exactly, or at most if that is within the budget.
    pub(super) fn held(&mut self, gone: &[Slot], budget: u64) -> Result<u64, SlotError> {
        let in_parts = self.in_parts(gone);
        if self.measured.is_none() {
            let most = self.at_most(gone);
            let most = most.map(|most| most.saturating_add(in_parts));
            let most = most.map(|most| most.saturating_add(self.in_versions(gone)));
            if let Some(most) = most.filter(|most| *most <= budget) {
                return Ok(most);
            }
            self.measured = Some(self.measure()?);
        }
        let measured = self.measured.as_ref().expect("they were just measured");
        let stay = self.all.iter().zip(&measured.all);
        let stay = stay.filter(|(one, _)| !one.is_in(gone));
        let mut versions = Extents::default();
        for (digest, _) in self.needed_versions(gone).rows() {
            if let Some(found) = measured.versions.get(digest) {
                versions.join(found);
            }
        }
        versions.tidy();
        let all = stay.map(|(_, one)| one).chain([&measured.new, &versions]);
        let all: Vec<&Extents> = all.collect();
        let expected = match self.new {
            New::Expected(bytes) | New::Packed { bytes, .. } => bytes,
            New::Staged(_) => 0,
        };
        let held = extents::held(&all).0.saturating_add(in_parts);
        Ok(held.saturating_add(expected))
    }

    /// What the chunks and documents take that are needed when some have gone.
    pub(super) fn in_parts(&self, gone: &[Slot]) -> u64 {
        let stay = || self.all.iter().filter(|one| !one.is_in(gone));
        let mut needed: HashSet<&ChunkDigest> = stay().flat_map(|one| &one.chunks).collect();
        if let New::Packed { needs, .. } = &self.new {
            needed.extend(needs.chunks.iter());
        }
        let costs = needed.iter().filter_map(|digest| self.costs.get(*digest));
        let documents: HashMap<u64, u64> = stay().flat_map(|one| &one.documents).copied().collect();
        costs.sum::<u64>() + documents.values().sum::<u64>() + self.aside
    }

    /// The list of what one of them needs; empty if nobody can tell.
    fn names_of(&self, one: &Account) -> Arc<VersionNames> {
        let slot = open_dir(&one.path).ok();
        let names = slot.and_then(|slot| self.store.versions().named(slot.as_fd(), one.form));
        names.unwrap_or_default()
    }

    /// What those need that are there when some have gone.
    fn needed_without(&self, gone: &[Slot]) -> Arc<References> {
        let stay = self.all.iter().filter(|one| !one.is_in(gone));
        let stay: HashSet<ListKey> = stay.filter_map(|one| one.list).collect();
        let mut left = self.needed.clone();
        for one in self.all.iter().filter(|one| one.is_in(gone)) {
            if let Some(key) = one.list.filter(|key| !stay.contains(key)) {
                Arc::make_mut(&mut left).remove(&key, &self.names_of(one));
            }
        }
        left
    }

    /// The versions that are needed when some have gone, each once.
    fn needed_versions(&self, gone: &[Slot]) -> VersionNames {
        let mut all = VersionNames::from(&*self.needed_without(gone));
        if let New::Packed { needs, .. } = &self.new {
            all.add_all(&VersionNames::from(&needs.versions));
        }
        all
    }

    /// What the versions take at most that are needed when some have gone.
    pub(super) fn in_versions(&self, gone: &[Slot]) -> u64 {
        let needed = self.needed_without(gone);
        let New::Packed { needs, .. } = &self.new else {
            return needed.cost();
        };
        let new = needs.versions.iter();
        let new = new.filter(|(digest, _)| needed.find(digest).is_none());
        let new = new.map(|(_, bytes)| versions::cost_of(*bytes));
        new.fold(needed.cost(), u64::saturating_add)
    }

    fn at_most(&self, gone: &[Slot]) -> Option<u64> {
        let mut most = match &self.new {
            New::Expected(bytes) => *bytes,
            New::Packed { bytes, staged, .. } => bytes.saturating_add(staged.at_most()?),
            New::Staged(staged) => staged.at_most()?,
        };
        for one in self.all.iter().filter(|one| !one.is_in(gone)) {
            most = most.saturating_add(one.at_most?);
        }
        Some(most)
    }

    fn measure(&self) -> Result<MeasuredExtents, SlotError> {
        let all = self.all.iter().map(|one| measure(&one.path));
        let new = match &self.new {
            New::Expected(_) => Extents::default(),
            New::Staged(staged) | New::Packed { staged, .. } => measure(&staged.path())?,
        };
        Ok(MeasuredExtents {
            all: all.collect::<Result<_, _>>()?,
            new,
            versions: self.measure_versions(),
        })
    }

    /// Where every version lies. One that is missing holds nothing: `check` names the checkpoints that lack it.
    fn measure_versions(&self) -> HashMap<FileDigest, Extents> {
        let open = |digest: &FileDigest| match &self.new {
            New::Packed { open, .. } => open(digest),
            _ => self.store.version(digest).ok(),
        };
        let needed = self.needed_versions(&[]);
        let found = needed.rows().iter().map(|&(digest, bytes)| {
            let is_new = matches!(&self.new, New::Packed { needs, .. } if needs.versions.contains_key(&digest));
            let found = match open(&digest) {
                Some(file) => Extents::of_file(file.as_fd(), bytes),
                // What was too much is not even there.
                None if is_new => Extents::of_bytes(versions::cost_of(bytes)),
                None => Extents::default(),
            };
            (digest, found)
        });
        found.collect()
    }

    /// What all of them hold, as far as that can be said without a look at any tree.
    pub(super) fn bound(&self) -> Result<HeldBound, SlotError> {
        let (mut trees, mut most, mut is_exact) = (Vec::new(), 0_u64, true);
        for one in &self.all {
            match (Extents::read(&one.path), one.at_most) {
                (Some(kept), _) => trees.push(kept),
                (None, Some(0)) => {}
                (None, Some(at_most)) => {
                    most = most.saturating_add(at_most);
                    is_exact = false;
                }
                (None, None) => trees.push(measure(&one.path)?),
            }
        }
        let in_versions = self.in_versions(&[]);
        let trees: Vec<&Extents> = trees.iter().collect();
        let held = extents::held(&trees).0.saturating_add(most);
        let held = held.saturating_add(self.in_parts(&[]));
        Ok(HeldBound {
            bytes: held.saturating_add(in_versions),
            is_exact: is_exact && in_versions == 0,
        })
    }
}

/// What all checkpoints hold at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldBound {
    /// So many bytes.
    pub bytes: u64,
    /// Whether they hold exactly that: otherwise some of it may be counted twice.
    pub is_exact: bool,
}

impl Account {
    fn is_in(&self, gone: &[Slot]) -> bool {
        self.slot.is_some_and(|slot| gone.contains(&slot))
    }
}

/// What the documents of a checkpoint take whose bytes lie elsewhere, by their inodes.
fn documents(slot: &Path, form: Option<SlotForm>) -> Vec<(u64, u64)> {
    if !form.is_some_and(SlotForm::is_list) {
        return Vec::new();
    }
    let names = [
        WORKSPACE_DOCUMENT,
        SYSTEM_DOCUMENT,
        NAMES,
        VERSIONS,
        MANIFEST,
        METADATA,
    ];
    let found = names.iter().filter_map(|name| {
        let seen = fs::lstat(slot.join(name)).ok()?;
        let size = u64::try_from(seen.st_size).unwrap_or_default();
        Some((seen.st_ino, cost::file(size)))
    });
    found.collect()
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
pub(super) fn measure(slot: &Path) -> Result<Extents, SlotError> {
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
    // Of a list there is nothing to be found again.
    if found != Extents::default() {
        found.keep(slot);
    }
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
    let MeasuredExtents {
        mut all, versions, ..
    } = accounts.measure()?;
    // What belongs to a version and has no place of its own: its name, and what the kernel does not tell.
    let own = |digest: &FileDigest| versions.get(digest).map_or(0, Extents::own);
    let mut needs: HashMap<&ChunkDigest, u32> = HashMap::new();
    let mut users: HashMap<FileDigest, u32> = HashMap::new();
    for (one, extents) in accounts.all.iter().zip(&mut all) {
        for digest in &one.chunks {
            *needs.entry(digest).or_default() += 1;
        }
        for (digest, _) in accounts.names_of(one).rows() {
            *users.entry(*digest).or_default() += 1;
            if let Some(found) = versions.get(digest) {
                extents.join_places(found);
            }
        }
        extents.tidy();
    }
    let refs: Vec<&Extents> = all.iter().chain(beside).collect();
    let (held, alone) = extents::held(&refs);
    let undos = accounts.all.iter().zip(&alone);
    let undos = undos.filter(|(one, _)| one.slot.is_none());
    let undos = undos.map(|(_, alone)| *alone).sum();
    let cost = |digest: &ChunkDigest| accounts.costs.get(digest).copied().unwrap_or_default();
    let slots = accounts.all.iter().zip(all.iter().zip(alone));
    let slots = slots.filter_map(|(one, (extents, exclusive))| {
        let only = one.chunks.iter().filter(|digest| needs[digest] == 1);
        let list = accounts.names_of(one);
        let names = || list.rows().iter().map(|(digest, _)| digest);
        let only_named = names().filter(|digest| users[digest] == 1);
        Some(SlotUsage {
            slot: one.slot?,
            total: extents.total()
                + one.chunks.iter().map(cost).sum::<u64>()
                + names().map(own).sum::<u64>(),
            exclusive: exclusive + only.map(cost).sum::<u64>() + only_named.map(own).sum::<u64>(),
        })
    });
    let in_names: u64 = users.keys().map(own).sum();
    Ok(Usage {
        held: held + accounts.in_parts(&[]) + in_names,
        slots: slots.collect(),
        undos,
    })
}
