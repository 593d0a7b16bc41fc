//! The workspace becomes what a fork of it is.
//!
//! 1. lock forks and session
//! 2. compare the fork, the workspace, and the checkpoint that the fork was made from: that is the plan
//! 3. whoever asks must have agreed to it, if it overwrites what changed in the workspace since then
//! 4. make a checkpoint of the workspace
//! 5. make one of the fork; if the plan is another one with that, stop
//! 6. restore that checkpoint, as every restore ([`super::restore`])
//!
//! *Always true:* the workspace becomes what the plan said, or stays what it is. Until 6 nothing in it is touched, and 6 leaves what
//! takes it back, also if it is interrupted. A crash between 4 and 6 leaves checkpoints, which go as those of agents' commands do.

use super::answers::ChangePlan;
use super::commands::{CreateCheckpoint, PromoteFork, RunMode};
use super::fork_results::{OverwrittenEntry, PromotedFork};
use super::forks::ForkRecord;
use super::plan::{ChangeVerb, ForkPlan, WorkspacePlan};
use super::restore::is_half_done;
use super::show::op;
use super::{Actor, Workspace};
use crate::error::{Error, WorkspaceError, error_chain};
use stasis_disk::form::slots::{Manifest, ManifestEntry, ManifestKind};
use stasis_model::tree::EntryPath;
use stasis_model::workspace::SlotMetadata;
use std::path::Path;

/// How many overwritten entries are named.
const SHOWN: usize = 100;
/// How many of them an error names.
const NAMED: usize = 3;

/// A fork that is about to become the workspace.
struct Candidate<'a> {
    record: &'a ForkRecord,
    directory: &'a Path,
    /// What the checkpoint held that it was made from.
    base: &'a Manifest,
}

/// A plan, and what it does to work of the workspace itself.
struct PromotionPlan<'a> {
    plan: WorkspacePlan<'a>,
    described: ChangePlan,
    overwrites: Vec<OverwrittenEntry>,
    kept_own: u64,
}

impl Workspace {
    pub(super) fn promote_now(&self, command: &PromoteFork) -> Result<PromotedFork, Error> {
        let started = self.clock().uptime();
        let _forks = self.lock_forks("promoting a fork")?;
        let _lock = self.lock("promoting a fork")?;
        let record = self.fork_record(&command.fork)?;
        let directory = record.place()?;
        let base = self.base_of(&record)?;
        let fork = Candidate {
            record: &record,
            directory: &directory,
            base: &base,
        };
        let (contents, report) = self.fork_contents(&record, &directory)?;
        let count = report.missing().count() as u64 + report.unlisted();
        let missing = report.missing().map(ToString::to_string);
        let shown = self.prospective(&capture(&record, self))?;
        let shown = shown.without(missing, count);
        let plan = self.promotion(command, &fork, &shown, contents)?;
        let mut result = answer(&fork, &plan);
        result.dry_run = command.run == RunMode::Dry;
        if command.run == RunMode::Real && !plan.plan.is_nothing() {
            self.confirm_promotion(command, &plan)?;
            self.carry_out_promotion(command, &fork, &plan.described, &mut result)?;
        }
        result.elapsed_ms = self.elapsed(started);
        Ok(result)
    }

    /// What the workspace becomes, and what is overwritten by that.
    fn promotion<'a>(
        &self,
        command: &PromoteFork,
        fork: &Candidate<'_>,
        from: &'a SlotMetadata,
        becomes: Manifest,
    ) -> Result<PromotionPlan<'a>, Error> {
        let verb = ChangeVerb::Promote;
        let mut plan = self.whole_change(verb, from, becomes.clone(), &command.except)?;
        let mut own = overwritten(fork.base, &plan);
        let mut kept_own = 0;
        if command.keep_own && !own.is_empty() {
            kept_own = own.len() as u64;
            let paths = own.iter().map(|(path, _)| path.clone());
            let except: Vec<EntryPath> = command.except.iter().cloned().chain(paths).collect();
            plan = self.whole_change(verb, from, becomes, &except)?;
            own = overwritten(fork.base, &plan);
        }
        let mut identity = vec![format!(
            "fork {} {:?}",
            fork.record.name, fork.record.identity
        )];
        identity.extend(own.iter().map(|(path, _)| {
            let is = plan.source.is.find(path).map(|is| &is.what);
            format!("{path} {is:?}")
        }));
        plan.source.fork = Some(ForkPlan {
            directory: fork.directory.to_owned(),
            identity,
        });
        Ok(PromotionPlan {
            described: self.described(&plan),
            plan,
            overwrites: own.into_iter().map(|(_, one)| one).collect(),
            kept_own,
        })
    }

    /// Whether a plan may be carried out by whoever asks.
    fn confirm_promotion(
        &self,
        command: &PromoteFork,
        plan: &PromotionPlan<'_>,
    ) -> Result<(), Error> {
        let is_agreed = command.agreed && self.actor() == Actor::Owner;
        if !plan.overwrites.is_empty() && command.confirm.is_none() && !is_agreed {
            let named = plan.overwrites.iter().take(NAMED);
            return Err(WorkspaceError::OverwritesWork {
                name: command.fork.clone(),
                count: plan.overwrites.len() as u64,
                paths: named.map(|one| one.path.clone()).collect(),
            }
            .into());
        }
        self.confirm(&plan.described, command.confirm.as_deref(), command.agreed)
    }

    fn carry_out_promotion(
        &self,
        command: &PromoteFork,
        fork: &Candidate<'_>,
        agreed: &ChangePlan,
        result: &mut PromotedFork,
    ) -> Result<(), Error> {
        let words = format!("fork promote {}", fork.record.name);
        let before = CreateCheckpoint::for_command(&words, self.maker());
        result.checkpoint_before = Some(self.create_locked(&before)?.checkpoint);
        let taken = self.create_of(fork.directory, &capture(fork.record, self))?;
        let contents = self.contents(&taken);
        let plan = contents.and_then(|contents| self.promotion(command, fork, &taken, contents));
        let done = plan.and_then(|plan| {
            if plan.described.digest != agreed.digest {
                return Err(WorkspaceError::PlanChanged.into());
            }
            self.carry_out(&plan.plan)
        });
        let done = done.inspect_err(|error| self.drop_unused(&taken, error))?;
        result.checkpoint = Some(taken.slot.to_string());
        result.left_alone.extend(done.refused());
        result.undo = done.undo;
        result.changed_meanwhile = done.changed_meanwhile;
        result.undo_forgotten = done.forgotten;
        result.promoted = true;
        Ok(())
    }

    /// Removes a checkpoint that was made for a change which was not made; not one of a change that is brought to its end later.
    fn drop_unused(&self, taken: &SlotMetadata, why: &Error) {
        if is_half_done(why) {
            return;
        }
        if let Err(error) = self.pool().delete(taken.slot) {
            let error = error_chain(&error);
            tracing::warn!(error, checkpoint = %taken.slot, "could not remove a checkpoint that is not needed");
        }
    }
}

/// The checkpoint of what a fork is.
fn capture(record: &ForkRecord, own: &Workspace) -> CreateCheckpoint {
    let words = format!("fork {}, promoted", record.name);
    CreateCheckpoint::for_command(&words, own.maker())
}

fn answer(fork: &Candidate<'_>, plan: &PromotionPlan<'_>) -> PromotedFork {
    PromotedFork {
        promoted: false,
        fork: fork.record.name.to_string(),
        directory: fork.directory.display().to_string(),
        checkpoint_before: None,
        checkpoint: None,
        undo: None,
        overwrites: plan.overwrites.iter().take(SHOWN).cloned().collect(),
        overwrites_count: plan.overwrites.len() as u64,
        kept_own: plan.kept_own,
        changed_meanwhile: Vec::new(),
        undo_forgotten: Vec::new(),
        left_alone: plan.plan.left_alone.clone(),
        excluded_now: plan.plan.source.excluded_now.clone(),
        plan: plan.described.clone(),
        dry_run: false,
        elapsed_ms: 0,
    }
}

/// The files and links that changed in the workspace since the fork was made, and that become something else than they are now.
///
/// What is in the Git repository is told by the commits that leave their branches.
fn overwritten(base: &Manifest, plan: &WorkspacePlan<'_>) -> Vec<(EntryPath, OverwrittenEntry)> {
    let (is, becomes) = (&plan.source.is, &plan.source.becomes);
    let what = |tree: &Manifest, path: &EntryPath| {
        let found: Option<&ManifestEntry> = tree.find(path);
        found
            .filter(|one| one.what != ManifestKind::Directory)
            .cloned()
    };
    let changed = base.diff(is).into_iter();
    let changed = changed.filter(|(path, _)| !super::git::is_in_commits(path));
    let found = changed.filter_map(|(path, change)| {
        let (was, now, then) = (what(base, &path), what(is, &path), what(becomes, &path));
        // A directory that only has another mode, or that came or went, is no work of its own.
        if now == then || (was.is_none() && now.is_none()) {
            return None;
        }
        let entry = OverwrittenEntry {
            path: path.to_string(),
            op: op(change),
            changed_in_fork: was != then,
        };
        Some((path, entry))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::workspace::ChangeOp;
    use stasis_model::digest::FileDigest;
    use stasis_model::time::Timestamp;
    use stasis_model::workspace::{CheckpointOrigin, Slot};

    fn tree(files: &[(&str, &str)]) -> Manifest {
        let entries = files.iter().map(|(path, text)| ManifestEntry {
            path: EntryPath::parse(path.as_bytes()).unwrap(),
            mode: 0o644,
            what: match *text {
                "/" => ManifestKind::Directory,
                text => ManifestKind::File {
                    size: text.len() as u64,
                    digest: FileDigest::of(text.as_bytes()),
                },
            },
            attributes: None,
        });
        Manifest::of(entries.collect())
    }

    #[test]
    fn only_work_of_the_workspace_that_goes_is_named() {
        let base = tree(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")]);
        // `a` changed in both, `b` here alone, `c` in the fork alone, `d` in both to the same, `e` was deleted here, `f` is new here.
        let is = tree(&[
            ("a", "w"),
            ("b", "w"),
            ("c", "1"),
            ("d", "x"),
            ("f", "w"),
            ("new", "/"),
        ]);
        let becomes = tree(&[("a", "f"), ("b", "1"), ("c", "f"), ("d", "x"), ("e", "1")]);
        let at = Timestamp::from_millis(1);
        let from = SlotMetadata::new(Slot::new(1), CheckpointOrigin::Command, at, 1);
        let plan = WorkspacePlan::new(ChangeVerb::Promote, &from, is, becomes);

        let found = overwritten(&base, &plan);

        let found: Vec<_> = found
            .iter()
            .map(|(_, one)| (one.path.as_str(), one.op, one.changed_in_fork))
            .collect();
        assert_eq!(
            found,
            [
                ("a", ChangeOp::Modified, true),
                ("b", ChangeOp::Modified, false),
                ("e", ChangeOp::Deleted, false),
                ("f", ChangeOp::Created, false),
            ]
        );
    }
}
