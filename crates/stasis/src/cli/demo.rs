//! `stasis demo`

use super::{CliContext, system_rng};
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use stasis_engine::model::rng::Rng;
use stasis_engine::open::StoreLocation;
use std::os::unix::fs::DirBuilderExt;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Leave the store where it is, to look around in
    #[arg(long)]
    keep: bool,
}

impl DemoArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        // A name that nobody can have taken before us, and a directory that must be new.
        let home = std::env::temp_dir().join(format!("stasis-demo-{}", system_rng().op_id()));
        std::fs::DirBuilder::new().mode(0o700).create(&home)?;
        let engine = context
            .engine_at(StoreLocation::File(home.clone()), true)
            .await?;
        let played = engine.demo().await;
        if !self.keep {
            let gone = remove(&home);
            gone.with_context(|| {
                format!("could not remove the demo's store `{}`", home.display())
            })?;
        }
        let demo = played?;
        context.output.result(&demo, text)?;
        if self.keep {
            context
                .output
                .say(&format!("the store was kept: {}", home.display()));
        }
        Ok(if demo.went_as_promised {
            Exit::Done
        } else {
            Exit::Failed
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the demo's own directory, made a moment ago"
)]
fn remove(home: &std::path::Path) -> std::io::Result<()> {
    std::fs::remove_dir_all(home)
}

fn text(demo: &stasis_engine::demo::DemoReport) -> String {
    let line = |(n, scene): (usize, &stasis_engine::demo::Scene)| {
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
