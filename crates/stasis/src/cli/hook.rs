//! `stasis hook`
//!
//! Coding agents run commands of ours before they do something; which ones, their own settings say. This adds them
//! there, shows before what it changes, and takes away exactly that.

mod agent;
mod diff;
mod edit;
mod file;
mod json_text;
mod plugin;
mod program;
mod run;
mod server;
mod settings;
mod show;
mod trial;
mod trust;

pub(super) use run::{is_asked_to_run, undisturbed};
pub(super) use server::{McpInstallArgs, McpUninstallArgs};
pub(super) use show::{AgentRecord, HookRow, findings, records};
pub(super) use trial::TrialReport;

use super::output::printable;
use super::{CliContext, ask};
use crate::report::Exit;
use agent::{Agent, Means, Scope};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use file::Target;
use program::Program;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::IsTerminal as _;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(super) enum AgentHookCommand {
    /// Add our hooks to the settings of a coding agent; shows the change first, and asks
    Install(HookChangeArgs),
    /// Remove our hooks from the settings of a coding agent, and nothing else
    Uninstall(HookChangeArgs),
    /// List the coding agents, whether they have our hooks and run them, and what those did last
    Show,
    /// Run the hook of a coding agent the way the agent does, and report what it did; exit code 1 if it does not work
    Test(trial::HookTestArgs),
    /// Make a checkpoint of the workspace if it changed; run by agents, always ends with exit code 0
    Run(run::HookRunArgs),
}

#[derive(Debug, Args)]
pub(super) struct HookChangeArgs {
    /// The agent
    agent: Agent,
    /// Whose settings
    #[arg(long, value_name = "SCOPE", default_value = "user")]
    scope: Scope,
    #[command(flatten)]
    asked: ChangeArgs,
}

/// Whether a change is made.
#[derive(Debug, Args, Clone, Copy)]
pub(super) struct ChangeArgs {
    /// Show what would change, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask; needed where there is no terminal to ask on
    #[arg(long, short)]
    pub(super) yes: bool,
}

/// A change of an agent's file, or of what would change.
#[derive(Serialize, JsonSchema)]
pub(super) struct SettingsChange {
    agent: Agent,
    scope: Scope,
    pub(super) path: String,
    command: String,
    /// Whether there is anything to change.
    pub(super) changed: bool,
    /// Whether it was changed.
    pub(super) written: bool,
    diff: String,
    remarks: Vec<String>,
    #[serde(skip)]
    pub(super) outcome: &'static str,
}

impl AgentHookCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self {
            Self::Install(change) => {
                let exit = change.install(context)?;
                if exit == Exit::Done && !change.asked.dry_run {
                    super::first_checkpoint::make_here(context).await;
                }
                Ok(exit)
            }
            Self::Uninstall(change) => change.uninstall(context),
            Self::Show => show::show(context).await,
            Self::Test(test) => test.run(context).await,
            Self::Run(run) => Ok(run.run(context).await),
        }
    }
}

impl HookChangeArgs {
    fn install(&self, context: &CliContext) -> anyhow::Result<Exit> {
        self.asked.report(context, &self.installed(context)?)
    }

    /// Adds our hooks, once somebody has seen how and agreed.
    fn installed(&self, context: &CliContext) -> anyhow::Result<SettingsChange> {
        let (path, target, program) = self.look(context)?;
        let before = target.text.as_deref();
        let after = match self.agent.means() {
            Means::Settings(form) => form.installed(before, &program).map_err(Into::into),
            Means::Plugin => match before {
                Some(text) => plugin::state(text, &program).map(|_| plugin::written(&program)),
                None => Ok(plugin::written(&program)),
            },
        };
        let after = after.with_context(|| refused(&path))?;
        let mut change = self.change(&path, &program, before, Some(&after));
        change.remarks = self.agent.remarks(&path, &after);
        if change.changed && self.asked.may_write(context, &change)? {
            target.write(&after)?;
            change.written = true;
        }
        change.outcome = match (change.changed, change.written) {
            (false, _) => "hooks were installed already; nothing changed",
            (true, true) => "hooks installed",
            (true, false) => "nothing was changed",
        };
        Ok(change)
    }

    fn uninstall(&self, context: &CliContext) -> anyhow::Result<Exit> {
        self.asked.report(context, &self.uninstalled(context)?)
    }

    /// Removes our hooks, once somebody has seen how and agreed.
    fn uninstalled(&self, context: &CliContext) -> anyhow::Result<SettingsChange> {
        let (path, target, program) = self.look(context)?;
        let before = target.text.as_deref();
        let after = match before {
            None => None,
            Some(text) => self
                .without(text, &target, &program)
                .with_context(|| refused(&path))?,
        };
        let mut change = self.change(&path, &program, before, after.as_deref());
        if change.changed && self.asked.may_write(context, &change)? {
            match &after {
                Some(text) => target.write(text)?,
                None => target.remove()?,
            }
            change.written = true;
        }
        change.outcome = match (change.changed, change.written) {
            (false, _) => "there were no hooks of ours; nothing changed",
            (true, true) => "hooks uninstalled",
            (true, false) => "nothing was changed",
        };
        Ok(change)
    }

    /// What a file holds without our hooks; `None` when it goes.
    fn without(
        &self,
        text: &str,
        target: &Target,
        program: &Program,
    ) -> anyhow::Result<Option<String>> {
        let Means::Settings(form) = self.agent.means() else {
            if plugin::state(text, program).is_err() {
                return Ok(Some(text.to_owned()));
            }
            if !plugin::is_untouched(text, program) {
                bail!(
                    "somebody changed it since it was installed: look at it, then remove it yourself"
                );
            }
            return Ok(None);
        };
        let rest = form.uninstalled(text, program)?;
        // Whoever made a link expects that it leads somewhere.
        let empty = target.is_link().then(|| "{}\n".to_owned());
        Ok(rest.or(empty))
    }

    fn look(&self, context: &CliContext) -> anyhow::Result<(PathBuf, Target, Program)> {
        let project = std::env::current_dir().context("there is no current directory")?;
        let path = self
            .agent
            .file(self.scope, &context.environment, &project)?;
        let program = Program::find(self.agent, &context.environment.search_path)?;
        let target = Target::read(&path)?;
        Ok((path, target, program))
    }

    fn change(
        &self,
        path: &std::path::Path,
        program: &Program,
        before: Option<&str>,
        after: Option<&str>,
    ) -> SettingsChange {
        let path = path.display().to_string();
        SettingsChange {
            agent: self.agent,
            scope: self.scope,
            command: program.command(),
            changed: before != after,
            written: false,
            diff: diff::unified(&path, before, after),
            path,
            remarks: Vec::new(),
            outcome: "",
        }
    }
}

impl ChangeArgs {
    /// Shows the change, and asks for leave to make it.
    fn may_write(self, context: &CliContext, change: &SettingsChange) -> anyhow::Result<bool> {
        let shown: Vec<String> = change.diff.lines().map(shown).collect();
        context.output.insist(&shown.join("\n"));
        if self.dry_run || self.yes {
            return Ok(!self.dry_run);
        }
        if context.output.as_json || !std::io::stdin().is_terminal() {
            bail!(
                "`{}` was not changed, for there is nobody to ask: say --yes to change it, or --dry-run to only look",
                change.path
            );
        }
        ask::is_yes(&format!("Change `{}`?", change.path))
    }

    fn report(self, context: &CliContext, change: &SettingsChange) -> anyhow::Result<Exit> {
        context.output.result(change, |change| {
            format!(
                "{}: {} ({})",
                change.agent.name(),
                change.outcome,
                change.path
            )
        })?;
        if change.changed {
            for remark in &change.remarks {
                context.output.say(&format!("note: {remark}"));
            }
        }
        let declined = change.changed && !change.written && !self.dry_run;
        Ok(if declined {
            Exit::Cancelled
        } else {
            Exit::Done
        })
    }
}

/// A coding agent of this user, whose own settings can have our hooks.
#[derive(Clone, Copy)]
pub(super) struct UsersAgent(Agent);

impl UsersAgent {
    /// Those that are on this machine: their program can be found, or they have settings.
    pub(super) fn all(context: &CliContext) -> Vec<Self> {
        let is_here = |agent: &Agent| agent.is_here(&context.environment);
        Agent::ALL.into_iter().filter(is_here).map(Self).collect()
    }

    pub(super) fn name(self) -> &'static str {
        self.0.name()
    }

    /// Adds our hooks, once somebody has seen how and agreed.
    pub(super) fn install(
        self,
        context: &CliContext,
        asked: ChangeArgs,
    ) -> anyhow::Result<SettingsChange> {
        self.change(asked).installed(context)
    }

    /// Removes our hooks.
    pub(super) fn uninstall(
        self,
        context: &CliContext,
        asked: ChangeArgs,
    ) -> anyhow::Result<SettingsChange> {
        self.change(asked).uninstalled(context)
    }

    fn change(self, asked: ChangeArgs) -> HookChangeArgs {
        let (agent, scope) = (self.0, Scope::User);
        HookChangeArgs {
            agent,
            scope,
            asked,
        }
    }
}

fn refused(path: &std::path::Path) -> String {
    let path = path.display();
    format!("`{path}` was left as it is: mend what is said below, then try again")
}

/// A line of a diff for a terminal: tabs are harmless there.
fn shown(line: &str) -> String {
    let parts: Vec<String> = line.split('\t').map(printable).collect();
    parts.join("\t")
}
