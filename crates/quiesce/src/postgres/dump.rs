//! A dump: a new file that is removed again unless it is whole.

mod date;

use super::client::{Client, ClientTask};
use super::{Connection, PostgresError, PostgresSettings};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
use stasis_model::failure::AtPath;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::time::Instant;

/// A database was dumped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dumped {
    /// The server's version, in its own words.
    pub server_version: String,
    /// The version of `pg_dump`.
    pub dump_version: String,
    /// How large the dump is.
    pub bytes: u64,
    /// How many entries its table of contents has.
    pub entries: usize,
    /// How long it took.
    pub elapsed: Duration,
}

/// Dumps a database into the new file `target`, which must not exist.
///
/// The date at which it was made is taken out of the dump: an unchanged database is the same bytes again.
///
/// Safe to drop at any time: then `pg_dump` is killed and the file removed.
#[tracing::instrument(skip_all, err, fields(database = connection.database()))]
pub async fn dump(
    connection: &Connection,
    target: &Path,
    settings: &PostgresSettings,
) -> Result<Dumped, PostgresError> {
    let began = Instant::now();
    let client = Client::new(connection, settings);
    let (server_version, dump_version) = versions(client).await?;
    let file = DumpFile::create(target)?;
    let task = ClientTask {
        doing: "dump",
        program: "pg_dump",
        database: connection.database(),
        limit: settings.timeout,
    };
    let mut command = client.command(&task);
    command.args([
        "--format=custom",
        "--compress=0",
        "--no-sync",
        "--no-password",
    ]);
    command.stdout(Stdio::from(file.handle()?));
    client.run(&task, command, "").await?;

    let entries = entries(client, target).await?;
    let is_right = entries > 0 || is_bare(client).await?;
    let undated = file.handle().map(|file| date::reset(&file))?;
    undated.at("take the date out of the dump", target)?;
    let bytes = file.keep().await?;
    if bytes == 0 || !is_right {
        // A file that was kept by then is removed with the same care.
        drop(DumpFile::adopt(target)?);
        let database = connection.database().to_owned();
        return Err(PostgresError::Empty { database });
    }
    tracing::debug!(bytes, entries, "database dumped");
    Ok(Dumped {
        server_version,
        dump_version,
        bytes,
        entries,
        elapsed: began.elapsed(),
    })
}

/// Whether a database has nothing of its own in it: then a dump without entries is right.
async fn is_bare(client: Client<'_>) -> Result<bool, PostgresError> {
    let question = "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                    WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'";
    let database = client.connection.database();
    let answer = client.ask("look into", database, question).await?;
    Ok(answer.trim() == "0")
}

/// The versions of the server and of `pg_dump`, if the second can dump the first.
async fn versions(client: Client<'_>) -> Result<(String, String), PostgresError> {
    let database = client.connection.database();
    let doing = "ask the version of the server of";
    let asked = client.ask(doing, database, "SHOW server_version");
    let server = asked.await?.trim().to_owned();
    let task = ClientTask {
        doing: "ask the version of pg_dump for",
        program: "pg_dump",
        database,
        limit: client.settings.question_timeout,
    };
    let mut command = client.command(&task);
    command.arg("--version").stdout(Stdio::piped());
    let answer = client.run(&task, command, "").await?;
    // `pg_dump (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)`
    let dump = answer.split_once(") ").map(|(_, version)| version.trim());
    let dump = dump.unwrap_or_default().to_owned();
    match (major(&server), major(&dump)) {
        (Some(of_server), Some(of_dump)) if of_server > of_dump => {
            Err(PostgresError::ServerNewer {
                server,
                client: dump,
            })
        }
        (Some(_), Some(_)) => Ok((server, dump)),
        _ => Err(PostgresError::Answer {
            program: "pg_dump",
            wanted: "a version",
        }),
    }
}

fn major(version: &str) -> Option<u32> {
    let end = version.find(|c: char| !c.is_ascii_digit());
    version[..end.unwrap_or(version.len())].parse().ok()
}

/// How many entries the table of contents of a dump has, as `pg_restore` reads it.
pub(super) async fn entries(client: Client<'_>, dump: &Path) -> Result<usize, PostgresError> {
    let list = read(client, "read the dump of", dump, &["--list".as_ref()]).await?;
    let is_entry = |line: &&str| !line.trim().is_empty() && !line.starts_with(';');
    Ok(list.lines().filter(is_entry).count())
}

/// What `pg_restore` writes of a dump without talking to a server.
pub(super) async fn read(
    client: Client<'_>,
    doing: &'static str,
    dump: &Path,
    arguments: &[&OsStr],
) -> Result<String, PostgresError> {
    let task = ClientTask {
        doing,
        program: "pg_restore",
        database: client.connection.database(),
        limit: client.settings.timeout,
    };
    let mut command = client.command(&task);
    command.args(arguments).arg("--").arg(dump);
    command.stdout(Stdio::piped());
    client.run(&task, command, "").await
}

/// A file that was created here and is removed unless it is kept.
#[derive(Debug)]
struct DumpFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl DumpFile {
    fn create(path: &Path) -> Result<Self, PostgresError> {
        Self::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn adopt(path: &Path) -> Result<Self, PostgresError> {
        Self::open(path, OFlags::WRONLY | OFlags::NOFOLLOW)
    }

    fn open(path: &Path, flags: OFlags) -> Result<Self, PostgresError> {
        let opened = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let file = opened.at("create the dump", path)?;
        Ok(Self {
            path: path.to_owned(),
            file: file.into(),
            is_kept: false,
        })
    }

    fn handle(&self) -> Result<File, PostgresError> {
        let handle = self.file.try_clone();
        Ok(handle.at("write the dump", &self.path)?)
    }

    /// Makes the file and its name durable, on a thread of its own because a disk may take seconds. Returns its size.
    async fn keep(mut self) -> Result<u64, PostgresError> {
        let (file, path) = (self.handle()?, self.path.clone());
        let (done, finished) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || done.send(sync(&file, &path)));
        let synced = finished.await.unwrap_or(Err(io::ErrorKind::Other.into()));
        let bytes = synced.at("finish the dump", &self.path)?;
        self.is_kept = true;
        Ok(bytes)
    }
}

impl Drop for DumpFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = unlinkat(CWD, &self.path, AtFlags::empty());
        }
    }
}

fn sync(file: &File, path: &Path) -> io::Result<u64> {
    file.sync_all()?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    rustix::fs::fsync(directory)?;
    Ok(file.metadata()?.len())
}
