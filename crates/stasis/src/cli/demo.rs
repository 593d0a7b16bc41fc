//! `stasis demo`

mod lease;
mod narration;

use super::profile::{browser_setting, spawn};
use super::progress::cancel_on_signals;
use super::{CliContext, system_clock, system_rng};
use crate::cli::output::{Output, Verbosity, plural};
use crate::report::Exit;
use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::demo::{Demo, DemoScene, DemoSettings};
use stasis_engine::kind::container::Docker;
use stasis_engine::model::time::Clock as _;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    #[command(subcommand)]
    command: Option<DemoCommand>,
    /// Leave the demo's directory where it is, to look around in
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Subcommand)]
enum DemoCommand {
    /// Show that two hosts cannot lose each other's work on one browser profile
    Lease(lease::LeaseDemoArgs),
}

/// What the demo did.
#[derive(Serialize, JsonSchema)]
pub(super) struct PlayedDemo {
    /// One after the other.
    scenes: Vec<DemoScene>,
    /// Whether everything that was claimed held.
    holds: bool,
    took_ms: u64,
    /// Where everything lies, if it was kept.
    kept: Option<String>,
}

impl DemoArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self.command {
            Some(DemoCommand::Lease(lease)) => {
                anyhow::ensure!(
                    !self.keep,
                    "--keep stands behind lease: stasis demo lease --keep"
                );
                lease.run(context).await
            }
            None => play(context, self.keep).await,
        }
    }
}

async fn play(context: &CliContext, keep: bool) -> anyhow::Result<Exit> {
    let (clock, output) = (system_clock(), context.output);
    let started = clock.uptime();
    let mut demo = Demo::begin(settings(context, keep)?, clock.clone(), system_rng()).await?;
    let is_narrated = !output.as_json && output.verbosity != Verbosity::Quiet;
    let tell = |text: String| {
        if is_narrated {
            Output::narrate(&text)
        } else {
            Ok(())
        }
    };
    tell(narration::opening(demo.directory()))?;
    let mut scenes: Vec<DemoScene> = Vec::new();
    while let Some(scene) = demo.next().await? {
        if is_narrated {
            let is_first_skipped =
                narration::is_skipped(&scene) && !scenes.last().is_some_and(narration::is_skipped);
            tell(narration::scene_text(&scene, is_first_skipped))?;
        } else if !output.as_json {
            output.result(&scene, narration::data)?;
        }
        scenes.push(scene);
    }
    let kept = demo.end().await?.map(|kept| kept.display().to_string());
    let took = clock.uptime().saturating_sub(started);
    let failed = scenes.iter().flat_map(DemoScene::failed).count() as u64;
    let played = PlayedDemo {
        holds: failed == 0,
        scenes,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        kept,
    };
    if output.as_json {
        output.result(&played, |_| String::new())?;
    }
    if let Some(kept) = &played.kept {
        output.say(&format!("the directory was kept: {kept}"));
    }
    if failed > 0 {
        output.insist(&format!("error: {} did not hold", plural(failed, "claim")));
        return Ok(Exit::Failed);
    }
    tell(narration::closing(&played.scenes, took))?;
    Ok(Exit::Done)
}

/// What every demo needs of this program.
fn settings(context: &CliContext, keep: bool) -> anyhow::Result<DemoSettings> {
    Ok(DemoSettings {
        parent: std::path::absolute(std::env::temp_dir())?,
        keep,
        search_path: context.environment.search_path.clone(),
        browser: browser_setting(context, None)?,
        docker: Docker::from_variable(context.environment.variables.get("DOCKER_HOST")),
        spawn: spawn()?,
        cancel: cancel_on_signals()?,
    })
}
