//! The containers that a watchdog pauses, and lets run again.

use crate::docker::{Container, DockerCall, docker_error};
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// For how long a pause that was given up may still happen: the daemon goes on with what it was asked.
const LATE: Duration = Duration::from_secs(3);

/// What became of a pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PauseOutcome {
    /// It stands still because of us.
    Paused,
    /// Another process or user paused it first.
    Theirs,
    /// It runs, for this reason.
    Failed(String),
    /// It may stand still, now or in a moment; a watchdog that is not dismissed looks after it.
    Unsure(String),
}

impl PauseOutcome {
    pub(super) fn to_line(&self) -> String {
        let on_one_line = |why: &str| why.replace(['\n', '\r'], " ");
        match self {
            Self::Paused => "paused\n".to_owned(),
            Self::Theirs => "theirs\n".to_owned(),
            Self::Failed(why) => format!("failed {}\n", on_one_line(why)),
            Self::Unsure(why) => format!("unsure {}\n", on_one_line(why)),
        }
    }

    /// What is not understood is not sure.
    pub(super) fn parse(line: &str) -> Self {
        match line.split_once(' ') {
            None if line == "paused" => Self::Paused,
            None if line == "theirs" => Self::Theirs,
            Some(("failed", why)) => Self::Failed(why.to_owned()),
            Some(("unsure", why)) => Self::Unsure(why.to_owned()),
            _ => Self::Unsure(line.to_owned()),
        }
    }
}

/// All that a watchdog has to do with containers.
#[derive(Debug, Default)]
pub(super) struct PendingPauses {
    asked: Vec<(Container, io::Result<DockerCall>)>,
    paused: Vec<Container>,
    /// Until when something that was given up may still happen.
    late: Option<Instant>,
}

impl PendingPauses {
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.paused.is_empty()
    }

    /// Asks the daemon to pause one, without waiting for it.
    pub(super) fn begin(&mut self, container: Container) {
        let asked = container.pause();
        self.asked.push((container, asked));
    }

    /// Waits for the daemon; says what became of those that were asked for since the last time.
    pub(super) fn settle(&mut self) -> Vec<PauseOutcome> {
        let asked = std::mem::take(&mut self.asked);
        let settled = asked.into_iter().map(|(container, question)| {
            // One that could not even be asked for was not paused by us.
            let question = match question {
                Ok(question) => question,
                Err(error) => return PauseOutcome::Failed(error.to_string()),
            };
            let pausing = match question.answer() {
                Ok(answer) if answer.succeeded => PauseOutcome::Paused,
                Ok(answer) if answer.stderr.contains("already paused") => PauseOutcome::Theirs,
                Ok(answer) => match container.is_paused() {
                    Ok(false) => PauseOutcome::Failed(docker_error(&answer.stderr).to_string()),
                    Ok(true) | Err(_) => {
                        PauseOutcome::Unsure(docker_error(&answer.stderr).to_string())
                    }
                },
                Err(error) => {
                    self.late = Some(Instant::now() + LATE);
                    PauseOutcome::Unsure(error.to_string())
                }
            };
            if matches!(pausing, PauseOutcome::Paused | PauseOutcome::Unsure(_)) {
                self.paused.push(container);
            }
            pausing
        });
        settled.collect()
    }

    /// Lets all run again. What fails is kept for another try.
    pub(super) fn undo(&mut self) -> io::Result<()> {
        let _ = self.settle();
        let paused = std::mem::take(&mut self.paused);
        let failed = Container::unpause_all(&paused);
        if let Some(late) = self.late
            && Instant::now() < late
        {
            self.paused = paused;
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let mut all = Ok(());
        for (container, error) in failed {
            self.paused.push(container);
            all = Err(error);
        }
        all
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes its own files")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    /// A daemon's client whose pauses are done by this script.
    fn container(home: &TempDir, pause: &str) -> Container {
        let program = home.path().join("docker");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n\
             *inspect*) echo \"0123456789abcdef $(cat $0.state) 1 then\";;\n\
             *unpause*) grep -q paused $0.state || exit 1; echo running > $0.state; echo >> $0.unpaused;;\n\
             *pause*) {pause};;\nesac\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(home.path().join("docker.state"), "running\n").unwrap();
        Container::parse(&format!("0123456789abcdef - {}", program.display())).unwrap()
    }

    fn was_unpaused_and_runs(home: &TempDir) -> bool {
        let state = fs::read_to_string(home.path().join("docker.state")).unwrap();
        home.path().join("docker.unpaused").exists() && state == "running\n"
    }

    #[test]
    fn a_pause_that_nobody_waited_for_is_waited_for_before_it_is_undone() {
        let home = tempfile::tempdir().unwrap();
        let mut pauses = PendingPauses::default();

        pauses.begin(container(&home, "sleep 0.3; echo paused > $0.state"));
        pauses.undo().unwrap();

        assert!(was_unpaused_and_runs(&home) && pauses.is_empty());
    }

    #[test]
    fn a_pause_that_was_given_up_and_happens_later_is_undone() {
        let home = tempfile::tempdir().unwrap();
        let mut pauses = PendingPauses::default();
        let late = "(sleep 6; echo paused > $0.state) > /dev/null 2>&1 & exec sleep 60";

        pauses.begin(container(&home, late));
        let settled = pauses.settle();
        while pauses.undo().is_err() {
            std::thread::sleep(Duration::from_millis(100));
        }

        assert!(
            matches!(settled[..], [PauseOutcome::Unsure(_)]),
            "{settled:?}"
        );
        assert!(was_unpaused_and_runs(&home) && pauses.is_empty());
    }

    #[test]
    fn an_answer_is_understood_as_it_was_meant() {
        let answers = [
            PauseOutcome::Paused,
            PauseOutcome::Theirs,
            PauseOutcome::Failed("no reason".to_owned()),
            PauseOutcome::Unsure("silence".to_owned()),
        ];
        for answer in answers {
            assert_eq!(PauseOutcome::parse(answer.to_line().trim_end()), answer);
        }
        assert!(matches!(
            PauseOutcome::parse("what"),
            PauseOutcome::Unsure(_)
        ));
        let two_lines = PauseOutcome::Failed("one\ntwo".to_owned()).to_line();
        assert_eq!(two_lines, "failed one two\n");
    }
}
