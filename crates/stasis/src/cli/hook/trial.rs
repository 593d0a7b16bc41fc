//! `stasis hook test`: runs the command that an agent's settings hold the way the agent does, and says what it saw.
//!
//! 1. read the command of every event from the settings
//! 2. run each in a scratch workspace, with its own state directory, in which something changed before: a checkpoint must come
//! 3. run the one for commands in the current directory: a checkpoint, or nothing had changed
//! 4. ask whether the agent would run them at all
//!
//! The command says nothing and always succeeds, so what became of it is read from the record that `hook run` writes.

use super::agent::{Agent, HookEvent, HookFormat, Means, Scope};
use super::file::Target;
use super::plugin;
use super::program::Program;
use super::show::summary;
use super::trust::Trust;
use crate::cli::output::{printable, table, word};
use crate::cli::{CliContext, system_clock, system_rng};
use crate::env::HOOK_TEST;
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use stasis_engine::hook_record::{HookOutcome, HookRecord, HookRun};
use stasis_engine::kind::workspace::{HostEnv, InitWorkspace, Workspace};
use stasis_engine::model::rng::Rng as _;
use stasis_engine::model::time::Clock as _;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// How long every agent waits for a hook as we write it.
const AGENT_LIMIT: Duration = Duration::from_secs(30);
/// How much of what a command prints is looked at.
const LONGEST_OUTPUT: u64 = 64 << 10;

#[derive(Debug, Args)]
pub(in crate::cli) struct HookTestArgs {
    /// The agent
    agent: Agent,
    /// Whose settings [default: both, as far as they have the hook]
    #[arg(long, value_name = "SCOPE")]
    scope: Option<Scope>,
}

/// Everything that was seen.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct TrialReport {
    agent: Agent,
    works: bool,
    problems: Vec<String>,
    trials: Vec<Trial>,
}

/// One run of one command.
#[derive(Serialize, JsonSchema)]
struct Trial {
    scope: Scope,
    event: &'static str,
    command: String,
    directory: String,
    /// Whether that is a workspace made for the test.
    scratch: bool,
    exit_code: Option<i32>,
    timed_out: bool,
    stdout: String,
    stderr: String,
    elapsed_ms: u64,
    /// What `hook run` recorded; nothing if it did not run.
    ran: Option<HookRun>,
}

/// A command as the settings have it.
struct InstalledHook {
    scope: Scope,
    event: &'static str,
    is_prompt: bool,
    /// The program and its arguments: a shell with the command, or the program itself.
    words: Vec<String>,
    command: String,
}

/// Where a command is run.
struct TrialPlace<'a> {
    directory: &'a Path,
    /// The state directory in which `hook run` records, `…/stasis`.
    state: &'a Path,
    is_scratch: bool,
}

impl HookTestArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = std::env::current_dir().context("there is no current directory")?;
        let mut report = TrialReport {
            agent: self.agent,
            works: false,
            problems: Vec::new(),
            trials: Vec::new(),
        };
        let written = self
            .written(context, &project, &mut report.problems)
            .await?;
        if written.is_empty() && report.problems.is_empty() {
            let name = self.agent.name();
            let what =
                format!("there is no hook of ours. Install it with: stasis hook install {name}");
            report.problems.push(what);
        }
        if !written.is_empty() {
            let scratch = ScratchWorkspace::make()?;
            let tried = self.try_all(context, &written, &scratch, &project).await;
            scratch.remove()?;
            report.trials = tried?;
        }
        for trial in &report.trials {
            let problem = trial.problem(self.agent);
            report.problems.extend(problem);
        }
        report.problems.dedup();
        report.works = report.problems.is_empty();
        context.output.result(&report, rendered)?;
        Ok(if report.works {
            Exit::Done
        } else {
            Exit::Failed
        })
    }

    /// The commands that the settings hold, and what keeps the agent from running them.
    async fn written(
        &self,
        context: &CliContext,
        project: &Path,
        problems: &mut Vec<String>,
    ) -> anyhow::Result<Vec<InstalledHook>> {
        let scopes = [Scope::User, Scope::Project].into_iter();
        let mut written = Vec::new();
        for scope in scopes.filter(|scope| self.scope.is_none_or(|only| only == *scope)) {
            let Ok(path) = self.agent.file(scope, &context.environment, project) else {
                continue;
            };
            let Some(text) = Target::read(&path)?.text else {
                continue;
            };
            let found = self.found(scope, &text);
            let found = found.with_context(|| format!("`{}` cannot be read", path.display()))?;
            if found.is_empty() {
                continue;
            }
            if let Means::Settings(form) = self.agent.means() {
                let off = form.switched_off(&text).map(|switch| {
                    format!("`{switch}` in {} switches all hooks off", path.display())
                });
                problems.extend(off);
                problems.extend(missing(&form, &found, &path));
            }
            let trust = Trust::of(self.agent, &context.environment, &path, project).await;
            problems.extend(trust.hint(self.agent).map(str::to_owned));
            written.extend(found);
        }
        Ok(written)
    }

    fn found(&self, scope: Scope, text: &str) -> anyhow::Result<Vec<InstalledHook>> {
        let program = Program::at(self.agent, "stasis");
        let form = match self.agent.means() {
            Means::Settings(form) => form,
            Means::Plugin => return Ok(self.of_plugin(scope, text)),
        };
        let mut all = Vec::new();
        for (event, command) in form.commands(text, &program)? {
            let shell = self.agent.shell();
            all.push(InstalledHook {
                scope,
                event: event.name,
                is_prompt: event.matcher.is_none(),
                words: [shell, "-c", &command].map(str::to_owned).to_vec(),
                command,
            });
        }
        Ok(all)
    }

    /// The plugin starts the program itself, without a shell.
    fn of_plugin(&self, scope: Scope, text: &str) -> Vec<InstalledHook> {
        let Some(program) = plugin::program(text) else {
            return Vec::new();
        };
        let words = [program.as_str(), "hook", "run", self.agent.name()];
        let written = |event, is_prompt| InstalledHook {
            scope,
            event,
            is_prompt,
            words: words.map(str::to_owned).to_vec(),
            command: words.join(" "),
        };
        vec![
            written("chat.message", true),
            written("tool.execute.before", false),
        ]
    }

    async fn try_all(
        &self,
        context: &CliContext,
        written: &[InstalledHook],
        scratch: &ScratchWorkspace,
        project: &Path,
    ) -> anyhow::Result<Vec<Trial>> {
        scratch.init(context).await?;
        let mut trials = Vec::new();
        for (number, one) in written.iter().enumerate() {
            scratch.change(number)?;
            trials.push(self.tried(one, &scratch.place()).await);
        }
        // A prompt here would count as one of the user's; a command does not.
        let state = context.environment.local_dirs.state.clone();
        let state = state.context("neither HOME nor XDG_STATE_HOME is set")?;
        for one in written.iter().filter(|one| !one.is_prompt) {
            let place = TrialPlace {
                directory: project,
                state: &state,
                is_scratch: false,
            };
            trials.push(self.tried(one, &place).await);
        }
        Ok(trials)
    }

    async fn tried(&self, written: &InstalledHook, place: &TrialPlace<'_>) -> Trial {
        let clock = system_clock();
        let (began, began_uptime) = (clock.now(), clock.uptime());
        let ended = self.ended(written, place).await;
        let elapsed = clock.uptime().saturating_sub(began_uptime);
        let record = HookRecord::read(place.state, self.agent.name(), None);
        let ran = record.map(|record| record.last);
        Trial {
            scope: written.scope,
            event: written.event,
            command: written.command.clone(),
            directory: place.directory.display().to_string(),
            scratch: place.is_scratch,
            exit_code: ended.exit_code,
            timed_out: ended.timed_out,
            stdout: ended.stdout,
            stderr: ended.stderr,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            ran: ran.filter(|ran| ran.at >= began),
        }
    }

    /// Runs a command as the agent does: its shell, directory, variables, input and time limit.
    async fn ended(&self, written: &InstalledHook, place: &TrialPlace<'_>) -> TrialExit {
        let mut command = Command::new(&written.words[0]);
        command
            .args(&written.words[1..])
            .current_dir(place.directory)
            .env_remove("CLAUDE_PROJECT_DIR")
            .env_remove("GEMINI_PROJECT_DIR")
            .env(HOOK_TEST, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(variable) = self.agent.project_variable() {
            command.env(variable, place.directory);
        }
        if let (true, Some(state)) = (place.is_scratch, place.state.parent()) {
            command.env("XDG_STATE_HOME", state);
        }
        let said = self.said(written, place.directory);
        let ended = tokio::time::timeout(AGENT_LIMIT, TrialExit::of(command, said)).await;
        ended.unwrap_or_else(|_| TrialExit {
            timed_out: true,
            ..TrialExit::default()
        })
    }

    /// What the agent says on standard input.
    fn said(&self, written: &InstalledHook, directory: &Path) -> String {
        let session = "00000000-0000-4000-8000-000000000000";
        let (event, cwd) = (written.event, directory);
        let common = json!({ "session_id": session, "cwd": cwd, "hook_event_name": event });
        let more = if written.is_prompt {
            json!({ "prompt": "stasis hook test" })
        } else {
            json!({ "tool_name": self.agent.shell_tool(), "tool_input": { "command": "true # stasis hook test" } })
        };
        let mut all = common;
        if let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        all.to_string()
    }
}

/// Events that have no command.
fn missing(form: &HookFormat, found: &[InstalledHook], path: &Path) -> Vec<String> {
    let lacks = |event: &&HookEvent| !found.iter().any(|one| one.event == event.name);
    let missing = form.events.iter().filter(lacks);
    missing
        .map(|event| {
            let path = path.display();
            format!(
                "{path} has no hook of ours for {}: install it again",
                event.name
            )
        })
        .collect()
}

#[derive(Default)]
struct TrialExit {
    exit_code: Option<i32>,
    timed_out: bool,
    stdout: String,
    stderr: String,
}

impl TrialExit {
    async fn of(mut command: Command, said: String) -> Self {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                return Self {
                    stderr: format!("it did not start: {error}"),
                    ..Self::default()
                };
            }
        };
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let say = async {
            if let Some(mut stdin) = stdin {
                // Who does not listen is seen by what it does.
                let _ = stdin.write_all(said.as_bytes()).await;
            }
        };
        let hear = async {
            let mut heard = [Vec::new(), Vec::new()];
            let [out, err] = &mut heard;
            if let (Some(stdout), Some(stderr)) = (stdout, stderr) {
                let (mut stdout, mut stderr) =
                    (stdout.take(LONGEST_OUTPUT), stderr.take(LONGEST_OUTPUT));
                let _ = tokio::join!(stdout.read_to_end(out), stderr.read_to_end(err));
            }
            heard.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let ((), [stdout, stderr], status) = tokio::join!(say, hear, child.wait());
        Self {
            exit_code: status.ok().and_then(|status| status.code()),
            timed_out: false,
            stdout,
            stderr,
        }
    }
}

impl Trial {
    /// Why this run would not do for the agent.
    fn problem(&self, agent: Agent) -> Option<String> {
        let (event, name) = (self.event, agent.name());
        if self.timed_out {
            let limit = AGENT_LIMIT.as_secs();
            return Some(format!(
                "{event}: it did not end within the {limit} s that {name} waits"
            ));
        }
        match self.exit_code {
            Some(0) => {}
            Some(code) => {
                return Some(format!(
                    "{event}: exit code {code}, which {name} may take as a veto: install the hook again"
                ));
            }
            None => {
                return Some(format!(
                    "{event}: it was killed, or did not start: {}",
                    self.stderr
                ));
            }
        }
        if !self.stdout.is_empty() || (agent == Agent::Gemini && !self.stderr.is_empty()) {
            let printed = [self.stdout.as_str(), self.stderr.as_str()].concat();
            return Some(format!(
                "{event}: it prints `{}`, which {name} reads as an answer: install the hook again",
                printable(printed.trim())
            ));
        }
        let Some(ran) = &self.ran else {
            return Some(format!(
                "{event}: `{}` succeeded, but stasis did not run: is it where the command says, and `timeout` on the PATH?",
                self.command
            ));
        };
        match &ran.outcome {
            HookOutcome::Failed { message } => {
                Some(format!("{event}: no checkpoint was made: {message}"))
            }
            HookOutcome::Unfinished => Some(format!(
                "{event}: it was killed before it made a checkpoint"
            )),
            HookOutcome::NoWorkspace => Some(format!(
                "{} is not inside a workspace, so the hook does nothing there. Protect it with: stasis protect",
                self.directory
            )),
            HookOutcome::Unchanged if self.scratch => Some(format!(
                "{event}: something changed, and no checkpoint was made"
            )),
            HookOutcome::Made { .. } | HookOutcome::Unchanged => None,
        }
    }
}

fn rendered(report: &TrialReport) -> String {
    let now = system_clock().now();
    let cells = |trial: &Trial| {
        let place = if trial.scratch {
            "a scratch workspace"
        } else {
            &trial.directory
        };
        let exit = match trial.exit_code {
            _ if trial.timed_out => "time out".to_owned(),
            Some(code) => code.to_string(),
            None => "none".to_owned(),
        };
        let printed = match trial.stdout.len() + trial.stderr.len() {
            0 => "nothing".to_owned(),
            bytes => format!("{bytes} B"),
        };
        let ran = trial.ran.as_ref().map(|ran| summary(ran, now));
        vec![
            trial.event.to_owned(),
            word(&trial.scope),
            place.to_owned(),
            exit,
            printed,
            format!("{} ms", trial.elapsed_ms),
            ran.unwrap_or_else(|| "stasis did not run".to_owned()),
        ]
    };
    let mut lines = Vec::new();
    if !report.trials.is_empty() {
        let rows = report.trials.iter().map(cells).collect();
        let head = ["EVENT", "SCOPE", "IN", "EXIT", "PRINTED", "TIME", "RESULT"];
        lines.push(table(&head, rows));
    }
    let agent = report.agent.name();
    if report.works {
        lines.push(format!("{agent}: the hook works"));
    } else {
        lines.push(format!("{agent}: the hook does not work:"));
        lines.extend(
            report
                .problems
                .iter()
                .map(|problem| format!("- {}", printable(problem))),
        );
    }
    lines.join("\n")
}

/// A directory that is a workspace for the time of a test, with a state directory of its own.
struct ScratchWorkspace {
    home: PathBuf,
    tree: PathBuf,
    state: PathBuf,
}

impl ScratchWorkspace {
    fn make() -> anyhow::Result<Self> {
        let home = std::env::temp_dir();
        let home = home.join(format!("stasis-hook-test-{}", system_rng().op_id()));
        let (tree, state) = (home.join("tree"), home.join("state/stasis"));
        for directory in [&home, &tree] {
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(directory)
                .with_context(|| {
                    format!("could not make the directory `{}`", directory.display())
                })?;
        }
        Ok(Self { home, tree, state })
    }

    async fn init(&self, context: &CliContext) -> anyhow::Result<()> {
        let host_env = HostEnv {
            state: self.state.clone(),
            ..context.environment.host_env()?
        };
        let init = InitWorkspace {
            directory: self.tree.clone(),
            session: None,
            system: None,
            budget: None,
        };
        Workspace::init(init, &host_env).await?;
        Ok(())
    }

    /// Makes the next checkpoint necessary.
    fn change(&self, number: usize) -> anyhow::Result<()> {
        File::create_new(self.tree.join(format!("change-{number}")))?;
        Ok(())
    }

    fn place(&self) -> TrialPlace<'_> {
        TrialPlace {
            directory: &self.tree,
            state: &self.state,
            is_scratch: true,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the test's own directory, made a moment ago"
    )]
    fn remove(&self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(&self.home)
            .with_context(|| format!("could not remove `{}`", self.home.display()))
    }
}
