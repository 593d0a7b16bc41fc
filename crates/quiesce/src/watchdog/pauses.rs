//! The containers that a watchdog pauses, and lets run again.

use crate::docker::{Container, PendingCall, reason};
use stasis_model::failure::{ErrorKind, Failure, error_chain};
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
    asked: Vec<(Container, io::Result<PendingCall<()>>)>,
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
                Ok(()) => PauseOutcome::Paused,
                Err(failure) if is_theirs(&failure) => PauseOutcome::Theirs,
                Err(failure) if failure.kind() == ErrorKind::Unreachable => {
                    self.late = Some(Instant::now() + LATE);
                    PauseOutcome::Unsure(reason(&failure))
                }
                Err(failure) => match container.is_paused() {
                    Ok(false) => PauseOutcome::Failed(reason(&failure)),
                    Ok(true) | Err(_) => PauseOutcome::Unsure(reason(&failure)),
                },
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

/// Whether the daemon says that it was paused before. A container that does not run is the other conflict.
fn is_theirs(failure: &Failure) -> bool {
    failure.kind() == ErrorKind::Conflict && error_chain(failure).contains("already paused")
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_testkit::fake_docker::{FAKE_CONTAINER, FakeDocker, FakePause};

    fn container(daemon: &FakeDocker) -> Container {
        let host = daemon.host().replace(' ', "%20");
        Container::parse(&format!("{FAKE_CONTAINER} {host} docker")).unwrap()
    }

    #[test]
    fn a_pause_that_nobody_waited_for_is_waited_for_before_it_is_undone() {
        let daemon = FakeDocker::start(FakePause::After(Duration::from_millis(300)));
        let mut pauses = PendingPauses::default();

        pauses.begin(container(&daemon));
        pauses.undo().unwrap();

        assert!(daemon.was_unpaused() && daemon.runs() && pauses.is_empty());
    }

    #[test]
    fn a_pause_that_was_given_up_and_happens_later_is_undone() {
        let daemon = FakeDocker::start(FakePause::Unanswered(Duration::from_secs(6)));
        let mut pauses = PendingPauses::default();

        pauses.begin(container(&daemon));
        let settled = pauses.settle();
        while pauses.undo().is_err() {
            std::thread::sleep(Duration::from_millis(100));
        }

        assert!(
            matches!(settled[..], [PauseOutcome::Unsure(_)]),
            "{settled:?}"
        );
        assert!(daemon.was_unpaused() && daemon.runs() && pauses.is_empty());
    }

    #[test]
    fn an_engine_that_takes_long_to_let_one_run_again_is_waited_for() {
        let daemon = FakeDocker::slow_to_unpause(Duration::from_secs(7));
        let mut pauses = PendingPauses::default();

        pauses.begin(container(&daemon));
        pauses.undo().unwrap();

        assert!(daemon.was_unpaused() && daemon.runs() && pauses.is_empty());
    }

    #[test]
    fn a_container_that_does_not_run_is_no_container_of_somebody_else() {
        let daemon = FakeDocker::start(FakePause::Refused(409, "Container x is not running"));
        let mut pauses = PendingPauses::default();

        pauses.begin(container(&daemon));

        let why = "Container x is not running".to_owned();
        assert_eq!(pauses.settle(), [PauseOutcome::Failed(why)]);
        assert!(pauses.is_empty());
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
