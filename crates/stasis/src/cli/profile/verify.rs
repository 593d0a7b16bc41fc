//! `stasis profile verify`

use super::who::spawn;
use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::profile::{ProfileVerified, ProfileVerify, ShaPrefix};
use stasis_engine::model::id::ProfileRef;
use stasis_engine::open::Engine;
use std::ffi::OsString;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileVerifyArgs {
    /// <tenant>/<profile>[@<chrome-major>]
    subject: ProfileRef,
    /// The beginning of the snapshot's sha256 [default: the active one]
    #[arg(long, value_name = "PREFIX")]
    sha: Option<ShaPrefix>,
    /// Start this browser on it too, and count its cookies by site; give more than once to add its flags, as in
    /// --browser chromium --browser=--no-sandbox
    #[arg(long, value_name = "COMMAND")]
    browser: Vec<OsString>,
}

impl ProfileVerifyArgs {
    pub(super) async fn run(self, context: &CliContext, engine: Engine) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let verify = ProfileVerify {
            subject: self.subject,
            sha: self.sha,
            browser: self.browser,
            spawn: spawn()?,
            progress: Arc::clone(&progress),
            cancel: cancel_on_signals()?,
        };
        let work = Box::pin(engine.profiles().verify(verify));
        let verified = watched(context.output, "verifying", progress, work).await?;
        context.output.warn(&verified.warnings);
        context.output.result(&verified, text)?;
        Ok(Exit::Done)
    }
}

fn text(verified: &ProfileVerified) -> String {
    let cookies = verified.cookies.iter().flatten();
    let cookies =
        cookies.map(|(site, count)| format!("\n  {count:>6} cookies of {}", printable(site)));
    let cookies = cookies.collect::<Vec<_>>().concat();
    format!(
        "OK: {} of {} restores cleanly ({}, {}; {} passed integrity_check; {} ms){cookies}",
        verified.sha256.prefix(),
        verified.subject,
        plural(verified.files, "file"),
        size(verified.bytes),
        plural(verified.databases, "database"),
        verified.elapsed_ms,
    )
}
