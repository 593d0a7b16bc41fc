//! `stasis clone`

use super::CliContext;
use super::byte_size::size;
use super::output::printable;
use super::progress::{cancel_on_signals, is_shown, watched};
use crate::cli::output::Measured;
use crate::report::Exit;
use crate::system::SystemClock;
use clap::{Args, ValueEnum};
use stasis_engine::clone::{CloneTree, Cloned, Fallback, clone_tree};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(super) struct CloneArgs {
    /// The directory to clone
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Where the clone will be; nothing may be there yet
    #[arg(value_name = "DST")]
    target: PathBuf,
    /// What to do where the filesystem cannot share bytes
    #[arg(long, value_name = "HOW", default_value = "copy")]
    fallback: CloneFallback,
    /// Leave out what matches, as in a .gitignore; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Fail if anything vanishes, changes while it is read, or may not be read, instead of reporting it
    #[arg(long)]
    strict: bool,
    /// Whether to stay on the filesystem of SRC; otherwise what is mounted in it is cloned too
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    one_file_system: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CloneFallback {
    /// Copy them; holes stay holes
    Copy,
    /// Fail, and leave nothing
    Refuse,
}

impl CloneArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let (progress, cancel) = (Arc::default(), cancel_on_signals()?);
        let command = CloneTree {
            source: self.source,
            target: self.target,
            fallback: match self.fallback {
                CloneFallback::Copy => Fallback::Copy,
                CloneFallback::Refuse => Fallback::Refuse,
            },
            excludes: self.exclude,
            strict: self.strict,
            across_filesystems: !self.one_file_system,
            is_watched: is_shown(context.output),
            progress: Arc::clone(&progress),
            cancel,
        };
        let work = clone_tree(command, &SystemClock);
        let cloned = watched(context.output, "cloning", progress, work).await?;
        let named = context.output.left_out(&cloned.left_out);
        for line in warnings(&cloned, named) {
            context.output.say(&format!("warning: {line}"));
        }
        let measured = Measured::new(cloned);
        context
            .output
            .result(&measured, |one| cloned_text(&one.result))?;
        Ok(Exit::Done)
    }
}

fn cloned_text(cloned: &Cloned) -> String {
    format!(
        "{}: {} files, {} directories, {} symbolic links, {} hard links; {} shared, {} copied; by {}; {} ms",
        printable(&cloned.target),
        cloned.files,
        cloned.directories,
        cloned.symlinks,
        cloned.hard_links,
        size(cloned.bytes_shared),
        size(cloned.bytes_copied),
        cloned.method,
        cloned.elapsed_ms
    )
}

fn warnings(cloned: &Cloned, named: u64) -> Vec<String> {
    let more = (cloned.vanished + cloned.skipped).saturating_sub(named);
    let counts = [
        (more, "more entries were left out; --json lists a thousand"),
        (
            cloned.owners_not_kept,
            "entries have another owner than in the source: only root gives things away",
        ),
        (
            cloned.privileges_not_kept,
            "entries lost setuid or setgid: only root gives them",
        ),
        (
            cloned.attributes_left_out,
            "attributes that are not the user's were left out",
        ),
    ];
    let counts = counts.iter().filter(|(n, _)| *n > 0);
    counts.map(|(n, what)| format!("{n} {what}")).collect()
}
