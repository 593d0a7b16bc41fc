//! The command line: one file per noun.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are the help that people read"
)]
#![allow(
    rustdoc::invalid_html_tags,
    rustdoc::bare_urls,
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the help that people read"
)]

mod answers;
mod archive;
mod ask;
pub(crate) mod byte_size;
mod change;
mod claim;
mod clone;
mod collected;
pub(crate) mod color;
mod completions;
mod container;
mod copy;
mod damage;
mod demo;
mod directory;
mod doctor;
mod duration;
pub(crate) mod envelope;
mod events;
mod everyday;
mod first_checkpoint;
mod help;
mod hold;
mod hook;
mod internal;
mod jobs;
mod keep;
mod key;
mod lease;
mod man;
mod mcp;
mod mount;
mod operation;
pub(crate) mod output;
mod plan;
mod profile;
mod progress;
mod project;
mod proof;
mod protect;
mod reference;
mod repo;
mod schema;
mod serve;
mod session;
mod store;
mod subjects;
pub(crate) mod suggestion;
mod tenant;
mod token;
mod usage;
mod wait;
mod whole_machine;
mod workspace;

use crate::config::{self, Config};
use crate::env::Environment;
use crate::profile_settings::ProfileSetting;
use crate::report::{self, Exit};
use crate::system::{SystemClock, SystemRng};
use anyhow::Context as _;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use color::ColorArg;
use output::{Output, Verbosity};
use stasis_engine::bridge;
use stasis_engine::model::id::Label;
use stasis_engine::model::time::Clock as _;
use stasis_engine::open::{Engine, Open, StoreLocation};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use suggestion::GivenOptions;
use tracing_subscriber::EnvFilter;

/// What this build is: `0.1.0 (0123456789ab 2026-11-17)`, without the commit where nobody knows it.
const VERSION: &str = env!("STASIS_VERSION");
const LONG_VERSION: &str = concat!(
    env!("STASIS_VERSION"),
    "\nfeatures: ",
    env!("STASIS_FEATURES"),
    "\ntarget: ",
    env!("STASIS_TARGET")
);

/// Saves, restores, rewinds and forks what an AI agent's computer holds.
#[derive(Debug, Parser)]
#[command(name = "stasis", version = VERSION, long_version = LONG_VERSION, max_term_width = 100)]
struct Cli {
    /// The store: a directory (/path, ./path) or a URL (file:///path, memory:, s3://bucket/prefix?endpoint=URL&region=NAME)
    /// [default: $STASIS_STORE, then `store` in the configuration file, then a directory under $XDG_DATA_HOME]
    #[arg(long, global = true, value_name = "PATH|URL")]
    store: Option<String>,
    /// Print results, and errors, as JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    /// Print errors and data only: no warnings, no progress
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Say on standard error what is being done
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorArg,
    /// Read this configuration file [default: $XDG_CONFIG_HOME/stasis/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Log format on stderr (level: $STASIS_LOG)
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(flatten)]
    keys: key::KeyArgs,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Browser profiles: run, save, load, verify, and administer
    Profile(Box<profile::ProfileArgs>),
    /// The same as `profile`, as its contract spells it
    #[command(hide = true, subcommand)]
    ProfileSnapshots(profile::ProfileSnapshotsCommand),
    /// Save a directory; what is in it is not touched
    #[command(visible_alias = "backup")]
    Save(everyday::SaveArgs),
    /// Restore a directory to a snapshot (the current state is saved first)
    #[command(visible_alias = "checkout")]
    Restore(everyday::RestoreArgs),
    /// Undo the last restore, rewind, revert or undo of a directory
    Undo(everyday::UndoArgs),
    /// Show what happened to a directory: snapshots in the store, checkpoints here, and what can be undone
    Log(everyday::LogArgs),
    /// Show what differs between two snapshots of a directory, or between one and what is there now
    Diff(everyday::DiffArgs),
    /// Show all metadata of a snapshot
    Show(everyday::ShowArgs),
    /// List what is in a snapshot
    Ls(everyday::LsArgs),
    /// Write the content of one file of a snapshot to standard output
    Cat(everyday::CatArgs),
    /// Find a name or a pattern in all snapshots of a directory
    Find(everyday::FindArgs),
    /// Show what each snapshot takes of the store, and what would be free without it
    Du(everyday::DuArgs),
    /// Check that all snapshots and checkpoints of a directory can be restored
    ///
    /// Exits with 9 when something is damaged, and says what helps.
    Check(everyday::CheckArgs),
    /// Show snapshots as a read-only filesystem, until interrupted
    ///
    /// A subject has latest, by-time, by-id, by-name, pinned and, if it is a workspace, checkpoints. Nothing is written, and content is read
    /// when it is asked for. Whoever is not root needs fusermount3 (Debian's package fuse3).
    Mount(mount::MountArgs),
    /// Keep a snapshot whatever the policy says
    Pin(everyday::PinArgs),
    /// Forget a snapshot; the next gc frees its bytes
    Forget(everyday::ForgetArgs),
    /// Delete snapshots beyond the retention policy and reclaim space
    #[command(visible_alias = "prune")]
    Gc(everyday::GcArgs),
    /// List everything that is saved in the store, where it lies on this machine, and this machine's workspaces
    ///
    /// Exits with 9 when the documents of a subject are damaged: it is listed all the same, and what is wrong is said after the table.
    List(subjects::ListArgs),
    /// Make a directory of this machine a subject that is in the store already
    Link(subjects::LinkArgs),
    /// Copy a subject with all its snapshots into another store, or all of them; run again, it goes on
    ///
    /// Snapshots get other ids there. What is copied is checked on the way. A subject that was saved into there since is left alone;
    /// the first such save of a directory warns of it.
    Copy(copy::CopyArgs),
    /// Make damaged or lost documents of a subject anew, from its snapshots
    ///
    /// The damaged bytes are kept in the store. Pins, later labels and tombstones that only a lost index knew are gone.
    /// Exits with 9, and says what helps, when something is wrong that no new document helps against.
    Repair(subjects::RepairArgs),
    /// Applications with their databases: save, restore, duplicate, upgrade
    Project(Box<project::ProjectArgs>),
    /// Checkpoints of a working tree: see what changed, go back, undo, fork
    Workspace(Box<workspace::WorkspaceArgs>),
    /// Protect a directory while agents work in it: a checkpoint now, before every prompt and command, and every five minutes
    ///
    /// Makes it a workspace with a first checkpoint, adds our hooks to the settings of the coding agents that it finds (shows the change first, and asks),
    /// and starts a watch in the background. Run again, it does what is missing.
    Protect(Box<protect::ProtectArgs>),
    /// Go back to before the last prompt of a coding agent: the whole workspace, with an undo
    Rewind(Box<workspace::RewindArgs>),
    /// Fork a workspace: directories to try things in, to compare, and one of them to promote
    Fork(Box<workspace::ForkArgs>),
    /// The same as `log`; with a command the same as `workspace`, as its contract spells it
    #[command(hide = true)]
    Snapshots(Box<workspace::SnapshotsArgs>),
    /// Containers of a Docker engine: snapshots of them with their volumes
    Container(container::ContainerArgs),
    /// Sessions of agents: put to sleep when nobody uses them, woken where they left off
    Session(Box<session::SessionArgs>),
    /// Leases of profiles: acquire, renew, release, hold, and administer
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Probe a store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Find out what became of an operation whose outcome was unknown
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    /// Settings of a tenant
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Make and rotate the keys of tenants
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Make, list and revoke the tokens with which the service is asked
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Save directories into a repository of chunks, and get them back
    Repo(repo::RepoArgs),
    /// Keep a directory in one file: a .tar.zst that any tar reads, in frames, with an index
    #[command(subcommand)]
    Archive(Box<archive::ArchiveCommand>),
    /// Clone a directory so that both share their bytes
    Clone(clone::CloneArgs),
    /// Let coding agents make a checkpoint before every prompt and shell command
    #[command(subcommand)]
    Hook(hook::AgentHookCommand),
    /// Serve a workspace's checkpoints to agents, over the Model Context Protocol
    Mcp(mcp::McpArgs),
    /// Serve the store over HTTP to whoever has a token: snapshots of profiles, subjects, events
    Serve(serve::ServeArgs),
    /// Show a directory on a page: its timeline, what each prompt changed, and the way back
    ///
    /// The address that it prints has a token in it, which ends with the command: open it in a browser on this machine.
    Ui(everyday::UiArgs),
    /// Show what servers do without being asked: when each job ran last, what it said, when it is due
    Jobs,
    /// Show the audit log
    Events(events::EventsArgs),
    /// Check this machine's setup
    Doctor,
    /// See it work: an agent destroys a shop, and everything comes back
    ///
    /// Real files and the real engine, in a temporary directory of its own; nothing of yours is touched. Every number is counted or measured, and
    /// everything that is claimed is read back: exits with 1 if a claim does not hold.
    Demo(demo::DemoArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// Print the man page of a command, or write all of them to a directory
    Man(man::ManArgs),
    /// Print the JSON Schema of what a command prints with --json, or of all
    Schema(schema::SchemaArgs),
    /// Options that every command takes
    #[command(hide = true)]
    Options,
    /// Print the reference of all commands as Markdown
    #[command(hide = true)]
    Reference,
    /// What this program asks of itself in another process
    #[command(hide = true, subcommand)]
    Internal(internal::InternalCommand),
}

/// Everything a command may use.
struct CliContext {
    environment: Environment,
    config: Config,
    store: Option<String>,
    keys: key::KeyArgs,
    output: Output,
}

impl CliContext {
    fn location(&self) -> anyhow::Result<StoreLocation> {
        config::store(self.store.as_deref(), &self.environment, &self.config)
    }

    /// Whether nobody named a store: neither a flag, nor a variable, nor the configuration.
    fn is_usual_store(&self) -> bool {
        let named = [&self.store, &self.environment.store, &self.config.store];
        named.iter().all(|one| one.is_none())
    }

    /// The store as it is; one that is not there is an error, not an empty one.
    async fn engine(&self) -> anyhow::Result<Engine> {
        self.engine_at(self.location()?, false).await
    }

    /// The store, made if it is a directory that is not there yet.
    async fn writable_engine(&self) -> anyhow::Result<Engine> {
        self.engine_at(self.location()?, true).await
    }

    /// A store of this process alone, which leaves nothing behind.
    async fn engine_in_memory(&self) -> anyhow::Result<Engine> {
        self.engine_at(StoreLocation::Memory, true).await
    }

    /// The repository that `--repo` names, else the store.
    async fn repo_engine(&self, repo: Option<&str>, create: bool) -> anyhow::Result<Engine> {
        let location = match repo {
            Some(repo) => config::store_named(repo)?,
            None => self.location()?,
        };
        Ok(self.engine_at(location, create).await?.at_root().await?)
    }

    async fn engine_at(&self, location: StoreLocation, create: bool) -> anyhow::Result<Engine> {
        self.output.detail(&format!("store: {location}"));
        let open = self.open(location, create);
        let engine = Engine::open(open, system_clock(), system_rng()).await?;
        Ok(self.keys.give(engine))
    }

    /// What a flag says, else a variable, else the configuration file.
    fn profile_setting<T>(
        &self,
        setting: ProfileSetting,
        flag: Option<T>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<Option<T>> {
        let (variables, file) = (&self.environment.profile, &self.config.profile);
        setting.or(flag, variables, file, parse)
    }

    /// What this host is called: as somebody says, else as the configuration says, else as it calls itself.
    fn host(&self, said: Option<&Label>) -> anyhow::Result<Label> {
        match (said, &self.config.host) {
            (Some(host), _) => Ok(host.clone()),
            (None, Some(host)) => host.parse().context("`host` in the configuration file"),
            (None, None) => Ok(rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .parse()?),
        }
    }

    /// Where large bytes wait on their way to a bucket or from one: beside the caches, else where temporary files go.
    fn spool(&self) -> anyhow::Result<PathBuf> {
        let spool = match &self.environment.local_dirs.cache {
            Some(cache) => cache.join("spool"),
            None => std::env::temp_dir(),
        };
        std::fs::create_dir_all(&spool)
            .with_context(|| format!("could not make the directory `{}`", spool.display()))?;
        Ok(spool)
    }

    fn open(&self, location: StoreLocation, create: bool) -> Open {
        let (aws, local_dirs) = (
            self.environment.aws.clone(),
            self.environment.local_dirs.clone(),
        );
        Open {
            location,
            create,
            aws,
            local_dirs,
        }
    }
}

fn system_clock() -> Arc<SystemClock> {
    Arc::new(SystemClock)
}

fn system_rng() -> Arc<SystemRng> {
    Arc::new(SystemRng)
}

/// Runs the command that the arguments name.
pub(crate) fn main() -> ExitCode {
    let (cli, command) = match parsed() {
        Ok(parsed) => parsed,
        // An agent takes our exit code for mistakes as a veto.
        Err(error) if error.use_stderr() && hook::is_asked_to_run(std::env::args_os()) => {
            return hook::undisturbed(|| Err(error.into()));
        }
        Err(error) => return mistaken(&pointed(error)),
    };
    if matches!(
        cli.command,
        CliCommand::Hook(hook::AgentHookCommand::Run(_))
    ) {
        return hook::undisturbed(|| start(cli, command));
    }
    let as_json = cli.json;
    match start(cli, command) {
        Ok(code) => code,
        Err(error) => report::print(&error, as_json).into(),
    }
}

/// What was typed, and the name of the command.
fn parsed() -> Result<(Cli, &'static str), clap::Error> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let color = color::of_help(arguments.iter().map(AsRef::as_ref));
    let mut program = help::program().color(color);
    let mut matches = program.try_get_matches_from_mut(arguments)?;
    let (mut words, mut within) = (Vec::new(), &matches);
    while let Some((word, inner)) = within.subcommand() {
        words.push(word);
        within = inner;
    }
    // Once for each process.
    let command = Box::leak(command_name(&words).into_boxed_str());
    envelope::about_typed(&words, within);
    let cli = Cli::from_arg_matches_mut(&mut matches);
    Ok((cli.map_err(|error| error.format(&mut program))?, command))
}

/// The name of a command as schemas have it: `workspace.list`. What is another spelling of a command has the name of that one.
fn command_name(words: &[&str]) -> String {
    let mut words = words.to_vec();
    match &*words {
        ["snapshots"] => words[0] = "log",
        ["snapshots", ..] => words[0] = "workspace",
        ["profile-snapshots", ..] => words[0] = "profile",
        _ => {}
    }
    words.join(".")
}

/// A command that exists only beneath others is pointed to: `stasis changes` is `stasis workspace changes`.
fn pointed(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    // What was typed beneath a noun has that noun's own usage, and is not looked for elsewhere.
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    if !usage.is_some_and(|usage| usage.contains("stasis [OPTIONS]")) {
        return error;
    }
    if let Some(tip) = other_tools_word(typed) {
        error.remove(ContextKind::SuggestedSubcommand);
        let tips = vec![StyledStr::from(tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        return error;
    }
    let program = Cli::command();
    let nouns = program.get_subcommands().filter(|noun| !noun.is_hide_set());
    let found = nouns.filter_map(|noun| {
        let verb = noun
            .find_subcommand(typed)
            .filter(|one| !one.is_hide_set())?;
        let about = verb
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        Some(format!("`stasis {} {typed}`: {about}", noun.get_name()).into())
    });
    let found: Vec<StyledStr> = found.collect();
    if !found.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(found));
    }
    error
}

/// The command for a word that another tool has for it.
fn other_tools_word(typed: &str) -> Option<&'static str> {
    Some(match typed {
        "snapshot" | "commit" | "create" | "checkpoint" | "stash" => {
            "`stasis save` saves the directory you are in"
        }
        "delete" | "remove" | "rm" | "drop" => {
            "`stasis forget SNAPSHOT` deletes a snapshot; `stasis log` lists them"
        }
        "rollback" | "reset" => {
            "`stasis restore SNAPSHOT` goes back; `stasis undo` takes that back"
        }
        "revert" => "`stasis restore --path FILE` restores one file",
        "history" => "`stasis log` lists snapshots, `stasis find NAME` versions of a file",
        "status" | "changes" => "`stasis diff` shows what changed since the newest snapshot",
        "init" | "watch" => "`stasis protect` makes checkpoints of the directory you are in",
        "verify" | "fsck" => "`stasis check` checks that all snapshots can be restored",
        _ => return None,
    })
}

/// Help goes where it always goes; a mistake is told as JSON to whoever asked for JSON.
fn mistaken(error: &clap::Error) -> ExitCode {
    let asked_for_json = std::env::args()
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json");
    if !error.use_stderr() || !asked_for_json {
        error.exit();
    }
    report::print(&usage::error(error).into(), true).into()
}

fn start(cli: Cli, command: &'static str) -> anyhow::Result<ExitCode> {
    if let CliCommand::Internal(internal) = cli.command {
        return internal.run();
    }
    given_options(&cli).remember();
    let environment = Environment::read();
    color::decide(cli.color, &environment);
    let config = Config::read(cli.config.as_deref(), &environment)?;
    let filter = environment
        .log
        .clone()
        .or_else(|| config.log.clone())
        .unwrap_or_else(|| log_filter(verbosity(&cli)).to_owned());
    start_log(cli.log_format, &filter)?;
    let output = Output {
        as_json: cli.json,
        verbosity: verbosity(&cli),
        command,
    };
    let context = CliContext {
        keys: cli.keys.or(&environment, &config),
        environment,
        config,
        store: cli.store,
        output,
    };
    let (clock, started) = (system_clock(), system_clock().uptime());
    let ended = bridge::run(run(cli.command, context))?;
    let took = clock.uptime().saturating_sub(started);
    output.detail(&format!("took {} ms", took.as_millis()));
    ended
}

fn verbosity(cli: &Cli) -> Verbosity {
    match (cli.quiet, cli.verbose) {
        (true, _) => Verbosity::Quiet,
        (false, false) => Verbosity::Normal,
        (false, true) => Verbosity::Verbose,
    }
}

/// Which log events are shown when nobody says it.
fn log_filter(verbosity: Verbosity) -> &'static str {
    match verbosity {
        Verbosity::Quiet => "error",
        Verbosity::Normal => "warn",
        Verbosity::Verbose => "info",
    }
}

fn given_options(cli: &Cli) -> GivenOptions {
    let mut given = GivenOptions::default();
    let repo = match &cli.command {
        CliCommand::Repo(repo) => repo.named(),
        _ => None,
    };
    given.add("--store", repo.or(cli.store.as_deref()));
    given.add_path("--config", cli.config.as_deref());
    cli.keys.give_again(&mut given);
    given
}

async fn run(command: CliCommand, context: CliContext) -> anyhow::Result<ExitCode> {
    let exit: Exit = match command {
        CliCommand::Profile(profile) => return profile.run(&context).await,
        CliCommand::ProfileSnapshots(snapshots) => return snapshots.run(&context).await,
        CliCommand::Lease(lease) => return lease.run(&context).await,
        CliCommand::Container(container) => container.run(&context).await?,
        CliCommand::Session(session) => return session.run(&context).await,
        CliCommand::Save(save) => Box::pin(save.run(&context)).await?,
        CliCommand::Restore(restore) => Box::pin(restore.run(&context)).await?,
        CliCommand::Undo(undo) => Box::pin(undo.run(&context)).await?,
        CliCommand::Log(log) => Box::pin(log.run(&context)).await?,
        CliCommand::Diff(diff) => Box::pin(diff.run(&context)).await?,
        CliCommand::Show(show) => show.run(&context).await?,
        CliCommand::Ls(ls) => ls.run(&context).await?,
        CliCommand::Cat(cat) => cat.run(&context).await?,
        CliCommand::Find(find) => Box::pin(find.run(&context)).await?,
        CliCommand::Du(du) => du.run(&context).await?,
        CliCommand::Check(check) => Box::pin(check.run(&context)).await?,
        CliCommand::Mount(mount) => Box::pin(mount.run(&context)).await?,
        CliCommand::Pin(pin) => pin.run(&context).await?,
        CliCommand::Forget(forget) => forget.run(&context).await?,
        CliCommand::Gc(gc) => Box::pin(gc.run(&context)).await?,
        CliCommand::List(list) => Box::pin(list.run(&context)).await?,
        CliCommand::Link(link) => Box::pin(link.run(&context)).await?,
        CliCommand::Copy(copy) => Box::pin(copy.run(&context)).await?,
        CliCommand::Repair(repair) => Box::pin(repair.run(&context)).await?,
        CliCommand::Project(project) => Box::pin(project.run(&context)).await?,
        CliCommand::Workspace(workspace) => Box::pin(workspace.run(&context)).await?,
        CliCommand::Protect(protect) => Box::pin(protect.run(&context)).await?,
        CliCommand::Rewind(rewind) => rewind.run(&context).await?,
        CliCommand::Fork(fork) => Box::pin(fork.run(&context)).await?,
        CliCommand::Snapshots(snapshots) => Box::pin(snapshots.run(&context)).await?,
        CliCommand::Store(store) => store.run(&context).await?,
        CliCommand::Operation(operation) => operation.run(&context).await?,
        CliCommand::Tenant(tenant) => tenant.run(&context).await?,
        CliCommand::Key(key) => key.run(&context).await?,
        CliCommand::Token(token) => token.run(&context).await?,
        CliCommand::Repo(repo) => repo.run(&context).await?,
        CliCommand::Archive(archive) => archive.run(&context).await?,
        CliCommand::Clone(clone) => clone.run(&context).await?,
        CliCommand::Hook(hook) => hook.run(&context).await?,
        CliCommand::Mcp(mcp) => Box::pin(mcp.run(&context)).await?,
        CliCommand::Serve(serve) => Box::pin(serve.run(&context)).await?,
        CliCommand::Ui(ui) => Box::pin(ui.run(&context)).await?,
        CliCommand::Jobs => jobs::run(&context).await?,
        CliCommand::Events(events) => events.run(&context).await?,
        CliCommand::Doctor => doctor::run(&context).await?,
        CliCommand::Demo(demo) => demo.run(&context).await?,
        CliCommand::Completions(completions) => completions.run()?,
        CliCommand::Man(man) => man.run(&context)?,
        CliCommand::Schema(schema) => schema.run()?,
        CliCommand::Options => {
            help::print_options().map_err(output::OutputLost)?;
            Exit::Done
        }
        CliCommand::Reference => reference::run()?,
        CliCommand::Internal(internal) => return internal.run(),
    };
    Ok(exit.into())
}

fn start_log(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .context("STASIS_LOG, or `log` in the configuration file, is not a filter")?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
