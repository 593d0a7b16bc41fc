//! `stasis copy`: subjects of one store in another one

use super::output::{plural, printable, table};
use super::progress::watched;
use super::{CliContext, key, project};
use crate::config::store_named;
use crate::report::{Exit, exit_of};
use anyhow::bail;
use clap::Args;
use stasis_engine::address::CONTAINER_PREFIX;
use stasis_engine::copy::{CopiedSubject, CopySubject, StoreCopied, ensure_target};
use stasis_engine::model::id::{Lineage, ProjectId, TenantId};
use stasis_engine::open::Engine;
use stasis_engine::subjects::PROFILE_PREFIX;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `stasis copy`
#[derive(Debug, Args)]
pub(super) struct CopyArgs {
    /// A directory, `dir:NAME`, or `profile:TENANT/PROFILE@MAJOR`
    #[arg(required_unless_present = "all")]
    subject: Option<String>,
    /// Every subject of the store
    #[arg(long, conflicts_with = "subject")]
    all: bool,
    /// The store to copy into; a directory that is not there is made
    #[arg(long, value_name = "PATH|URL")]
    to: String,
    /// A file with the tenant's key there, if it is another one than here: what is plain or encrypted here becomes encrypted with it
    #[arg(long, value_name = "PATH")]
    to_key_file: Option<PathBuf>,
    /// The tenant of the directory, here and there
    #[arg(
        long,
        value_name = "TENANT",
        default_value = "default",
        requires = "subject"
    )]
    tenant: TenantId,
    /// What the directory is called there [default: as here]
    #[arg(long = "as", value_name = "NAME", requires = "subject")]
    called: Option<ProjectId>,
}

impl CopyArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let to = store_named(&self.to)?;
        ensure_target(&to)?;
        let (from, what) = self.what(context).await?;
        let to = context.engine_at(to, true).await?;
        let to = match self.to_key_file {
            Some(path) => to.with_key_from(move || key::from_file(&path)),
            None => to,
        };
        let progress = Arc::default();
        let work = from.copy_to(&to, what, Arc::clone(&progress));
        let copied = watched(context.output, "copying", progress, Box::pin(work)).await?;
        context.output.result(&copied, text)?;
        Ok(exit(&copied))
    }
}

/// The exit code of what went wrong, if it was the same everywhere.
fn exit(copied: &StoreCopied) -> Exit {
    if copied.is_whole() {
        return Exit::Done;
    }
    let mut kinds = copied.subjects.iter().filter_map(|one| one.error_kind);
    match kinds.next() {
        Some(first) if kinds.all(|kind| kind == first) => exit_of(first),
        _ => Exit::Failed,
    }
}

impl CopyArgs {
    /// What is copied, and the store that has it.
    async fn what(&self, context: &CliContext) -> anyhow::Result<(Engine, CopySubject)> {
        let Some(subject) = &self.subject else {
            return Ok((context.engine().await?, CopySubject::All));
        };
        let Some(profile) = subject.strip_prefix(PROFILE_PREFIX) else {
            if subject.starts_with(CONTAINER_PREFIX) {
                bail!(
                    "a container is not copied, because its images are on its engine: save it there with `--portable` into the other store"
                );
            }
            let project = project::named_of(context, Path::new(subject), &self.tenant).await?;
            return Ok(project.to_be_copied(self.tenant.clone(), self.called.clone()));
        };
        if self.called.is_some() {
            bail!("--as names a directory: a profile keeps its name");
        }
        let lineage: Lineage = profile.parse()?;
        Ok((context.engine().await?, CopySubject::Profile(lineage)))
    }
}

/// What is to be said of a subject that does not have all its snapshots there.
fn remark(one: &CopiedSubject, error: Option<String>) -> String {
    match (error, one.snapshots_left) {
        (Some(error), _) => format!("not copied: {error}"),
        (None, 0) => String::new(),
        (None, left) => format!("{} older not there", plural(left, "snapshot")),
    }
}

fn text(copied: &StoreCopied) -> String {
    let row = |one: &CopiedSubject| {
        let error = one.error.as_deref().map(printable);
        vec![
            one.subject.clone(),
            one.tenant.to_string(),
            one.snapshots.to_string(),
            one.snapshots_there.to_string(),
            one.bytes.to_string(),
            remark(one, error),
        ]
    };
    let head = ["SUBJECT", "TENANT", "COPIED", "THERE", "BYTES", ""];
    let rows: Vec<_> = copied.subjects.iter().map(row).collect();
    let count: u64 = copied.subjects.iter().map(|one| one.snapshots).sum();
    let failed = copied.subjects.iter().filter(|one| one.error.is_some());
    let mut end = match failed.count() as u64 {
        0 => format!(
            "{} copied to {}",
            plural(count, "snapshot"),
            printable(&copied.to)
        ),
        failed => format!(
            "{} copied to {}, and {} not to the end: `stasis copy SUBJECT --to …` says what to do",
            plural(count, "snapshot"),
            printable(&copied.to),
            plural(failed, "subject")
        ),
    };
    for error in &copied.errors {
        end = format!("{end}\n{}", printable(error));
    }
    if rows.is_empty() {
        return "nothing is saved in this store yet: there is nothing to copy".to_owned();
    }
    format!("{}\n{end}", table(&head, rows))
}
