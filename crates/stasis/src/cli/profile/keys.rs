//! The tenant's key, and `stasis profile rekey`.

use crate::cli::CliContext;
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use stasis_engine::kind::profile::TenantKey;
use stasis_engine::model::id::{Label, ProfileRef};
use stasis_engine::open::Engine;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the tenant's key comes from.
#[derive(Debug, Default, Args)]
pub(super) struct KeyArgs {
    /// A file with the tenant's key, for encrypted profiles: 64 hexadecimal digits, or 32 bytes in base64
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        conflicts_with = "key_command"
    )]
    key_file: Option<PathBuf>,
    /// A command that prints the tenant's key, run by a shell
    #[arg(long, global = true, value_name = "COMMAND")]
    key_command: Option<String>,
}

impl KeyArgs {
    /// The engine with the key, if there is one.
    pub(super) fn give(&self, engine: Engine) -> anyhow::Result<Engine> {
        Ok(match self.key()? {
            Some(key) => engine.with_key(key),
            None => engine,
        })
    }

    fn key(&self) -> anyhow::Result<Option<TenantKey>> {
        match (&self.key_file, &self.key_command) {
            (Some(path), _) => Ok(Some(from_file(path)?)),
            (None, Some(command)) => Ok(Some(from_command(command)?)),
            (None, None) => Ok(None),
        }
    }
}

/// The rights to read and write that the group and everybody have.
const OTHERS: u32 = 0o066;

fn from_file(path: &Path) -> anyhow::Result<TenantKey> {
    let file = File::open(path)
        .with_context(|| format!("could not open the key file `{}`", path.display()))?;
    let seen = file.metadata()?;
    // Others than files, such as what a shell substitutes, have no rights of their own.
    anyhow::ensure!(
        !seen.is_file() || seen.permissions().mode() & OTHERS == 0,
        "others may read or change the key file `{}`; run: chmod 600 {}",
        path.display(),
        path.display(),
    );
    TenantKey::read(file).with_context(|| format!("the key file `{}`", path.display()))
}

fn from_command(command: &str) -> anyhow::Result<TenantKey> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = shell.spawn().context("could not start the key command")?;
    let said = child.stdout.take().expect("it was piped");
    let key = TenantKey::read(said);
    let status = child.wait().context("could not wait for the key command")?;
    anyhow::ensure!(status.success(), "the key command failed: {status}");
    key.context("what the key command printed")
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileRekeyArgs {
    /// <tenant>/<profile>[@<chrome-major>]
    subject: ProfileRef,
    /// A file with the key that shall wrap it from now on
    #[arg(long, value_name = "PATH")]
    new_key_file: PathBuf,
}

impl ProfileRekeyArgs {
    pub(super) async fn run(self, context: &CliContext, engine: Engine) -> anyhow::Result<Exit> {
        let lineage = engine.profiles().one_lineage(&self.subject).await?;
        let new = from_file(&self.new_key_file)?;
        let actor: Label = "operator".parse()?;
        let rekeyed = engine.profiles().rekey(&lineage, &new, &actor).await?;
        context.output.result(&rekeyed, |rekeyed| {
            format!(
                "{} is wrapped by key {} now",
                rekeyed.subject, rekeyed.key_id
            )
        })?;
        Ok(Exit::Done)
    }
}
