//! `stasis repo forget` and `stasis repo retire`

use crate::cli::CliContext;
use crate::cli::output::printable;
use anyhow::bail;
use clap::Args;
use stasis_engine::check::RepoLetGo;
use stasis_engine::model::id::{Label, SnapshotId, SubjectName};

#[derive(Debug, Args)]
pub(super) struct RepoForgetArgs {
    /// Their ids, in full
    #[arg(required = true)]
    snapshots: Vec<SnapshotId>,
    /// Forget what cannot be read any more, even the newest of its name, which goes on from the one before
    #[arg(long)]
    damaged: bool,
    /// Really do it; without, --damaged only says what would be done
    #[arg(long, requires = "damaged")]
    confirm: bool,
}

#[derive(Debug, Args)]
pub(super) struct RepoRetireArgs {
    /// Which name
    name: SubjectName,
    /// Really do it
    #[arg(long)]
    confirm: bool,
}

fn operator() -> Label {
    "operator".parse().expect("a constant that is a label")
}

impl RepoForgetArgs {
    pub(super) async fn run(self, context: &CliContext, repo: Option<&str>) -> anyhow::Result<()> {
        let engine = context.repo_engine(repo, false).await?;
        if !self.damaged {
            let forgotten = engine.dirs().forget(&self.snapshots).await?;
            return context.output.result(&forgotten, |forgotten| {
                format!("forgot {} snapshots", forgotten.forgotten.len())
            });
        }
        if !self.confirm {
            let plan = engine.dirs().damaged(&self.snapshots).await?;
            context.output.say(&text(&plan));
            bail!("nothing was changed: say --confirm to let go of what is damaged");
        }
        let gone = engine
            .dirs()
            .forget_damaged(&self.snapshots, &operator())
            .await?;
        context.output.warn(&gone.warnings);
        context.output.result(&gone, text)
    }
}

impl RepoRetireArgs {
    pub(super) async fn run(self, context: &CliContext, repo: Option<&str>) -> anyhow::Result<()> {
        let engine = context.repo_engine(repo, false).await?;
        if !self.confirm {
            let plan = engine.dirs().plan_retire(&self.name).await?;
            context.output.say(&text(&plan));
            bail!("nothing was changed: say --confirm to let all snapshots of this name go");
        }
        let gone = engine.dirs().retire(&self.name, &operator()).await?;
        context.output.warn(&gone.warnings);
        context.output.result(&gone, text)
    }
}

fn text(plan: &RepoLetGo) -> String {
    let verb = if plan.op_id.is_some() {
        "forgot"
    } else {
        "would forget"
    };
    let went = plan
        .forgotten
        .iter()
        .map(|one| format!("{verb} {}: {}", one.snapshot_id, printable(&one.why)));
    let newest = plan.newest.iter().map(|(name, newest)| match newest {
        Some(newest) => format!("the newest snapshot of {name} is {newest}"),
        None => format!("{name} has no snapshot"),
    });
    went.chain(newest).collect::<Vec<_>>().join("\n")
}
