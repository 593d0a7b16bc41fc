//! `stasis schema`: what commands print with `--json`, as JSON Schema

use super::answers::{self, CommandAnswer};
use super::output::OutputLost;
use crate::report::Exit;
use anyhow::{Context as _, ensure};
use clap::Args;
use std::io::Write;

/// `stasis schema`
#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    /// The words of a command, as in `workspace list`, or `error` [default: all]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

impl SchemaArgs {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let schema = if self.command.is_empty() {
            answers::all_schemas()
        } else {
            answers::schema(self.answer()?)
        };
        writeln!(std::io::stdout(), "{schema:#}").map_err(OutputLost)?;
        Ok(Exit::Done)
    }

    fn answer(&self) -> anyhow::Result<&'static CommandAnswer> {
        // Also as it stands in a document: `workspace.list`.
        let words = self.command.iter().flat_map(|word| word.split('.'));
        let words: Vec<&str> = words.collect();
        let typed = words.join(" ");
        let answer = answers::of_command(&super::command_name(&words)).with_context(|| {
            format!("`{typed}` is no command: `stasis schema` prints the schemas of all")
        })?;
        ensure!(
            !answer.results.is_empty(),
            "`stasis {typed}` prints no JSON"
        );
        Ok(answer)
    }
}
