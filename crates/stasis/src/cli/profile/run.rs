//! `stasis profile run`

use super::metrics::MetricsArgs;
use super::running::{RunArgs, show_steps};
use super::{load, save};
use crate::cli::hold::start_failure;
use crate::cli::output::printable;
use crate::cli::{CliContext, duration};
use crate::report::{self, Exit};
use anyhow::Context as _;
use clap::Args;
use rustix::process::{Pid, getppid};
use stasis_engine::error::ErrorKind;
use stasis_engine::hold::Signal;
use stasis_engine::kind::profile::{
    AfterRun, BrowserShim, ProfileRan, RunOutcome, Wanted, browser_major_for,
};
use stasis_engine::model::id::{Lineage, ProfileRef};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often we look whether the framework that started us is still there.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct ProfileRunArgs {
    /// <tenant>/<profile>[@<chrome-major>]; without the major a browser is asked
    subject: ProfileRef,
    /// The user data directory [default: one of its own under $XDG_STATE_HOME/stasis/profiles]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run on a private copy of the snapshot and throw it away: takes no lease, publishes nothing, and may go on beside
    /// other runs of the profile
    #[arg(
        long,
        conflicts_with_all = [
            "dir", "every", "wait", "include_caches", "exclude_caches", "accept_shrink", "notes", "host_run_id"
        ]
    )]
    no_save: bool,
    /// The snapshot to run on: the beginning of its sha256, `latest`, or `latest~2`; with --no-save only, because what
    /// derives from another snapshot than the active one cannot be published [default: the active one]
    #[arg(long, value_name = "SNAPSHOT", requires = "no_save", conflicts_with_all = ["on_failure", "no_upgrade", "from_major"])]
    sha: Option<Wanted>,
    /// Save in between too, while the browser runs, such as every 10m: needs `allow_hot` in the tenant's policy
    #[arg(long, value_name = "TIME", value_parser = duration::positive)]
    every: Option<Duration>,
    /// The browser that is asked for its major [default: $STASIS_BROWSER, then `profile.browser` in the configuration
    /// file, then COMMAND if it is a browser, then the one that is installed]
    #[arg(long, value_name = "PATH", conflicts_with = "chrome_major")]
    browser: Option<PathBuf>,
    /// How long the browser may go on after COMMAND has ended, before it is closed and saved [default: 10s when COMMAND
    /// failed or was killed; as long as it likes when it ended well]
    #[arg(long, value_name = "TIME", value_parser = duration::positive)]
    linger: Option<Duration>,
    /// How long the whole run may take, before the browser is closed and saved
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration::positive)]
    max_time: Duration,
    #[command(flatten)]
    running: RunArgs,
    /// We are started in the place of a browser: `stasis profile shim`
    #[arg(long, hide = true)]
    shim: bool,
    /// The browser, such as: chromium --user-data-dir={dir}
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl ProfileRunArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        metrics: &MetricsArgs,
    ) -> anyhow::Result<ExitCode> {
        let ran = match self.ran(context, metrics).await {
            Ok(ran) => ran,
            Err(error) => {
                let exit = report::print(&error, context.output.as_json);
                let code = start_failure(&error).unwrap_or(match exit {
                    Exit::Cancelled => Exit::Cancelled as u8,
                    exit => 100 + exit as u8,
                });
                return Ok(ExitCode::from(code));
            }
        };
        context.output.warn(&ran.warnings);
        if let Some(saved) = &ran.save {
            context.output.warn(&saved.warnings);
        }
        if context.output.as_json {
            // One line, because the browser's own output stands before it.
            context.output.result_line(&ran, text)?;
        } else {
            context.output.say(&text(&ran));
        }
        Ok(ExitCode::from(exit_code(&ran)))
    }

    async fn ran(self, context: &CliContext, metrics: &MetricsArgs) -> anyhow::Result<ProfileRan> {
        let parent = getppid();
        // What saves nothing has no use for a store that is not there.
        let engine = if self.no_save {
            context.engine().await?
        } else {
            context.writable_engine().await?
        };
        let lineage = self.lineage(context).await?;
        let running = &self.running;
        let mut run = running.profile_run(context, &engine, lineage.clone(), self.command)?;
        if self.no_save {
            // The engine chooses a private directory.
            run.after = AfterRun::Discard;
        } else {
            let dir = match &self.dir {
                Some(dir) => std::path::absolute(dir)?,
                None => engine.profiles().own_dir(&lineage).await?,
            };
            run = run.placed(dir);
        }
        run.load.exactly = self.sha;
        run.linger = self.linger;
        run.max_time = self.max_time;
        run.every = self.every;
        run.shim = browser_shim(self.shim)?;
        if self.shim {
            run.signals = or_end_of(parent, run.signals);
        }
        let shown = show_steps(context.output, &mut run);
        let ran = Box::pin(engine.profiles().run(run)).await;
        let _ = shown.await;
        metrics.add(context, |file| file.ran(&ran)).await?;
        Ok(ran?)
    }
}

impl ProfileRunArgs {
    /// The lineage of the browser that is going to run.
    async fn lineage(&self, context: &CliContext) -> anyhow::Result<Lineage> {
        let environment = &context.environment;
        let browser = load::browser_setting(context, self.browser.clone())?;
        let loading = &self.running.loading;
        if loading.major(&self.subject).is_some() || browser.is_some() {
            return loading.lineage(&self.subject, browser.as_ref()).await;
        }
        let major = browser_major_for(&self.command, &environment.search_path).await?;
        let subject = self.subject.lineage(major).into();
        loading.lineage(&subject, None).await
    }
}

/// How the browser is started when a framework started us in its place.
fn browser_shim(is_wanted: bool) -> anyhow::Result<Option<BrowserShim>> {
    if !is_wanted {
        return Ok(None);
    }
    let program = std::env::current_exe().context("could not find out which program this is")?;
    let launcher = vec![program.into(), "internal".into(), "bound".into()];
    Ok(Some(BrowserShim { launcher }))
}

/// The signals for a run that ends with the framework that started it, as if that had asked for it. The kernel's own
/// signal for this comes with the end of the *thread* that started us, which a framework may well outlive.
fn or_end_of(
    parent: Option<Pid>,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) -> mpsc::UnboundedReceiver<Signal> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut has_parent = true;
        loop {
            let signal = tokio::select! {
                Some(signal) = signals.recv() => signal,
                () = ended(parent), if has_parent => {
                    has_parent = false;
                    Signal::TERM
                }
                else => break,
            };
            if sender.send(signal).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Waits until our parent is another process.
async fn ended(parent: Option<Pid>) {
    while getppid() == parent {
        tokio::time::sleep(LOOK).await;
    }
}

fn text(ran: &ProfileRan) -> String {
    let ended = match (&ran.save, &ran.save_error) {
        (Some(saved), _) => save::text(saved),
        (None, Some(why)) => format!(
            "NOT SAVED ({}): the snapshot before stays\n  because: {}\n  \
             hint: what the browser left is still in `{dir}`; save it with: \
             stasis profile save {} --dir {dir}",
            ran.save_outcome,
            printable(why),
            ran.subject.any_major(),
            dir = printable(&ran.load.dir),
        ),
        (None, None) if ran.save_outcome == RunOutcome::Discarded => {
            "not saved: the run was on a private copy, which is removed (--no-save)".to_owned()
        }
        (None, None) => "not saved".to_owned(),
    };
    let between = match (ran.saved_between, ran.failed_between) {
        (0, 0) => String::new(),
        (saved, failed) => format!("\nsaved {saved} times in between, failed {failed} times"),
    };
    format!("the browser ended with {}\n{ended}{between}", ran.exit_code)
}

/// The browser's code, or 100 and ours.
fn exit_code(ran: &ProfileRan) -> u8 {
    let ours = match ran.failure {
        Some(ErrorKind::Fenced) => Exit::LockLost,
        Some(ErrorKind::Unknown) => Exit::Unknown,
        Some(ErrorKind::Limit) => Exit::Limit,
        Some(ErrorKind::Unreachable) => Exit::Unreachable,
        Some(ErrorKind::Denied) => Exit::Denied,
        Some(ErrorKind::Corrupt) => Exit::Corrupt,
        Some(_) => Exit::Failed,
        None => match ran.save.as_ref().map_or(Exit::Done, save::exit) {
            Exit::Done => load::exit(&ran.load),
            not_published => not_published,
        },
    };
    match ours {
        Exit::Done => u8::try_from(ran.exit_code).unwrap_or(1),
        ours => 100 + ours as u8,
    }
}
