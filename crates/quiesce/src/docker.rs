//! Containers, by the `docker` program: looked at, paused, and made to run again. Never through a shell.
//!
//! A container is named by its whole id, which is never used again, and by how its daemon is reached: a later process, with
//! another environment, can find the same one. Every question to the daemon has a limit, because a daemon that hangs must not
//! hold up the release of what was paused.

mod answer;

pub(crate) use answer::DockerCall;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// How long the daemon may take for one answer. A pause takes 0.06 s on an idle machine.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// What is asked of a container, in one line.
pub(crate) const INSPECT_FORMAT: &str =
    "{{.Id}} {{.State.Status}} {{.State.Pid}} {{.State.StartedAt}}";

/// How a Docker daemon is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Docker {
    /// The client program.
    pub program: OsString,
    /// The daemon's address, as in `DOCKER_HOST`; the client's own choice when there is none. It is written down with what
    /// was paused, so that a later process asks the same daemon.
    pub host: Option<OsString>,
}

impl Default for Docker {
    /// The `docker` on the search path, and the daemon it chooses.
    fn default() -> Self {
        Self {
            program: "docker".into(),
            host: None,
        }
    }
}

/// What a container does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ContainerState {
    /// It runs; its first process has this number for the daemon.
    Running(u32),
    /// Another process or user paused it.
    Paused(u32),
    /// It does not run.
    Stopped,
    /// Something in between, say `restarting`.
    Between(String),
}

/// A container as its daemon describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ContainerInfo {
    pub(crate) container: Container,
    pub(crate) activity: ContainerState,
    /// When it was last started, as the daemon writes it.
    pub(crate) started: String,
}

/// One container of one daemon, whatever it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Container {
    docker: Docker,
    id: String,
}

impl Docker {
    /// The words of a command about one container, after the program.
    pub(crate) fn words(&self, command: &[&str], container: &str) -> Vec<OsString> {
        let mut words = Vec::new();
        if let Some(host) = &self.host {
            words.extend(["--host".into(), host.clone()]);
        }
        words.extend(command.iter().map(OsString::from));
        words.extend(["--".into(), container.into()]);
        words
    }

    fn ask(&self, command: &[&str], container: &str) -> io::Result<DockerCall> {
        DockerCall::ask(
            &self.program,
            &self.words(command, container),
            REPLY_TIMEOUT,
        )
    }

    /// Looks at a container by its name or id, or `None` when the daemon knows none. Blocks for a moment.
    pub(crate) fn look(&self, container: &str) -> io::Result<Option<ContainerInfo>> {
        let command = ["container", "inspect", "--format", INSPECT_FORMAT];
        let answer = self.ask(&command, container)?.answer()?;
        self.parse_reply(answer.succeeded, &answer.stdout, &answer.stderr)
    }

    /// Understands the answer to [`INSPECT_FORMAT`].
    pub(crate) fn parse_reply(
        &self,
        succeeded: bool,
        stdout: &str,
        stderr: &str,
    ) -> io::Result<Option<ContainerInfo>> {
        if !succeeded {
            let absent = stderr.to_ascii_lowercase().contains("no such");
            return if absent {
                Ok(None)
            } else {
                Err(docker_error(stderr))
            };
        }
        let words: Vec<&str> = stdout.split_ascii_whitespace().collect();
        let [id, status, pid, started] = words[..] else {
            return Err(docker_error(stdout));
        };
        let pid = pid.parse().ok().ok_or_else(|| docker_error(stdout))?;
        let is_id = id.len() >= 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let container = Container {
            docker: self.clone(),
            id: id.to_owned(),
        };
        is_id.then_some(()).ok_or_else(|| docker_error(stdout))?;
        Ok(Some(ContainerInfo {
            container,
            activity: match status {
                "running" => ContainerState::Running(pid),
                "paused" => ContainerState::Paused(pid),
                "created" | "exited" | "dead" => ContainerState::Stopped,
                between => ContainerState::Between(between.to_owned()),
            },
            started: started.to_owned(),
        }))
    }
}

impl Container {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn look(&self) -> io::Result<Option<ContainerInfo>> {
        self.docker.look(&self.id)
    }

    /// Whether it stands still.
    pub(crate) fn is_paused(&self) -> io::Result<bool> {
        let look = self.look()?;
        Ok(look.is_some_and(|look| matches!(look.activity, ContainerState::Paused(_))))
    }

    /// Begins to pause it.
    pub(crate) fn pause(&self) -> io::Result<DockerCall> {
        self.docker.ask(&["pause"], &self.id)
    }

    /// Lets some run again, all at once; returns those for which that is not sure. One that runs already is fine.
    pub(crate) fn unpause_all(containers: &[Self]) -> Vec<(Self, io::Error)> {
        let ask = |container: &Self| container.docker.ask(&["unpause"], &container.id);
        let asked: Vec<_> = containers.iter().map(ask).collect();
        let mut failed = Vec::new();
        for (container, asked) in containers.iter().zip(asked) {
            let answer = asked.and_then(DockerCall::answer);
            let why = match answer {
                Ok(answer) if answer.succeeded => continue,
                Ok(answer) => docker_error(&answer.stderr),
                Err(error) => error,
            };
            // It was not paused any more, or it is gone.
            if !matches!(container.is_paused(), Ok(false)) {
                failed.push((container.clone(), why));
            }
        }
        failed
    }

    /// As three words: the id, the daemon's address and the program. No other container has the same.
    pub(crate) fn to_line(&self) -> String {
        let host = self.docker.host.as_deref();
        let host = host.map_or_else(|| "-".to_owned(), escape);
        format!("{} {host} {}", self.id, escape(&self.docker.program))
    }

    /// Understands what `to_line` wrote.
    pub(crate) fn parse(words: &str) -> Option<Self> {
        let words: Vec<&str> = words.split_ascii_whitespace().collect();
        let [id, host, program] = words[..] else {
            return None;
        };
        let host = (host != "-").then(|| unescape(host));
        let docker = Docker {
            program: unescape(program)?,
            host: host.map_or(Some(None), |host| host.map(Some))?,
        };
        let id = id.to_owned();
        Some(Self { docker, id })
    }
}

/// What the client said, as an error.
pub(crate) fn docker_error(text: &str) -> io::Error {
    let line = text.lines().find(|line| !line.trim().is_empty());
    io::Error::other(line.unwrap_or("docker gave no reason").trim().to_owned())
}

/// A word without spaces, from anything.
fn escape(word: &OsStr) -> String {
    let escaped = word.as_bytes().iter().map(|&byte| match byte {
        b'%' => "%25".to_owned(),
        byte if byte.is_ascii_graphic() => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    });
    escaped.collect()
}

fn unescape(word: &str) -> Option<OsString> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    Some(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_found_again_by_its_words() {
        let hosts = [None, Some("unix:///a b%/\u{e9}\n".into())];
        for host in hosts {
            let container = Container {
                docker: Docker {
                    program: OsString::from_vec(b"/x y/do\xffcker".to_vec()),
                    host,
                },
                id: "0123456789abcdef".into(),
            };
            let words = container.to_line();

            assert!(!words.contains('\n') && words.split(' ').count() == 3);
            assert_eq!(Container::parse(&words), Some(container));
        }
        assert_eq!(Container::parse("only two"), None);
        assert_eq!(Container::parse("id - %4"), None);
    }

    #[test]
    fn what_the_daemon_answers_is_understood_or_told() {
        let docker = Docker::default();
        let activity = |status: &str| {
            let line = format!("0123456789abcdef {status} 42 2026-11-15T01:02:03Z\n");
            let look = docker.parse_reply(true, &line, "").unwrap().unwrap();
            look.activity
        };

        assert_eq!(activity("running"), ContainerState::Running(42));
        assert_eq!(activity("paused"), ContainerState::Paused(42));
        assert_eq!(activity("exited"), ContainerState::Stopped);
        assert_eq!(
            activity("restarting"),
            ContainerState::Between("restarting".into())
        );
        let absent = docker.parse_reply(false, "", "Error: No such container: x");
        assert_eq!(absent.unwrap(), None);
        let unreachable = docker.parse_reply(false, "", "Cannot connect to the daemon\n");
        assert_eq!(
            unreachable.unwrap_err().to_string(),
            "Cannot connect to the daemon"
        );
        assert!(docker.parse_reply(true, "--flag running 1 x", "").is_err());
        assert!(docker.parse_reply(true, "", "").is_err());
    }
}
