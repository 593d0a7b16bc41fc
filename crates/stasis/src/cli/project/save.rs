//! `stasis project save`

use super::{Which, labels};
use crate::cli::Context;
use crate::cli::output::{printable, word};
use crate::cli::progress::{cancel_on_signals, watched};
use clap::{Args, ValueEnum};
use stasis_engine::model::manifest::Reason;
use stasis_engine::project::{Project, ProjectSave, ProjectSaved};
use std::path::PathBuf;
use std::sync::Arc;

/// How many left-out entries are shown to people.
const SHOWN: usize = 10;

#[derive(Debug, Args)]
pub(super) struct Save {
    /// The project's directory, instead of --project
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What makes you save
    #[arg(long, default_value = "manual")]
    reason: Why,
    #[command(flatten)]
    how: How,
}

/// How a directory is saved, whatever it is.
#[derive(Debug, Args)]
pub(in crate::cli) struct How {
    /// A label, KEY=VALUE; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Make a snapshot although nothing changed
    #[arg(long)]
    allow_empty: bool,
    /// Save even if nine of ten entries are gone since the last snapshot
    #[arg(long)]
    allow_shrink: bool,
    /// Of a directory of plain files, leave out what matches, as in a .gitignore; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Why {
    /// Somebody asked
    Manual,
    /// It was time
    Autosave,
    /// The application is about to change
    BeforeUpgrade,
    /// The state is about to be replaced
    BeforeRestore,
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Manual => Self::Manual,
            Why::Autosave => Self::Autosave,
            Why::BeforeUpgrade => Self::BeforeUpgrade,
            Why::BeforeRestore => Self::BeforeRestore,
        }
    }
}

impl Save {
    pub(super) async fn run(self, context: &Context, which: &Which) -> anyhow::Result<()> {
        let mut which = which.clone();
        if let Some(dir) = self.dir {
            which.project = dir;
        }
        let project = which.open(context).await?;
        self.how.save(context, &project, self.reason.into()).await
    }
}

impl How {
    pub(super) async fn save(
        self,
        context: &Context,
        project: &Project,
        reason: Reason,
    ) -> anyhow::Result<()> {
        let progress = Arc::default();
        let command = ProjectSave {
            labels: labels(&self.label)?,
            allow_empty: self.allow_empty,
            allow_shrink: self.allow_shrink,
            excludes: self.exclude,
            cancel: cancel_on_signals()?,
            progress: Arc::clone(&progress),
            ..ProjectSave::new(reason)
        };
        let work = Box::pin(project.save(command));
        let saved = watched(context.output, "saving", progress, work).await?;
        tell(context, &saved)
    }
}

pub(super) fn tell(context: &Context, saved: &ProjectSaved) -> anyhow::Result<()> {
    context.output.warn(&saved.warnings);
    for entry in saved.saved.left_out_entries.iter().take(SHOWN) {
        let words = format!("warning: `{}` {}", printable(&entry.path), entry.words);
        context.output.say(&words);
    }
    let more = saved.saved.left_out_entries.len().saturating_sub(SHOWN);
    if more > 0 {
        let words = format!("warning: {more} more entries were left out; --json lists a thousand");
        context.output.say(&words);
    }
    context.output.result(saved, words)
}

fn words(told: &ProjectSaved) -> String {
    let saved = &told.saved;
    if !saved.published {
        return format!(
            "nothing changed since {}: no new snapshot ({} files, {} ms)",
            saved.snapshot_id, saved.files, saved.elapsed_ms
        );
    }
    let volumes = told.volumes.iter().map(|(name, volume)| {
        format!(
            "\n  volume {name}: {}, {} bytes, integrity {}",
            volume.consistency, volume.size, volume.integrity
        )
    });
    format!(
        "saved {} as {} ({}): {} files, {} bytes; stored {} chunks of {} bytes; {} ms{}",
        told.project,
        saved.snapshot_id,
        word(&told.reason),
        saved.files,
        saved.bytes,
        saved.chunks_new,
        saved.bytes_stored,
        saved.elapsed_ms,
        volumes.collect::<String>()
    )
}
