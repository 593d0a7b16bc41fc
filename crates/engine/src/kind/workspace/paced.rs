//! Checkpoints for hooks, which somebody waits for, but not for ever.
//!
//! One process at a time makes a checkpoint for hooks (`hook.lock`). One that takes long says so in the session database while it is still at it, so
//! that the next hook neither waits for it nor begins another; if it was killed, what it said stays, and hooks wait only shortly until
//! one was made in time again.

use super::Workspace;
use super::answers::Checkpointed;
use super::commands::CreateCheckpoint;
use super::prompt_mark::{AbandonedMark, PromptMark};
use super::show::age;
use crate::error::{Error, WorkspaceError};
use serde::{Deserialize, Serialize};
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_model::workspace::pace::{HookPace, Wait};
use stasis_model::workspace::{self, CheckpointOrigin};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Under which key the pace of hooks is kept.
const PACE: &str = "hook-pace";
/// Under which key it is kept that a prompt has no checkpoint.
const MISSED: &str = "missed-prompt";
/// Why a prompt has no checkpoint whose hook left its mark.
const KILLED: &str = "its hook was killed, or failed on a disk without room to say why";
/// A checkpoint that takes longer than this says that it is being made.
const LONG: Duration = Duration::from_secs(5);
/// How often somebody looks whether another hook is done.
const AGAIN: Duration = Duration::from_millis(20);

/// A prompt without a checkpoint: nobody can go back to just before it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct MissedPrompt {
    pub(super) at_ms: u64,
    /// Why there is none.
    pub(super) why: String,
}

/// A checkpoint before an agent does something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeforeCall {
    /// What is asked for.
    pub create: CreateCheckpoint,
    /// How long the agent waits for it.
    pub wait: Duration,
}

impl Workspace {
    /// Makes a checkpoint for a hook; `hurry` is called when the agent should not wait long for it.
    #[tracing::instrument(skip_all, err(level = "info"), fields(workspace = %self.directory().display()))]
    pub async fn create_before(
        &self,
        command: BeforeCall,
        hurry: impl FnOnce() + Send + 'static,
    ) -> Result<Checkpointed, Error> {
        self.blocking(move |own| own.create_before_now(&command, hurry))
            .await
    }

    fn create_before_now(
        &self,
        command: &BeforeCall,
        hurry: impl FnOnce(),
    ) -> Result<Checkpointed, Error> {
        if command.create.pool != CheckpointOrigin::Prompt {
            return self.create_in_time(command, hurry);
        }
        let at_ms = self.clock().now().millis();
        self.settle_abandoned();
        let mark = PromptMark::begin(&self.session().path, at_ms);
        let made = self.create_in_time(command, hurry);
        let is_known = match &made {
            Ok(_) => true,
            Err(error) => self.note_missed(&MissedPrompt {
                at_ms,
                why: crate::error::error_chain(error),
            }),
        };
        // A mark that stays says as much as the note that could not be written.
        if let Some(mark) = mark.filter(|_| is_known) {
            mark.end();
        }
        made
    }

    /// Writes down that a prompt has no checkpoint, for a hook that failed before it could make one.
    pub async fn miss_prompt(&self, why: String) {
        let at_ms = self.clock().now().millis();
        let noted = self.blocking(move |own| Ok(own.note_missed(&MissedPrompt { at_ms, why })));
        // What went wrong is in the log.
        let _ = noted.await;
    }

    /// Writes down what became of prompts whose hooks were killed.
    fn settle_abandoned(&self) {
        for mark in AbandonedMark::all(&self.session().path) {
            let (at_ms, why) = (mark.at_ms, KILLED.to_owned());
            if self.note_missed(&MissedPrompt { at_ms, why }) {
                mark.end();
            }
        }
    }

    /// Writes down that a prompt has no checkpoint, unless a later one has none; says whether it is written down.
    fn note_missed(&self, missed: &MissedPrompt) -> bool {
        let later = |kept: MissedPrompt| kept.at_ms > missed.at_ms;
        if self.kept_missed().ok().flatten().is_some_and(later) {
            return true;
        }
        let bytes = serde_json::to_vec(missed).expect("plain fields are always JSON");
        let kept = self.session().db.keep(MISSED, &bytes);
        if let Err(error) = &kept {
            tracing::warn!(%error, "could not write down that a prompt has no checkpoint");
        }
        kept.is_ok()
    }

    fn kept_missed(&self) -> Result<Option<MissedPrompt>, Error> {
        let kept = self.session().db.kept(MISSED)?;
        Ok(kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// The last prompt, if no checkpoint was made before it: it failed, or its hook was killed.
    pub(super) fn missed_last_prompt(&self) -> Result<Option<MissedPrompt>, Error> {
        let killed = AbandonedMark::all(&self.session().path).into_iter();
        let killed = killed.map(|mark| MissedPrompt {
            at_ms: mark.at_ms,
            why: KILLED.to_owned(),
        });
        let all = self.kept_missed()?.into_iter().chain(killed);
        let Some(missed) = all.max_by_key(|missed| missed.at_ms) else {
            return Ok(None);
        };
        let occupants = self.pool().list()?;
        let newest = workspace::prompts(&occupants);
        let newest = newest.first().map(|(event, _)| event.at_ms);
        Ok(newest
            .is_none_or(|at_ms| at_ms < missed.at_ms)
            .then_some(missed))
    }

    fn create_in_time(
        &self,
        command: &BeforeCall,
        hurry: impl FnOnce(),
    ) -> Result<Checkpointed, Error> {
        let (started, began) = (self.clock().uptime(), self.clock().now().millis());
        let pace = self.hook_pace()?;
        let is_short = pace
            .as_ref()
            .is_some_and(|pace| pace.wait(self.clock().now()) == Wait::Short);
        if is_short {
            hurry();
        }
        let until = started
            + if is_short {
                Duration::ZERO
            } else {
                command.wait
            };
        let _only = match self.only_hook(until)? {
            Ok(only) => only,
            Err(holder) => {
                let missed = pace.map(|pace| HookPace {
                    missed: pace.missed.saturating_add(1),
                    ..pace
                });
                if let Some(missed) = &missed {
                    self.note_pace(missed);
                }
                return Err(WorkspaceError::Busy(holder).into());
            }
        };
        let (sender, receiver) = channel::<()>();
        let long = command.wait.min(LONG);
        let made = std::thread::scope(|scope| {
            scope.spawn(move || {
                if receiver.recv_timeout(long) == Err(RecvTimeoutError::Timeout) {
                    self.note_pace(&HookPace {
                        began_ms: began,
                        ..HookPace::default()
                    });
                }
            });
            let made = self.create_now(&command.create);
            drop(sender);
            made
        })?;
        let took = self.clock().uptime().saturating_sub(started);
        if took > command.wait {
            return self.finished_late(made, began, took);
        }
        if (took >= long || pace.is_some())
            && let Err(error) = self.keep_pace(None)
        {
            // The checkpoint is made all the same.
            let error = crate::error::error_chain(&error);
            tracing::warn!(
                error,
                "could not write down that a checkpoint was made in time"
            );
        }
        Ok(made)
    }

    /// Writes down that the agent did not wait for a checkpoint.
    fn finished_late(
        &self,
        made: Checkpointed,
        began_ms: u64,
        took: Duration,
    ) -> Result<Checkpointed, Error> {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let missed = self.hook_pace()?.map_or(0, |pace| pace.missed);
        self.note_pace(&HookPace {
            began_ms,
            took_ms: Some(took_ms),
            missed,
        });
        if made.created {
            let slot = stasis_model::workspace::Slot::new(made.slot);
            let metadata = self.pool().metadata(slot)?;
            let late = self.pool().amend(&metadata, |metadata| {
                for event in &mut metadata.agent_events {
                    event.late_ms = Some(took_ms);
                }
            });
            late?;
        }
        Ok(made)
    }

    fn hook_lock(&self) -> PathBuf {
        self.session().path.join("hook.lock")
    }

    /// Makes this the only hook at work, or says who is.
    fn only_hook(&self, until: Duration) -> Result<Result<LockFile, String>, Error> {
        let words = format!(
            "a checkpoint for a hook, by process {} since {}",
            std::process::id(),
            self.clock().now()
        );
        let is_over = || self.clock().uptime() >= until;
        let attempt = LockFile::take_within(&self.hook_lock(), &words, AGAIN, is_over);
        match attempt.map_err(WorkspaceError::Lock)? {
            LockAttempt::Taken(only) => Ok(Ok(only)),
            LockAttempt::Held(holder) => Ok(Err(holder)),
        }
    }

    /// What is being made for a hook right now, if anything is.
    pub(super) fn hook_at_work(&self) -> Option<String> {
        LockFile::holder(&self.hook_lock())
    }

    /// The last checkpoint of a hook that took long, if hooks still heed it.
    pub(super) fn hook_pace(&self) -> Result<Option<HookPace>, Error> {
        let kept = self.session().db.kept(PACE)?;
        Ok(kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// What a user should know of hooks: that the last prompt has no checkpoint, or that checkpoints take too long.
    pub(super) fn hook_warning(&self) -> Result<Option<String>, Error> {
        let missed = self.missed_last_prompt()?.map(|missed| {
            let when = age(missed.at_ms, self.clock().now());
            format!("the last prompt, {when}, has no checkpoint: {}", missed.why)
        });
        let words: Vec<String> = missed.into_iter().chain(self.pace_warning()?).collect();
        Ok((!words.is_empty()).then(|| words.join("; ")))
    }

    fn pace_warning(&self) -> Result<Option<String>, Error> {
        let Some(pace) = self.hook_pace()? else {
            return Ok(None);
        };
        let now = self.clock().now();
        let when = age(pace.began_ms, now);
        let mut words = match pace.took_ms {
            Some(took) => format!(
                "a checkpoint for a hook, begun {when}, took {} s and was finished in the background",
                took.div_ceil(1000)
            ),
            None if self.hook_at_work().is_some() => {
                format!(
                    "a checkpoint for a hook, begun {when}, is still being made in the background"
                )
            }
            None => format!("a checkpoint for a hook, begun {when}, was interrupted"),
        };
        if pace.missed > 0 {
            let missed = pace.missed;
            words =
                format!("{words}; {missed} prompts or commands since then have none of their own");
        }
        if pace.wait(now) == Wait::Short {
            words = format!("{words}; hooks do not wait for checkpoints until one is made in time");
        }
        Ok(Some(words))
    }

    fn keep_pace(&self, pace: Option<&HookPace>) -> Result<(), Error> {
        let bytes =
            pace.map(|pace| serde_json::to_vec(pace).expect("plain fields are always JSON"));
        let kept = self.session().db.keep(PACE, &bytes.unwrap_or_default());
        Ok(kept?)
    }

    fn note_pace(&self, pace: &HookPace) {
        if let Err(error) = self.keep_pace(Some(pace)) {
            let error = crate::error::error_chain(&error);
            tracing::warn!(error, "could not write down that a checkpoint takes long");
        }
    }
}
