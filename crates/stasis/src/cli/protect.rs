//! `stasis protect`: what an agent's user needs, in one step, and away again

use super::byte_size::size;
use super::hook::{ChangeArgs, SettingsChange, UsersAgent};
use super::output::{plural, printable};
use super::{CliContext, ask, first_checkpoint};
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use rustix::fs::{self as unix, Mode, OFlags};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::address::shell_word;
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::kind::workspace::{
    Checkpointed, HostEnv, InitWorkspace, RemovedWorkspace, RunMode, Workspace, WorkspaceError,
    WorkspaceMade,
};
use stasis_engine::model::failure::Failure;
use stasis_engine::subjects::hooked_workspaces;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a watch has to begin: it looks at every directory first.
const WATCH_BEGINS: Duration = Duration::from_secs(20);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);

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
#[derive(Serialize, JsonSchema)]
pub(super) struct Protected {
    dir: String,
    /// Where its checkpoints are; none in a dry run of a directory that has none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<WorkspaceMade>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<Checkpointed>,
    hooks: Vec<AgentHooks>,
    /// Who watches.
    watched_by: Option<String>,
    /// Why nobody does, though somebody should.
    watch_problem: Option<String>,
    dry_run: bool,
}

/// A directory that is not protected any more, or would not be.
#[derive(Serialize, JsonSchema)]
pub(super) struct Unprotected {
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
#[derive(Serialize, JsonSchema)]
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
            watch_problem: None,
            dry_run: self.asked.dry_run,
        };
        check_not_within(host, dir).await?;
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
            match watch(host, dir).await {
                Ok(watched_by) => result.watched_by = Some(watched_by),
                Err(error) => result.watch_problem = Some(format!("{error:#}")),
            }
        }
        context.output.result(&result, protected_text)?;
        let is_missing =
            result.watch_problem.is_some() || result.hooks.iter().any(AgentHooks::is_missing);
        Ok(if is_missing && !self.asked.dry_run {
            Exit::Incomplete
        } else {
            Exit::Done
        })
    }

    async fn end(self, context: &CliContext, host: &HostEnv, dir: &Path) -> anyhow::Result<Exit> {
        let workspace = Workspace::find(dir, host).await?;
        if workspace.directory() != dir {
            return Err(only_within(&workspace, dir).into());
        }
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
            result.removed = self.delete(context, &workspace).await?;
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

    /// Deletes everything that is kept of a workspace, if that is meant.
    async fn delete(
        &self,
        context: &CliContext,
        workspace: &Workspace,
    ) -> anyhow::Result<Option<RemovedWorkspace>> {
        if self.asked.dry_run {
            return Ok(Some(workspace.remove(RunMode::Dry).await?));
        }
        let shown = workspace.status().await?;
        let question = format!(
            "Delete all checkpoints of {} ({} held)? This cannot be undone.",
            printable(&shown.workspace),
            size(shown.held_bytes)
        );
        if self.asked.yes || ask::is_interactive(context) && ask::is_yes(&question)? {
            return Ok(Some(workspace.remove(RunMode::Real).await?));
        }
        context
            .output
            .say("the checkpoints were not deleted: say --yes to delete them");
        Ok(None)
    }
}

/// Refuses a directory in a workspace that is none itself: two would make checkpoints of the same files.
async fn check_not_within(host: &HostEnv, dir: &Path) -> anyhow::Result<()> {
    let around = match Workspace::find(dir, host).await {
        Err(Error::Workspace(error)) if matches!(*error, WorkspaceError::NotAWorkspace { .. }) => {
            return Ok(());
        }
        found => found?,
    };
    if around.directory() == dir {
        return Ok(());
    }
    let words = format!(
        "`{}` is in the workspace `{}`, whose checkpoints hold it",
        dir.display(),
        around.directory().display()
    );
    let hint = format!(
        "`stasis protect {}` protects all of it; `stasis workspace init {}` makes the directory a workspace of its own all the same",
        word(around.directory()),
        word(dir)
    );
    let failure = Failure::of(ErrorKind::Invalid, words).with_hint(hint);
    Err(Error::from(failure).into())
}

/// A directory that is no workspace, but lies in one, which is not meant.
fn only_within(around: &Workspace, dir: &Path) -> Error {
    let words = format!(
        "`{}` is not a workspace: it is in the workspace `{}`, of which nothing was changed",
        dir.display(),
        around.directory().display()
    );
    let hint = format!(
        "`stasis protect --off {}` ends the protection of that one",
        word(around.directory())
    );
    Failure::of(ErrorKind::NotFound, words)
        .with_hint(hint)
        .into()
}

/// A path as it is typed.
fn word(path: &Path) -> String {
    shell_word(&path.display().to_string()).into_owned()
}

/// Starts the watch of a workspace, unless somebody watches it already; says who does.
async fn watch(host: &HostEnv, dir: &Path) -> anyhow::Result<String> {
    let workspace = Workspace::find(dir, host).await?;
    if let Some(watched_by) = workspace.status().await?.watched_by {
        return Ok(watched_by);
    }
    let log = workspace.watch_log();
    let said = new_log(&log)
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
    let begun = begun(&workspace, &mut watch).await;
    if !matches!(begun, Ok(Some(_))) {
        // One that begins later would be one that nobody was told of. It may have ended by itself.
        let _ = watch.kill();
        let _ = watch.wait();
    }
    if let Some(watched_by) = begun? {
        return Ok(watched_by);
    }
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let said = said.lines().last().unwrap_or("it said nothing").to_owned();
    anyhow::bail!("the watch did not begin: {said}; `stasis workspace watch` says more")
}

/// An empty file that only its owner reads. A link that somebody put there is not followed.
fn new_log(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::TRUNC
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = File::from(unix::open(path, flags, mode)?);
    // One that was there may be readable for others.
    unix::fchmod(&file, mode)?;
    Ok(file)
}

/// Who watches, as soon as somebody does; nobody if the watch ends before, or takes too long.
async fn begun(workspace: &Workspace, watch: &mut Child) -> anyhow::Result<Option<String>> {
    let tries = WATCH_BEGINS.as_millis() / LOOK.as_millis();
    for _ in 0..tries {
        if let Some(watched_by) = workspace.status().await?.watched_by {
            return Ok(Some(watched_by));
        }
        if watch.try_wait().is_ok_and(|ended| ended.is_some()) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
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
    if let Some(problem) = &result.watch_problem {
        let problem = printable(problem);
        lines.push(format!("  no checkpoint every 5 minutes: {problem}"));
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
        Some(removed) => removed_text(removed),
        None => "  its checkpoints stay: `stasis log` lists them, `stasis protect --off --delete-checkpoints` deletes them".to_owned(),
    });
    lines.join("\n")
}

fn removed_text(removed: &RemovedWorkspace) -> String {
    let checkpoints = plural(removed.checkpoints, "checkpoint");
    let (would_be, was) = if removed.dry_run {
        (" would be", "would not be")
    } else {
        ("", "was not")
    };
    let text = format!(
        "  {checkpoints}{would_be} deleted with everything kept of the directory; the directory itself {was} touched"
    );
    if removed.left.is_empty() {
        return text;
    }
    let left: Vec<String> = removed.left.iter().map(|one| printable(one)).collect();
    let left = left.join(", ");
    format!("{text}\n  not deleted, because it is not ours alone: {left}")
}
