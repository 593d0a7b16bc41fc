//! What an agent runs in: a process with everything it started. Asked whether it lives, and ended for good.

use crate::process::{LOOK, PROC, Process, ProcessId, ProcessInfo, ProcessTable};
use rustix::process::Signal;
use stasis_model::failure::{AtPath, ErrorKind, Failure};
use stasis_sys::processes;
use std::time::Duration;
use tokio::time::Instant;

/// How often is looked whether all have ended.
const TICK: Duration = Duration::from_millis(20);
/// How long what was killed may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often is looked for what has a mark before it is said that there is nothing, and how soon again.
const LOOKS: u32 = 3;
const SHORTLY: Duration = Duration::from_millis(5);

/// The variable that says by whom a process was started.
pub const MARK: &str = "STASIS_SANDBOX_RUN";

/// A process as it is known again: on which boot of the machine, and which one of those that had its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownProcess {
    /// Which boot of which machine, and in which namespace of numbers.
    pub boot: String,
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks after boot.
    pub started: u64,
    /// What it was started with as [`MARK`], and hands on to whatever it starts: those that left its session, and those that it left behind
    /// when it ended, are known by it.
    pub mark: Option<String>,
}

impl KnownProcess {
    /// The process that has this number now; none when none has.
    pub fn find(pid: u32) -> Result<Option<Self>, Failure> {
        let boot = boot()?;
        let found = Process::open(pid).at(LOOK, PROC)?;
        Ok(found.map(|process| Self {
            boot,
            pid,
            started: process.identity().started(),
            mark: None,
        }))
    }

    /// A process that we have just started with a mark, and did not wait for: its number is its own, also when it has ended already.
    pub fn of_child(pid: u32, mark: &str) -> Result<Self, Failure> {
        let found = ProcessInfo::read(pid).ok_or(std::io::ErrorKind::NotFound);
        let found = found.map_err(std::io::Error::from).at(LOOK, PROC)?;
        Ok(Self {
            boot: boot()?,
            pid,
            started: found.identity.started(),
            mark: Some(mark.to_owned()),
        })
    }

    /// Whatever runs with a mark, and nothing besides.
    pub fn marked(mark: &str) -> Result<Self, Failure> {
        Ok(Self {
            boot: boot()?,
            pid: 0,
            started: 0,
            mark: Some(mark.to_owned()),
        })
    }

    /// It, and those that have its mark.
    fn roots(&self, table: &ProcessTable) -> Vec<ProcessId> {
        let mut roots = vec![ProcessId::new(self.pid, self.started)];
        if let Some(mark) = &self.mark {
            let line = format!("{MARK}={mark}");
            let has_mark = |row: &&ProcessInfo| {
                let all = processes::environment(row.pid());
                all.split(|byte| *byte == 0)
                    .any(|one| one == line.as_bytes())
            };
            roots.extend(table.living().filter(has_mark).map(|row| row.identity));
        }
        roots
    }

    /// Whether its number means something here: not after its machine was started anew. Where that cannot be told, because it is seen
    /// from another namespace, it must not be taken for gone.
    fn is_of_this_boot(&self) -> Result<bool, Failure> {
        let here = boot()?;
        if self.boot == here {
            return Ok(true);
        }
        let machine = |boot: &str| boot.split(' ').next().map(str::to_owned);
        if machine(&self.boot) != machine(&here) {
            return Ok(false);
        }
        let said = format!(
            "process {} is of another namespace of processes, and cannot be seen from here",
            self.pid
        );
        let failure = Failure::of(ErrorKind::Invalid, said);
        Err(failure.with_hint("run it in the namespace in which the sandbox was registered"))
    }

    fn open(&self) -> Result<Option<Process>, Failure> {
        if !self.is_of_this_boot()? {
            return Ok(None);
        }
        Process::reopen(ProcessId::new(self.pid, self.started)).at(LOOK, PROC)
    }

    /// Whether it, or something that it started, still runs.
    pub fn is_running(&self) -> Result<bool, Failure> {
        Ok(!self.family()?.is_empty())
    }

    /// It and everything it started, as far as that still runs; without this process, which may have been started by it, too.
    pub fn family(&self) -> Result<Vec<Process>, Failure> {
        if !self.is_of_this_boot()? {
            return Ok(Vec::new());
        }
        // One that begins another program has no environment for a moment, and so no mark.
        let looks = if self.mark.is_some() { LOOKS } else { 1 };
        for look in 1..=looks {
            let found = self.family_with(&[])?;
            if !found.is_empty() || look == looks {
                return Ok(found);
            }
            std::thread::sleep(SHORTLY);
        }
        Ok(Vec::new())
    }

    fn family_with(&self, roots: &[ProcessId]) -> Result<Vec<Process>, Failure> {
        let table = ProcessTable::read().at(LOOK, PROC)?;
        let rows = table.family(&[&self.roots(&table), roots].concat());
        let mut all = Vec::new();
        for row in rows.iter().filter(|row| row.pid() != std::process::id()) {
            all.extend(Process::reopen(row.identity).at(LOOK, PROC)?);
        }
        Ok(all)
    }

    /// Ends it and everything it started: asked first, killed when `grace` is over. Says how many had to be killed. One that has ended
    /// already is no error.
    ///
    /// Nothing is signalled any more once `is_over` says so: somebody else may have begun to use it.
    pub async fn terminate(
        &self,
        grace: Duration,
        is_over: impl Fn() -> bool,
    ) -> Result<u64, Failure> {
        let late = || {
            let said = "the time was over before everything had ended: nothing more is ended";
            Failure::of(ErrorKind::Retry, said)
        };
        let mut family = self.family()?;
        if !family.is_empty() && is_over() {
            return Err(late());
        }
        for one in &family {
            one.signal(Signal::TERM).on("signal process", one.pid())?;
        }
        let began = Instant::now();
        while !family.is_empty() && began.elapsed() < grace {
            tokio::time::sleep(TICK).await;
            family = self.still(family)?;
        }
        let mut killed = 0;
        let deadline = Instant::now() + KILL_TIMEOUT;
        while let Some(first) = family.first() {
            if Instant::now() > deadline {
                let said = format!("process {} was killed and does not end", first.pid());
                return Err(Failure::of(ErrorKind::Failed, said));
            }
            if is_over() {
                return Err(late());
            }
            for one in &family {
                let was_there = one.signal(Signal::KILL);
                killed += u64::from(was_there.on("kill process", one.pid())?);
            }
            tokio::time::sleep(TICK).await;
            family = self.still(family)?;
        }
        Ok(killed)
    }

    /// Those of a family that still run, with whom they started since; before it says that there is none, it looks anew.
    fn still(&self, known: Vec<Process>) -> Result<Vec<Process>, Failure> {
        let living: Vec<Process> = known.into_iter().filter(Process::is_running).collect();
        let roots: Vec<ProcessId> = living.iter().map(Process::identity).collect();
        let family = self.family_with(&roots)?;
        if family.is_empty() {
            return self.family();
        }
        Ok(family)
    }

    /// Whether it is the process itself that still runs.
    pub fn is_alive(&self) -> Result<bool, Failure> {
        Ok(self.open()?.is_some())
    }
}

/// Where numbers of processes mean what they mean here and now.
pub fn boot() -> Result<String, Failure> {
    let boot = processes::boot().at(LOOK, PROC)?;
    let namespace = processes::namespace().at(LOOK, PROC)?;
    Ok(format!("{boot} {namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn start(script: &str) -> std::process::Child {
        Command::new("setsid")
            .args(["sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[tokio::test]
    async fn a_process_is_ended_with_what_it_started_though_it_does_not_want_to() {
        let mut child = start("trap '' TERM; sleep 600 & while :; do sleep 0.1; done");
        let known = KnownProcess::find(child.id()).unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(known.is_running().unwrap());
        let waited = std::thread::spawn(move || child.wait());

        let killed = known
            .terminate(Duration::from_millis(300), || false)
            .await
            .unwrap();

        assert!(killed >= 1, "{killed}");
        assert!(!known.is_running().unwrap());
        assert_eq!(known.terminate(Duration::ZERO, || false).await.unwrap(), 0);
        waited.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_left_its_session_or_outlived_who_started_it_is_known_by_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, daemon) = (dir.path().join("gone"), dir.path().join("daemon"));
        let script = format!(
            "setsid sh -c 'echo $$ > {}; sleep 600' & sleep 0.2; touch {}",
            daemon.display(),
            gone.display()
        );
        let mut child = Command::new("setsid");
        let mut child = child
            .args(["sh", "-c", &script])
            .env(MARK, "mark-of-a-test")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let known = KnownProcess::of_child(child.id(), "mark-of-a-test").unwrap();
        while !gone.exists() || !daemon.exists() {
            tokio::time::sleep(TICK).await;
        }
        child.wait().unwrap();
        let unmarked = KnownProcess {
            mark: None,
            ..known.clone()
        };
        assert!(!unmarked.is_running().unwrap());
        assert!(known.is_running().unwrap());
        assert!(
            !KnownProcess::marked("mark-of-a-test2")
                .unwrap()
                .is_running()
                .unwrap()
        );

        let _ = known
            .terminate(Duration::from_secs(5), || false)
            .await
            .unwrap();

        let pid: u32 = std::fs::read_to_string(daemon)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let left = ProcessInfo::read(pid);
        assert!(left.is_none_or(|row| row.state == crate::process::ProcessState::Ended));
        assert!(!known.is_running().unwrap());
    }

    #[tokio::test]
    async fn nothing_is_signalled_once_the_time_is_over() {
        let mut child = start("trap '' TERM; while :; do sleep 0.1; done");
        let known = KnownProcess::find(child.id()).unwrap().unwrap();

        let late = known.terminate(Duration::ZERO, || true).await.unwrap_err();

        assert_eq!(late.kind(), ErrorKind::Retry);
        assert!(known.is_running().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn one_that_has_ended_before_it_is_looked_at_is_known_all_the_same() {
        let mut child = start("exit 7");
        std::thread::sleep(Duration::from_millis(300));

        let known = KnownProcess::of_child(child.id(), "mark-of-another").unwrap();

        assert!(!known.is_running().unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn another_process_with_its_number_is_not_taken_for_it() {
        let own = KnownProcess::find(std::process::id()).unwrap().unwrap();
        assert!(own.is_alive().unwrap());

        let before = KnownProcess {
            started: own.started + 1,
            ..own.clone()
        };
        let elsewhere = KnownProcess {
            boot: "another".to_owned(),
            ..own
        };

        assert!(!before.is_alive().unwrap());
        assert!(!elsewhere.is_alive().unwrap());
        assert!(!elsewhere.is_running().unwrap());
        let boot = before.boot.split(' ').next().unwrap();
        let beside = KnownProcess {
            boot: format!("{boot} pid:[1]"),
            ..before
        };
        assert!(beside.is_running().is_err(), "it is not known to be gone");
    }
}
