//! `stasis session …`

mod args;
mod text;

use super::CliContext;
use super::ask;
use super::duration;
use super::hold::{signals, start_failure};
use super::progress::{cancel_on_signals, watched};
use crate::report::Exit;
use anyhow::{Context as _, ensure};
use args::{
    FreezeArgs, LeaseArgs, NamedSessions, SandboxArgs, SleepArgs, SnapshotArgs, WorkspaceArgs,
};
use clap::{Args, Subcommand};
use stasis_engine::kind::container::Docker;
use stasis_engine::kind::session::{
    ForkSession, ReapSessions, ReapedSessions, RunSession, SessionHost, SessionSlept, SleepSession,
    SleptState, SnapshotSession, WakeSession,
};
use stasis_engine::model::id::{Label, SessionRef, TenantId};
use stasis_engine::open::Engine;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct SessionArgs {
    /// What this host is called [default: `host` in the configuration file, then the host name]
    #[arg(long, global = true, value_name = "NAME")]
    host: Option<Label>,
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    /// Register a session that runs from now on, or tell anew what runs it
    Register(RegisterArgs),
    /// Say that a session is in use
    ///
    /// Exits with 4 when it sleeps, or is just being put to sleep: wake it then.
    Heartbeat {
        /// <tenant>/<session>
        session: SessionRef,
    },
    /// List sessions, and where they stand
    #[command(visible_alias = "status")]
    List {
        /// Only those of this tenant, or this one
        #[arg(value_name = "TENANT[/SESSION]")]
        which: Option<NamedSessions>,
    },
    /// Show everything that is known of a session, and whether its sandbox answers
    Show {
        /// <tenant>/<session>
        session: SessionRef,
    },
    /// Save a session; its sandbox goes on
    Snapshot {
        /// <tenant>/<session>
        session: SessionRef,
        #[command(flatten)]
        how: SnapshotArgs,
        #[command(flatten)]
        freeze: FreezeArgs,
    },
    /// Save a session and end its sandbox, whether it is in use or not
    ///
    /// Where the sandbox holds other sessions that are awake, it goes on for them, and so does the session: it is only saved (exit code 4),
    /// unless --with-others puts them all to sleep. Exits with 1 if the session was not saved: then its
    /// sandbox goes on.
    Sleep {
        /// <tenant>/<session>
        session: SessionRef,
        /// Put the other sessions of its sandbox to sleep, too
        #[arg(long)]
        with_others: bool,
        #[command(flatten)]
        how: SleepArgs,
    },
    /// Bring a session back where it left off, and start its sandbox
    Wake(WakeArgs),
    /// Put every session to sleep that nobody uses
    ///
    /// Of each sandbox all sessions, once all are idle. One run at a time, on whatever host; exits with 4 while another runs, and with 1 when
    /// something could not be saved or ended.
    Reap(ReapArgs),
    /// Begin a session with the snapshot of another
    Fork {
        /// Which one: <tenant>/<session>
        source: SessionRef,
        /// What the new one is called: <tenant>/<session>, of the same tenant
        session: SessionRef,
    },
    /// Write the snapshot of a session as a .tar.gz
    ///
    /// The file must end in .tar.gz or .tgz, and its directory be there.
    Export {
        /// <tenant>/<session>
        session: SessionRef,
        /// The file
        #[arg(value_name = "FILE")]
        target: PathBuf,
    },
    /// Delete a session with its snapshot; its sandbox and its workspace stay
    Delete {
        /// <tenant>/<session>
        session: SessionRef,
        /// Really do it
        #[arg(long)]
        confirm: bool,
    },
    /// Delete the snapshot of a session; what runs goes on
    DeleteSnapshot {
        /// <tenant>/<session>
        session: SessionRef,
        /// Really do it
        #[arg(long)]
        confirm: bool,
    },
    /// Wake or begin a session, run a command in it, save it and put it to sleep
    ///
    /// Exits with the command's code, or with 100 + ours when ours is not 0. The command runs in the workspace and finds STASIS_TENANT,
    /// STASIS_SESSION and STASIS_SESSION_DIR in its environment.
    Run(RunArgs),
}

#[derive(Debug, Args)]
struct RegisterArgs {
    /// <tenant>/<session>
    session: SessionRef,
    /// Its workspace
    #[arg(long)]
    dir: PathBuf,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

#[derive(Debug, Args)]
struct WakeArgs {
    /// <tenant>/<session>
    session: SessionRef,
    /// Where its workspace shall lie [default: where it lay]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Who shall own it, as numbers
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<(u32, u32)>,
    /// Wake it here although it runs on another host, which is gone: what was done there since its last snapshot is lost
    #[arg(long)]
    take_over: bool,
    /// Go where the store says that it lay, and run its commands, though nobody typed them on this host
    #[arg(long, alias = "trust-store")]
    trust_commands: bool,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let (user, group) = text.split_once(':').ok_or("write it as UID:GID")?;
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
    Ok((number(user)?, number(group)?))
}

#[derive(Debug, Args)]
struct ReapArgs {
    /// Only sessions of this tenant
    tenant: Option<TenantId>,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Also sessions of other hosts: their workspaces lie under the same names here
    #[arg(long)]
    any_host: bool,
    /// Save running sessions too, whose last snapshot is so old, such as 15m
    #[arg(long, value_name = "TIME", value_parser = duration::positive)]
    background_snapshots: Option<Duration>,
    #[command(flatten)]
    freeze: FreezeArgs,
    #[command(flatten)]
    how: SleepArgs,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// <tenant>/<session>
    session: SessionRef,
    /// Its workspace [default: where it lay; of a new one the current directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    how: SleepArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl SessionArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<ExitCode> {
        let host = host(context, self.host.as_ref())?;
        let exit = match self.command {
            SessionCommand::Run(run) => return run.run(context, &host).await,
            command => Box::pin(command.run(context, &host)).await?,
        };
        Ok(exit.into())
    }
}

impl SessionCommand {
    async fn run(self, context: &CliContext, host: &SessionHost) -> anyhow::Result<Exit> {
        let engine = match &self {
            Self::Register(_) => context.writable_engine().await?,
            _ => context.engine().await?,
        };
        match self {
            Self::Register(register) => register.run(context, &engine, host).await,
            Self::Wake(wake) => wake.run(context, &engine, host).await,
            Self::Reap(reap) => reap.run(context, &engine, host).await,
            Self::Snapshot {
                session,
                how,
                freeze,
            } => {
                let how = SnapshotSession {
                    freeze: freeze.longest(),
                    ..how.how()?
                };
                let work = engine.sessions().snapshot(host, &session, &how);
                let progress = how.progress.clone();
                let saved = watched(context.output, "saving", progress, Box::pin(work)).await?;
                context.output.warn(&saved.warnings);
                context.output.result(&saved, text::captured)?;
                Ok(Exit::Done)
            }
            Self::Sleep {
                session,
                with_others,
                how,
            } => {
                let how = SleepSession {
                    with_others,
                    ..how.how()?
                };
                let work = engine.sessions().sleep(host, &session, &how);
                let progress = how.snapshot.progress.clone();
                let slept = watched(context.output, "saving", progress, Box::pin(work)).await?;
                context.output.result(&slept, text::slept)?;
                Ok(exit_of(&slept))
            }
            other => other.run_small(context, &engine, host).await,
        }
    }

    /// What only reads or writes documents.
    async fn run_small(
        self,
        context: &CliContext,
        engine: &Engine,
        host: &SessionHost,
    ) -> anyhow::Result<Exit> {
        let (sessions, output) = (engine.sessions(), context.output);
        match self {
            Self::Heartbeat { session } => {
                let beaten = sessions.heartbeat(host, &session).await?;
                output.result(&beaten, text::beaten)?;
            }
            Self::List { which } => return list(context, engine, which).await,
            Self::Show { session } => {
                let shown = sessions.show(host, &session).await?;
                output.result(&shown, text::shown)?;
            }
            Self::Fork { source, session } => {
                ensure!(
                    source.tenant == session.tenant,
                    "a fork has the tenant of what it is forked from"
                );
                let command = ForkSession { source, session };
                let forked = Box::pin(sessions.fork(&command)).await?;
                output.result(&forked, text::forked)?;
            }
            Self::Export { session, target } => {
                let exported = Box::pin(sessions.export(&session, &target)).await?;
                output.result(&exported, text::exported)?;
            }
            Self::Delete { session, confirm } => {
                ensure!(
                    confirm,
                    "this deletes the session and its snapshot; to do it, type `stasis session delete {session} --confirm`"
                );
                let deleted = sessions.delete(&session).await?;
                output.result(&deleted, text::deleted)?;
            }
            Self::DeleteSnapshot { session, confirm } => {
                ensure!(
                    confirm,
                    "this deletes the snapshot of the session; to do it, type `stasis session delete-snapshot {session} --confirm`"
                );
                let deleted = sessions.delete_snapshot(&session).await?;
                output.result(&deleted, text::snapshot_deleted)?;
            }
            _ => unreachable!("the other commands are run above"),
        }
        Ok(Exit::Done)
    }
}

impl RegisterArgs {
    async fn run(
        self,
        context: &CliContext,
        engine: &Engine,
        host: &SessionHost,
    ) -> anyhow::Result<Exit> {
        let sandbox = self.sandbox.request(&self.session)?;
        let new = self
            .workspace
            .registration(self.session, self.dir, sandbox)?;
        let registered = engine.sessions().register(host, new).await?;
        context.output.result(&registered, text::registered)?;
        Ok(Exit::Done)
    }
}

impl WakeArgs {
    async fn run(
        self,
        context: &CliContext,
        engine: &Engine,
        host: &SessionHost,
    ) -> anyhow::Result<Exit> {
        let sandbox = self.sandbox.request(&self.session)?;
        let command = WakeSession {
            dir: self.dir,
            owner: self.owner,
            sandbox,
            take_over: self.take_over,
            trust_commands: self.trust_commands,
            lease_ttl: self.lease.ttl(),
            cancel: cancel_on_signals()?,
            ..WakeSession::new(self.session)
        };
        let work = engine.sessions().wake(host, &command);
        let progress = command.progress.clone();
        let woken = watched(context.output, "restoring", progress, Box::pin(work)).await?;
        let (dir, shown) = (PathBuf::from(&woken.dir), &woken.session);
        let awake = text::Awake {
            // It is awake, whatever becomes of the look.
            shown: engine.sessions().show(host, shown).await.ok(),
            has_entries: std::fs::read_dir(dir).is_ok_and(|mut all| all.next().is_some()),
        };
        let text = |woken: &_| text::woken(woken, &awake);
        context.output.result(&woken, text)?;
        Ok(Exit::Done)
    }
}

impl ReapArgs {
    async fn run(
        self,
        context: &CliContext,
        engine: &Engine,
        host: &SessionHost,
    ) -> anyhow::Result<Exit> {
        let command = ReapSessions {
            tenant: self.tenant,
            dry_run: self.dry_run,
            any_host: self.any_host,
            how: self.how.how()?,
            background: self.background_snapshots,
            freeze: self.freeze.longest(),
        };
        let work = engine.sessions().reap(host, &command);
        let progress = command.how.snapshot.progress.clone();
        let reaped = watched(context.output, "saving", progress, Box::pin(work)).await?;
        let near = match &command.tenant {
            Some(tenant) if reaped.scanned == 0 => engine.sessions().near_tenants(tenant).await,
            _ => Vec::new(),
        };
        let text = |reaped: &ReapedSessions| match &command.tenant {
            Some(tenant) if reaped.scanned == 0 => text::none(Some(tenant), &near),
            _ => text::reaped(reaped, command.dry_run),
        };
        context.output.result(&reaped, text)?;
        Ok(if reaped.has_trouble() {
            Exit::Failed
        } else {
            Exit::Done
        })
    }
}

impl RunArgs {
    async fn run(self, context: &CliContext, host: &SessionHost) -> anyhow::Result<ExitCode> {
        match Box::pin(self.run_whole(context, host)).await {
            Ok(code) => Ok(ExitCode::from(code)),
            Err(error) => {
                let exit = crate::report::print(&error, context.output.as_json);
                Ok(ExitCode::from(start_failure(&error).unwrap_or(
                    match exit {
                        Exit::Cancelled => Exit::Cancelled as u8,
                        exit => 100 + exit as u8,
                    },
                )))
            }
        }
    }

    async fn run_whole(self, context: &CliContext, host: &SessionHost) -> anyhow::Result<u8> {
        let engine = context.writable_engine().await?;
        let here = std::env::current_dir().context("the current directory is gone")?;
        let dir = self.dir.clone();
        let register =
            self.workspace
                .registration(self.session.clone(), dir.clone().unwrap_or(here), None)?;
        let run = RunSession {
            wake: WakeSession {
                dir,
                ..WakeSession::new(self.session)
            },
            register,
            // Signals are the command's: what it has done is saved.
            sleep: SleepSession {
                snapshot: SnapshotSession {
                    cancel: Arc::default(),
                    ..self.how.snapshot.how()?
                },
                trust_commands: self.how.trust_commands,
                with_others: false,
                lease_ttl: self.how.lease.ttl(),
            },
            command: self.command,
            signals: signals()?,
        };
        let ran = engine.sessions().run(host, run).await?;
        // On one line, because the command's own output stands before it.
        context.output.result_line(&ran, |_| String::new())?;
        if !context.output.as_json {
            context.output.say(text::slept(&ran.slept).trim_end());
        }
        let code = u8::try_from(ran.exit_code).unwrap_or(1);
        Ok(match exit_of(&ran.slept) {
            Exit::Done => code,
            exit => 100 + exit as u8,
        })
    }
}

/// Lists all sessions, those of a tenant, or one.
async fn list(
    context: &CliContext,
    engine: &Engine,
    which: Option<NamedSessions>,
) -> anyhow::Result<Exit> {
    let sessions = engine.sessions();
    if let Some(NamedSessions::One(session)) = &which {
        let list = sessions.list_one(session).await?;
        context
            .output
            .result(&list, |list| text::list(list, String::new))?;
        return Ok(Exit::Done);
    }
    let tenant = which.and_then(NamedSessions::tenant);
    let list = sessions.list(tenant.as_ref()).await?;
    let near = match &tenant {
        Some(tenant) if list.items.is_empty() => sessions.near_tenants(tenant).await,
        _ => Vec::new(),
    };
    let none = || text::none(tenant.as_ref(), &near);
    context
        .output
        .result(&list, |list| text::list(list, none))?;
    Ok(if list.unreadable.is_empty() {
        Exit::Done
    } else {
        Exit::Corrupt
    })
}

/// A session that goes on, though it should sleep, is a failure.
fn exit_of(slept: &SessionSlept) -> Exit {
    match slept.state {
        SleptState::Sleeping => Exit::Done,
        SleptState::InUse | SleptState::Saved => Exit::Held,
        _ => Exit::Failed,
    }
}

/// Takes back what the last wake of a session replaced in its workspace.
pub(super) async fn undo(
    context: &CliContext,
    session: &SessionRef,
    (dry_run, yes): (bool, bool),
) -> anyhow::Result<Exit> {
    let (engine, host) = (context.engine().await?, host(context, None)?);
    let sessions = engine.sessions();
    if !dry_run && !yes && ask::is_interactive(context) {
        let shown = sessions.undo_wake(&host, session, true).await?;
        context.output.insist(&text::wake_undone(&shown));
        if !ask::is_yes("Continue?")? {
            context.output.say(ask::NOTHING_CHANGED);
            return Ok(Exit::Cancelled);
        }
    }
    let undone = sessions.undo_wake(&host, session, dry_run).await?;
    context.output.result(&undone, text::wake_undone)?;
    Ok(Exit::Done)
}

/// What sessions need to know of this host.
pub(super) fn host(context: &CliContext, named: Option<&Label>) -> anyhow::Result<SessionHost> {
    let name = context.host(named)?;
    Ok(SessionHost {
        by: format!("{name} (process {})", std::process::id()).parse()?,
        name,
        state: context.environment.local_dirs.state.clone(),
        docker: Docker::from_variable(context.environment.variables.get("DOCKER_HOST")),
    })
}
