//! `stasis profile storage-state …`

use super::load::browser_setting;
use super::logins::{InspectArgs, warn_unread};
use super::running::{RunArgs, show_steps};
use super::save;
use crate::cli::CliContext;
use crate::cli::output::{plural, printable};
use crate::report::Exit;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::error::Error;
use stasis_engine::kind::profile::{
    PassedOver, ProfileRun, StateExported, StateImported, installed_browser,
};
use stasis_engine::model::digest::ArchiveDigest;
use stasis_engine::model::id::ProfileRef;
use stasis_engine::model::storage_state::StorageState;
use stasis_engine::model::subject_ref::PROFILE_PREFIX;
use stasis_engine::open::Engine;
use stasis_engine::write_new;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file with more is nobody's storage state.
const LARGEST: u64 = 256 << 20;
/// A browser that takes longer is closed.
const LONGEST: Duration = Duration::from_mins(10);

#[derive(Debug, Subcommand)]
pub(crate) enum StorageStateCommand {
    /// Write the cookies and the Local Storage of a snapshot as Playwright's storageState; no browser is started
    ///
    /// Who has the file is signed in wherever the profile is: it is readable for its owner only.
    Export(StateExportArgs),
    /// Give a profile the cookies and the Local Storage of a storageState file, and save it
    ///
    /// The browser is started headless on a private copy, gets everything through a pipe that nobody else can use, and is
    /// closed. Cookies that end with the browser are not in the snapshot. As root, Chromium needs --browser chromium
    /// --browser=--no-sandbox.
    Import(Box<StateImportArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct StateExportArgs {
    #[command(flatten)]
    inspect: InspectArgs,
    /// The file to write; it must not be there [default: standard output]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StateImportArgs {
    /// <tenant>/<profile>[@<chrome-major>]; without the major the browser is asked
    subject: ProfileRef,
    /// The file to read, or - for standard input
    file: PathBuf,
    /// The browser to start; give more than once to add its flags, as in --browser chromium --browser=--no-sandbox
    /// [default: $STASIS_BROWSER, then `profile.browser` in the configuration file, then the one that is installed]
    #[arg(long, value_name = "COMMAND")]
    browser: Vec<OsString>,
    #[command(flatten)]
    running: RunArgs,
}

/// What was written into a file, without any of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct WrittenState {
    subject: String,
    sha256: ArchiveDigest,
    file: PathBuf,
    cookies: u64,
    origins: u64,
    passed_over: Vec<PassedOver>,
    unread: Vec<String>,
}

impl StorageStateCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self {
            Self::Export(export) => export.run(context).await,
            Self::Import(import) => import.run(context).await,
        }
    }
}

impl StateExportArgs {
    async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let cmd = self.inspect.command(context)?;
        let exported = engine.profiles().export_storage_state(&cmd).await?;
        context.output.warn(&exported.warnings);
        warn_unread(context, &exported.unread);
        warn_passed_over(context, &exported.passed_over);
        let json = serde_json::to_string_pretty(&exported.state)?;
        match &self.file {
            None => writeln!(std::io::stdout(), "{json}")?,
            Some(file) => {
                write_private(file, &json)?;
                context
                    .output
                    .result(&written(&exported, file), written_text)?;
            }
        }
        Ok(if exported.unread.is_empty() {
            Exit::Done
        } else {
            Exit::Incomplete
        })
    }
}

fn written(exported: &StateExported, file: &Path) -> WrittenState {
    WrittenState {
        subject: format!("{PROFILE_PREFIX}{}", exported.subject),
        sha256: exported.sha256,
        file: file.to_owned(),
        cookies: exported.state.cookies.len() as u64,
        origins: exported.state.origins.len() as u64,
        passed_over: exported.passed_over.clone(),
        unread: exported.unread.clone(),
    }
}

fn written_text(written: &WrittenState) -> String {
    format!(
        "wrote {} and the Local Storage of {} from {} of {} to {}",
        plural(written.cookies, "cookie"),
        plural(written.origins, "origin"),
        written.sha256.prefix(),
        written.subject,
        printable(&written.file.display().to_string()),
    )
}

/// Says which origins were left out.
fn warn_passed_over(context: &CliContext, passed_over: &[PassedOver]) {
    let Some(first) = passed_over.first() else {
        return;
    };
    let origins = passed_over.iter().map(|one| {
        let entries = match one.entries {
            1 => "1 entry".to_owned(),
            entries => format!("{entries} entries"),
        };
        format!("{} ({entries})", printable(&one.origin))
    });
    let origins: Vec<String> = origins.collect();
    context.output.say(&format!(
        "warning: left out the Local Storage of {}: {}",
        origins.join(", "),
        first.reason
    ));
}

/// Writes a file that nobody else may read, whole or not at all; one that is there stays.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        path.symlink_metadata().is_err(),
        "`{}` is there already; remove it, or name another file",
        path.display()
    );
    let text = format!("{text}\n");
    Ok(write_new(path, text.as_bytes(), 0o600).map_err(Error::from)?)
}

impl StateImportArgs {
    async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let state = read(&self.file)?;
        let engine = context.writable_engine().await?;
        let mut run = self.profile_run(context, &engine).await?;
        let shown = show_steps(context.output, &mut run);
        let imported = engine.profiles().import_storage_state(run, state);
        let imported = Box::pin(imported).await;
        let _ = shown.await;
        let imported = imported?;
        let ran = &imported.ran;
        context.output.warn(&ran.warnings);
        if let Some(saved) = &ran.save {
            context.output.warn(&saved.warnings);
        }
        if imported.refused_cookies > 0 {
            let refused = plural(imported.refused_cookies, "cookie");
            context.output.say(&format!(
                "warning: the browser did not take {refused}, say with SameSite=None and without Secure"
            ));
        }
        warn_passed_over(context, &imported.passed_over);
        context.output.result(&imported, imported_text)?;
        let is_whole = imported.refused_cookies == 0 && imported.passed_over.is_empty();
        Ok(match ran.save.as_ref().map(save::exit) {
            Some(Exit::Done) if !is_whole => Exit::Incomplete,
            Some(exit) => exit,
            None => Exit::Failed,
        })
    }
}

impl StateImportArgs {
    /// The run of the browser that gets the state.
    async fn profile_run(
        &self,
        context: &CliContext,
        engine: &Engine,
    ) -> anyhow::Result<ProfileRun> {
        let named = self.browser.first().map(PathBuf::from);
        let named = browser_setting(context, named)?;
        let browser = installed_browser(named.as_deref(), &context.environment.search_path)?;
        let loading = &self.running.loading;
        let lineage = loading.lineage(&self.subject, Some(&browser)).await?;
        let mut command = vec![browser.into()];
        command.extend(self.browser.iter().skip(1).cloned());
        let mut run = self
            .running
            .profile_run(context, engine, lineage, command)?;
        run.max_time = LONGEST;
        Ok(run)
    }
}

/// What a file says; what is wrong with it is said without repeating any of it.
fn read(path: &Path) -> anyhow::Result<StorageState> {
    let mut bytes = Vec::new();
    let failed = || format!("could not read `{}`", path.display());
    if path == Path::new("-") {
        std::io::stdin().take(LARGEST).read_to_end(&mut bytes)
    } else {
        let file = std::fs::File::open(path).with_context(failed)?;
        file.take(LARGEST).read_to_end(&mut bytes)
    }
    .with_context(failed)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        anyhow::anyhow!(
            "`{}` is no storageState: line {}, column {}",
            path.display(),
            error.line(),
            error.column()
        )
    })
}

fn imported_text(imported: &StateImported) -> String {
    let lost = match imported.session_cookies {
        0 => String::new(),
        count => format!(
            "\n{} of them ended with the browser and {} not in the snapshot",
            plural(count, "session cookie"),
            if count == 1 { "is" } else { "are" }
        ),
    };
    let expired = match imported.expired_cookies {
        0 => String::new(),
        count => format!("\n{} not set: expired", plural(count, "cookie")),
    };
    let saved = imported.ran.save.as_ref().map(save::text);
    let why = imported.ran.save_error.as_deref().unwrap_or_default();
    format!(
        "set {} and the Local Storage of {}{lost}{expired}\n{}",
        plural(imported.cookies, "cookie"),
        plural(imported.origins, "origin"),
        saved.unwrap_or_else(|| format!("NOT SAVED: {}", printable(why))),
    )
}
