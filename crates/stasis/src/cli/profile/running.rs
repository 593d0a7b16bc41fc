//! What every run of a browser is told, and what is seen of it while it goes on.

use super::load::{self, LoadArgs};
use super::save::CaptureArgs;
use super::who::ProfileOwnerArgs;
use crate::cli::CliContext;
use crate::cli::hold::signals;
use crate::cli::output::Output;
use crate::cli::progress::watched;
use crate::cli::wait::WaitArgs;
use clap::Args;
use stasis_engine::kind::profile::{ProfileRun, RunStep};
use stasis_engine::model::id::Lineage;
use stasis_engine::open::Engine;
use stasis_engine::progress::Progress;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How the profile is waited for, loaded and saved, and by whom.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    waiting: WaitArgs,
    #[command(flatten)]
    pub(super) loading: LoadArgs,
    #[command(flatten)]
    capturing: CaptureArgs,
    #[command(flatten)]
    who: ProfileOwnerArgs,
}

impl RunArgs {
    /// The run of a command; where is still to be said, unless the engine chooses a private directory.
    pub(super) fn profile_run(
        &self,
        context: &CliContext,
        engine: &Engine,
        lineage: Lineage,
        command: Vec<OsString>,
    ) -> anyhow::Result<ProfileRun> {
        let nowhere = PathBuf::new();
        let holder = self.who.holder(context, engine)?;
        let wait = self.waiting.lease_wait(context, &lineage)?;
        let mut load = self
            .loading
            .command(context, lineage, nowhere.clone(), &self.who)?;
        load.actor = holder.run_id.clone();
        let capture = self
            .capturing
            .capture(context, nowhere, holder, &self.who)?;
        let mut run = ProfileRun::new(load, capture, command, signals()?);
        run.wait = wait;
        run.close_timeout = self.capturing.close_timeout;
        Ok(run)
    }
}

/// Shows how far the load and the save of a run have come, and says what was loaded before the browser starts. Ends with the run.
pub(super) fn show_steps(output: Output, run: &mut ProfileRun) -> JoinHandle<()> {
    let (said, steps) = mpsc::unbounded_channel();
    run.steps = Some(said);
    let (loading, saving) = (run.load.progress.clone(), run.capture.progress.clone());
    tokio::spawn(show(output, steps, loading, saving))
}

async fn show(
    output: Output,
    mut steps: mpsc::UnboundedReceiver<RunStep>,
    loading: Arc<Progress>,
    saving: Arc<Progress>,
) {
    let mut next = steps.recv().await;
    while let Some(step) = next {
        next = match step {
            RunStep::Loading => watched(output, "loading", loading.clone(), steps.recv()).await,
            RunStep::Loaded(loaded) => {
                output.say(&load::text(&loaded));
                output.warn(&loaded.warnings);
                steps.recv().await
            }
            RunStep::Saving => watched(output, "saving", saving.clone(), steps.recv()).await,
        };
    }
}
