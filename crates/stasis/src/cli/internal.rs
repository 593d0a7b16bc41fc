//! `stasis internal`: what this program asks of itself in another process. Reads no configuration, starts no threads.

use clap::Subcommand;
use stasis_engine::check;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum Internal {
    /// Check the SQLite database `db` in the current directory, bound to limits
    CheckSqlite {
        /// What the check was given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

impl Internal {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::CheckSqlite { arguments } = self;
        let answer = check::sqlite_child(&arguments);
        std::io::stdout().write_all(answer.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
