//! What the everyday verbs do to a profile: `stasis log profile:acme/alice`, and so on

use super::diff::{diff_text, say_unread};
use super::gc::collected_text;
use super::list::{exit, snapshots};
use super::load;
use super::pin::pinned_text;
use super::rollback::rolled_back_text;
use super::show::{is_damaged, shown_text};
use super::who::spawn;
use crate::cli::byte_size::size;
use crate::cli::lease::operator;
use crate::cli::output::{plural, printable, short, table};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::project::restore::RestoreElsewhere;
use crate::cli::project::upkeep::ProjectGcArgs;
use crate::cli::{CliContext, ask, envelope, system_clock};
use crate::report::Exit;
use anyhow::{Context as _, bail};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::catalog::ListedEntry;
use stasis_engine::find::FoundVersions;
use stasis_engine::kind::profile::{
    CheckedProfile, DeleteSnapshot, DiffSnapshots, Eviction, LocatedProfile, OnFailure, Pinning,
    ProfileCheck, ProfileDamage, ProfileGc, ProfileLoad, ProfileLog, ProfileUse, RolledBack,
    UpgradeWish,
};
use stasis_engine::model::id::ProfileRef;
use stasis_engine::model::policy::retention::OnDoubt;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::model::tree::EntryPath;
use stasis_engine::open::Engine;
use stasis_engine::restore::Placement;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A profile is saved from a directory, which `save` of a subject does not name.
pub(in crate::cli) fn not_saved_so(profile: &ProfileRef) -> anyhow::Error {
    anyhow::anyhow!(
        "a profile is saved from the directory that its browser used: `stasis profile save {profile} --dir DIR`, or `stasis profile run {profile} -- COMMAND`, which saves it at the end"
    )
}

/// The snapshot that is meant.
async fn located(
    engine: &Engine,
    profile: &ProfileRef,
    wanted: &SnapshotRef,
) -> anyhow::Result<LocatedProfile> {
    Ok(engine.profiles().locate(profile, wanted).await?)
}

pub(in crate::cli) async fn log(
    context: &CliContext,
    profile: &ProfileRef,
    most: usize,
) -> anyhow::Result<Exit> {
    let log = context
        .engine()
        .await?
        .profiles()
        .log(profile, most)
        .await?;
    context.output.warn(&log.warnings);
    context.output.result(&log, log_text)?;
    Ok(exit(log.is_damaged()))
}

fn log_text(log: &ProfileLog) -> String {
    let text = snapshots(&log.items, &log.orphans, &log.damaged, &log.damage);
    match log.older {
        0 => text,
        older => format!("{text}\n{older} more, older; --all lists them"),
    }
}

pub(in crate::cli) async fn show(
    context: &CliContext,
    profile: &ProfileRef,
    wanted: Option<&SnapshotRef>,
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let sha = match wanted {
        Some(wanted) => Some(located(&engine, profile, wanted).await?.sha()),
        None => None,
    };
    let shown = engine.profiles().show(profile, sha.as_ref()).await?;
    context.output.warn(&shown.warnings);
    context.output.result(&shown, shown_text)?;
    Ok(exit(is_damaged(&shown)))
}

/// Compares two snapshots; one is compared with the active one, and without any that with the one before it.
pub(in crate::cli) async fn diff(
    context: &CliContext,
    profile: &ProfileRef,
    wanted: &[SnapshotRef],
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let (before, after) = match wanted {
        [] => (SnapshotRef::BeforeLatest(1), SnapshotRef::Latest),
        [before] => (before.clone(), SnapshotRef::Latest),
        [before, after, ..] => (before.clone(), after.clone()),
    };
    let before = located(&engine, profile, &before).await?;
    let after = located(&engine, profile, &after).await?;
    if before.lineage != after.lineage {
        bail!(
            "snapshots of `{}` and of `{}` are not compared: name two of one major version of Chrome",
            before.lineage,
            after.lineage
        );
    }
    let command = DiffSnapshots {
        lineage: before.lineage.clone(),
        before: before.sha().to_string().parse()?,
        after: after.sha().to_string().parse()?,
        scratch: context.spool()?,
        spawn: spawn()?,
        cancel: cancel_on_signals()?,
    };
    let diff = engine.profiles().diff(&command).await?;
    context.output.warn(&diff.warnings);
    say_unread(context, &diff);
    context.output.result(&diff, diff_text)?;
    Ok(Exit::Done)
}

pub(in crate::cli) async fn ls(
    context: &CliContext,
    profile: &ProfileRef,
    wanted: &SnapshotRef,
    path: &EntryPath,
) -> anyhow::Result<Vec<ListedEntry>> {
    let engine = context.engine().await?;
    let of = located(&engine, profile, wanted).await?;
    envelope::about_snapshot(of.archive.to_string());
    Ok(engine.profiles().ls(&of, path).await?)
}

pub(in crate::cli) async fn cat(
    context: &CliContext,
    profile: &ProfileRef,
    wanted: &SnapshotRef,
    path: &EntryPath,
) -> anyhow::Result<io::Result<u64>> {
    let engine = context.engine().await?;
    let of = located(&engine, profile, wanted).await?;
    Ok(engine.profiles().cat(&of, path, io::stdout()).await?)
}

pub(in crate::cli) async fn find(
    context: &CliContext,
    profile: &ProfileRef,
    pattern: &str,
) -> anyhow::Result<FoundVersions> {
    let engine = context.engine().await?;
    Ok(engine.profiles().find_all(profile, pattern).await?)
}

pub(in crate::cli) async fn du(context: &CliContext, profile: &ProfileRef) -> anyhow::Result<Exit> {
    let used = context.engine().await?.profiles().du(profile).await?;
    context.output.result(&used, used_text)?;
    Ok(Exit::Done)
}

fn used_text(used: &ProfileUse) -> String {
    let now = system_clock().now();
    let rows = used.items.iter().map(|one| {
        vec![
            short(&one.snapshot),
            Timestamp::from_millis(one.timestamp_ms).age(now),
            size(one.bytes),
            size(one.bytes_stored),
            size(one.bytes_freed),
        ]
    });
    let head = ["SNAPSHOT", "AGE", "CONTENTS", "STORED", "FREED WITHOUT IT"];
    let table = table(&head, rows.collect());
    format!("{table}\n{} stored", size(used.bytes_stored))
}

pub(in crate::cli) async fn check(
    context: &CliContext,
    profile: &ProfileRef,
    read_data: bool,
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let progress = Arc::default();
    let command = ProfileCheck {
        subject: profile.clone(),
        read_data,
        spawn: spawn()?,
        progress: Arc::clone(&progress),
        cancel: cancel_on_signals()?,
    };
    let work = Box::pin(engine.profiles().check(&command));
    let checked = watched(context.output, "checking", progress, work).await?;
    context.output.warn(&checked.warnings);
    context.output.result(&checked, checked_text)?;
    Ok(exit(!checked.damage.is_empty()))
}

fn checked_text(checked: &CheckedProfile) -> String {
    let line = |one: &ProfileDamage| {
        let of = one.subject.as_ref().map(|lineage| format!("{lineage} "));
        let of = of.unwrap_or_default();
        let snapshot = one.snapshot.as_deref().map(|one| format!("{one}: "));
        let (snapshot, why) = (snapshot.unwrap_or_default(), printable(&one.why));
        format!("damaged: {of}{snapshot}{why}\n")
    };
    let damage: String = checked.damage.iter().map(line).collect();
    let all = plural(checked.snapshots, "snapshot");
    let verdict = if checked.damage.is_empty() {
        "OK"
    } else {
        "NOT OK"
    };
    let how = match checked.restored {
        0 => "manifests and archives are there; --read-data restores each and opens its databases"
            .to_owned(),
        restored => format!("{restored} restored and found sound"),
    };
    format!("{damage}{verdict}: {all} of {}; {how}", checked.subject)
}

pub(in crate::cli) async fn pin(
    context: &CliContext,
    profile: &ProfileRef,
    wanted: &SnapshotRef,
    pinned: bool,
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let of = located(&engine, profile, wanted).await?;
    let pinning = if pinned { Pinning::Pin } else { Pinning::Unpin };
    let profiles = engine.profiles();
    let pinned = profiles.pin(&of.lineage, &of.sha(), pinning).await?;
    context.output.warn(&pinned.warnings);
    context.output.result(&pinned, pinned_text)?;
    Ok(Exit::Done)
}

/// Deletes snapshots; all are found, and may go, before the first one does.
pub(in crate::cli) async fn forget(
    context: &CliContext,
    profile: &ProfileRef,
    wanted: &[SnapshotRef],
    dry_run: bool,
) -> anyhow::Result<Vec<String>> {
    let engine = context.engine().await?;
    let mut all: Vec<LocatedProfile> = Vec::new();
    for snapshot in wanted {
        let of = located(&engine, profile, snapshot).await?;
        if !all.contains(&of) {
            all.push(of);
        }
    }
    let commands = all.iter().map(|of| DeleteSnapshot {
        lineage: of.lineage.clone(),
        sha: of.sha(),
        actor: operator(),
    });
    let commands: Vec<DeleteSnapshot> = commands.collect();
    for command in &commands {
        engine.profiles().plan_delete(command).await?;
    }
    let mut forgotten = Vec::new();
    for command in &commands {
        if !dry_run {
            let deleted = engine.profiles().delete(command).await?;
            context.output.warn(&deleted.warnings);
        }
        forgotten.push(command.sha.to_string());
    }
    Ok(forgotten)
}

pub(in crate::cli) async fn gc(
    context: &CliContext,
    profile: &ProfileRef,
    how: ProjectGcArgs,
) -> anyhow::Result<Exit> {
    let command = ProfileGc {
        subject: Some(profile.clone()),
        keep_newest: how.keep,
        keep_periods: how.periods.given(),
        dry_run: how.dry_run,
        tenant: None,
        keep_rollback_days: None,
        on_doubt: OnDoubt::RefuseAges,
    };
    let collected = context.engine().await?.profiles().gc(&command).await?;
    context.output.warn(&collected.warnings);
    context.output.result(&collected, collected_text)?;
    let failed = collected.lineages.iter().any(|one| one.failure.is_some());
    Ok(exit(failed))
}

/// Makes another snapshot the active one: what runs load from now on. Elsewhere, it is only written there.
pub(in crate::cli) async fn restore(
    context: &CliContext,
    profile: &ProfileRef,
    wanted: Option<&SnapshotRef>,
    how: RestoreElsewhere,
    agreed: bool,
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    if let Some(to) = how.to {
        let wanted = wanted.cloned().unwrap_or(SnapshotRef::Latest);
        let of = located(&engine, profile, &wanted).await?;
        return write_to(context, &engine, of, to, how.dry_run).await;
    }
    let wanted = wanted.with_context(|| {
        format!(
            "name the snapshot that runs of `{profile}` are to start from; `stasis log profile:{profile}` lists them, and `--to DIR` writes the active one to a directory"
        )
    })?;
    let to = located(&engine, profile, wanted).await?;
    choose(context, &engine, to, how.dry_run, agreed).await
}

pub(in crate::cli) async fn undo(
    context: &CliContext,
    profile: &ProfileRef,
    dry_run: bool,
    agreed: bool,
) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let to = engine.profiles().before_last_choice(profile).await?;
    choose(context, &engine, to, dry_run, agreed).await
}

/// What a restore to another directory would write.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct WouldWrite {
    /// The first digits of the snapshot.
    sha256: String,
    lineage: String,
    target: String,
    dry_run: bool,
}

/// Writes a snapshot to a directory that is not there yet, and checks its databases.
async fn write_to(
    context: &CliContext,
    engine: &Engine,
    of: LocatedProfile,
    to: PathBuf,
    dry_run: bool,
) -> anyhow::Result<Exit> {
    let shown = printable(&to.display().to_string());
    if to.symlink_metadata().is_ok() {
        bail!("`{shown}` is there already: name a directory that is not, or move it away");
    }
    if dry_run {
        let (sha, lineage) = (of.archive.prefix(), &of.lineage);
        let would = WouldWrite {
            sha256: sha,
            lineage: lineage.to_string(),
            target: shown,
            dry_run: true,
        };
        context.output.result(&would, |would| {
            let WouldWrite {
                sha256,
                lineage,
                target,
                ..
            } = would;
            format!("would write {sha256} of {lineage} to {target}")
        })?;
        return Ok(Exit::Done);
    }
    let command = ProfileLoad {
        actor: operator(),
        dir: std::path::absolute(to)?,
        // Whatever came there since we looked stays.
        placement: Placement::New,
        on_failure: Some(OnFailure::Refuse),
        upgrade: UpgradeWish::Stay,
        cold_only: false,
        region: None,
        spawn: spawn()?,
        progress: Arc::default(),
        cancel: cancel_on_signals()?,
        exactly: Some(of.sha().to_string().parse()?),
        lineage: of.lineage,
    };
    let progress = Arc::clone(&command.progress);
    let work = Box::pin(engine.profiles().load(command));
    let loaded = watched(context.output, "restoring", progress, work).await?;
    context.output.warn(&loaded.warnings);
    context.output.result(&loaded, load::text)?;
    Ok(load::exit(&loaded))
}

/// Shows what would be done, asks where somebody is there to answer, and lets it be done.
async fn choose(
    context: &CliContext,
    engine: &Engine,
    to: LocatedProfile,
    dry_run: bool,
    agreed: bool,
) -> anyhow::Result<Exit> {
    let choice = engine.profiles().plan_choice(to, operator()).await?;
    let plan = choice.plan();
    if dry_run || plan.is_active_already() {
        context.output.warn(&plan.warnings);
        context.output.result(plan, rolled_back_text)?;
        return Ok(Exit::Done);
    }
    let mut eviction = if agreed {
        Eviction::Agreed
    } else {
        Eviction::Refused
    };
    if !agreed && ask::is_interactive(context) {
        context.output.insist(&rolled_back_text(plan));
        if !ask::is_yes("Continue?")? {
            context.output.say("nothing was changed");
            return Ok(Exit::Cancelled);
        }
        eviction = Eviction::Agreed;
    }
    let done = engine.profiles().make_choice(&choice, eviction).await?;
    context.output.warn(&done.warnings);
    context.output.result(&done, chosen_text)?;
    Ok(Exit::Done)
}

fn chosen_text(done: &RolledBack) -> String {
    let text = rolled_back_text(done);
    format!("{text}\nUndo with: stasis undo profile:{}", done.subject)
}
