//! `stasis container export` and `import`: from one host to another without a store that both see.

use super::{restore, text};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::{CliContext, envelope};
use crate::report::Exit;
use anyhow::ensure;
use clap::{Args, ValueEnum};
use stasis_engine::kind::container::{
    ContainerHost, ExportContainer, ExportLayout, ImportContainer, RestoreContainer,
};
use stasis_engine::model::id::SnapshotId;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LayoutArg {
    /// One file with everything, the image too
    File,
    /// A directory: index.json, metadata/<id>.json, volumes/<id>_<volume>.tar; the image stays on the engine
    Seed,
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The snapshot: an id or the beginning of one, or a label
    snapshot: SnapshotRef,
    /// Where to: a file whose name ends in .tar.zst; for `--layout seed` a directory
    target: PathBuf,
    /// Of which container, where that is not clear
    #[arg(long, value_name = "CONTAINER")]
    of: Option<String>,
    /// What is written
    #[arg(long, value_name = "LAYOUT", default_value = "file")]
    layout: LayoutArg,
}

impl ExportArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        host: &ContainerHost,
    ) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let export = ExportContainer {
            snapshot: self.snapshot,
            container: self.of,
            target: self.target,
            layout: match self.layout {
                LayoutArg::File => ExportLayout::File,
                LayoutArg::Seed => ExportLayout::Seed,
            },
            cancel: cancel_on_signals()?,
            progress: Arc::default(),
        };
        let progress = Arc::clone(&export.progress);
        let work = Box::pin(engine.containers().export(host, &export));
        let exported = watched(context.output, "exporting", progress, work).await?;
        envelope::about_snapshot(exported.snapshot_id.to_string());
        context.output.result(&exported, text::exported)?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The file, or the directory, that an export made
    source: PathBuf,
    /// Which snapshot of it, where it has several
    #[arg(long, value_name = "ID")]
    snapshot: Option<SnapshotId>,
    /// Make a container of it, too
    #[arg(long)]
    restore: bool,
    /// What that is called [default: <name>_restored_<time>]
    #[arg(long, requires = "restore")]
    name: Option<String>,
}

impl ImportArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        host: &ContainerHost,
    ) -> anyhow::Result<Exit> {
        ensure!(
            self.source.exists(),
            "there is no `{}`",
            self.source.display()
        );
        let engine = context.writable_engine().await?;
        let import = ImportContainer {
            source: self.source,
            snapshot: self.snapshot,
            cancel: cancel_on_signals()?,
            progress: Arc::default(),
        };
        let progress = Arc::clone(&import.progress);
        let work = Box::pin(engine.containers().import(host, &import));
        let imported = watched(context.output, "importing", progress, work).await?;
        let id = imported.snapshot_id.to_string();
        envelope::about(imported.subject.clone());
        envelope::about_snapshot(id.clone());
        if !self.restore {
            context.output.result(&imported, text::imported)?;
            return Ok(Exit::Done);
        }
        context.output.say(&text::imported(&imported));
        let restore = RestoreContainer {
            name: self.name,
            container: Some(imported.container_name),
            ..RestoreContainer::new(SnapshotRef::Text(id))
        };
        restore::restore(context, host, restore, true).await
    }
}
