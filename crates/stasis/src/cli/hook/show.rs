//! `stasis hook show`, and what `status` and `doctor` say of hooks: not only whether they are installed, but whether they run.

use super::agent::{Agent, Means, Scope};
use super::file::Target;
use super::plugin;
use super::program::{Program, on_path};
use super::settings::State;
use super::trust::Trust;
use crate::cli::output::{table, word};
use crate::cli::{CliContext, system_clock};
use crate::report::Exit;
use anyhow::Context as _;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::doctor::{DoctorFinding, Health};
use stasis_engine::hook_record::{HookOutcome, HookRecord, HookRun};
use stasis_engine::kind::workspace::Workspace;
use stasis_engine::model::time::{Clock as _, Timestamp};
use std::path::{Path, PathBuf};

/// How things are with the hooks of an agent in one settings file.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct HookRow {
    agent: Agent,
    scope: Scope,
    path: String,
    /// `None` when the file makes no sense.
    state: Option<State>,
    problem: Option<String>,
    /// Whether the agent runs them; `None` where there are none.
    trust: Option<Trust>,
    /// The workspace that the current directory lies in.
    workspace: Option<String>,
    /// What they did last, in this workspace or, outside one, anywhere.
    #[serde(flatten)]
    ran: Option<HookRecord>,
}

/// What the hook of one agent did last in a workspace.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct AgentRecord {
    agent: Agent,
    #[serde(flatten)]
    record: HookRecord,
}

pub(super) async fn show(context: &CliContext) -> anyhow::Result<Exit> {
    let project = std::env::current_dir().context("there is no current directory")?;
    let workspace = here(context, &project).await;
    let mut rows = Vec::new();
    for agent in Agent::ALL {
        for scope in [Scope::User, Scope::Project] {
            let Ok(path) = agent.file(scope, &context.environment, &project) else {
                continue;
            };
            let state = state(context, agent, &path);
            let is_there = matches!(state, Ok(State::Installed | State::Outdated));
            let (mut trust, mut ran) = (None, None);
            if is_there {
                trust = Some(Trust::of(agent, &context.environment, &path, &project).await);
                ran = record(context, agent, workspace.as_deref());
            }
            rows.push(HookRow {
                agent,
                scope,
                path: path.display().to_string(),
                problem: state.as_ref().err().map(|error| format!("{error:#}")),
                state: state.ok(),
                trust,
                workspace: workspace.as_ref().map(|root| root.display().to_string()),
                ran,
            });
        }
    }
    let now = system_clock().now();
    context.output.result(&rows, |rows| rendered(rows, now))?;
    for warning in warnings(&rows, now) {
        context.output.say(&warning);
    }
    Ok(Exit::Done)
}

fn rendered(rows: &[HookRow], now: Timestamp) -> String {
    let cells = |row: &HookRow| {
        let mut state = match (&row.state, &row.problem) {
            (Some(state), _) => word(state),
            (None, problem) => problem.clone().unwrap_or_default(),
        };
        if let Some(trust) = row.trust.filter(|trust| trust.is_missing()) {
            state = format!("{state}, {}", word(&trust));
        }
        let ran = match (&row.trust, &row.ran) {
            (None, _) => String::new(),
            (Some(_), None) => "never".to_owned(),
            (Some(_), Some(record)) => summary(&record.last, now),
        };
        vec![
            word(&row.agent),
            word(&row.scope),
            state,
            ran,
            row.path.clone(),
        ]
    };
    let rows = rows.iter().map(cells).collect();
    table(&["AGENT", "SCOPE", "HOOKS", "LAST RUN", "FILE"], rows)
}

/// What a user should know, whatever the rows say.
fn warnings(rows: &[HookRow], now: Timestamp) -> Vec<String> {
    let installed = || rows.iter().filter(|row| row.trust.is_some());
    let mut warnings = Vec::new();
    for row in installed() {
        if let Some(hint) = row.trust.and_then(|trust| trust.hint(row.agent)) {
            warnings.push(format!("warning: {hint}"));
        }
        let failure = row.ran.as_ref().and_then(|ran| ran.last_failure.as_ref());
        if let Some(failure) = failure {
            let why = failure
                .failure(now)
                .unwrap_or("it was killed before it ended");
            let (agent, age) = (row.agent.name(), failure.at.age(now));
            warnings.push(format!(
                "warning: {agent}: no checkpoint was made in {} {age}: {why}",
                failure.directory
            ));
        }
    }
    if installed().next().is_some() && rows.iter().all(|row| row.workspace.is_none()) {
        let what = "warning: this directory is not inside a workspace, so hooks do nothing here. Protect it with: stasis protect";
        warnings.push(what.to_owned());
    }
    warnings.dedup();
    warnings
}

/// One run as a user reads it: `2 min ago: checkpoint cp-3`.
pub(super) fn summary(run: &HookRun, now: Timestamp) -> String {
    let what = match (&run.outcome, run.failure(now)) {
        (_, Some(why)) => format!("failed: {why}"),
        (
            HookOutcome::Made {
                checkpoint,
                left_out,
            },
            _,
        ) => match left_out {
            None => format!("checkpoint {checkpoint}"),
            Some(left_out) => format!("checkpoint {checkpoint}, without: {left_out}"),
        },
        (HookOutcome::Unchanged, _) => "nothing had changed".to_owned(),
        (HookOutcome::NoWorkspace, _) => format!("no workspace at {}", run.directory),
        _ => "running".to_owned(),
    };
    let by = if run.test { " (test)" } else { "" };
    format!("{}{by}: {what}", run.at.age(now))
}

/// The root of the workspace that a directory lies in.
pub(super) async fn here(context: &CliContext, directory: &Path) -> Option<PathBuf> {
    let host_env = context.environment.host_env().ok()?;
    let found = Workspace::find(directory, &host_env).await.ok()?;
    Some(found.directory().to_owned())
}

/// What an agent's hook did last in a workspace, or anywhere.
pub(super) fn record(
    context: &CliContext,
    agent: Agent,
    workspace: Option<&Path>,
) -> Option<HookRecord> {
    let state = context.environment.local_dirs.state.as_ref()?;
    match workspace {
        None => HookRecord::read(state, agent.name(), None),
        Some(root) => HookRecord::read_in(state, agent.name(), root, system_clock().now()),
    }
}

/// What the hooks of all agents did last in a workspace.
pub(in crate::cli) fn records(context: &CliContext, workspace: &Path) -> Vec<AgentRecord> {
    let all = Agent::ALL.into_iter();
    all.filter_map(|agent| {
        let record = record(context, agent, Some(workspace))?;
        Some(AgentRecord { agent, record })
    })
    .collect()
}

impl AgentRecord {
    /// A line of `status`.
    pub(in crate::cli) fn line(&self) -> String {
        let now = system_clock().now();
        format!(
            "hook        {} {}",
            self.agent.name(),
            summary(&self.record.last, now)
        )
    }

    /// What `status` warns of: the newest run failed.
    pub(in crate::cli) fn warning(&self) -> Option<String> {
        let now = system_clock().now();
        let why = self.record.last.failure(now)?;
        Some(format!(
            "warning: the last run of the {} hook made no checkpoint: {why}",
            self.agent.name()
        ))
    }
}

/// What `doctor` says of every agent whose settings name our hook, or that is installed without it.
pub(in crate::cli) async fn findings(context: &CliContext) -> Vec<DoctorFinding> {
    let Ok(project) = std::env::current_dir() else {
        return Vec::new();
    };
    let now = system_clock().now();
    let mut findings = Vec::new();
    let search_path = &context.environment.search_path;
    for agent in Agent::ALL {
        let before = findings.len();
        for scope in [Scope::User, Scope::Project] {
            let Ok(path) = agent.file(scope, &context.environment, &project) else {
                continue;
            };
            let found = match state(context, agent, &path) {
                Ok(State::Absent) => continue,
                Ok(_) => {
                    let trust = Trust::of(agent, &context.environment, &path, &project).await;
                    seen(agent, trust, record(context, agent, None).as_ref(), now)
                }
                Err(error) => (Health::Broken, format!("{}: {error:#}", path.display())),
            };
            let (health, detail) = found;
            findings.push(finding(agent, health, detail));
        }
        if let (true, Some(program)) = (
            findings.len() == before,
            on_path(agent.command(), search_path),
        ) {
            let (program, name) = (program.display(), agent.name());
            let detail = format!("{program} runs without it; try: stasis hook install {name}");
            findings.push(finding(agent, Health::Missing, detail));
        }
    }
    if findings.is_empty() {
        let names = Agent::ALL.map(Agent::command).join(", ");
        let costs = "hooks and `stasis rewind` have no agent to work with";
        let detail = format!("none of {names} on the PATH");
        let none = DoctorFinding::new("coding agents", Health::Missing, detail, costs);
        findings.push(none);
    }
    findings
}

fn seen(agent: Agent, trust: Trust, ran: Option<&HookRecord>, now: Timestamp) -> (Health, String) {
    let last = ran.map(|ran| summary(&ran.last, now));
    match (trust.hint(agent), ran) {
        (Some(hint), _) => (Health::Broken, hint.to_owned()),
        (None, Some(ran)) if ran.is_failing(now) => (Health::Broken, last.unwrap_or_default()),
        (None, Some(_)) => (Health::Ok, last.unwrap_or_default()),
        (None, None) => (
            Health::Missing,
            format!(
                "installed, never ran; try: stasis hook test {}",
                agent.name()
            ),
        ),
    }
}

fn finding(agent: Agent, health: Health, detail: String) -> DoctorFinding {
    let costs = "the agent works without checkpoints";
    DoctorFinding::new(format!("hook {}", agent.name()), health, detail, costs)
}

pub(super) fn state(context: &CliContext, agent: Agent, path: &Path) -> anyhow::Result<State> {
    let program = Program::find(agent, &context.environment.search_path)?;
    let Some(text) = Target::read(path)?.text else {
        return Ok(State::Absent);
    };
    match agent.means() {
        Means::Settings(form) => Ok(form.state(&text, &program)?),
        Means::Plugin => plugin::state(&text, &program),
    }
}
