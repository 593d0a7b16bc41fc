//! `stasis project save`

use super::{ProjectSelector, labels};
use crate::cli::byte_size::size;
use crate::cli::directory::{exit_of, name_not_consistent, name_own_places, repair_text};
use crate::cli::output::{plural, printable, short, word};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::{CliContext, whole_machine};
use crate::report::Exit;
use clap::{Args, ValueEnum};
use stasis_engine::kind::project::{MESSAGE_LABEL, Project, ProjectSave, ProjectSaved};
use stasis_engine::model::format::manifest::SaveReason;
use stasis_engine::model::id::Label;
use stasis_engine::save::{RepoSaved, patterns_in};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The label that `-m` gives.
pub(in crate::cli) const MESSAGE: &str = MESSAGE_LABEL;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProjectSaveArgs {
    /// The project's directory, instead of --project
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Why it is saved
    #[arg(long, default_value = "manual")]
    reason: SaveReasonArg,
    #[command(flatten)]
    how: SaveOptions,
}

/// How a directory is saved, whatever it is.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(in crate::cli) struct SaveOptions {
    /// What this snapshot is, in a few words; `log` shows it, and it names the snapshot as a label does
    #[arg(long, short, value_name = "TEXT")]
    message: Option<Label>,
    /// A label, KEY=VALUE; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Save `/` or the home directory; make the snapshot `latest` although a database is gone, empty or overwritten since
    /// the last one (without it, such a snapshot is stored, `latest` stays what it was, and the exit code is 1)
    #[arg(long)]
    force: bool,
    /// Make a snapshot although nothing changed
    #[arg(long)]
    allow_empty: bool,
    /// Save although suspiciously little is left: nothing, or less than a tenth of the last snapshot's entries
    #[arg(long, alias = "allow-shrink")]
    accept_shrink: bool,
    /// Leave out what matches, as in a .gitignore, now and in later saves; may be given more than once. A file
    /// .stasisignore in the directory says the same
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Leave out what matches a pattern in FILE, one in each line
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Stop excluding what earlier saves excluded
    #[arg(long)]
    forget_excludes: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SaveReasonArg {
    /// A user asked
    Manual,
    /// Made by autosave
    Autosave,
    /// The application is about to change
    BeforeUpgrade,
    /// The state is about to be replaced
    BeforeRestore,
}

impl From<SaveReasonArg> for SaveReason {
    fn from(why: SaveReasonArg) -> Self {
        match why {
            SaveReasonArg::Manual => Self::Manual,
            SaveReasonArg::Autosave => Self::Autosave,
            SaveReasonArg::BeforeUpgrade => Self::BeforeUpgrade,
            SaveReasonArg::BeforeRestore => Self::BeforeRestore,
        }
    }
}

impl ProjectSaveArgs {
    pub(in crate::cli) async fn run(
        self,
        context: &CliContext,
        which: &ProjectSelector,
    ) -> anyhow::Result<Exit> {
        let mut which = which.clone();
        match self.dir {
            Some(dir) => which.project = dir,
            // Whatever one happens to stand in is not what one means to save.
            None if which.is_nowhere() => anyhow::bail!(
                "there is no stasis.toml here or above: name the directory, as in `stasis save DIR`, or write one with `stasis project init`"
            ),
            None => {}
        }
        let project = which.open(context).await?;
        self.how.save(context, &project, self.reason.into()).await
    }
}

impl SaveOptions {
    /// The labels that were given, and the message.
    pub(in crate::cli) fn labels(&self) -> anyhow::Result<BTreeMap<String, Label>> {
        let mut labels = labels(&self.label)?;
        let message = self.message.clone();
        labels.extend(message.map(|text| (MESSAGE.to_owned(), text)));
        Ok(labels)
    }

    pub(in crate::cli) async fn save(
        self,
        context: &CliContext,
        project: &Project,
        reason: SaveReason,
    ) -> anyhow::Result<Exit> {
        whole_machine::refuse(context, &project.home().dir, self.force)?;
        let progress = Arc::default();
        let mut excludes = Vec::new();
        for file in &self.exclude_from {
            excludes.extend(patterns_in(file, false)?);
        }
        let labels = self.labels()?;
        excludes.extend(self.exclude);
        let command = ProjectSave {
            labels,
            allow_empty: self.allow_empty,
            force: self.force,
            allow_shrink: self.accept_shrink,
            excludes,
            forget_excludes: self.forget_excludes,
            cancel: cancel_on_signals()?,
            progress: Arc::clone(&progress),
            ..ProjectSave::new(reason)
        };
        let work = Box::pin(project.save(command));
        let saved = watched(context.output, "saving", progress, work).await?;
        report(context, &saved)?;
        Ok(exit_of(&saved.saved))
    }
}

/// Names the databases that should be in a snapshot.
fn name_lost(context: &CliContext, saved: &RepoSaved) {
    for one in &saved.lost_databases {
        let (path, words) = (printable(&one.path), one.how.words());
        context
            .output
            .say(&format!("warning: database {path}: {words}"));
    }
    if !saved.lost_databases.is_empty() && !saved.is_latest {
        context.output.say(
            "hint: this state was stored, but `latest` still means the snapshot before it. Bring the database back with: stasis restore DIR; if it is meant to be gone: stasis save DIR --force",
        );
    }
}

pub(in crate::cli) fn report(context: &CliContext, saved: &ProjectSaved) -> anyhow::Result<()> {
    warn_of(context, saved);
    context.output.result(saved, text)
}

/// The same where one save after the other is reported.
pub(in crate::cli) fn report_line(
    context: &CliContext,
    saved: &ProjectSaved,
) -> anyhow::Result<()> {
    warn_of(context, saved);
    context.output.result_line(saved, text)
}

fn warn_of(context: &CliContext, saved: &ProjectSaved) {
    context.output.warn(&saved.warnings);
    let named = context.output.left_out(&saved.saved.left_out_entries);
    let more = saved.saved.left_out_entries.len() as u64 - named;
    if more > 0 {
        let words = format!("warning: {more} more entries were left out; --json lists a thousand");
        context.output.say(&words);
    }
    name_own_places(context, &saved.saved);
    name_not_consistent(context, &saved.saved);
    name_lost(context, &saved.saved);
}

/// The message, in quotes.
fn message_text(done: &ProjectSaved) -> String {
    let message = done.labels.get(MESSAGE);
    message.map_or_else(String::new, |text| {
        format!(" \"{}\"", printable(text.as_str()))
    })
}

/// The other labels that were given, as they were typed.
fn labels_text(done: &ProjectSaved) -> String {
    let one = |(key, value): (&String, &Label)| printable(&format!("{key}={value}"));
    let others = done.labels.iter().filter(|(key, _)| *key != MESSAGE);
    others.map(one).collect::<Vec<_>>().join(", ")
}

fn text(done: &ProjectSaved) -> String {
    let saved = &done.saved;
    if !saved.published {
        let unchanged = format!(
            "Nothing changed since {}: no new snapshot ({}{}, {} ms)",
            short(&saved.snapshot_id),
            plural(saved.files, "file"),
            repair_text(saved),
            saved.elapsed_ms
        );
        let (message, labels) = (message_text(done), labels_text(done));
        let given: Vec<&str> = [message.trim_start(), &*labels]
            .into_iter()
            .filter(|one| !one.is_empty())
            .collect();
        return match &*given {
            [] => unchanged,
            given => format!(
                "{unchanged}\nLabelled {}: {}",
                short(&saved.snapshot_id),
                given.join(", ")
            ),
        };
    }
    let volumes = done.volumes.iter().map(|(name, volume)| {
        format!(
            "\n  volume {name}: {}, {}, integrity {}",
            volume.consistency,
            size(volume.size),
            volume.integrity
        )
    });
    format!(
        "Saved {} as {}{}{}{}: {}, {} ({} new{}){}{}",
        done.project,
        short(&saved.snapshot_id),
        message_text(done),
        match done.reason {
            SaveReason::Manual => String::new(),
            reason => format!(" ({})", word(&reason)),
        },
        match &*labels_text(done) {
            "" => String::new(),
            labels => format!(", labelled {labels}"),
        },
        plural(saved.files, "file"),
        size(saved.bytes),
        size(saved.bytes_stored),
        if saved.encrypted { ", encrypted" } else { "" },
        repair_text(saved),
        volumes.collect::<String>()
    )
}
