//! `stasis demo lease`

use super::settings;
use crate::cli::{CliContext, system_clock, system_rng};
use crate::report::Exit;
use clap::Args;
use stasis_engine::demo::lease::{LeaseDemoReport, LeaseScene, play};

#[derive(Debug, Args)]
pub(super) struct LeaseDemoArgs {
    /// Leave the store where it is, to look around in
    #[arg(long)]
    keep: bool,
}

impl LeaseDemoArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let settings = settings(context, self.keep)?;
        let (demo, kept) = Box::pin(play(settings, system_clock(), system_rng())).await?;
        context.output.result(&demo, text)?;
        if let Some(kept) = kept {
            let kept = kept.join("store");
            let line = format!("the store was kept: {}", kept.display());
            context.output.say(&line);
        }
        Ok(if demo.went_as_promised {
            Exit::Done
        } else {
            Exit::Failed
        })
    }
}

fn text(demo: &LeaseDemoReport) -> String {
    let line = |(n, scene): (usize, &LeaseScene)| {
        let millis = f64::from(u32::try_from(scene.took_us).unwrap_or(u32::MAX)) / 1000.0;
        format!(
            "{:>2}. {}\n    → {} ({millis:.1} ms)\n",
            n + 1,
            scene.act,
            scene.outcome
        )
    };
    let scenes: String = demo.scenes.iter().enumerate().map(line).collect();
    let active = demo
        .active_sha256
        .map_or_else(|| "none".to_owned(), |active| active.prefix());
    format!(
        "Two hosts and one browser identity, in a plain directory:\n\n{scenes}\nActive snapshot: {active}. \
         {} pointer writes, {} events recorded, {} updates lost.",
        demo.pointer_writes, demo.events, demo.updates_lost
    )
}
