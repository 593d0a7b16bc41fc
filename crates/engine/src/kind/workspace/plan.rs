//! What a change of the live tree does, decided before anything is touched: a restore of the whole tree, or of one entry of it.

use super::answers::{ChangePlan, ExcludedNow};
use super::show::BeforeAfter;
use super::{Actor, Workspace};
use crate::error::{Error, WorkspaceError};
use crate::restore::RestorePlan;
use stasis_disk::form::slots::{Manifest, ManifestEntry, ManifestKind};
use stasis_disk::tree::restore::is_part_of;
use stasis_model::digest::StoreDigest;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::SlotMetadata;
use std::path::PathBuf;

/// An agent deletes no more files than this without having seen which.
const MOST_DELETED: u64 = 20;
/// How many entries of a plan are shown.
const SHOWN: usize = 100;

/// A change of the live tree. A revert names one entry, and what belongs to it if that is a database: its WAL and its journals.
pub(super) type WorkspacePlan<'a> = RestorePlan<CheckpointChange<'a>>;

/// What the live tree is, and what it becomes.
#[derive(Clone, Debug)]
pub(super) struct CheckpointChange<'a> {
    pub(super) verb: ChangeVerb,
    /// What the tree, or an entry of it, becomes.
    pub(super) from: &'a SlotMetadata,
    pub(super) is: Manifest,
    pub(super) becomes: Manifest,
    /// What is excluded from checkpoints by now, and left as it is for that.
    pub(super) excluded_now: Option<ExcludedNow>,
    /// The fork that the tree becomes; none for what comes from a checkpoint alone.
    pub(super) fork: Option<ForkPlan>,
    /// The number of the first undo checkpoint of the act that this is a later part of.
    pub(super) since: Option<u32>,
}

/// What a plan has to stand for besides, if the tree becomes what a fork is.
#[derive(Clone, Debug)]
pub(super) struct ForkPlan {
    /// Where the fork lies.
    pub(super) directory: PathBuf,
    /// The fork, and the work of the workspace itself that is overwritten, each entry as it is now.
    pub(super) identity: Vec<String>,
}

/// What somebody does to the live tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChangeVerb {
    Revert,
    Restore,
    Undo,
    Promote,
}

impl ChangeVerb {
    /// The word for it in documents and results.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Revert => "revert",
            Self::Restore => "restore",
            Self::Undo => "undo",
            Self::Promote => "promotion",
        }
    }
}

impl<'a> WorkspacePlan<'a> {
    /// A change of the whole tree.
    pub(super) fn new(
        verb: ChangeVerb,
        from: &'a SlotMetadata,
        is: Manifest,
        becomes: Manifest,
    ) -> Self {
        Self::whole(CheckpointChange {
            verb,
            from,
            is,
            becomes,
            excluded_now: None,
            fork: None,
            since: None,
        })
    }

    /// The one entry that changes; none when the whole tree does.
    pub(super) fn path(&self) -> Option<&EntryPath> {
        self.only.first()
    }

    /// Whether nothing changes.
    pub(super) fn is_nothing(&self) -> bool {
        self.source.is == self.source.becomes
    }

    /// How many entries stay what they are.
    pub(super) fn untouched(&self) -> u64 {
        let CheckpointChange { is, becomes, .. } = &self.source;
        let changed = is.diff(becomes).into_iter();
        let changed = changed.filter(|(_, change)| *change != ChangeKind::Added);
        (is.entries().len() - changed.count()) as u64
    }

    /// The same change, but for some entries, which stay what they are.
    pub(super) fn without(mut self, except: &[EntryPath]) -> Self {
        if except.is_empty() {
            return self;
        }
        let is_excepted = |path: &EntryPath| except.iter().any(|one| is_part_of(path, one));
        let CheckpointChange { is, becomes, .. } = &self.source;
        let stays = is.entries().iter().filter(|one| is_excepted(&one.path));
        let comes = becomes.entries().iter();
        let comes = comes.filter(|one| !is_excepted(&one.path));
        let mut all: Vec<ManifestEntry> = stays.chain(comes).cloned().collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        self.source.becomes = Manifest::of(all);
        self.except.extend_from_slice(except);
        self
    }
}

impl Workspace {
    /// What a change does, and a digest that stands for it.
    pub(super) fn described(&self, plan: &WorkspacePlan<'_>) -> ChangePlan {
        let CheckpointChange {
            from,
            is,
            becomes,
            fork,
            ..
        } = &plan.source;
        let changes = is.diff(becomes);
        let git = match fork {
            Some(fork) => self.git_plan_of_fork(&changes, &fork.directory),
            None => self.git_plan(&changes, from),
        };
        let (changes, _) = super::git::collapsed(changes);
        let count = |wanted: fn(&ChangeKind) -> bool| {
            changes.iter().filter(|(_, change)| wanted(change)).count() as u64
        };
        let is_file = |path: &EntryPath| {
            is.find(path)
                .is_some_and(|one| one.what != ManifestKind::Directory)
        };
        let going = changes
            .iter()
            .filter(|(_, change)| *change == ChangeKind::Removed);
        let creates = count(|change| *change == ChangeKind::Added);
        let deletes = count(|change| *change == ChangeKind::Removed);
        let shown = super::show::differences(is, becomes);
        let (shown, _) = super::git::collapsed(shown);
        let all = shown.len();
        let shown = shown.iter().take(SHOWN);
        let both = BeforeAfter {
            before: is,
            after: becomes,
        };
        let shown = shown.map(|(path, change)| self.change(path, *change, both, from));
        let identity = match fork {
            // Which slot it gets is not known before it has one.
            Some(fork) => fork.identity.join("\n"),
            None => format!("{} {} {}", from.origin, from.slot, from.sequence),
        };
        let path = plan.path().map(ToString::to_string).unwrap_or_default();
        // What is in the live tree may change at any time, and is kept whatever it is: the digest stands for what the tree becomes,
        // and for what is deleted for it.
        let mut digest = vec![identity, path, becomes.hash().to_string()];
        digest.extend(going.clone().map(|(path, _)| path.to_string()));
        let digest = StoreDigest::of(digest.join("\n").as_bytes());
        ChangePlan {
            creates,
            replaces: changes.len() as u64 - creates - deletes,
            deletes,
            deletes_files: going.filter(|(path, _)| is_file(path)).count() as u64,
            sample_is_cut: all > SHOWN,
            sample: shown.collect(),
            git,
            digest: digest.to_string(),
        }
    }

    /// Whether a plan may be carried out by whoever asks.
    pub(super) fn confirm(
        &self,
        plan: &ChangePlan,
        said: Option<&str>,
        is_agreed: bool,
    ) -> Result<(), Error> {
        let git = plan.git.as_ref().filter(|git| !git.moves.is_empty());
        match said {
            Some(said) if said != plan.digest => Err(WorkspaceError::PlanChanged.into()),
            None if self.actor() == Actor::Model && plan.deletes_files > MOST_DELETED => {
                Err(WorkspaceError::NeedsConfirmation {
                    deletes: plan.deletes_files,
                    most: MOST_DELETED,
                }
                .into())
            }
            // Commits are the user's: nobody takes them away without having been told.
            None if git.is_some_and(|git| self.actor() == Actor::Model || git.takes_commits())
                && !is_agreed =>
            {
                let git = git.expect("it was just looked at");
                Err(WorkspaceError::MovesGit {
                    moves: git.moves.join(", "),
                    commits: git.commits_leaving,
                }
                .into())
            }
            _ => Ok(()),
        }
    }
}
