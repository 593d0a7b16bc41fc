//! `stasis profile save`

use super::metrics::MetricsArgs;
use super::who::{ProfileOwnerArgs, spawn};
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::wait::WaitArgs;
use crate::cli::{CliContext, duration};
use crate::profile_settings::ProfileSetting;
use crate::report::Exit;
use clap::{Args, ValueEnum};
use stasis_engine::kind::profile::{
    BrowserState, Capture, OnBrowser, ProfileSave, ProfileSaved, SaveOutcome, ShaPrefix,
};
use stasis_engine::model::format::lease::{Fence, Holder};
use stasis_engine::model::format::manifest::Mode;
use stasis_engine::model::id::{ChromeMajor, ProfileRef};
use stasis_engine::model::upgrade::ProfileCounts;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SaveMode {
    /// Close the browser first: everything is in the snapshot
    Cold,
    /// Let it run, and stop it for a moment: needs `allow_hot` in the tenant's policy
    Hot,
}

/// Whether what the browser makes again by itself is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Caches {
    Include,
    Exclude,
}

/// What is said of a snapshot, and what is left out of it.
#[derive(Clone, Debug, Args)]
pub(super) struct CaptureArgs {
    /// Save what the browser makes again by itself too: caches [default: $STASIS_CACHES, then `profile.caches` in the
    /// configuration file, `include` or `exclude`; else they are left out]
    #[arg(long, conflicts_with = "exclude_caches")]
    include_caches: bool,
    /// Leave caches out, whatever the settings say
    #[arg(long)]
    exclude_caches: bool,
    /// Publish it although it has suspiciously little of what the snapshot before has
    #[arg(long)]
    accept_shrink: bool,
    /// A note that is stored with the snapshot
    #[arg(long, default_value = "", hide_default_value = true)]
    notes: String,
    /// How long closing the browser may take in all, before it is killed
    #[arg(long = "patience", value_name = "TIME", default_value = "8s", value_parser = duration::positive)]
    pub(super) close_timeout: Duration,
}

impl CaptureArgs {
    pub(super) fn capture(
        &self,
        context: &CliContext,
        dir: PathBuf,
        holder: Holder,
        who: &ProfileOwnerArgs,
    ) -> anyhow::Result<Capture> {
        Ok(Capture {
            dir,
            base: None,
            upgraded_from: None,
            held_back: false,
            exclude_caches: self.caches(context)? == Caches::Exclude,
            accept_shrink: self.accept_shrink,
            holder,
            captured_in: who.place(context)?,
            notes: self.notes.clone(),
            browser: BrowserState::default(),
            spawn: spawn()?,
            progress: Arc::default(),
            cancel: Arc::default(),
        })
    }

    /// Whether caches are saved: as a flag says, else a setting, else not.
    fn caches(&self, context: &CliContext) -> anyhow::Result<Caches> {
        let flag = match (self.include_caches, self.exclude_caches) {
            (true, _) => Some(Caches::Include),
            (false, true) => Some(Caches::Exclude),
            (false, false) => None,
        };
        let parse = |text: &str| Caches::from_str(text, false);
        let caches = context.profile_setting(ProfileSetting::Caches, flag, parse)?;
        Ok(caches.unwrap_or(Caches::Exclude))
    }
}

#[derive(Debug, Args)]
pub(crate) struct ProfileSaveArgs {
    /// <tenant>/<profile>[@<chrome-major>]; without the major the profile says it
    subject: ProfileRef,
    /// The user data directory
    #[arg(long)]
    dir: PathBuf,
    /// Whether the browser is closed first
    #[arg(long, value_name = "MODE", default_value = "cold")]
    mode: SaveMode,
    /// The browser that runs on it; it is closed
    #[arg(long, conflicts_with = "stop")]
    pid: Option<u32>,
    /// Close whatever browser runs on it
    #[arg(long)]
    stop: bool,
    /// The major version, when the profile does not say it
    #[arg(long, value_name = "N")]
    chrome_major: Option<ChromeMajor>,
    /// The snapshot that the directory derives from, by its first digits [default: what was loaded into it]
    #[arg(long, value_name = "SHA")]
    base: Option<ShaPrefix>,
    /// Save it although it does not look like a browser's directory
    #[arg(long)]
    force: bool,
    /// A lease that you hold; otherwise one is acquired for the save
    #[arg(long)]
    token: Option<Fence>,
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    capturing: CaptureArgs,
    #[command(flatten)]
    who: ProfileOwnerArgs,
}

impl ProfileSaveArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        metrics: &MetricsArgs,
    ) -> anyhow::Result<Exit> {
        let engine = context.writable_engine().await?;
        let holder = self.who.holder(context, &engine)?;
        let mut capture =
            self.capturing
                .capture(context, std::path::absolute(&self.dir)?, holder, &self.who)?;
        capture.cancel = cancel_on_signals()?;
        let progress = capture.progress.clone();
        let subject = self.subject;
        let wait = self.waiting.lease_wait(context, &subject)?;
        let save = ProfileSave {
            subject,
            chrome_major: self.chrome_major,
            capture,
            base: self.base,
            mode: match self.mode {
                SaveMode::Cold => Mode::Cold,
                SaveMode::Hot => Mode::Hot,
            },
            browser: match (self.pid, self.stop) {
                (Some(pid), _) => OnBrowser::StopPid(pid),
                (None, true) => OnBrowser::Stop,
                (None, false) => OnBrowser::Refuse,
            },
            close_timeout: self.capturing.close_timeout,
            force: self.force,
            wait,
            token: self.token,
        };
        let work = Box::pin(engine.profiles().save(save));
        let saved = watched(context.output, "saving", progress, work).await;
        metrics.add(context, |file| file.saved(&saved)).await?;
        let saved = saved?;
        context.output.warn(&saved.warnings);
        context.output.result(&saved, text)?;
        Ok(exit(&saved))
    }
}

/// What a save ends with.
pub(super) fn exit(saved: &ProfileSaved) -> Exit {
    match saved.outcome {
        SaveOutcome::Diverged => Exit::Diverged,
        SaveOutcome::Damaged => Exit::Corrupt,
        SaveOutcome::UpgradeIncomplete => Exit::Incomplete,
        SaveOutcome::Shrunk => Exit::Limit,
        SaveOutcome::Captured | SaveOutcome::Deduplicated => Exit::Done,
    }
}

pub(super) fn text(saved: &ProfileSaved) -> String {
    let sha = saved.sha256.prefix();
    let numbers = numbers(saved);
    match saved.outcome {
        SaveOutcome::Captured => {
            format!("saved {} as {sha}: {numbers}", saved.subject) + &upgraded(saved)
        }
        SaveOutcome::Deduplicated => {
            format!("{} is unchanged since {sha}: {numbers}", saved.subject)
        }
        SaveOutcome::UpgradeIncomplete => format!(
            "UPGRADE INCOMPLETE: {sha} is stored and not published: {numbers}{}\n  \
             hint: the next run carries the older snapshot again; if nothing is missing that you need, \
             `stasis profile rollback {} --sha {sha} --confirm` publishes this one",
            upgraded(saved),
            saved.subject,
        ),
        SaveOutcome::Shrunk => shrunk(saved, &sha, &numbers),
        SaveOutcome::Damaged => format!(
            "DAMAGED: {sha} is stored and not published, {} stays the snapshot of {}: {numbers}\n  \
             because: these databases are damaged, or no databases any more: {}\n  \
             hint: the next run starts from the active snapshot; \
             `stasis profile rollback {} --sha {sha} --confirm` publishes this one all the same",
            active(saved),
            saved.subject,
            printable(&saved.damaged_databases.join(", ")),
            saved.subject,
        ),
        SaveOutcome::Diverged if saved.began_fresh => format!(
            "DIVERGED: {sha} is stored, but it began fresh: {} stays the snapshot of {}: {numbers}\n  \
             hint: `stasis profile verify {}` says what is wrong with that one, `stasis profile list {}` shows older ones, \
             and `stasis profile rollback {} --sha SHA --confirm` goes back to one of them",
            active(saved),
            saved.subject,
            saved.subject,
            saved.subject,
            saved.subject,
        ),
        SaveOutcome::Diverged => format!(
            "DIVERGED: {sha} is stored, but {} stays the snapshot of {}: {numbers}\n  \
             hint: `stasis profile rollback {} --sha {sha} --confirm` adopts it; `--base SHA` says what it derives from",
            active(saved),
            saved.subject,
            saved.subject,
        ),
    }
}

/// How much it is, and how long it took.
fn numbers(saved: &ProfileSaved) -> String {
    let ending = saved.ending.as_ref().map(|ending| match &*ending.how {
        "not_running" => "no browser was running".to_owned(),
        how => format!("browser {how} in {} ms", ending.waited_ms),
    });
    format!(
        "{}, {} in {}{}\n  {} copied from the base, {} uploaded; {}; {} ms",
        plural(saved.files, "file"),
        size(saved.bytes),
        size(saved.archive_bytes),
        if saved.caches_left_out {
            " without caches"
        } else {
            ""
        },
        size(saved.bytes_reused),
        size(saved.bytes_uploaded),
        ending.unwrap_or_else(|| format!("browser stood still for {} ms", saved.freeze_ms)),
        saved.capture_ms + saved.upload_ms + saved.pointer_flip_ms,
    )
}

fn shrunk(saved: &ProfileSaved, sha: &str, numbers: &str) -> String {
    let mut because = Vec::new();
    if let Some(before) = saved.shrunk_from {
        because.push(format!(
            "it has {} files, and the snapshot before has {before}",
            saved.files
        ));
    }
    if !saved.missing_databases.is_empty() {
        because.push(format!(
            "{} is gone or empty, and the snapshot before has it: logins are missing",
            printable(&saved.missing_databases.join(", "))
        ));
    }
    format!(
        "SUSPICIOUSLY LITTLE: {sha} is stored and not published, {} stays the snapshot of {}: {numbers}\n  \
             because: {}\n  \
             hint: the next run starts from the active snapshot; if this is meant, save with --accept-shrink, or \
             `stasis profile rollback {} --sha {sha} --confirm` publishes it",
        active(saved),
        saved.subject,
        because.join("; "),
        saved.subject,
    )
}

/// What stays the active snapshot.
fn active(saved: &ProfileSaved) -> String {
    let active = saved.active_sha256;
    active.map_or_else(|| "none".to_owned(), |active| active.prefix())
}

/// How a profile came through the migration to a newer Chrome.
fn upgraded(saved: &ProfileSaved) -> String {
    let Some(report) = &saved.upgrade else {
        return String::new();
    };
    let counted = |counts: Option<ProfileCounts>| {
        counts.map_or_else(|| "not counted".to_owned(), |counts| counts.to_string())
    };
    let missing = if report.has_lost && !report.missing.is_empty() {
        format!("; missing: {}", printable(&report.missing.join(", ")))
    } else {
        String::new()
    };
    format!(
        "\n  carried from Chrome {}: before {}, after {}{missing}",
        report.from.chrome_major,
        counted(report.before),
        counted(report.after),
    )
}
