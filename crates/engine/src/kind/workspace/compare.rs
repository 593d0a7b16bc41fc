//! What differs between two whole trees: checkpoints, forks, and the workspace; as a list, in lines, or as one patch.

use super::Workspace;
use super::answers::{ChangeOp, ChangesSummary};
use super::show::{differences, kind, op, size, summary};
use crate::error::{Error, WorkspaceError};
use crate::result::EntryType;
use crate::tree_patch::{self, ComparedContent, ContentDiff, PatchTree};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::tree::walk::WalkReport;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::{CheckpointRef, ForkName, Occupant, SlotMetadata};

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

/// What differs between two trees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ComparedTrees {
    /// The first tree: `cp-3`, `main`, `fork-1`.
    pub before: String,
    /// The second.
    pub after: String,
    /// Each entry that differs; the Git repository is one.
    #[serde(rename = "items")]
    pub changes: Vec<TreeChange>,
    /// How many there are of each kind.
    pub summary: ChangesSummary,
    /// What differs in the contents, as far as that was asked for.
    #[serde(flatten)]
    pub content: ContentDiff,
    /// Entries that could not be read, and so were not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// One of two trees.
struct TreeSide {
    label: String,
    tree: PatchTree,
    report: Option<WalkReport>,
}

impl Workspace {
    pub(super) fn compare_now(&self, command: &CompareTrees) -> Result<ComparedTrees, Error> {
        let before = self.side(&command.before)?;
        let after = self.side(&command.after)?;
        let found = differences(&before.tree.contents, &after.tree.contents);
        let (found, _) = super::git::collapsed(found);
        let changes: Vec<TreeChange> = found
            .iter()
            .map(|(path, change)| tree_change(path, *change, &before, &after))
            .collect();
        let mut result = ComparedTrees {
            summary: summary(changes.iter().map(|one| one.op)),
            changes,
            content: ContentDiff::default(),
            not_compared: not_compared(&before, &after),
            before: before.label.clone(),
            after: after.label.clone(),
        };
        if command.content == ComparedContent::None {
            return Ok(result);
        }
        let changes = before.tree.contents.diff(&after.tree.contents);
        let made = tree_patch::made(&changes, before.tree, after.tree, command.content)?;
        result.content = made.into_asked_for();
        Ok(result)
    }

    fn side(&self, which: &TreeRef) -> Result<TreeSide, Error> {
        Ok(match which {
            TreeRef::Workspace => {
                let (contents, report) = self.live()?;
                TreeSide {
                    label: "main".to_owned(),
                    tree: PatchTree::live(contents, self.directory())?,
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
                    tree: PatchTree::live(contents, &directory)?,
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
                    tree: PatchTree {
                        contents: self.base_of(&record)?,
                        // Only what was in it is known.
                        read: Err(WorkspaceError::ForkBaseGone { name, checkpoint }.into()),
                    },
                    report: None,
                }
            }
        })
    }

    fn slot_side(&self, one: SlotMetadata) -> Result<TreeSide, Error> {
        Ok(TreeSide {
            label: one.slot.to_string(),
            tree: self.slot_tree(one)?,
            report: None,
        })
    }

    /// A checkpoint, to be compared with another tree.
    pub(super) fn slot_tree(&self, one: SlotMetadata) -> Result<PatchTree, Error> {
        let own = self.clone();
        Ok(PatchTree {
            contents: self.included(self.contents(&one)?)?,
            read: Ok(Box::new(move |path, most| {
                Ok(own.pool().file(&one, path, most)?)
            })),
        })
    }
}

fn tree_change(
    path: &EntryPath,
    change: ChangeKind,
    before: &TreeSide,
    after: &TreeSide,
) -> TreeChange {
    let is = after.tree.contents.find(path);
    let listed = is.or_else(|| before.tree.contents.find(path));
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
