//! Looks at a container, pauses it, and lets it run again: what a freeze needs, for threads that may not wait for long.

use super::client::Docker;
use super::error::{CallError, present};
use super::pending::{PendingCall, reason};
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum as Status};
use stasis_model::failure::{ErrorKind, Failure};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;
use tokio::time::timeout;

/// How long the daemon may take for one answer. A pause takes 0.06 s on an idle machine.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to let one run again. Nothing is won by giving that up early, as it would only be asked for once more.
const UNPAUSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it takes at most until it is known whether one runs again whose pause was still on its way.
pub(crate) const UNDO_TIMEOUT: Duration =
    UNPAUSE_TIMEOUT.saturating_add(REPLY_TIMEOUT.saturating_mul(2));

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
    /// Asks without naming a version.
    async fn ask_within<T>(
        &self,
        limit: Duration,
        op: &'static str,
        container: &str,
        call: impl AsyncFnOnce(bollard::Docker) -> Result<T, CallError>,
    ) -> Result<T, Failure> {
        let asked = async {
            check_container_name(container)?;
            call(self.unversioned()?).await
        };
        let answered = timeout(limit, asked).await;
        let answered = answered.unwrap_or(Err(CallError::Silent(limit)));
        answered.map_err(|error| error.into_failure(op, container, self.host()))
    }

    /// Looks at a container by its name or id, or `None` when the daemon knows none.
    pub(crate) async fn look(&self, container: &str) -> Result<Option<ContainerInfo>, Failure> {
        let call = async |client: bollard::Docker| {
            let found = present(client.inspect_container(container, None).await)?;
            Ok(found.map(|found| self.describe(found)).transpose()?)
        };
        self.ask_within(REPLY_TIMEOUT, "look at container", container, call)
            .await
    }

    /// The same for a thread that is in no runtime, or blocks it for a moment.
    pub(crate) fn look_blocking(&self, container: &str) -> Result<Option<ContainerInfo>, Failure> {
        let (docker, container) = (self.clone(), container.to_owned());
        let call = PendingCall::begin(REPLY_TIMEOUT, move || async move {
            docker.look(&container).await
        });
        call.map_err(not_begun)?.answer()
    }

    fn describe(&self, found: ContainerInspectResponse) -> Result<ContainerInfo, Failure> {
        let strange = |what: &str| {
            let why = format!("the daemon's answer has no {what}");
            Failure::of(ErrorKind::Unreachable, why)
        };
        let id = found.id.unwrap_or_default();
        if id.len() < 12 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(strange("id"));
        }
        let state = found.state.ok_or_else(|| strange("state"))?;
        let pid = || u32::try_from(state.pid.unwrap_or_default()).unwrap_or_default();
        let activity = match state.status.ok_or_else(|| strange("state"))? {
            Status::RUNNING => ContainerState::Running(pid()),
            Status::PAUSED => ContainerState::Paused(pid()),
            Status::CREATED | Status::EXITED | Status::DEAD => ContainerState::Stopped,
            between => ContainerState::Between(between.to_string()),
        };
        let docker = self.clone();
        Ok(ContainerInfo {
            container: Container { docker, id },
            activity,
            started: state.started_at.unwrap_or_default(),
        })
    }
}

fn not_begun(error: io::Error) -> Failure {
    Failure::from_io(
        error,
        "start a thread for",
        "a question to the Docker daemon",
    )
}

impl Container {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether it stands still.
    pub(crate) fn is_paused(&self) -> Result<bool, Failure> {
        let look = self.docker.look_blocking(&self.id)?;
        Ok(look.is_some_and(|look| matches!(look.activity, ContainerState::Paused(_))))
    }

    /// Begins to pause it.
    pub(crate) fn pause(&self) -> io::Result<PendingCall<()>> {
        let Self { docker, id } = self.clone();
        PendingCall::begin(REPLY_TIMEOUT, move || async move {
            let call = async |client: bollard::Docker| Ok(client.pause_container(&id).await?);
            docker
                .ask_within(REPLY_TIMEOUT, "pause container", &id, call)
                .await
        })
    }

    fn unpause(&self) -> io::Result<PendingCall<()>> {
        let Self { docker, id } = self.clone();
        PendingCall::begin(UNPAUSE_TIMEOUT, move || async move {
            let call = async |client: bollard::Docker| Ok(client.unpause_container(&id).await?);
            docker
                .ask_within(UNPAUSE_TIMEOUT, "unpause container", &id, call)
                .await
        })
    }

    /// Lets some run again, all at once; returns those for which that is not sure. One that runs already is fine.
    pub(crate) fn unpause_all(containers: &[Self]) -> Vec<(Self, io::Error)> {
        let asked: Vec<_> = containers.iter().map(Self::unpause).collect();
        let mut failed = Vec::new();
        for (container, asked) in containers.iter().zip(asked) {
            let why = match asked.map(PendingCall::answer) {
                Ok(Ok(())) => continue,
                Ok(Err(failure)) => io::Error::other(reason(&failure)),
                Err(error) => error,
            };
            // It was not paused any more, or it is gone.
            if !matches!(container.is_paused(), Ok(false)) {
                failed.push((container.clone(), why));
            }
        }
        failed
    }

    /// As three words: the id, the daemon's address, and the program that versions before this one ask. No other container
    /// has the same.
    pub(crate) fn to_line(&self) -> String {
        format!("{} {} docker", self.id, escape(self.docker.host()))
    }

    /// Understands what `to_line` wrote, now or before: then `-` was the daemon of this host.
    pub(crate) fn parse(words: &str) -> Option<Self> {
        let words: Vec<&str> = words.split_ascii_whitespace().collect();
        let [id, host, _program] = words[..] else {
            return None;
        };
        let docker = match host {
            "-" => Docker::default(),
            host => Docker::at(unescape(host)?),
        };
        let id = id.to_owned();
        Some(Self { docker, id })
    }
}

/// Refuses what would name another part of the API.
pub(super) fn check_container_name(name: &str) -> Result<(), Failure> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.bytes().all(allowed) {
        return Ok(());
    }
    let why = "names consist of letters, digits and the characters _ . -";
    Err(Failure::of(ErrorKind::Invalid, why))
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
    use bollard::models::ContainerState as State;

    #[test]
    fn a_container_is_found_again_by_its_words() {
        let odd = OsString::from_vec(b"unix:///a b%/\xff\n".to_vec());
        for docker in [Docker::default(), Docker::at(odd)] {
            let container = Container {
                docker,
                id: "0123456789abcdef".into(),
            };
            let words = container.to_line();

            assert!(!words.contains('\n') && words.split(' ').count() == 3);
            assert_eq!(Container::parse(&words), Some(container));
        }
        assert_eq!(Container::parse("only two"), None);
        assert_eq!(Container::parse("id %4 docker"), None);
    }

    #[test]
    fn a_container_that_an_earlier_version_wrote_down_is_found() {
        let earlier = Container::parse("0123456789abcdef - /usr/bin/docker").unwrap();

        assert_eq!(earlier.docker, Docker::default());
    }

    #[test]
    fn what_the_daemon_answers_is_understood_or_refused() {
        let docker = Docker::default();
        let answer = |id: &str, status| ContainerInspectResponse {
            id: Some(id.to_owned()),
            state: Some(State {
                status: Some(status),
                pid: Some(42),
                started_at: Some("2026-11-15T01:02:03Z".to_owned()),
                ..State::default()
            }),
            ..ContainerInspectResponse::default()
        };
        let activity = |status| {
            let info = docker.describe(answer("0123456789abcdef", status));
            info.unwrap().activity
        };

        assert_eq!(activity(Status::RUNNING), ContainerState::Running(42));
        assert_eq!(activity(Status::PAUSED), ContainerState::Paused(42));
        assert_eq!(activity(Status::EXITED), ContainerState::Stopped);
        assert_eq!(
            activity(Status::RESTARTING),
            ContainerState::Between("restarting".into())
        );
        assert!(docker.describe(answer("--flag", Status::RUNNING)).is_err());
        assert!(
            docker
                .describe(ContainerInspectResponse::default())
                .is_err()
        );
    }

    #[test]
    fn a_name_that_would_reach_another_part_of_the_api_is_refused() {
        for name in ["", "../volumes/v", "a/b", "a?b=c", "-a", "a b", "a%2fb"] {
            assert!(check_container_name(name).is_err(), "{name}");
        }
        assert!(check_container_name("web_1.x-y").is_ok());
    }
}
