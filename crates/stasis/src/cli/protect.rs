//! `stasis protect`: what an agent's user needs, in one step, and away again

use super::byte_size::size;
use super::hook::{ChangeArgs, SettingsChange, UsersAgent};
use super::output::{plural, printable};
use super::{CliContext, ask, first_checkpoint};
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use stasis_engine::kind::workspace::{
    Checkpointed, HostEnv, InitWorkspace, RemovedWorkspace, RunMode, Workspace, WorkspaceMade,
};
use stasis_engine::subjects::hooked_workspaces;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a watch has to begin: it looks at every directory first.
const WATCH_BEGINS: Duration = Duration::from_secs(20);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// What the watch says, in the session directory.
const WATCH_LOG: &str = "watch.log";

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a choice of its own that a user makes"
)]
pub(super) struct ProtectArgs {
    /// The directory [default: the one you are in]
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// End it: the watch, and the hooks unless another directory of yours needs them. Checkpoints stay
    #[arg(long, conflicts_with_all = ["no_hooks", "no_watch"])]
    off: bool,
    /// With --off: delete the checkpoints too, all of them
    #[arg(long, requires = "off")]
    delete_checkpoints: bool,
    /// Do not touch the settings of agents
    #[arg(long)]
    no_hooks: bool,
    /// Do not start the watch that makes a checkpoint every five minutes
    #[arg(long)]
    no_watch: bool,
    #[command(flatten)]
    asked: ChangeArgs,
}

/// A directory that is protected now, or would be.
#[derive(Serialize)]
struct Protected {
    dir: String,
    /// Where its checkpoints are; none in a dry run of a directory that has none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<WorkspaceMade>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<Checkpointed>,
    hooks: Vec<AgentHooks>,
    /// Who watches.
    watched_by: Option<String>,
    dry_run: bool,
}

/// A directory that is not protected any more, or would not be.
#[derive(Serialize)]
struct Unprotected {
    dir: String,
    hooks: Vec<AgentHooks>,
    /// Other directories that the hooks stay for.
    hooks_stay_for: Vec<String>,
    /// Whose watch was ended.
    watch_ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<RemovedWorkspace>,
    dry_run: bool,
}

/// What became of the hooks in one agent's settings.
#[derive(Serialize)]
struct AgentHooks {
    agent: &'static str,
    #[serde(flatten)]
    change: Option<SettingsChange>,
    problem: Option<String>,
}

impl AgentHooks {
    fn of(agent: UsersAgent, change: anyhow::Result<SettingsChange>) -> Self {
        let problem = change.as_ref().err().map(|error| format!("{error:#}"));
        Self {
            agent: agent.name(),
            change: change.ok(),
            problem,
        }
    }

    /// Whether the settings are not what they should be.
    fn is_missing(&self) -> bool {
        let is_open = |change: &SettingsChange| change.changed && !change.written;
        self.problem.is_some() || self.change.as_ref().is_some_and(is_open)
    }

    fn line(&self) -> String {
        match (&self.change, &self.problem) {
            (_, Some(problem)) => format!("  {}: {}", self.agent, printable(problem)),
            (Some(change), None) => {
                let path = printable(&change.path);
                format!("  {}: {} ({path})", self.agent, change.outcome)
            }
            (None, None) => format!("  {}", self.agent),
        }
    }
}

impl ProtectArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let host = context.environment.host_env()?;
        let dir = self.dir.canonicalize();
        let dir = dir.with_context(|| format!("could not open `{}`", self.dir.display()))?;
        if self.off {
            return self.end(context, &host, &dir).await;
        }
        self.begin(context, &host, &dir).await
    }

    async fn begin(self, context: &CliContext, host: &HostEnv, dir: &Path) -> anyhow::Result<Exit> {
        let mut result = Protected {
            dir: dir.display().to_string(),
            workspace: None,
            first: None,
            hooks: Vec::new(),
            watched_by: None,
            dry_run: self.asked.dry_run,
        };
        if !self.asked.dry_run {
            let init = InitWorkspace {
                directory: dir.to_owned(),
                session: None,
                system: None,
                budget: None,
            };
            let made = Workspace::init(init, host).await?;
            for hint in &made.hints {
                context.output.say(&format!("hint: {}", printable(hint)));
            }
            Workspace::find(dir, host).await?.set_hooks(true).await?;
            result.first = first_checkpoint::make(context, dir).await?;
            result.workspace = Some(made);
        }
        if !self.no_hooks {
            let agents = UsersAgent::all(context).into_iter();
            let hooks = agents.map(|one| AgentHooks::of(one, one.install(context, self.asked)));
            result.hooks = hooks.collect();
        }
        if !self.no_watch && !self.asked.dry_run {
            result.watched_by = Some(watch(host, dir).await?);
        }
        context.output.result(&result, protected_text)?;
        let is_missing = result.hooks.iter().any(AgentHooks::is_missing);
        Ok(if is_missing && !self.asked.dry_run {
            Exit::Incomplete
        } else {
            Exit::Done
        })
    }

    async fn end(self, context: &CliContext, host: &HostEnv, dir: &Path) -> anyhow::Result<Exit> {
        let workspace = Workspace::find(dir, host).await?;
        let is_other = |path: &String| Path::new(path) != workspace.directory();
        let others = hooked_workspaces(&host.state).await;
        let others: Vec<String> = others.into_iter().filter(is_other).collect();
        let hooks = if others.is_empty() {
            let agents = UsersAgent::all(context).into_iter();
            let hooks = agents.map(|one| AgentHooks::of(one, one.uninstall(context, self.asked)));
            hooks.collect()
        } else {
            Vec::new()
        };
        let mut result = Unprotected {
            dir: workspace.directory().display().to_string(),
            hooks,
            hooks_stay_for: others,
            watch_ended: None,
            removed: None,
            dry_run: self.asked.dry_run,
        };
        if self.asked.dry_run {
            result.watch_ended = workspace.status().await?.watched_by;
        } else {
            result.watch_ended = workspace.stop_watch().await?;
            workspace.set_hooks(false).await?;
        }
        if self.delete_checkpoints {
            let shown = workspace.status().await?;
            let question = format!(
                "Delete all checkpoints of {} ({} held)? This cannot be undone.",
                printable(&result.dir),
                size(shown.held_bytes)
            );
            let is_meant = self.asked.dry_run
                || self.asked.yes
                || ask::is_interactive(context) && ask::is_yes(&question)?;
            let run = if self.asked.dry_run {
                RunMode::Dry
            } else {
                RunMode::Real
            };
            if is_meant {
                result.removed = Some(workspace.remove(run).await?);
            } else {
                context
                    .output
                    .say("the checkpoints were not deleted: say --yes to delete them");
            }
        }
        context.output.result(&result, unprotected_text)?;
        let is_missing = result.hooks.iter().any(AgentHooks::is_missing);
        let is_declined = self.delete_checkpoints && result.removed.is_none();
        Ok(if (is_missing || is_declined) && !self.asked.dry_run {
            Exit::Incomplete
        } else {
            Exit::Done
        })
    }
}

/// Starts the watch of a workspace, unless somebody watches it already; says who does.
async fn watch(host: &HostEnv, dir: &Path) -> anyhow::Result<String> {
    let workspace = Workspace::find(dir, host).await?;
    let status = workspace.status().await?;
    if let Some(watched_by) = status.watched_by {
        return Ok(watched_by);
    }
    let log = Path::new(&status.session).join(WATCH_LOG);
    let said = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("could not make `{}` for what the watch says", log.display()))?;
    let program = std::env::current_exe().context("could not find the program to watch with")?;
    let mut watch = Command::new(program);
    watch
        .args(["workspace", "watch"])
        .arg(workspace.directory())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(said.try_clone().context("could not open the log twice")?)
        .stderr(said)
        // What the terminal interrupts is not meant for it.
        .process_group(0);
    let mut watch = watch.spawn().context("could not start the watch")?;
    let tries = WATCH_BEGINS.as_millis() / LOOK.as_millis();
    for _ in 0..tries {
        if let Some(watched_by) = workspace.status().await?.watched_by {
            return Ok(watched_by);
        }
        if watch.try_wait().is_ok_and(|ended| ended.is_some()) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let said = said.lines().last().unwrap_or("it said nothing").to_owned();
    anyhow::bail!(
        "the watch did not begin: {}; `stasis workspace watch` says more",
        printable(&said)
    )
}

fn protected_text(result: &Protected) -> String {
    let dir = printable(&result.dir);
    let mut lines = Vec::new();
    match (&result.workspace, result.dry_run) {
        (_, true) => lines.push(format!("{dir} would be protected; nothing was changed")),
        (Some(made), false) if made.existed => lines.push(format!("{dir} is protected")),
        _ => lines.push(format!("{dir} is protected now")),
    }
    if let Some(first) = &result.first {
        let (checkpoint, files) = (&first.checkpoint, plural(first.files_count, "file"));
        lines.push(format!(
            "  first checkpoint: {checkpoint}, {files}, {}",
            size(first.bytes)
        ));
    }
    lines.extend(result.hooks.iter().map(AgentHooks::line));
    if result.hooks.is_empty() && !result.dry_run {
        lines.push("  no hooks: no agent whose settings we know was found; `stasis hook install AGENT` adds them".to_owned());
    }
    if let Some(watched_by) = &result.watched_by {
        let watched_by = printable(watched_by);
        lines.push(format!(
            "  a checkpoint every 5 minutes while something changes ({watched_by}; after a restart of the machine, `stasis protect` again)"
        ));
    }
    if !result.dry_run {
        lines.push(
            "Go back with `stasis rewind` or `stasis restore cp-N`; `stasis log` shows what there is, `stasis protect --off` ends it"
                .to_owned(),
        );
    }
    lines.join("\n")
}

fn unprotected_text(result: &Unprotected) -> String {
    let dir = printable(&result.dir);
    let is = if result.dry_run {
        "would not be"
    } else {
        "is not"
    };
    let mut lines = vec![format!("{dir} {is} protected any more")];
    lines.extend(result.hooks.iter().map(AgentHooks::line));
    if !result.hooks_stay_for.is_empty() {
        let others: Vec<String> = result
            .hooks_stay_for
            .iter()
            .map(|one| printable(one))
            .collect();
        lines.push(format!("  hooks stay, for {}", others.join(", ")));
    }
    if let Some(watch) = &result.watch_ended {
        lines.push(format!("  the watch ended ({})", printable(watch)));
    }
    lines.push(match &result.removed {
        Some(removed) => format!(
            "  {} deleted with everything kept of the directory; the directory itself was not touched",
            plural(removed.checkpoints, "checkpoint")
        ),
        None => "  its checkpoints stay: `stasis log` lists them, `stasis protect --off --delete-checkpoints` deletes them".to_owned(),
    });
    lines.join("\n")
}
