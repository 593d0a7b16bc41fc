use super::*;
use std::process::{Child, Command, Stdio};

/// A process that ends with its test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let mut sleep = Command::new("sleep");
        Self(sleep.arg("60").stdin(Stdio::null()).spawn().unwrap())
    }

    fn process(&self) -> Process {
        Process::open(self.0.id()).unwrap().unwrap()
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_running_until_it_has_ended_waited_for_or_not() {
    let mut sleeper = Sleeper::start();
    let process = sleeper.process();
    assert!(process.is_running());

    sleeper.0.kill().unwrap();
    while process.is_running() {
        std::thread::yield_now();
    }

    assert_eq!(
        Process::open(process.pid()).unwrap(),
        None,
        "not waited for"
    );
    sleeper.0.wait().unwrap();
    assert!(!process.is_running());
    assert_eq!(Process::reopen(process.identity()).unwrap(), None);
}

#[test]
fn a_signal_reaches_nobody_once_the_process_has_ended() {
    let mut sleeper = Sleeper::start();
    let process = sleeper.process();
    sleeper.end();

    assert!(!process.signal(Signal::KILL).unwrap());
}

#[test]
fn the_same_number_with_another_start_is_another_process() {
    let sleeper = Sleeper::start();
    let identity = sleeper.process().identity();
    let earlier = ProcessId::new(identity.pid(), identity.started() - 1);

    assert!(Process::reopen(identity).unwrap().is_some());
    assert_eq!(Process::reopen(earlier).unwrap(), None);
}

#[test]
fn numbers_that_no_process_can_have_are_no_process() {
    for pid in [0, u32::MAX, 1 << 30] {
        assert_eq!(Process::open(pid).unwrap(), None);
    }
}

#[test]
fn a_thread_is_no_process() {
    let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get());
    let ended = thread.join().unwrap();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let (says, said) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        says.send(rustix::thread::gettid().as_raw_nonzero().get())
            .unwrap();
        let _ = told.recv();
    });
    let lives = said.recv().unwrap();

    for number in [ended, lives] {
        let opened = Process::open(u32::try_from(number).unwrap()).unwrap();
        assert_eq!(opened, None);
    }
    drop(tell);
    thread.join().unwrap();
}

#[test]
fn the_uptime_is_counted_from_the_start() {
    let sleeper = Sleeper::start();

    let young = sleeper.process().uptime();
    let ours = Process::open(std::process::id()).unwrap().unwrap().uptime();

    assert!(young < Duration::from_secs(20), "{young:?}");
    assert!(young <= ours + Duration::from_millis(20));
}

#[test]
fn a_real_family_is_found_through_its_parents() {
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", "sleep 60 & (sleep 60; :) & echo ready; wait"]);
    let mut shell = Sleeper(shell.stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = [0];
    io::Read::read_exact(&mut shell.0.stdout.take().unwrap(), &mut ready).unwrap();

    let root = shell.process().identity();
    let mut family = ProcessTable::read().unwrap().family(&[root]);
    // The inner shell starts its own `sleep` a moment later.
    while family.len() < 4 {
        family = ProcessTable::read().unwrap().family(&[root]);
    }

    assert_eq!(family[0].identity, root);
    for row in &family[1..] {
        let child = Process::reopen(row.identity).unwrap().unwrap();
        child.signal(Signal::KILL).unwrap();
    }
}
