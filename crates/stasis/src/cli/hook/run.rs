//! `stasis hook run`: what agents run.
//!
//! *Always true:* it prints nothing on standard output, which agents would read to their models; it ends with exit
//! code 0, since others are a veto; it ends in time, and what takes longer is finished by its [`worker`]. What goes wrong goes
//! into the log, and is recorded.

mod input;
mod worker;

use super::agent::Agent;
use crate::cli::{CliContext, system_clock};
use crate::env::Environment;
use crate::report::Exit;
use anyhow::Context as _;
use clap::{Args, ValueEnum as _};
use input::Input;
use stasis_engine::bridge;
use stasis_engine::error::Error;
use stasis_engine::hook_record::{HookOutcome, HookRecorder, Trigger};
use stasis_engine::kind::workspace::{
    BeforeCall, Checkpointed, CreateCheckpoint, Workspace, WorkspaceError,
};
use stasis_engine::model::workspace::pace::LONGEST_WAIT;
use stasis_engine::model::workspace::{AgentCall, AgentEventKind};
use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use worker::WorkerOutcome;

/// How much of what an agent says is looked at.
const MOST: u64 = 1 << 20;
/// How long an agent may take to say it.
const INPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take to write down that none could be made.
const NOTING: Duration = Duration::from_secs(5);
/// How long a checkpoint may take when nobody waits for it any more.
const LONGEST: Duration = Duration::from_mins(30);
/// How many entries that are not in a checkpoint are named.
const NAMED: usize = 3;

#[derive(Debug, Args)]
pub(in crate::cli) struct HookRunArgs {
    /// The agent that runs this
    agent: Agent,
    /// The workspace, or a directory in it [default: those of the agent's working directory and of its project]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Do not keep the first line of the prompt or command with the checkpoint
    #[arg(long)]
    no_prompt_text: bool,
    /// How many seconds the agent waits for the checkpoint at most; what takes longer is finished in the background
    #[arg(long, value_name = "SECONDS", default_value_t = LONGEST_WAIT.as_secs())]
    wait: u64,
    /// Be the process that makes the checkpoint
    #[arg(long, hide = true)]
    worker: bool,
}

impl HookRunArgs {
    pub(super) async fn run(self, context: &CliContext) -> Exit {
        let said = input_in_time().await;
        if self.worker {
            worker::detach();
            self.work(context, &said, LONGEST).await;
            return Exit::Done;
        }
        let wait = Duration::from_secs(self.wait);
        match worker::supervise(&said, wait).await {
            Ok(WorkerOutcome::Done) => {}
            Ok(WorkerOutcome::Later) => {
                tracing::warn!("the checkpoint is finished in the background");
            }
            Err(error) => {
                tracing::warn!(%error, "could not start a process for the checkpoint");
                self.work(context, &said, wait).await;
            }
        }
        Exit::Done
    }

    /// Makes the checkpoints, unless that takes longer than it may.
    async fn work(&self, context: &CliContext, said: &[u8], longest: Duration) {
        let agent = self.agent.name();
        let input = Input::parse(said);
        let directories = self.directories(&input, &context.environment.agent_projects);
        let recorder = recorder(&context.environment, agent, &directories);
        let work = async {
            match self.call(&input) {
                Ok(call) => self.each(context, &directories, &recorder, &call).await,
                Err(error) => recorder.end(None, failure(&error)),
            }
        };
        if tokio::time::timeout(longest, work).await.is_err() {
            let seconds = longest.as_secs();
            tracing::warn!(agent, seconds, "no checkpoint was made in time");
            let message = format!("no checkpoint was made within {seconds} s");
            recorder.end(None, HookOutcome::Failed { message });
        }
    }

    /// The directories whose workspaces get a checkpoint: the one that is named, else the agent's working directory and,
    /// because a command can change it from anywhere, the project.
    fn directories(&self, input: &Input, projects: &[PathBuf]) -> Vec<PathBuf> {
        match &self.workspace {
            Some(named) => vec![std::env::current_dir().unwrap_or_default().join(named)],
            None => directories_of(input, projects),
        }
    }

    /// What the agent is about to do, as far as it is kept.
    fn call(&self, input: &Input) -> anyhow::Result<AgentCall> {
        let call = input.call(self.agent.name());
        let mut call = call.context("an agent has a name")?;
        call.text = call.text.filter(|_| !self.no_prompt_text);
        Ok(call)
    }

    /// Makes a checkpoint of every workspace that one of the directories lies in; what becomes of each is recorded.
    async fn each(
        &self,
        context: &CliContext,
        directories: &[PathBuf],
        recorder: &HookRecorder,
        call: &AgentCall,
    ) {
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
            let outcome = match self.checkpoint(&found, call.clone()).await {
                Ok(made) if made.created => HookOutcome::Made {
                    left_out: left_out(&made),
                    checkpoint: made.checkpoint,
                },
                Ok(_) => HookOutcome::Unchanged,
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

    /// Makes a checkpoint of a workspace, unless nothing changed.
    async fn checkpoint(
        &self,
        workspace: &Workspace,
        call: AgentCall,
    ) -> anyhow::Result<Checkpointed> {
        let command = BeforeCall {
            create: CreateCheckpoint::before(call),
            wait: Duration::from_secs(self.wait),
        };
        // What a worker prints is read by the process that waits for it; everybody else prints nothing.
        let hurry = if self.worker { worker::hurry } else { || () };
        Ok(workspace.create_before(command, hurry).await?)
    }
}

/// What is not in a checkpoint though it is there.
fn left_out(made: &Checkpointed) -> Option<String> {
    let missing = made.left_out.iter().filter(|one| one.is_missing());
    let named: Vec<String> = missing
        .clone()
        .take(NAMED)
        .map(|one| format!("{} ({})", one.path, one.words))
        .collect();
    if named.is_empty() {
        return None;
    }
    let more = match missing.count() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let words = format!("{}{more}", named.join("; "));
    tracing::warn!(
        checkpoint = made.checkpoint,
        left_out = words,
        "a checkpoint lacks what could not be read"
    );
    Some(words)
}

/// The agent's working directory and its project.
fn directories_of(input: &Input, projects: &[PathBuf]) -> Vec<PathBuf> {
    let directory = input.directory().or_else(|| std::env::current_dir().ok());
    let mut directories: Vec<PathBuf> = directory.into_iter().collect();
    directories.extend(projects.iter().cloned());
    directories.dedup();
    directories
}

fn recorder(environment: &Environment, agent: &str, directories: &[PathBuf]) -> HookRecorder {
    let state = environment.local_dirs.state.clone();
    let directory = directories.first().map_or(Path::new("."), PathBuf::as_path);
    let trigger = if environment.is_hook_test {
        Trigger::Test
    } else {
        Trigger::Agent
    };
    HookRecorder::begin(state, agent, directory, trigger, system_clock())
}

fn failure(error: &anyhow::Error) -> HookOutcome {
    let message = format!("{error:#}");
    tracing::warn!(error = message, "no checkpoint was made");
    HookOutcome::Failed { message }
}

/// The workspace that holds `directory`, if there is one.
async fn find(context: &CliContext, directory: &Path) -> anyhow::Result<Option<Workspace>> {
    let host_env = context.environment.host_env()?;
    match Workspace::find(directory, &host_env).await {
        Err(Error::Workspace(error)) if matches!(*error, WorkspaceError::NotAWorkspace { .. }) => {
            Ok(None)
        }
        found => Ok(Some(found?).filter(|found| !found.are_hooks_off())),
    }
}

/// What the agent says, if it says it in time.
async fn input_in_time() -> Vec<u8> {
    // Heard to the end even if it is not needed: some agents mind when nobody listens.
    let heard = tokio::time::timeout(INPUT_TIMEOUT, bridge::blocking(read_input)).await;
    heard.unwrap_or_default()
}

/// The beginning of what the agent says; the rest is heard and forgotten.
fn read_input() -> Vec<u8> {
    let mut said = Vec::new();
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let mut stdin = stdin.lock();
        let _ = stdin.by_ref().take(MOST).read_to_end(&mut said);
        let _ = std::io::copy(&mut stdin, &mut std::io::sink());
    }
    said
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
        // What cannot be written down has nobody to tell.
        let _ = bridge::run(async {
            let environment = Environment::read();
            let noted = note_failure(agent, &environment, message);
            tokio::time::timeout(NOTING, noted).await
        });
    }
}

/// Records that a hook failed, in every workspace that it was for; and that a prompt has no checkpoint, if it was one's.
async fn note_failure(agent: Agent, environment: &Environment, message: String) {
    let input = Input::parse(&input_in_time().await);
    let call = input.call(agent.name());
    let is_prompt = call.is_some_and(|call| call.kind == AgentEventKind::Prompt);
    let directories = directories_of(&input, &environment.agent_projects);
    let recorder = recorder(environment, agent.name(), &directories);
    let failed = || HookOutcome::Failed {
        message: message.clone(),
    };
    recorder.end(None, failed());
    let Ok(host_env) = environment.host_env() else {
        return;
    };
    for directory in directories {
        let Ok(found) = Workspace::find(&directory, &host_env).await else {
            continue;
        };
        recorder.end(Some(found.directory()), failed());
        if is_prompt {
            found.miss_prompt(message.clone()).await;
        }
    }
}

#[cfg(test)]
mod tests;
