//! Whether the checkpoints are what they were when they were made.

use super::Workspace;
use super::answers::{CheckedCheckpoint, CheckedWorkspace};
use crate::error::{Error, WorkspaceError, error_chain};
use stasis_disk::form::slots::{CheckedContent, CheckedSlot, SlotError, fact, portion};
use stasis_disk::tree::restore::Returned;
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Occupant, Slot, SlotMetadata};
use std::collections::BTreeSet;

/// How many files of a damaged checkpoint are named.
const NAMED: usize = 20;
/// How often the slots are looked at again because some were replaced meanwhile.
const ROUNDS: usize = 8;

/// A check under way.
#[derive(Default)]
struct CheckRun {
    content: CheckedContent,
    /// The checkpoints that were looked at, whether they are there still or not.
    seen: Vec<SlotMetadata>,
    /// Those that lost files. What one of them lost another may have had under a name that the workspace still has.
    lossy: Vec<(SlotMetadata, CheckedSlot)>,
    damaged: Vec<CheckedCheckpoint>,
    healed: BTreeSet<EntryPath>,
    unreadable: Vec<Slot>,
}

impl Workspace {
    /// Reads all checkpoints, what they share once; names those that are damaged. Others go on making checkpoints meanwhile: what they
    /// replace is not damaged, and what they put in its place is looked at too.
    pub(super) fn check_now(&self) -> Result<CheckedWorkspace, Error> {
        let mut run = CheckRun {
            content: self.pool().begin_check()?,
            ..CheckRun::default()
        };
        for _ in 0..ROUNDS {
            let mut is_any_new = false;
            for one in self.pool().list()? {
                is_any_new |= self.check_one(&one, &mut run)?;
            }
            if !is_any_new {
                break;
            }
        }
        self.look_again(&mut run);
        run.content.finish();
        let undos = self.check_undos_now(&mut run)?;
        let healed = run.healed.iter().take(NAMED).map(ToString::to_string);
        Ok(CheckedWorkspace {
            checkpoints: (run.seen.len() + run.unreadable.len()) as u64,
            undos,
            damaged: run.damaged,
            healed: healed.collect(),
            healed_count: run.healed.len() as u64,
        })
    }

    /// Looks at what is in a slot, unless it was looked at before; says whether it was not.
    fn check_one(&self, one: &Occupant, run: &mut CheckRun) -> Result<bool, Error> {
        let known = match one {
            Occupant::Known(known) => known.clone(),
            Occupant::Unreadable { slot, .. } if run.unreadable.contains(slot) => return Ok(false),
            Occupant::Unreadable { slot, .. } => match self.pool().occupant(*slot)? {
                Some(Occupant::Known(known)) => known,
                Some(Occupant::Unreadable { slot, why }) => {
                    run.unreadable.push(slot);
                    run.damaged.push(damaged(slot, None, Err(why)));
                    return Ok(true);
                }
                None => return Ok(true),
            },
        };
        if run.seen.iter().any(|seen| seen.is_same_checkpoint(&known)) {
            return Ok(false);
        }
        let live = self.directory();
        match self.pool().check(&known, live, &mut run.content) {
            Ok(found) => {
                run.healed.extend(found.healed.iter().cloned());
                if !found.lost.is_empty() {
                    run.lossy.push((known.clone(), found));
                }
            }
            // It went while it was read.
            Err(SlotError::Replaced(_) | SlotError::Empty(_)) => return Ok(true),
            Err(error) => {
                let problem = error_chain(&WorkspaceError::from(error));
                run.damaged
                    .push(damaged(known.slot, Some(&known), Err(problem)));
            }
        }
        run.seen.push(known);
        Ok(true)
    }
}

impl Workspace {
    /// Names those that lost files, once everything is taken again that the workspace has, whichever checkpoint it was found by.
    fn look_again(&self, run: &mut CheckRun) {
        let has_healed = !run.healed.is_empty();
        for (known, mut found) in std::mem::take(&mut run.lossy) {
            if has_healed {
                match self
                    .pool()
                    .check(&known, self.directory(), &mut run.content)
                {
                    Ok(now) => found = now,
                    Err(SlotError::Replaced(_) | SlotError::Empty(_)) => continue,
                    // What was found before is true still.
                    Err(_) => {}
                }
            }
            if !found.lost.is_empty() {
                let damaged = damaged(known.slot, Some(&known), Ok(found.lost));
                run.damaged.push(CheckedCheckpoint {
                    problem: found.problem,
                    ..damaged
                });
            }
        }
    }
}

impl Workspace {
    /// Reads what undo checkpoints keep; says how many there are. What came out of the tree is kept as it was, and nobody wrote down what
    /// that is: an entry is lost if it is not there, or cannot be read.
    fn check_undos_now(&self, run: &mut CheckRun) -> Result<u64, Error> {
        let undos = self.pool().undos()?;
        for one in &undos {
            let found = match one {
                Occupant::Known(known) => self.check_undo(known),
                Occupant::Unreadable { why, .. } => Err(why.clone()),
            };
            if found.as_ref().is_ok_and(Vec::is_empty) || self.is_gone(one) {
                continue;
            }
            let checkpoint = format!("u-{}", one.slot().index());
            run.damaged.push(CheckedCheckpoint {
                checkpoint,
                ..damaged(one.slot(), None, found)
            });
        }
        Ok(undos.len() as u64)
    }

    /// Whether what was looked at has been taken back, or forgotten, meanwhile.
    fn is_gone(&self, one: &Occupant) -> bool {
        let now = self.pool().undos().unwrap_or_default();
        let now = now.iter().find(|now| now.slot() == one.slot());
        match (now, one.known()) {
            (None, _) => true,
            (Some(now), Some(was)) => now.known().is_some_and(|now| !now.is_same_checkpoint(was)),
            (Some(_), None) => false,
        }
    }

    /// The entries that taking a change back would bring back, and that cannot be.
    fn check_undo(&self, undo: &SlotMetadata) -> Result<Vec<EntryPath>, String> {
        // What is being made has no backup yet.
        if undo.undo.as_ref().is_some_and(|note| note.pending) {
            return Ok(Vec::new());
        }
        let backup = self.open_backup(undo);
        let backup = backup.map_err(|error| error_chain(&error))?;
        let walk = WalkSettings {
            strict: true,
            ..WalkSettings::default()
        };
        let is_lost = |path: &EntryPath| {
            fact(backup.tree(), path).is_none() || portion(backup.tree(), path, &walk).is_err()
        };
        let back = backup.returned().filter_map(|step| match step {
            Returned::Back(path) => Some(path),
            _ => None,
        });
        Ok(back.filter(is_lost).collect())
    }
}

/// What is said of a checkpoint that is damaged: which files are lost, or why nobody can tell.
fn damaged(
    slot: Slot,
    known: Option<&SlotMetadata>,
    found: Result<Vec<EntryPath>, String>,
) -> CheckedCheckpoint {
    let (files, problem) = match found {
        Ok(files) => (files, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let name = known.and_then(|known| known.name.as_ref());
    CheckedCheckpoint {
        checkpoint: slot.to_string(),
        name: name.map(ToString::to_string),
        problem,
        files: files.iter().take(NAMED).map(ToString::to_string).collect(),
        files_count: files.len() as u64,
    }
}
