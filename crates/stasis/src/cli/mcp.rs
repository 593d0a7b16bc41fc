//! `stasis mcp`

use super::CliContext;
use super::hook::{McpInstallArgs, McpUninstallArgs};
use crate::mcp::{Address, Server, Socket, Stop, Watching};
use crate::report::Exit;
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use stasis_engine::kind::workspace::Workspace;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct McpArgs {
    #[command(subcommand)]
    command: Option<McpCommand>,
    #[command(flatten)]
    serve: McpServeArgs,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// Add the server to the settings of a coding agent; shows the change first, and asks
    Install(McpInstallArgs),
    /// Remove our server from the settings of a coding agent, and nothing else
    Uninstall(McpUninstallArgs),
}

#[derive(Debug, Args)]
struct McpServeArgs {
    /// The workspace, or a directory in it
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Listen at unix:PATH for many clients, instead of serving one over standard input and output
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
    /// Watch the workspace too: automatic checkpoints and file events, as `stasis workspace watch` does
    #[arg(long)]
    watch: bool,
    /// Let the agent make forks of checkpoints, in this directory outside the workspace
    #[arg(long, value_name = "DIR")]
    forks: Option<PathBuf>,
}

impl McpArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self.command {
            Some(McpCommand::Install(install)) => install.run(context),
            Some(McpCommand::Uninstall(uninstall)) => uninstall.run(context),
            None => self.serve.run(context).await,
        }
    }
}

impl McpServeArgs {
    async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let directory = std::path::absolute(&self.workspace)?;
        let workspace = Workspace::find(&directory, &context.environment.host_env()?).await?;
        let forks = self.forks.as_deref();
        let forks = forks
            .map(|forks| forks_directory(forks, workspace.directory()))
            .transpose()?;
        let stop = Stop::on_signals()?;
        let server = Server::new(&workspace, forks);
        // Before anything else makes files: the socket is made with a mask of its own.
        let socket = self.listen.as_ref().map(Socket::open).transpose()?;
        let watching = self.watch.then(|| Watching::begin(workspace.clone()));
        let ended = if let Some(socket) = &socket {
            let path = socket.path().display();
            context.output.say(&format!("listening at unix:{path}"));
            socket.serve(&server, stop).await;
            Ok(())
        } else {
            let (read, write) = rmcp::transport::io::stdio_pipes();
            server.serve(read, write, stop).await
        };
        if let Some(watching) = watching {
            watching.end().await;
        }
        ended?;
        Ok(Exit::Done)
    }
}

/// A directory for forks: there, and outside the workspace, where forks would become part of the next checkpoint.
pub(super) fn forks_directory(forks: &Path, workspace: &Path) -> anyhow::Result<PathBuf> {
    let real = |path: &Path| {
        path.canonicalize()
            .with_context(|| format!("could not find the directory `{}`", path.display()))
    };
    let (forks, workspace) = (real(forks)?, real(workspace)?);
    if !forks.is_dir() {
        bail!("`{}` is no directory", forks.display());
    }
    if forks.starts_with(&workspace) {
        bail!(
            "`{}` is in the workspace: forks need a directory outside it",
            forks.display()
        );
    }
    Ok(forks)
}
