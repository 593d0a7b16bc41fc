//! The tenant's key: where it comes from, and `stasis key …`

use super::output::printable;
use super::suggestion::GivenOptions;
use super::{CliContext, system_rng};
use crate::config::Config;
use crate::env::Environment;
use crate::report::Exit;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use stasis_engine::keys::{self, TenantKey};
use stasis_engine::model::failure::{ErrorKind, Failure};
use stasis_engine::model::id::{Label, TenantId};
use stasis_engine::open::Engine;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the tenant's key comes from.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct KeyArgs {
    /// A file with the tenant's key, for encrypted profiles and directories: 64 hexadecimal digits, or 32 bytes in base64
    /// [default: $STASIS_KEY_FILE, then `key_file` in the configuration file]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        conflicts_with = "key_command"
    )]
    key_file: Option<PathBuf>,
    /// A command that prints the tenant's key, run by a shell when the key is needed [default: $STASIS_KEY_COMMAND, then
    /// `key_command` in the configuration file]
    #[arg(long, global = true, value_name = "COMMAND")]
    key_command: Option<String>,
}

impl KeyArgs {
    /// The same, with what the environment and the configuration say where nothing was asked for.
    pub(super) fn or(self, environment: &Environment, config: &Config) -> Self {
        let is_said = |one: &Self| one.key_file.is_some() || one.key_command.is_some();
        let environment = Self {
            key_file: environment.key_file.clone(),
            key_command: environment.key_command.clone(),
        };
        let config = Self {
            key_file: config.key_file.clone(),
            key_command: config.key_command.clone(),
        };
        let all = [self, environment, config];
        all.into_iter().find(is_said).unwrap_or_default()
    }

    /// Has the next command get the key from the same place.
    pub(super) fn give_again(&self, given: &mut GivenOptions) {
        given.add_path("--key-file", self.key_file.as_deref());
        // A secret may stand in it.
        let is_command = self.key_command.is_some();
        given.add("--key-command", is_command.then_some("COMMAND"));
    }

    /// The options that get the key from the same place, from anywhere.
    pub(super) fn words(&self) -> anyhow::Result<Vec<OsString>> {
        Ok(match (&self.key_file, &self.key_command) {
            (Some(path), _) => vec!["--key-file".into(), std::path::absolute(path)?.into()],
            (None, Some(command)) => vec!["--key-command".into(), command.into()],
            (None, None) => Vec::new(),
        })
    }

    /// The engine with the key, if there is one; it is read when it is needed.
    pub(super) fn give(&self, engine: Engine) -> Engine {
        match (self.key_file.clone(), self.key_command.clone()) {
            (Some(path), _) => engine.with_key_from(move || from_file(&path)),
            (None, Some(command)) => engine.with_key_from(move || from_command(&command)),
            (None, None) => engine,
        }
    }
}

/// The rights to read and write that the group and everybody have.
const OTHERS: u32 = 0o066;

/// What is done to a key file.
const READ_KEY: &str = "read the key file";

pub(super) fn from_file(path: &Path) -> Result<TenantKey, Failure> {
    let shown = path.display();
    let unread =
        |error| Failure::new(ErrorKind::Invalid, READ_KEY, shown.to_string()).because(error);
    let file = File::open(path).map_err(unread)?;
    let seen = file.metadata().map_err(unread)?;
    // Others than files, such as what a shell substitutes, have no rights of their own.
    if seen.is_file() && seen.permissions().mode() & OTHERS != 0 {
        let said = format!("others may read or change the key file `{shown}`");
        let failure = Failure::of(ErrorKind::Invalid, said);
        return Err(failure.with_hint(format!("run: chmod 600 {shown}")));
    }
    let key = TenantKey::read(file);
    key.map_err(|error| Failure::new(ErrorKind::Invalid, READ_KEY, shown).because(error))
}

fn from_command(command: &str) -> Result<TenantKey, Failure> {
    let failed = |said: &str| Failure::of(ErrorKind::Invalid, said.to_owned());
    let because =
        |error| Failure::new(ErrorKind::Invalid, "run the key command", command).because(error);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = shell.spawn().map_err(because)?;
    let said = child.stdout.take().expect("it was piped");
    let key = TenantKey::read(said);
    let status = child.wait().map_err(because)?;
    if !status.success() {
        return Err(failed(&format!("the key command failed: {status}")));
    }
    let unread = |error| {
        Failure::new(ErrorKind::Invalid, "read the key of the command", command).because(error)
    };
    key.map_err(unread)
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Write a new tenant's key to a file that only its owner can read
    ///
    /// Keep a copy of it elsewhere: without it nothing that it encrypts can be read again, by anybody.
    Init {
        /// The file, which must not exist
        file: PathBuf,
    },
    /// Wrap the data keys of a tenant with another tenant's key; no snapshot is touched
    ///
    /// The key that wraps them now is given with --key-file or --key-command. Interrupted, it is run again. Whoever has the old
    /// key and an old copy of the store can still read what was saved until now.
    Rotate {
        /// A file with the key that shall wrap them from now on
        #[arg(long, value_name = "PATH")]
        new_key_file: PathBuf,
        /// Whose data keys
        #[arg(long, value_name = "TENANT", default_value = "default")]
        tenant: TenantId,
    },
}

impl KeyCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self {
            Self::Init { file } => {
                let made = keys::new_key(&file, &*system_rng())?;
                context.output.result(&made, |made| {
                    format!(
                        "Wrote key {} to {}\nKeep a copy elsewhere: without it, nothing that it encrypts can be read again",
                        made.key_id, made.file
                    )
                })?;
            }
            Self::Rotate {
                new_key_file,
                tenant,
            } => {
                let new = from_file(&new_key_file).context("the new key")?;
                let actor: Label = "operator".parse()?;
                let engine = context.engine().await?;
                let rotated = engine.rotate_keys(&tenant, &new, &actor).await?;
                for one in &rotated.left {
                    let (subject, reason) = (&one.subject, printable(&one.reason));
                    context
                        .output
                        .say(&format!("warning: {subject} was not rewrapped: {reason}"));
                }
                context.output.result(&rotated, |rotated| {
                    let rows = rotated.items.iter();
                    let rows = rows
                        .map(|one| format!("{} is wrapped by key {} now", one.subject, one.key_id));
                    let rows: Vec<String> = rows.collect();
                    if rows.is_empty() {
                        format!("Nothing of tenant {tenant} is encrypted")
                    } else {
                        rows.join("\n")
                    }
                })?;
                if !rotated.left.is_empty() {
                    return Ok(Exit::Denied);
                }
            }
        }
        Ok(Exit::Done)
    }
}
