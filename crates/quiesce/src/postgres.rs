//! Dumping and restoring a PostgreSQL database through its own programs.
//!
//! A dump is one transaction's view of a running server, in the custom format and uncompressed: the store cuts
//! and compresses it better than `pg_dump` could, and finds again what did not change.
//!
//! 1. the server's version is asked: a `pg_dump` that is older cannot dump it
//! 2. `pg_dump` writes into a new file that only we may read
//! 3. its exit code, the size, and the table of contents as `pg_restore --list` reads it are checked
//! 4. file and directory are made durable
//!
//! *Always true:* a dump that is returned is whole and durable. An error or a dropped future leaves no file and no
//! process; a crash leaves a part of the file under its name, for the caller to remove.
//!
//! Restoring has two phases, so that all volumes can be verified before any is swapped: see [`stage`] and
//! [`StagedRestore::swap`].
//!
//! The password is in the environment of the children only, never in their arguments. What they know of ours is `PATH`.

mod client;
mod connection;
mod dump;
mod leftover;
mod name;
mod restore;
mod tables;

pub use connection::Connection;
pub use dump::{Dumped, dump};
pub use leftover::{LeftoverDatabase, drop_leftover, leftovers};
pub use name::Tag;
pub use restore::{RestoredDatabase, StagedRestore, discard_staged, restore, stage};
pub use tables::{TableRows, table_counts};

use client::Client;
use stasis_model::failure::Failure;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Who owns what was restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Owners {
    /// The same roles as in the dump, with the same rights: the roles must exist on the server, and we must be allowed to
    /// give things to them. Right on the server that was dumped, because applications may use several roles.
    #[default]
    Keep,
    /// The role we connect as, and no other role has rights. For a server that does not know the roles.
    Ours,
}

/// How the programs are found and how long they may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostgresSettings {
    /// Where `pg_dump`, `pg_restore` and `psql` are, if not on the search path.
    pub bin_dir: Option<PathBuf>,
    /// Where programs are looked for, as in `PATH`.
    pub search_path: OsString,
    /// How long one program that moves data may take.
    pub timeout: Duration,
    /// How long a question to the server may take, the counting of rows excepted.
    pub question_timeout: Duration,
    /// A database to connect to while the other one is renamed.
    pub maintenance_database: String,
    /// Who owns what was restored.
    pub owners: Owners,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        Self {
            bin_dir: None,
            search_path: "/usr/local/bin:/usr/bin:/bin".into(),
            timeout: Duration::from_hours(1),
            question_timeout: Duration::from_secs(30),
            maintenance_database: "postgres".to_owned(),
            owners: Owners::default(),
        }
    }
}

/// Why a database could not be dumped or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// A program failed.
    #[error("could not {doing} `{database}`: {program} ended with {code}: {said}")]
    ProgramFailed {
        /// What it was for.
        doing: &'static str,
        /// To which database.
        database: String,
        /// Which program.
        program: &'static str,
        /// Its exit code, as a shell gives it.
        code: i32,
        /// The end of what it said.
        said: String,
    },
    /// The server does not answer, or went away meanwhile.
    #[error("could not {doing} `{database}`: the server cannot be reached: {said}")]
    Unreachable {
        /// What it was for.
        doing: &'static str,
        /// To which database.
        database: String,
        /// The end of what the program said.
        said: String,
    },
    /// A program took too long and was killed with everything it had started.
    #[error("could not {doing} `{database}` within {} s", .limit.as_secs())]
    Slow {
        /// What it was for.
        doing: &'static str,
        /// To which database.
        database: String,
        /// How long it had.
        limit: Duration,
    },
    /// The server is newer than `pg_dump`. Install the client programs of the server's version, or name their directory.
    #[error("the server is version {server}, which pg_dump {client} is too old for")]
    ServerNewer {
        /// The server's version.
        server: String,
        /// The program's version.
        client: String,
    },
    /// A program answered something that is not understood.
    #[error("`{program}` answered something else than {wanted}")]
    Answer {
        /// Which program.
        program: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The dump has nothing in it.
    #[error("the dump of `{database}` is empty")]
    Empty {
        /// Which database.
        database: String,
    },
    /// A program is missing or cannot be run, or the dump could not be written.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A database that we would make is there already.
    #[error("there is a database `{name}` already")]
    Exists {
        /// Its name.
        name: String,
    },
    /// The server went away during the swap: it did all of it or nothing. Look whether `{backup}` exists.
    #[error(
        "it is not known whether `{database}` was swapped: if it was, the old one is `{backup}`"
    )]
    SwapUnknown {
        /// Which database.
        database: String,
        /// The name of the old one, if it was swapped.
        backup: String,
        /// Why.
        #[source]
        source: Box<PostgresError>,
    },
}

/// Whether the server answers questions to this database.
pub async fn is_ready(connection: &Connection, settings: &PostgresSettings) -> bool {
    let client = Client::new(connection, settings);
    let asked = client.ask("connect to", connection.database(), "SELECT 1");
    asked.await.is_ok()
}
