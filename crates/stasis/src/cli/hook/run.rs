//! `stasis hook run`: what agents run.
//!
//! *Always true:* it prints nothing on standard output, which agents would read to their models; it ends with exit
//! code 0, since others are a veto; it ends in time. What goes wrong goes into the log.

use super::agent::Agent;
use crate::cli::{Context, system_clock, workspace};
use crate::env::Environment;
use crate::report::Exit;
use clap::{Args, ValueEnum as _};
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use stasis_engine::bridge;
use stasis_engine::error::Error;
use stasis_engine::hook_record::{HookOutcome, HookRecorder};
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
    /// The workspace, or a directory in it [default: those of the agent's working directory and of its project]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

impl Run {
    pub(super) async fn run(self, context: &Context) -> Exit {
        let agent = self.agent.name();
        let directories = self.directories(&context.environment.agent_projects).await;
        let recorder = recorder(&context.environment, agent, &directories);
        let work = checkpoint_each(context, &directories, &recorder);
        if tokio::time::timeout(LONGEST, work).await.is_err() {
            let seconds = LONGEST.as_secs();
            tracing::warn!(agent, seconds, "no checkpoint was made in time");
            let message = format!("no checkpoint was made within {seconds} s");
            recorder.end(None, HookOutcome::Failed { message });
        }
        Exit::Done
    }

    /// The directories whose workspaces get a checkpoint: the one that is named, else the agent's working directory and,
    /// because a command can change it from anywhere, the project.
    async fn directories(&self, projects: &[PathBuf]) -> Vec<PathBuf> {
        // Heard to the end even if it is not needed: some agents mind when nobody listens.
        let heard = tokio::time::timeout(HEARING, bridge::blocking(heard)).await;
        let said = heard.ok().and_then(|heard| working_directory(&heard));
        let here = std::env::current_dir().ok();
        if let Some(named) = &self.workspace {
            let here = here.unwrap_or_default();
            return vec![here.join(named)];
        }
        let mut directories: Vec<PathBuf> = said.or(here).into_iter().collect();
        directories.extend(projects.iter().cloned());
        directories.dedup();
        directories
    }
}

fn recorder(environment: &Environment, agent: &str, directories: &[PathBuf]) -> HookRecorder {
    let state = environment.places.state.clone();
    let directory = directories.first().map_or(Path::new("."), PathBuf::as_path);
    HookRecorder::begin(state, agent, directory, system_clock())
}

/// Makes a checkpoint of every workspace that one of the directories lies in; what becomes of each is recorded.
async fn checkpoint_each(context: &Context, directories: &[PathBuf], recorder: &HookRecorder) {
    let mut roots: Vec<PathBuf> = Vec::new();
    let mut failed = false;
    for directory in directories {
        let found = match find(context, directory).await {
            Ok(Some(found)) if !roots.iter().any(|root| root == found.directory()) => found,
            Ok(_) => continue,
            Err(error) => {
                failed = true;
                recorder.end(None, failure(&error));
                continue;
            }
        };
        let outcome = match checkpoint(&found).await {
            Ok(Some(checkpoint)) => HookOutcome::Made { checkpoint },
            Ok(None) => HookOutcome::Unchanged,
            Err(error) => failure(&error),
        };
        tracing::debug!(workspace = %found.directory().display(), ?outcome, "hook ran");
        recorder.end(Some(found.directory()), outcome);
        roots.push(found.directory().to_owned());
    }
    if roots.is_empty() && !failed {
        recorder.end(None, HookOutcome::NoWorkspace);
    }
}

fn failure(error: &anyhow::Error) -> HookOutcome {
    let message = format!("{error:#}");
    tracing::warn!(error = message, "no checkpoint was made");
    HookOutcome::Failed { message }
}

/// The workspace that holds `directory`, if there is one.
async fn find(context: &Context, directory: &Path) -> anyhow::Result<Option<Workspace>> {
    let surroundings = workspace::surroundings(context)?;
    match Workspace::find(directory, &surroundings).await {
        Err(Error::Workspace(error)) if matches!(*error, WorkspaceError::NotAWorkspace(_)) => {
            Ok(None)
        }
        found => Ok(Some(found?)),
    }
}

/// Makes a checkpoint of a workspace, and says which; `None` where nothing changed.
async fn checkpoint(workspace: &Workspace) -> anyhow::Result<Option<String>> {
    let made = workspace.create(Create {
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
    let message = match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(_)) => return ExitCode::SUCCESS,
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => "it stopped with an internal error".to_owned(),
    };
    let _ = writeln!(
        std::io::stderr(),
        "warning: no checkpoint was made: {message}"
    );
    record_failure(std::env::args(), message);
    ExitCode::SUCCESS
}

/// Records a failure that came before the command itself could, such as that of a broken configuration.
fn record_failure(arguments: impl Iterator<Item = String>, message: String) {
    let arguments: Vec<String> = arguments.collect();
    let named = arguments
        .windows(3)
        .find(|three| three[..2] == ["hook", "run"]);
    let agent = named.and_then(|three| Agent::from_str(&three[2], false).ok());
    if let Some(agent) = agent {
        let here = std::env::current_dir().into_iter().collect::<Vec<_>>();
        let recorder = recorder(&Environment::read(), agent.name(), &here);
        recorder.end(None, HookOutcome::Failed { message });
    }
}

#[cfg(test)]
mod tests;
