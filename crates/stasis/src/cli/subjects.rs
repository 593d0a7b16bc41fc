//! `stasis list` and `stasis link`: what a store holds, and which directory of this host is what

use super::CliContext;
use super::output::{printable, table};
use crate::report::Exit;
use clap::Args;
use stasis_engine::model::id::TenantId;
use stasis_engine::subjects::{SubjectList, SubjectRow};
use std::path::PathBuf;

/// `stasis list`
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only subjects of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<TenantId>,
}

impl ListArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let listed = engine.subjects(self.tenant.as_ref()).await?;
        let is_whole = listed.items.iter().all(|row| row.damage.is_empty());
        context.output.result(&listed, list_text)?;
        Ok(if is_whole { Exit::Done } else { Exit::Failed })
    }
}

fn list_text(list: &SubjectList) -> String {
    if list.items.is_empty() {
        return "nothing is saved in this store yet: `stasis save DIR` saves a directory"
            .to_owned();
    }
    let row = |row: &SubjectRow| {
        let place = row.dir.as_deref().map(printable).unwrap_or_default();
        let damage = row
            .damage
            .first()
            .map(|why| format!("damaged: {}", printable(why)));
        vec![
            row.subject.clone(),
            row.tenant.to_string(),
            row.snapshots.to_string(),
            row.newest.clone().unwrap_or_else(|| "never".to_owned()),
            row.bytes.to_string(),
            damage.unwrap_or_else(|| place.clone()),
        ]
    };
    let head = ["SUBJECT", "TENANT", "SNAPSHOTS", "NEWEST", "BYTES", "HERE"];
    table(&head, list.items.iter().map(row).collect())
}

/// `stasis link`
#[derive(Debug, Args)]
pub(super) struct LinkArgs {
    /// A directory of this host
    dir: PathBuf,
    /// The subject that it is from now on: `dir:NAME`, as `stasis list` shows it
    subject: String,
}

impl LinkArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        // The tenant of every everyday command.
        let tenant = "default".parse()?;
        let linked = engine.link(&self.dir, &tenant, &self.subject).await?;
        context.output.result(&linked, |linked| {
            format!(
                "{} is {} from now on: what is saved from it joins those snapshots",
                printable(&linked.dir),
                linked.subject
            )
        })?;
        Ok(Exit::Done)
    }
}
