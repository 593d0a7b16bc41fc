//! `stasis internal`: what this program asks of itself in another process. Reads no configuration, starts no threads.

use clap::Subcommand;
use stasis_engine::kind::profile::become_bound;
use stasis_engine::kind::project::launch;
use stasis_engine::{check, watchdog};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum InternalCommand {
    /// Check the SQLite database `db` in the current directory, bound to limits
    CheckSqlite {
        /// What the check was given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Become a service of a project
    Launch {
        /// What the launcher was given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Become a command that ends with its parent
    Bound {
        /// The number of the parent, then the command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Let frozen processes run again when the engine that froze them dies
    Watchdog {
        /// What the watchdog was given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

impl InternalCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::CheckSqlite { arguments } => {
                let answer = check::sqlite_child(&arguments);
                std::io::stdout().write_all(answer.as_bytes())?;
            }
            Self::Bound { arguments } => return Err(become_bound(&arguments).into()),
            Self::Launch { arguments } => launch(&arguments)?,
            Self::Watchdog { arguments } => watchdog::run(&arguments)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
