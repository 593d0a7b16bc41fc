//! What an agent runs in: a process with everything it started. Asked whether it lives, and ended for good.

use crate::process::{LOOK, PROC, Process, ProcessId, ProcessTable};
use rustix::process::Signal;
use stasis_model::failure::{AtPath, ErrorKind, Failure};
use stasis_sys::processes;
use std::time::Duration;
use tokio::time::Instant;

/// How often is looked whether all have ended.
const TICK: Duration = Duration::from_millis(20);
/// How long what was killed may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A process as it is known again: on which boot of the machine, and which one of those that had its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownProcess {
    /// Which boot of which machine, and in which namespace of numbers.
    pub boot: String,
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks after boot.
    pub started: u64,
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
        }))
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

    /// It and everything it started, as far as that still runs.
    fn family(&self) -> Result<Vec<Process>, Failure> {
        if !self.is_of_this_boot()? {
            return Ok(Vec::new());
        }
        let table = ProcessTable::read().at(LOOK, PROC)?;
        let rows = table.family(&[ProcessId::new(self.pid, self.started)]);
        let mut all = Vec::new();
        for row in rows {
            all.extend(Process::reopen(row.identity).at(LOOK, PROC)?);
        }
        Ok(all)
    }

    /// Ends it and everything it started: asked first, killed when `grace` is over. Says how many had to be killed. One that has ended
    /// already is no error.
    pub async fn terminate(&self, grace: Duration) -> Result<u64, Failure> {
        let began = Instant::now();
        let mut family = self.family()?;
        for one in &family {
            one.signal(Signal::TERM).on("signal process", one.pid())?;
        }
        while !family.is_empty() && began.elapsed() < grace {
            tokio::time::sleep(TICK).await;
            family = still(family, self)?;
        }
        let mut killed = 0;
        let deadline = Instant::now() + KILL_TIMEOUT;
        while !family.is_empty() {
            for one in &family {
                let was_there = one.signal(Signal::KILL);
                killed += u64::from(was_there.on("kill process", one.pid())?);
            }
            if Instant::now() > deadline {
                let pid = family[0].pid();
                let said = format!("process {pid} was killed and does not end");
                return Err(Failure::of(ErrorKind::Failed, said));
            }
            tokio::time::sleep(TICK).await;
            family = still(family, self)?;
        }
        Ok(killed)
    }

    /// Whether it is the process itself that still runs.
    pub fn is_alive(&self) -> Result<bool, Failure> {
        Ok(self.open()?.is_some())
    }
}

/// Those of a family that still run, with whom they started since.
fn still(known: Vec<Process>, root: &KnownProcess) -> Result<Vec<Process>, Failure> {
    let mut living: Vec<Process> = known.into_iter().filter(Process::is_running).collect();
    let table = ProcessTable::read().at(LOOK, PROC)?;
    let mut roots: Vec<ProcessId> = living.iter().map(Process::identity).collect();
    roots.push(ProcessId::new(root.pid, root.started));
    for row in table.family(&roots) {
        if !roots.contains(&row.identity) {
            living.extend(Process::reopen(row.identity).at(LOOK, PROC)?);
        }
    }
    Ok(living)
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

        let killed = known.terminate(Duration::from_millis(300)).await.unwrap();

        assert!(killed >= 1, "{killed}");
        assert!(!known.is_running().unwrap());
        assert_eq!(known.terminate(Duration::ZERO).await.unwrap(), 0);
        waited.join().unwrap().unwrap();
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
