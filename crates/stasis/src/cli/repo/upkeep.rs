//! `stasis repo check` and `stasis repo gc`

use crate::cli::output::{Measured, plural, printable, table};
use crate::cli::progress::watched;
use crate::cli::{CliContext, duration};
use crate::report::Exit;
use clap::Args;
use stasis_engine::check::{RepoChecked, RepoDamage};
use stasis_engine::gc::{RepoCollected, RepoGc};
use stasis_engine::model::id::SubjectName;
use stasis_engine::model::policy::retention::{OnDoubt, Repository, RetentionPolicy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How many hurt files are shown to people for one damaged chunk.
const SHOWN: usize = 10;

#[derive(Debug, Args)]
pub(super) struct RepoCheckArgs {
    /// Read and verify every chunk, instead of only checking that it exists
    #[arg(long)]
    read_data: bool,
}

impl RepoCheckArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        repo: Option<&str>,
    ) -> anyhow::Result<Exit> {
        let engine = context.repo_engine(repo, false).await?;
        let progress = Arc::default();
        let check = engine.dirs().check(self.read_data, Arc::clone(&progress));
        let checked = watched(context.output, "checking", progress, check).await?;
        let exit = if checked.damage.is_empty() {
            Exit::Done
        } else {
            Exit::Corrupt
        };
        context
            .output
            .result(&Measured::new(checked), |one| checked_text(&one.result))?;
        Ok(exit)
    }
}

fn checked_text(checked: &RepoChecked) -> String {
    let mut lines: Vec<String> = checked.damage.iter().map(damage_text).collect();
    for root in &checked.roots {
        if let Some(why) = &root.read_only {
            lines.push(format!(
                "{}can be read, but not saved to: {why}",
                at(&root.root)
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
    lines.extend(advice(checked).map(|advice| format!("hint: {advice}")));
    lines.join("\n")
}

/// Where something lies, before what is said of it.
fn at(root: &str) -> String {
    if root.is_empty() {
        String::new()
    } else {
        format!("{}: ", printable(root))
    }
}

/// What to do now. Forgetting is offered only for snapshots that are proven to be lost: no save brings metadata back.
fn advice(checked: &RepoChecked) -> impl Iterator<Item = String> {
    let is_chunk = |one: &RepoDamage| one.what.starts_with("chunk ");
    let chunks = checked.damage.iter().any(is_chunk);
    let marked = if checked.marked {
        "damaged chunks are marked: "
    } else {
        ""
    };
    let save = format!(
        "{marked}save again from where their bytes still are, which repairs them; then check again"
    );
    let proven = checked.damage.iter().filter(|one| one.forgettable);
    let proven: BTreeSet<String> = proven
        .flat_map(|one| one.snapshots.iter().map(ToString::to_string))
        .collect();
    let forget = format!(
        "bring metadata and lists back from a copy of the store; what is lost for good can be forgotten with `stasis repo forget {} --damaged`",
        proven.iter().cloned().collect::<Vec<_>>().join(" ")
    );
    let others = checked
        .damage
        .iter()
        .any(|one| !one.forgettable && !is_chunk(one));
    let copy =
        "bring damaged documents back from a copy of the store; nothing was changed".to_owned();
    [
        chunks.then_some(save),
        (!proven.is_empty()).then_some(forget),
        others.then_some(copy),
    ]
    .into_iter()
    .flatten()
}

fn damage_text(damage: &RepoDamage) -> String {
    let files = damage
        .files
        .iter()
        .take(SHOWN)
        .map(|file| format!("\n    {file}"));
    let more = damage.files.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!("\n    and {more} more")
    } else {
        String::new()
    };
    let snapshots: Vec<String> = damage.snapshots.iter().map(ToString::to_string).collect();
    let hurt = match snapshots.len() {
        0 => String::new(),
        _ => format!("\n  needed by {}", snapshots.join(", ")),
    };
    format!(
        "{}{}: {}{hurt}{}{more}",
        at(&damage.root),
        damage.what,
        printable(&damage.why),
        files.collect::<String>()
    )
}

#[derive(Debug, Args)]
pub(super) struct RepoGcArgs {
    /// Keep the newest N snapshots of every name
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Keep what is younger, such as 72h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    keep_within: Option<Duration>,
    /// Forget the oldest until the rest is no larger than this many bytes
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Judge only snapshots of this name
    #[arg(long)]
    name: Option<SubjectName>,
    /// Judge ages even while clocks disagree
    #[arg(long)]
    trust_clock: bool,
    /// Only show what would be deleted, and why
    #[arg(long)]
    dry_run: bool,
}

impl RepoGcArgs {
    pub(super) async fn run(self, context: &CliContext, repo: Option<&str>) -> anyhow::Result<()> {
        let asked = Repository {
            keep_last: self.keep_last,
            keep_within: self.keep_within,
            max_bytes: self.max_bytes,
        };
        let policy = if asked == Repository::default() {
            RetentionPolicy::KeepAll
        } else {
            RetentionPolicy::Repository(asked)
        };
        let command = RepoGc {
            policy,
            name: self.name,
            on_doubt: if self.trust_clock {
                OnDoubt::JudgeAnyway
            } else {
                OnDoubt::RefuseAges
            },
            dry_run: self.dry_run,
        };
        let engine = context.repo_engine(repo, false).await?;
        let collected = engine.dirs().gc(command).await?;
        if let Some(doubt) = &collected.clock_doubt {
            context.output.say(&format!(
                "warning: {doubt}; --trust-clock judges all the same"
            ));
        }
        context
            .output
            .result(&Measured::new(collected), |one| collected_text(&one.result))
    }
}

fn collected_text(collected: &RepoCollected) -> String {
    let rows = collected.verdicts.iter().map(|verdict| {
        let fate = match (verdict.kept, collected.dry_run) {
            (true, _) => "stays",
            (false, true) => "would go",
            (false, false) => "went",
        };
        vec![
            verdict.snapshot_id.to_string(),
            verdict.name.to_string(),
            fate.to_owned(),
            verdict.because.join(", "),
        ]
    });
    let table = table(&["SNAPSHOT", "NAME", "", "BECAUSE"], rows.collect());
    let verb = if collected.dry_run {
        "would remove"
    } else {
        "removed"
    };
    format!(
        "{table}\n{verb} {} chunks of {} bytes and the metadata of {} snapshots; {} ms",
        collected.chunks_removed,
        collected.bytes_removed,
        collected.manifests_removed,
        collected.elapsed_ms
    )
}
