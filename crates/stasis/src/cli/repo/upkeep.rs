//! `stasis repo check` and `stasis repo gc`

use super::told;
use crate::cli::output::{printable, table};
use crate::cli::progress::watched;
use crate::cli::{Context, duration};
use crate::report::Exit;
use clap::Args;
use stasis_engine::model::id::SubjectName;
use stasis_engine::model::retention::{OnDoubt, Policy, Repository};
use stasis_engine::repo::{Damage, RepoChecked, RepoCollected, RepoGc};
use std::sync::Arc;
use std::time::Duration;

/// How many hurt files are shown to people for one damaged chunk.
const SHOWN: usize = 10;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Read every chunk and compare it with its name, instead of only looking whether it is there
    #[arg(long)]
    read_data: bool,
}

impl Check {
    pub(super) async fn run(self, context: &Context, repo: Option<&str>) -> anyhow::Result<Exit> {
        let engine = context.repo_engine(repo, false).await?;
        let progress = Arc::default();
        let check = engine.repo_check(self.read_data, Arc::clone(&progress));
        let checked = watched(context.output, "checking", progress, check).await?;
        let exit = if checked.damage.is_empty() {
            Exit::Done
        } else {
            Exit::Corrupt
        };
        context
            .output
            .result(&told(checked), |told| checked_words(&told.result))?;
        Ok(exit)
    }
}

fn checked_words(checked: &RepoChecked) -> String {
    let mut lines: Vec<String> = checked.damage.iter().map(damage_words).collect();
    let read = match checked.chunks_read {
        0 => String::new(),
        read => format!(", read {read} of them"),
    };
    let verdict = match checked.damage.len() {
        0 => "all is well".to_owned(),
        count => format!("{count} things are damaged; {}", advice(&checked.damage)),
    };
    lines.push(format!(
        "{} snapshots, {} chunks{read}: {verdict}",
        checked.snapshots, checked.chunks
    ));
    lines.join("\n")
}

/// What to do now: no save brings metadata back.
fn advice(damage: &[Damage]) -> &'static str {
    let is_chunk = |one: &Damage| one.what.starts_with("chunk ");
    if damage.iter().all(is_chunk) {
        "save again from where their bytes still are, then check again"
    } else {
        "bring metadata and lists back from a copy of the repository, or let go of those snapshots with `repo forget ID --damaged`; \
         save again from where other bytes still are, then check again"
    }
}

fn damage_words(damage: &Damage) -> String {
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
    format!(
        "{}: {}\n  hurts {}{}{more}",
        damage.what,
        printable(&damage.why),
        snapshots.join(", "),
        files.collect::<String>()
    )
}

#[derive(Debug, Args)]
pub(super) struct Gc {
    /// Keep the newest N snapshots of every name
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Keep what is younger, such as 72h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    keep_within: Option<Duration>,
    /// Let the oldest go until the rest is no larger than this many bytes
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Judge only snapshots of this name
    #[arg(long)]
    name: Option<SubjectName>,
    /// Judge ages even while clocks disagree
    #[arg(long)]
    trust_clock: bool,
    /// Only say what would go, and why
    #[arg(long)]
    dry_run: bool,
}

impl Gc {
    pub(super) async fn run(self, context: &Context, repo: Option<&str>) -> anyhow::Result<()> {
        let asked = Repository {
            keep_last: self.keep_last,
            keep_within: self.keep_within,
            max_bytes: self.max_bytes,
        };
        let policy = if asked == Repository::default() {
            Policy::KeepAll
        } else {
            Policy::Repository(asked)
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
        let collected = engine.repo_gc(command).await?;
        if let Some(doubt) = &collected.clock_doubt {
            context.output.say(&format!(
                "warning: {doubt}; --trust-clock judges all the same"
            ));
        }
        context
            .output
            .result(&told(collected), |told| collected_words(&told.result))
    }
}

fn collected_words(collected: &RepoCollected) -> String {
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
