//! Running PostgreSQL's own programs: found, given the server's address, watched, and killed with all they started.

use super::{Connection, PostgresError, PostgresSettings};
use rustix::process::{Pid, Signal, kill_process_group};
use stasis_model::failure::{ErrorKind, Failure};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How much of an answer is read: a list of all tables is far below it.
const LONGEST_ANSWER: usize = 256 << 20;
/// How much is kept of what a program complains of.
const LONGEST_COMPLAINT: usize = 4096;

/// Programs that know one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client<'a> {
    pub(super) connection: &'a Connection,
    pub(super) settings: &'a PostgresSettings,
}

/// One run of a program.
#[derive(Debug)]
pub(super) struct ClientTask<'a> {
    pub(super) doing: &'static str,
    pub(super) program: &'static str,
    pub(super) database: &'a str,
    pub(super) limit: Duration,
}

impl<'a> Client<'a> {
    pub(super) fn new(connection: &'a Connection, settings: &'a PostgresSettings) -> Self {
        Self {
            connection,
            settings,
        }
    }

    /// The program with nothing of our environment but what it needs.
    pub(super) fn command(&self, task: &ClientTask<'_>) -> Command {
        let mut paths: Vec<_> = std::env::split_paths(&self.settings.search_path).collect();
        paths.splice(0..0, self.settings.bin_dir.clone());
        let executable = paths
            .iter()
            .map(|directory| directory.join(task.program))
            .find(|path| path.is_file());
        let mut command = Command::new(executable.unwrap_or_else(|| task.program.into()));
        command
            .env_clear()
            .env("PATH", &self.settings.search_path)
            .env("LC_ALL", "C")
            .env("PGCLIENTENCODING", "UTF8")
            .env("PGAPPNAME", "stasis")
            .env("PGCONNECT_TIMEOUT", "10")
            .envs(self.connection.variables())
            .env("PGDATABASE", task.database)
            .stdin(Stdio::null());
        command
    }

    /// Runs SQL, all of it or up to the first error, and returns the rows as lines.
    pub(super) async fn ask(
        &self,
        doing: &'static str,
        database: &str,
        sql: &str,
    ) -> Result<String, PostgresError> {
        let limit = self.settings.question_timeout;
        self.ask_within(doing, database, sql, limit).await
    }

    pub(super) async fn ask_within(
        &self,
        doing: &'static str,
        database: &str,
        sql: &str,
        limit: Duration,
    ) -> Result<String, PostgresError> {
        let task = ClientTask {
            doing,
            program: "psql",
            database,
            limit,
        };
        let mut command = self.command(&task);
        command.args(["-XAtqw", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        command.stdout(Stdio::piped()).stdin(Stdio::piped());
        self.run(&task, command, sql).await
    }

    /// Runs a program to its end; returns what it wrote, where that is a pipe. Safe to drop: then it is killed.
    pub(super) async fn run(
        &self,
        task: &ClientTask<'_>,
        mut command: Command,
        input: &str,
    ) -> Result<String, PostgresError> {
        command.stderr(Stdio::piped()).process_group(0);
        // A program that is missing is the user's to install.
        let failed = |source: io::Error| {
            Failure::new(ErrorKind::NotFound, "run", task.program).because(source)
        };
        let ran = async {
            let mut running = ClientProcess::start(command)?;
            let ended = tokio::time::timeout(task.limit, running.end(input)).await;
            ended.ok().transpose()
        };
        let Some((status, answer, complaint)) = ran.await.map_err(failed)? else {
            return Err(PostgresError::Slow {
                doing: task.doing,
                database: task.database.to_owned(),
                limit: task.limit,
            });
        };
        if !status.success() {
            return Err(task.failed(status, self.readable(&complaint)));
        }
        let wanted = "text";
        let answer = String::from_utf8(answer).ok();
        answer.ok_or(PostgresError::Answer {
            program: task.program,
            wanted,
        })
    }

    /// The end of a complaint as one line without the password.
    fn readable(&self, complaint: &[u8]) -> String {
        let text = String::from_utf8_lossy(complaint);
        let text = self.connection.censored(text.trim());
        let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        plain.collect()
    }
}

impl ClientTask<'_> {
    fn failed(&self, status: ExitStatus, said: String) -> PostgresError {
        let (doing, database) = (self.doing, self.database.to_owned());
        if is_unreachable(&said) {
            return PostgresError::Unreachable {
                doing,
                database,
                said,
            };
        }
        let code = status.code();
        PostgresError::ProgramFailed {
            doing,
            database,
            program: self.program,
            code: code.unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            said,
        }
    }
}

/// Whether a program complains that there is no server, in the words of libpq without translation. A server that says no
/// (`FATAL`) was reached, unless it only begins or ends its work.
fn is_unreachable(said: &str) -> bool {
    const BETWEEN: [&str; 4] = [
        "the database system is starting up",
        "the database system is shutting down",
        "the database system is not yet accepting connections",
        "terminating connection due to administrator command",
    ];
    const LOST: [&str; 5] = [
        "could not connect to server",
        "could not translate host name",
        "server closed the connection unexpectedly",
        "connection to server was lost",
        "SSL connection has been closed unexpectedly",
    ];
    let has = |words: &[&str]| words.iter().any(|words| said.contains(words));
    let is_refused = said.contains("connection to server") && said.contains(" failed: ");
    has(&BETWEEN) || !said.contains("FATAL: ") && (is_refused || has(&LOST))
}

/// A program in a process group of its own, which is killed unless it has ended.
#[derive(Debug)]
struct ClientProcess {
    child: Child,
    group: Option<Pid>,
}

impl ClientProcess {
    fn start(mut command: Command) -> std::io::Result<Self> {
        let child = command.kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(Self {
            group: group.and_then(Pid::from_raw),
            child,
        })
    }

    async fn end(&mut self, input: &str) -> std::io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        let stdin = self.child.stdin.take();
        let write_input = async move {
            if let Some(mut stdin) = stdin {
                // One that ended early does not listen; its exit code says why.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let ((), answer, complaint) = tokio::join!(
            write_input,
            read_end(stdout, LONGEST_ANSWER),
            read_end(stderr, LONGEST_COMPLAINT)
        );
        let status = self.child.wait().await?;
        self.group = None;
        Ok((status, answer?, complaint?))
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads all and keeps the end of it.
async fn read_end(from: Option<impl AsyncRead + Unpin>, most: usize) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut from) = from else {
        return Ok(kept);
    };
    let mut bytes = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(kept);
        }
        kept.extend(bytes.iter().take(count));
        if kept.len() > most {
            kept.drain(..kept.len() - most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_there_is_told_from_one_that_says_no() {
        let unreachable = [
            "psql: error: connection to server on socket \"/tmp/.s.PGSQL.1\" failed: No such file or directory \tIs the server running locally and accepting connections on that socket?",
            "psql: error: connection to server at \"127.0.0.1\", port 1 failed: Connection refused",
            "psql: error: could not translate host name \"nowhere\" to address: Name or service not known",
            "psql: error: connection to server at \"10.0.0.1\", port 5432 failed: timeout expired",
            "pg_dump: error: query failed: server closed the connection unexpectedly",
            "connection to server on socket \"x\" failed: FATAL:  the database system is starting up",
        ];
        for said in unreachable {
            assert!(is_unreachable(said), "{said}");
        }
        let reached = [
            "psql: error: connection to server at \"::1\", port 1 failed: FATAL:  password authentication failed for user \"u\"",
            "psql: error: connection to server on socket \"x\" failed: FATAL:  database \"shop\" does not exist",
            "ERROR:  permission denied for table t",
            "",
        ];
        for said in reached {
            assert!(!is_unreachable(said), "{said}");
        }
    }
}
