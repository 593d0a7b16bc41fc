//! `stasis hook run`: what agents run.
//!
//! *Always true:* it prints nothing on standard output, which agents would read to their models; it ends with exit
//! code 0, since others are a veto; it ends in time. What goes wrong goes into the log.

use super::agent::Agent;
use crate::cli::{Context, workspace};
use crate::report::Exit;
use clap::Args;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use stasis_engine::bridge;
use stasis_engine::error::Error;
use stasis_engine::model::workspace::Origin;
use stasis_engine::workspace::{Create, Maker, Workspace, WorkspaceError};
use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How much of what an agent says is looked at.
const MOST: u64 = 1 << 20;
/// How long an agent may take to say it.
const HEARING: Duration = Duration::from_secs(2);
/// How long all of it may take.
const LONGEST: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(in crate::cli) struct Run {
    /// The agent that runs this
    agent: Agent,
    /// The workspace, or a directory in it [default: `cwd` of what the agent says, else the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

impl Run {
    pub(super) async fn run(self, context: &Context) -> Exit {
        let agent = self.agent.name();
        let work = async {
            let directory = self.directory().await?;
            checkpoint(context, &directory).await
        };
        match tokio::time::timeout(LONGEST, work).await {
            Ok(Ok(Some(checkpoint))) => tracing::info!(agent, checkpoint, "checkpoint made"),
            Ok(Ok(None)) => tracing::debug!(agent, "no checkpoint needed"),
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::warn!(agent, error, "no checkpoint was made");
            }
            Err(_) => {
                let seconds = LONGEST.as_secs();
                tracing::warn!(agent, seconds, "no checkpoint was made in time");
            }
        }
        Exit::Done
    }

    async fn directory(&self) -> anyhow::Result<PathBuf> {
        // Heard to the end even if it is not needed: some agents mind when nobody listens.
        let heard = tokio::time::timeout(HEARING, bridge::blocking(heard)).await;
        let said = heard.ok().and_then(|heard| working_directory(&heard));
        match self.workspace.clone().or(said) {
            Some(directory) => Ok(std::path::absolute(directory)?),
            None => Ok(std::env::current_dir()?),
        }
    }
}

/// Makes a checkpoint of the workspace that holds `directory`, and says which; `None` where there is no workspace, and
/// where nothing changed.
async fn checkpoint(context: &Context, directory: &Path) -> anyhow::Result<Option<String>> {
    let surroundings = workspace::surroundings(context)?;
    let found = match Workspace::find(directory, &surroundings).await {
        Err(Error::Workspace(error)) if matches!(*error, WorkspaceError::NotAWorkspace(_)) => {
            return Ok(None);
        }
        found => found?,
    };
    let made = found.create(Create {
        name: None,
        pool: Origin::Auto,
        maker: Maker::Hook,
        run: stasis_engine::workspace::Run::Real,
    });
    let made = made.await?;
    Ok(made.created.then_some(made.checkpoint))
}

/// The beginning of what the agent says; the rest is heard and forgotten.
fn heard() -> Vec<u8> {
    let mut said = Vec::new();
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let mut stdin = stdin.lock();
        let _ = stdin.by_ref().take(MOST).read_to_end(&mut said);
        let _ = std::io::copy(&mut stdin, &mut std::io::sink());
    }
    said
}

/// `cwd` at the top of what an agent said, even if its end is missing.
fn working_directory(said: &[u8]) -> Option<PathBuf> {
    let mut found = Found(None);
    let mut reader = serde_json::Deserializer::from_slice(said);
    // What comes after a `cwd` may be cut off.
    let _ = reader.deserialize_map(&mut found);
    found.0.map(PathBuf::from).filter(|path| path.is_absolute())
}

struct Found(Option<String>);

impl<'de> Visitor<'de> for &mut Found {
    type Value = ();

    fn expecting(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "cwd" {
                self.0 = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Whether the command line means `hook run`, as far as one can tell of one that is not understood.
pub(in crate::cli) fn is_asked_to_run(arguments: impl Iterator<Item = OsString>) -> bool {
    let arguments: Vec<OsString> = arguments.collect();
    let pairs = arguments.windows(2);
    pairs.into_iter().any(|pair| pair == ["hook", "run"])
}

/// Runs `work` so that whoever started us does not notice when it fails.
pub(in crate::cli) fn undisturbed(work: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    // A panic has told of itself.
    if let Ok(Err(error)) = std::panic::catch_unwind(AssertUnwindSafe(work)) {
        let _ = writeln!(
            std::io::stderr(),
            "warning: no checkpoint was made: {error:#}"
        );
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests;
