//! `stasis container …`

use super::CliContext;
use super::byte_size::size;
use super::output::{plural, table};
use crate::report::Exit;
use clap::{Args, Subcommand};
use stasis_engine::kind::container::{
    CaptureWishes, ContainerValidated, Docker, MountValidated, NotCaptured, validate,
};

#[derive(Debug, Args)]
pub(super) struct ContainerArgs {
    #[command(subcommand)]
    command: ContainerCommand,
}

#[derive(Debug, Subcommand)]
enum ContainerCommand {
    /// Say what a snapshot of a container would have, and what not, without making one
    ///
    /// Exits with 1 when none can be made of it. The engine is the one that `DOCKER_HOST` names, else the one of this machine.
    Validate(ValidateArgs),
}

#[derive(Debug, Args)]
struct ValidateArgs {
    /// The container: its name, or its id
    container: String,
    /// A bind mount that shall be saved, too, by its place in the container; may be given more than once
    #[arg(long = "bind", value_name = "PATH")]
    binds: Vec<String>,
    /// Save volumes that nobody named, too
    #[arg(long)]
    anonymous: bool,
    /// Refuse if anything that is mounted would not be saved
    #[arg(long)]
    strict: bool,
}

impl ContainerArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let host = context.environment.variables.get("DOCKER_HOST");
        let docker = Docker::from_variable(host);
        match self.command {
            ContainerCommand::Validate(args) => args.run(&docker, context).await,
        }
    }
}

impl ValidateArgs {
    async fn run(self, docker: &Docker, context: &CliContext) -> anyhow::Result<Exit> {
        let wishes = CaptureWishes {
            binds: self.binds.into_iter().collect(),
            anonymous: self.anonymous,
        };
        let validated = validate(docker, &self.container, &wishes, self.strict).await?;
        context.output.result(&validated, text)?;
        Ok(if validated.is_valid {
            Exit::Done
        } else {
            Exit::Failed
        })
    }
}

fn text(one: &ContainerValidated) -> String {
    let mut lines = vec![match &one.refused {
        None => format!(
            "Of {} ({}, {}) a snapshot can be made",
            one.container, one.image, one.status
        ),
        Some(why) => format!(
            "Of {} ({}) no snapshot can be made: {why}",
            one.container, one.image
        ),
    }];
    if !one.mounts.is_empty() {
        let head = ["MOUNT", "KIND", "SIZE", "TRAVELS", "FROM"];
        lines.push(table(&head, one.mounts.iter().map(row).collect()));
    }
    let left: Vec<String> = one.not_captured.iter().map(left_out).collect();
    lines.push(format!("Stays behind: {}", left.join(", ")));
    lines.join("\n")
}

fn row(mount: &MountValidated) -> Vec<String> {
    let bytes = mount
        .bytes
        .zip(mount.files)
        .map(|(bytes, files)| format!("{} in {}", size(bytes), plural(files, "file")));
    vec![
        mount.destination.clone(),
        mount.kind.replace('_', " "),
        bytes.unwrap_or_else(|| "?".to_owned()),
        if mount.travels { "yes" } else { "no" }.to_owned(),
        source(mount),
    ]
}

/// Where it comes from; what the engine named is told by its beginning.
fn source(mount: &MountValidated) -> String {
    let begins = mount.source.get(..12);
    match begins.filter(|_| mount.kind == "anonymous_volume") {
        Some(begins) => format!("{begins}…"),
        None => mount.source.clone(),
    }
}

fn left_out(one: &NotCaptured) -> String {
    match &one.option {
        Some(option) => format!("{} (not with {option})", one.what),
        None => one.what.clone(),
    }
}
