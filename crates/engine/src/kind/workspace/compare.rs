//! What differs between two whole trees: checkpoints, forks, and the workspace; as a list, in lines, or as one patch.
//!
//! *Always true:* a patch that leaves nothing out makes of one tree the other, as far as Git knows trees: files, whether they can be
//! executed, and links. What it cannot carry is named. What lies in a `.git` is in no patch.

use super::Workspace;
use super::answers::{ChangeOp, ChangesSummary};
use super::show::{differences, kind, op, size, summary};
use crate::error::{Error, WorkspaceError};
use crate::git_patch::{self, FilePatch, GitMode, PatchFile};
use crate::result::EntryType;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::slots::{Manifest, ManifestEntry, ManifestKind, read_file};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::WalkReport;
use stasis_model::display_as_serialized;
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::{CheckpointRef, ForkName, Occupant, SlotMetadata};
use std::collections::BTreeMap;

/// Longer files are in no patch.
const LARGEST: u64 = 32 << 20;
/// A longer patch is refused: it would be held in memory.
const LONGEST_PATCH: usize = 1 << 30;

/// A tree that can be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeRef {
    /// The workspace as it is now.
    Workspace,
    /// A checkpoint; else the newest one.
    Checkpoint(Option<CheckpointRef>),
    /// A fork as it is now.
    Fork(ForkName),
    /// What a fork was made from.
    ForkBase(ForkName),
}

/// How much of the contents is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ComparedContent {
    /// Nothing: which entries differ.
    #[default]
    None,
    /// How many lines.
    Stat,
    /// All of it, as a patch.
    Patch,
}

/// A comparison that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompareTrees {
    /// What it was.
    pub before: TreeRef,
    /// What it is.
    pub after: TreeRef,
    /// How much of the contents is wanted.
    pub content: ComparedContent,
}

/// An entry that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TreeChange {
    /// Which.
    pub path: String,
    /// From the first tree to the second.
    pub op: ChangeOp,
    /// What it is, or was if it is gone.
    pub kind: EntryType,
    /// How long the file is in the second tree.
    pub size: Option<u64>,
}

/// Lines that differ in one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FileStat {
    /// Which.
    pub path: String,
    /// What it was called, if it only has another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// Lines that came.
    pub added: u64,
    /// Lines that went.
    pub removed: u64,
    /// Whether it is no text: then lines are not counted.
    pub is_binary: bool,
    /// How long it was.
    pub size_before: Option<u64>,
    /// How long it is.
    pub size_after: Option<u64>,
}

/// Lines that differ in all files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DiffStat {
    /// Each file.
    pub files: Vec<FileStat>,
    /// Lines that came.
    pub insertions: u64,
    /// Lines that went.
    pub deletions: u64,
}

/// Why something is in no patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchGapReason {
    /// The file is longer than 32 MiB.
    TooLarge,
    /// Git knows no directory without files.
    EmptyDirectory,
    /// It is the Git repository, or in it.
    GitRepository,
    /// Of permissions, Git knows only whether a file can be executed.
    Mode,
    /// Git knows no extended attributes.
    Attributes,
}

display_as_serialized!(PatchGapReason);

impl PatchGapReason {
    /// Whether an entry is missing in what the patch makes, and not only a property of one.
    pub fn is_entry(self) -> bool {
        matches!(self, Self::TooLarge | Self::EmptyDirectory)
    }
}

/// Something that differs and is in no patch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PatchGap {
    /// Which entry.
    pub path: String,
    /// Why it is not.
    pub why: PatchGapReason,
}

/// What differs between two trees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ComparedTrees {
    /// The first tree: `cp-3`, `main`, `fork-1`.
    pub before: String,
    /// The second.
    pub after: String,
    /// Each entry that differs; the Git repository is one.
    pub changes: Vec<TreeChange>,
    /// How many there are of each kind.
    pub summary: ChangesSummary,
    /// How many lines differ; only if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<DiffStat>,
    /// What `git apply` makes the second tree of the first with; only if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// What differs and is not in the patch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_in_patch: Vec<PatchGap>,
    /// Entries that could not be read, and so were not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// One of two trees.
struct TreeSide {
    label: String,
    contents: Manifest,
    source: SideSource,
    report: Option<WalkReport>,
}

/// Where the contents of a tree are read.
enum SideSource {
    Slot(Box<SlotMetadata>),
    Live(RootDir),
    /// Only what was in it is known.
    Unknown(WorkspaceError),
}

/// What is put together of two trees.
#[derive(Default)]
struct TreePatch {
    text: String,
    stat: DiffStat,
    gaps: Vec<PatchGap>,
    keeps_text: bool,
}

impl Workspace {
    pub(super) fn compare_now(&self, command: &CompareTrees) -> Result<ComparedTrees, Error> {
        let before = self.side(&command.before)?;
        let after = self.side(&command.after)?;
        let found = differences(&before.contents, &after.contents);
        let (found, _) = super::git::collapsed(found);
        let changes: Vec<TreeChange> = found
            .iter()
            .map(|(path, change)| tree_change(path, *change, &before, &after))
            .collect();
        let mut result = ComparedTrees {
            summary: summary(changes.iter().map(|one| one.op)),
            changes,
            stat: None,
            patch: None,
            not_in_patch: Vec::new(),
            not_compared: not_compared(&before, &after),
            before: before.label.clone(),
            after: after.label.clone(),
        };
        if command.content == ComparedContent::None {
            return Ok(result);
        }
        let patch = self.patch(before, after, command.content)?;
        result.stat = Some(patch.stat);
        if command.content == ComparedContent::Patch {
            result.patch = Some(patch.text);
            result.not_in_patch = patch.gaps;
        }
        Ok(result)
    }

    fn side(&self, which: &TreeRef) -> Result<TreeSide, Error> {
        let live = |directory: &std::path::Path| {
            let root = RootDir::open(directory, Mounts::Stay);
            root.at(crate::error::OPEN_DIRECTORY, directory)
        };
        Ok(match which {
            TreeRef::Workspace => {
                let (contents, report) = self.live()?;
                TreeSide {
                    label: "main".to_owned(),
                    contents,
                    source: SideSource::Live(live(self.directory())?),
                    report: Some(report),
                }
            }
            TreeRef::Checkpoint(which) => {
                let one = match which {
                    Some(which) => self.resolve(which)?,
                    None => self
                        .newest_first()?
                        .into_iter()
                        .next()
                        .ok_or(WorkspaceError::NoCheckpoints)?,
                };
                self.slot_side(one)?
            }
            TreeRef::Fork(name) => {
                let record = self.fork_record(name)?;
                let directory = record.place()?;
                let (contents, report) = self.fork_contents(&record, &directory)?;
                TreeSide {
                    label: name.to_string(),
                    contents,
                    source: SideSource::Live(live(&directory)?),
                    report: Some(report),
                }
            }
            TreeRef::ForkBase(name) => {
                let record = self.fork_record(name)?;
                let kept = self.pool().list()?;
                let mut kept = kept.iter().filter_map(Occupant::known);
                if let Some(kept) = kept.find(|one| record.is_from(one)) {
                    return self.slot_side(kept.clone());
                }
                let (name, checkpoint) = (name.clone(), record.checkpoint());
                TreeSide {
                    label: checkpoint.clone(),
                    contents: self.base_of(&record)?,
                    source: SideSource::Unknown(WorkspaceError::ForkBaseGone { name, checkpoint }),
                    report: None,
                }
            }
        })
    }

    fn slot_side(&self, one: SlotMetadata) -> Result<TreeSide, Error> {
        Ok(TreeSide {
            label: one.slot.to_string(),
            contents: self.included(self.contents(&one)?)?,
            source: SideSource::Slot(Box::new(one)),
            report: None,
        })
    }

    /// Everything that differs in files and links, in the order of paths.
    fn patch(
        &self,
        mut before: TreeSide,
        mut after: TreeSide,
        content: ComparedContent,
    ) -> Result<TreePatch, Error> {
        for side in [&mut before, &mut after] {
            let unknown = SideSource::Unknown(WorkspaceError::NoCheckpoints);
            side.source = match std::mem::replace(&mut side.source, unknown) {
                SideSource::Unknown(error) => return Err(error.into()),
                source => source,
            };
        }
        let mut made = TreePatch {
            keeps_text: content == ComparedContent::Patch,
            ..TreePatch::default()
        };
        let changes = before.contents.diff(&after.contents);
        let renamed = renames(&changes, &before.contents, &after.contents);
        for (path, _) in &changes {
            if is_in_git(path) {
                made.gap_once(path, PatchGapReason::GitRepository);
                continue;
            }
            if renamed.values().any(|from| from == path) {
                continue;
            }
            let (was, is) = (before.contents.find(path), after.contents.find(path));
            made.note_properties(path, was, is, &after.contents);
            if let Some(from) = renamed.get(path) {
                let was = before.contents.find(from);
                made.rename(from, was, path, is);
                continue;
            }
            let (was, is) = (
                was.filter(|one| is_file(one)),
                is.filter(|one| is_file(one)),
            );
            if [was, is].into_iter().flatten().any(is_too_large) {
                made.gap(path, PatchGapReason::TooLarge);
                continue;
            }
            let old = was.map(|was| self.content(&before, was)).transpose()?;
            let new = is.map(|is| self.content(&after, is)).transpose()?;
            made.change(path, was.zip(old.as_deref()), is.zip(new.as_deref()));
            if made.text.len() > LONGEST_PATCH {
                let why = "the patch would be longer than 1 GiB".to_owned();
                let path = path.to_string();
                return Err(WorkspaceError::BadPath { path, why }.into());
            }
        }
        Ok(made)
    }

    /// What a file holds, or where a link points.
    fn content(&self, side: &TreeSide, one: &ManifestEntry) -> Result<Vec<u8>, Error> {
        let bytes = match (&one.what, &side.source) {
            (ManifestKind::Symlink { target }, _) => return Ok(target.to_vec()),
            (_, SideSource::Slot(slot)) => self.pool().file(slot, &one.path, LARGEST + 1)?,
            (_, SideSource::Live(root)) => {
                let read = read_file(root, &one.path, LARGEST + 1);
                read.at("read", std::path::Path::new(&one.path.to_string()))?
            }
            (_, SideSource::Unknown(_)) => None,
        };
        // One that went since it was listed.
        Ok(bytes.unwrap_or_default())
    }
}

impl TreePatch {
    fn gap(&mut self, path: &EntryPath, why: PatchGapReason) {
        let path = path.to_string();
        self.gaps.push(PatchGap { path, why });
    }

    /// Names the outermost repository, and nothing in it.
    fn gap_once(&mut self, path: &EntryPath, why: PatchGapReason) {
        let mut top = EntryPath::root();
        for name in path.components() {
            top = top.child(name).expect("it is part of a good path");
            if name.eq_ignore_ascii_case(b".git") {
                break;
            }
        }
        let shown = top.to_string();
        if self.gaps.last().is_none_or(|last| last.path != shown) {
            self.gap(&top, why);
        }
    }

    /// Names what Git does not know of an entry.
    fn note_properties(
        &mut self,
        path: &EntryPath,
        was: Option<&ManifestEntry>,
        is: Option<&ManifestEntry>,
        after: &Manifest,
    ) {
        let Some(is) = is else {
            return;
        };
        if is.what == ManifestKind::Directory {
            let is_empty = after.portion(path).len() == 1;
            if is_empty && was.is_none_or(|was| was.what != ManifestKind::Directory) {
                self.gap(path, PatchGapReason::EmptyDirectory);
            }
        }
        let made = match was {
            Some(was) => was.mode,
            None if is.what == ManifestKind::Directory || git_mode(is) == GitMode::Executable => {
                0o755
            }
            None => 0o644,
        };
        let is_link = matches!(is.what, ManifestKind::Symlink { .. });
        if !is_link && made != is.mode && made & 0o100 == is.mode & 0o100 {
            self.gap(path, PatchGapReason::Mode);
        }
        if was.and_then(|was| was.attributes) != is.attributes {
            self.gap(path, PatchGapReason::Attributes);
        }
    }

    fn rename(
        &mut self,
        from: &EntryPath,
        was: Option<&ManifestEntry>,
        to: &EntryPath,
        is: Option<&ManifestEntry>,
    ) {
        let (Some(was), Some(is)) = (was, is) else {
            return;
        };
        let (before, after) = (git_mode(was), git_mode(is));
        let file = git_patch::renamed(from.as_bytes(), to.as_bytes(), before, after);
        self.add(to, &file, Some(was), Some(is));
        if let Some(last) = self.stat.files.last_mut() {
            last.renamed_from = Some(from.to_string());
        }
    }

    fn change(
        &mut self,
        path: &EntryPath,
        was: Option<(&ManifestEntry, &[u8])>,
        is: Option<(&ManifestEntry, &[u8])>,
    ) {
        let file = |(one, content)| PatchFile {
            mode: git_mode(one),
            content,
        };
        let name = path.as_bytes();
        let changed = match (was.map(file), is.map(file)) {
            (None, None) => return,
            (None, Some(is)) => git_patch::created(name, is),
            (Some(was), None) => git_patch::deleted(name, was),
            (Some(was), Some(is)) if was.mode == is.mode && was.content == is.content => return,
            (Some(was), Some(is)) => git_patch::changed(name, was, is),
        };
        let (was, is) = (was.map(|(one, _)| one), is.map(|(one, _)| one));
        self.add(path, &changed, was, is);
    }

    fn add(
        &mut self,
        path: &EntryPath,
        file: &FilePatch,
        was: Option<&ManifestEntry>,
        is: Option<&ManifestEntry>,
    ) {
        self.stat.insertions += file.added;
        self.stat.deletions += file.removed;
        self.stat.files.push(FileStat {
            path: path.to_string(),
            renamed_from: None,
            added: file.added,
            removed: file.removed,
            is_binary: file.is_binary,
            size_before: was.and_then(size),
            size_after: is.and_then(size),
        });
        if self.keeps_text {
            self.text.push_str(&file.text);
        }
    }
}

/// Files that went and came under another name with the same content: the new name leads to the old one.
fn renames(
    changes: &[(EntryPath, ChangeKind)],
    before: &Manifest,
    after: &Manifest,
) -> BTreeMap<EntryPath, EntryPath> {
    let content = |tree: &Manifest, path: &EntryPath| match tree.find(path)?.what {
        ManifestKind::File { size, digest } if size > 0 => Some((size, *digest.as_bytes())),
        _ => None,
    };
    let mut gone: BTreeMap<(u64, [u8; 32]), Vec<&EntryPath>> = BTreeMap::new();
    for (path, change) in changes.iter().rev() {
        if *change == ChangeKind::Removed
            && !is_in_git(path)
            && let Some(content) = content(before, path)
        {
            gone.entry(content).or_default().push(path);
        }
    }
    let mut found = BTreeMap::new();
    for (path, change) in changes {
        if *change == ChangeKind::Added
            && !is_in_git(path)
            && let Some(content) = content(after, path)
            && let Some(from) = gone.get_mut(&content).and_then(Vec::pop)
        {
            found.insert(path.clone(), from.clone());
        }
    }
    found
}

/// Whether something is a repository, or lies in one: Git applies nothing to that.
fn is_in_git(path: &EntryPath) -> bool {
    let mut names = path.components();
    names.any(|name| name.eq_ignore_ascii_case(b".git"))
}

fn is_file(one: &ManifestEntry) -> bool {
    one.what != ManifestKind::Directory
}

fn is_too_large(one: &ManifestEntry) -> bool {
    size(one).unwrap_or_default() > LARGEST
}

fn git_mode(one: &ManifestEntry) -> GitMode {
    match one.what {
        ManifestKind::Symlink { .. } => GitMode::Link,
        _ if one.mode & 0o100 != 0 => GitMode::Executable,
        _ => GitMode::Plain,
    }
}

fn tree_change(
    path: &EntryPath,
    change: ChangeKind,
    before: &TreeSide,
    after: &TreeSide,
) -> TreeChange {
    let is = after.contents.find(path);
    let listed = is.or_else(|| before.contents.find(path));
    TreeChange {
        path: path.to_string(),
        op: op(change),
        kind: listed.map_or(EntryType::File, kind),
        size: is.and_then(size),
    }
}

fn not_compared(before: &TreeSide, after: &TreeSide) -> Vec<String> {
    let reports = [&before.report, &after.report].into_iter().flatten();
    let left_out = reports.flat_map(crate::clone::LeftOut::of);
    left_out
        .map(|one| format!("{}: {}", one.path, one.words))
        .collect()
}
