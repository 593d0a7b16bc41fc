//! `stasis repo save`

use crate::cli::directory::{exit_of, name_not_consistent, name_own_places, repair_text};
use crate::cli::output::{Measured, printable};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::{CliContext, whole_machine};
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use stasis_engine::model::id::{Label, SubjectName};
use stasis_engine::save::{RepoSave, RepoSaved};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(super) struct RepoSaveArgs {
    /// The directory to save
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// Under which name: snapshots of one name form a chain
    #[arg(long, default_value = "default")]
    name: SubjectName,
    /// A label, KEY=VALUE; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Leave out what matches, as in a .gitignore; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Fail if anything vanishes, changes while it is read, or may not be read, instead of reporting it
    #[arg(long)]
    strict: bool,
    /// Save although suspiciously little is left: nothing, or less than a tenth of the last snapshot's entries
    #[arg(long, alias = "allow-shrink")]
    accept_shrink: bool,
    /// Save `/` or the home directory
    #[arg(long)]
    force: bool,
    /// Whether to stay on the filesystem of DIR; otherwise what is mounted in it is saved too
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    one_file_system: bool,
}

impl RepoSaveArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        repo: Option<&str>,
    ) -> anyhow::Result<Exit> {
        whole_machine::refuse(context, &self.source, self.force)?;
        let labels = self.label.iter().map(|label| {
            let (key, value) = label
                .split_once('=')
                .with_context(|| format!("`{label}` is not KEY=VALUE"))?;
            Ok((key.to_owned(), value.parse::<Label>()?))
        });
        let progress = Arc::default();
        let command = RepoSave {
            labels: labels.collect::<anyhow::Result<_>>()?,
            excludes: self.exclude,
            strict: self.strict,
            across_filesystems: !self.one_file_system,
            allow_shrink: self.accept_shrink,
            cancel: cancel_on_signals()?,
            progress: Arc::clone(&progress),
            ..RepoSave::new(self.source, self.name)
        };
        let engine = context.repo_engine(repo, false).await?;
        let saved = watched(
            context.output,
            "saving",
            progress,
            Box::pin(engine.dirs().save(command)),
        )
        .await?;
        let named = context.output.left_out(&saved.left_out_entries);
        if saved.attributes_left_out > 0 {
            let count = saved.attributes_left_out;
            context.output.say(&format!(
                "warning: {count} attributes that are not the user's are not saved"
            ));
        }
        let more = saved.left_out_entries.len() as u64 - named;
        if more > 0 {
            context.output.say(&format!(
                "warning: {more} more entries were left out; --json lists a thousand"
            ));
        }
        context.output.warn(&saved.warnings);
        name_own_places(context, &saved);
        name_not_consistent(context, &saved);
        let exit = exit_of(&saved);
        context
            .output
            .result(&Measured::new(saved), |one| saved_text(&one.result))?;
        Ok(exit)
    }
}

fn saved_text(saved: &RepoSaved) -> String {
    format!(
        "{} {}: {} files, {} bytes{}{}; read {} files, stored {} chunks of {} bytes; {} ms",
        saved.snapshot_id,
        printable(saved.name.as_str()),
        saved.files,
        saved.bytes,
        match (saved.unchanged, saved.encrypted) {
            (false, false) => "",
            (true, false) => ", unchanged",
            (false, true) => ", encrypted",
            (true, true) => ", unchanged, encrypted",
        },
        repair_text(saved),
        saved.files_read,
        saved.chunks_new,
        saved.bytes_stored,
        saved.elapsed_ms
    )
}
