//! `stasis repo check` and `stasis repo gc`

use crate::cli::ask::{self, NOTHING_CHANGED};
use crate::cli::damage::{self, Ailment, DamageHints};
use crate::cli::keep::KeepPeriodArgs;
use crate::cli::output::{Measured, plural};
use crate::cli::progress::{Doing, watched};
use crate::cli::{CliContext, collected, duration};
use crate::report::Exit;
use clap::Args;
use stasis_engine::check::RepoChecked;
use stasis_engine::gc::{RepoGc, RepoGcVerdict};
use stasis_engine::model::id::SubjectName;
use stasis_engine::model::policy::retention::{KeepPeriods, OnDoubt, Repository, RetentionPolicy};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Args)]
pub(in crate::cli) struct RepoCheckArgs {
    /// Read and verify every chunk, instead of only checking that it exists
    #[arg(long)]
    pub(in crate::cli) read_data: bool,
}

impl RepoCheckArgs {
    pub(in crate::cli) async fn run(
        self,
        context: &CliContext,
        repo: Option<&str>,
    ) -> anyhow::Result<Exit> {
        let engine = context.repo_engine(repo, false).await?;
        let progress = Arc::default();
        let check = Box::pin(engine.dirs().check(self.read_data, Arc::clone(&progress)));
        let doing = Doing::new("checking", "snapshots");
        let checked = watched(context.output, doing, progress, check).await?;
        let exit = if checked.damage.is_empty() {
            Exit::Done
        } else {
            Exit::Corrupt
        };
        let hints = DamageHints {
            store: None,
            has_marked: checked.marked,
        };
        context.output.result(&Measured::new(checked), |one| {
            checked_text(&one.result, &hints)
        })?;
        Ok(exit)
    }
}

pub(in crate::cli) fn checked_text(checked: &RepoChecked, hints: &DamageHints) -> String {
    let mut lines: Vec<String> = checked.damage.iter().map(damage::text).collect();
    for root in &checked.roots {
        if let Some(why) = &root.read_only {
            lines.push(format!(
                "{}can be read, but not saved to: {why}",
                damage::at(&root.root)
            ));
        }
    }
    if checked.without_key {
        let said = "no key was given: of encrypted pools only that everything is there was checked, not what is in it";
        lines.push(format!("warning: {said}"));
    }
    let counted = format!(
        "{}, {}",
        plural(checked.snapshots, "snapshot"),
        plural(checked.chunks, "chunk")
    );
    let read = match checked.chunks_read {
        0 => "all present",
        _ => "all data verified",
    };
    lines.push(match checked.damage.len() as u64 {
        0 if checked.roots.iter().any(|root| root.read_only.is_some()) => {
            format!("OK to read: {counted}, {read}")
        }
        0 => format!("OK: {counted}, {read}"),
        count => format!("DAMAGED: {}; {counted}", plural(count, "problem")),
    });
    let ailments = checked.damage.iter().map(Ailment::from);
    lines.extend(hints.against(ailments));
    lines.join("\n")
}

#[derive(Debug, Args)]
pub(super) struct RepoGcArgs {
    /// Keep the newest N snapshots of every name
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Keep what is younger, such as 72h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    keep_within: Option<Duration>,
    #[command(flatten)]
    periods: KeepPeriodArgs,
    /// Forget the oldest until the rest is no larger than this many bytes
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Judge only snapshots of this name
    #[arg(long)]
    name: Option<SubjectName>,
    /// Judge ages even while clocks disagree
    #[arg(long)]
    trust_clock: bool,
    /// Do not ask before snapshots are deleted
    #[arg(long, short)]
    yes: bool,
    /// Only show what would be deleted, and why
    #[arg(long)]
    dry_run: bool,
}

impl RepoGcArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        repo: Option<&str>,
    ) -> anyhow::Result<Exit> {
        let asked = Repository {
            keep_last: self.keep_last,
            keep_within: self.keep_within,
            periods: KeepPeriods::default().with(&self.periods.given()),
            max_bytes: self.max_bytes,
        };
        let policy = if asked == Repository::default() {
            RetentionPolicy::KeepAll
        } else {
            RetentionPolicy::Repository(asked)
        };
        let progress = Arc::default();
        let mut command = RepoGc {
            name: self.name,
            needed_for_undo: Vec::new(),
            on_doubt: if self.trust_clock {
                OnDoubt::JudgeAnyway
            } else {
                OnDoubt::RefuseAges
            },
            dry_run: self.dry_run,
            progress: Arc::clone(&progress),
            ..RepoGc::new(policy)
        };
        let engine = context.repo_engine(repo, false).await?;
        if !self.yes && !self.dry_run && ask::is_interactive(context) {
            let look = RepoGc {
                dry_run: true,
                ..command.clone()
            };
            let shown = Box::pin(engine.dirs().gc(look)).await?;
            let Some(agreed) = collected::agreed(context, &shown, going_label)? else {
                context.output.say(NOTHING_CHANGED);
                return Ok(Exit::Cancelled);
            };
            command.agreed = Some(agreed);
        }
        let work = Box::pin(engine.dirs().gc(command));
        let doing = Doing::new("collecting", "snapshots");
        let done = watched(context.output, doing, progress, work).await?;
        if let Some(doubt) = &done.clock_doubt {
            context.output.say(&format!(
                "warning: {doubt}; --trust-clock judges all the same"
            ));
        }
        context.output.result(&Measured::new(done), |one| {
            collected::text(&one.result, going_label)
        })?;
        Ok(Exit::Done)
    }
}

fn going_label(verdict: &RepoGcVerdict) -> String {
    format!("{} {}", verdict.snapshot_id, verdict.name)
}
