//! Putting a session to sleep, and waking it, killed at every call that changes anything.
//!
//! Whatever happened: there is a snapshot from which everything comes back; after the next reap exactly one; and a workspace is what it
//! was, or what the snapshot has, and never half of it.

use crate::agent_sessions::{Agent, manifests, saved_of};
use crate::crash_points::{self, killed_at_each_step};
use crate::session::Session;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Reap,
    Wake,
}

const REAP: [&str; 4] = ["session", "reap", "--lease-ttl", "1s"];
const WAKE: [&str; 5] = ["session", "wake", "acme/42", "--lease-ttl", "1s"];

struct SessionStage {
    session: Session,
    act: Act,
    agent: RefCell<Option<Agent>>,
    /// What the workspace holds before it goes to sleep.
    full: BTreeMap<PathBuf, String>,
}

impl SessionStage {
    fn new(act: Act) -> Self {
        let mut stage = Self {
            session: Session::new(),
            act,
            agent: RefCell::new(None),
            full: BTreeMap::new(),
        };
        stage.set_up();
        stage.full = stage.fill();
        let first = "first".to_owned();
        stage.full.insert("outputs/first".into(), first);
        if act == Act::Wake {
            stage.set_up();
        }
        stage
    }

    fn dir(&self) -> PathBuf {
        self.session.home().join("ws")
    }

    fn fill(&self) -> BTreeMap<PathBuf, String> {
        for number in 0..5 {
            let place = self.dir().join(format!("outputs/d{number}"));
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("f"), format!("second {number}")).unwrap();
        }
        saved_of(&self.dir())
    }

    /// A session with an older snapshot, and newer work: to be reaped. Or one that sleeps, and of which only some is on this host.
    fn set_up(&self) {
        for name in ["ws", "data", "state", "cache"] {
            let _ = fs::remove_dir_all(self.session.home().join(name));
        }
        fs::create_dir_all(self.dir().join("outputs")).unwrap();
        fs::write(self.dir().join("outputs/first"), "first").unwrap();
        let agent = Agent::start();
        let (dir, pid) = (self.dir(), agent.pid());
        let register = ["session", "register", "acme/42", "--dir"];
        let words = [
            dir.to_str().unwrap(),
            "--pid",
            &pid,
            "--idle-timeout",
            "1ms",
        ];
        self.session.json(0, &[&register[..], &words].concat());
        *self.agent.borrow_mut() = Some(agent);
        self.session.json(0, &["session", "snapshot", "acme/42"]);
        self.fill();
        if self.act == Act::Wake {
            self.session.json(0, &REAP);
            fs::remove_dir_all(self.dir().join("outputs/d1")).unwrap();
            fs::write(self.dir().join("outputs/first"), "written while it slept").unwrap();
        }
    }

    fn words(&self) -> &'static [&'static str] {
        match self.act {
            Act::Reap => &REAP,
            Act::Wake => &WAKE,
        }
    }

    fn state(&self) -> String {
        let shown = self.session.json(0, &["session", "show", "acme/42"]);
        shown["state"].as_str().unwrap().to_owned()
    }

    /// Does it again until what the dead one held has expired.
    fn finish(&self, words: &[&str], context: &str) {
        let mut last = String::new();
        for _ in 0..40 {
            let done = self.session.run(words);
            if done.code == 0 {
                return;
            }
            last = format!("{} {}{}", done.code, done.out, done.err);
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{context}: {last}");
    }
}

impl crash_points::Stage for SessionStage {
    fn command(&self) -> Command {
        self.session.command(self.words())
    }

    fn reset(&self) {
        self.set_up();
    }

    fn assert_done(&self) {
        assert_eq!(saved_of(&self.dir()), self.full);
        let state = match self.act {
            Act::Reap => "sleeping",
            Act::Wake => "idle",
        };
        assert_eq!(self.state(), state);
        assert_eq!(manifests(&self.session, "acme/42").len(), 1);
    }

    fn judge(&self, context: &str) {
        // There is something to wake it from at every moment, and all of it can be read.
        let kept = manifests(&self.session, "acme/42").len();
        assert!(kept >= 1, "{context}");
        match self.act {
            Act::Reap => {
                // Nobody ends what is not saved: its work is in the workspace all the while.
                assert_eq!(saved_of(&self.dir()), self.full, "{context}");
                let is_running = self.agent.borrow_mut().as_mut().unwrap().is_running();
                if !is_running {
                    fs::remove_dir_all(self.dir()).unwrap();
                    self.finish(&WAKE, context);
                    assert_eq!(saved_of(&self.dir()), self.full, "{context}");
                }
            }
            Act::Wake => {
                self.finish(&WAKE, context);
                assert_eq!(saved_of(&self.dir()), self.full, "{context}");
            }
        }
        self.finish(&REAP, context);
        self.finish_asleep(context);
        assert_eq!(manifests(&self.session, "acme/42").len(), 1, "{context}");
        fs::remove_dir_all(self.dir()).unwrap();
        self.finish(&WAKE, context);
        assert_eq!(saved_of(&self.dir()), self.full, "{context}");
    }
}

impl SessionStage {
    /// A claim of the dead expires, and the next reap goes on.
    fn finish_asleep(&self, context: &str) {
        for _ in 0..40 {
            if self.state() == "sleeping" {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
            self.finish(&REAP, context);
        }
        panic!("{context}: it never sleeps: {}", self.state());
    }
}

#[test]
fn a_reap_that_is_killed_loses_nothing_and_the_next_one_leaves_one_snapshot() {
    killed_at_each_step(Act::Reap, || SessionStage::new(Act::Reap));
}

#[test]
fn a_wake_that_is_killed_is_done_by_the_next_one() {
    killed_at_each_step(Act::Wake, || SessionStage::new(Act::Wake));
}
