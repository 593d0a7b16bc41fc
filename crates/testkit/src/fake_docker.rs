//! A daemon that behaves as no real one can be made to: it is late, breaks off, or never answers.
//!
//! It has one container, and understands what a pause needs: inspect, pause, unpause. Everything that a real daemon can show is
//! tested with one, see [`docker`](crate::docker).

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;
use tempfile::TempDir;

/// The id of the only container.
pub const FAKE_CONTAINER: &str = "0123456789abcdef";

/// What becomes of a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FakePause {
    /// It happens and is answered after this time.
    After(Duration),
    /// It happens after this time, and is not answered.
    Unanswered(Duration),
    /// It happens, and the answer is this code and these words.
    Answered(u16, &'static str),
    /// It does not happen, and the answer is this code and these words.
    Refused(u16, &'static str),
}

#[derive(Debug)]
struct FakeState {
    status: &'static str,
    was_paused: bool,
    was_unpaused: bool,
    unpause_takes: Duration,
    asked: Vec<String>,
}

/// A daemon that listens for as long as the process lives.
#[derive(Debug)]
pub struct FakeDocker {
    home: TempDir,
    state: Arc<Mutex<FakeState>>,
}

impl FakeDocker {
    /// Starts one with a container that runs.
    ///
    /// # Panics
    ///
    /// Where no socket can be made.
    pub fn start(pause: FakePause) -> Self {
        let state = FakeState {
            status: "running",
            was_paused: false,
            was_unpaused: false,
            unpause_takes: Duration::ZERO,
            asked: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let kept = Arc::clone(&state);
        let home = listen(move |stream| answer(&stream, &kept, pause));
        Self { home, state }
    }

    /// Starts one that pauses at once, and takes this time to let a container run again; it does not if nobody waits for that.
    ///
    /// # Panics
    ///
    /// Where no socket can be made.
    pub fn slow_to_unpause(takes: Duration) -> Self {
        let daemon = Self::start(FakePause::After(Duration::ZERO));
        lock(&daemon.state).unpause_takes = takes;
        daemon
    }

    /// Starts one that accepts connections and never answers.
    ///
    /// # Panics
    ///
    /// Where no socket can be made.
    pub fn hung() -> Self {
        let daemon = Self::start(FakePause::Refused(500, ""));
        let home = listen(|_stream| sleep(Duration::from_hours(1)));
        Self { home, ..daemon }
    }

    /// Starts one that answers to each request, as `METHOD PATH`, a code and a body as `answers` says; without one it never answers.
    ///
    /// # Panics
    ///
    /// Where no socket can be made.
    pub fn scripted(
        answers: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        let daemon = Self::start(FakePause::Refused(500, ""));
        let (state, answers) = (Arc::clone(&daemon.state), Arc::new(answers));
        let home = listen(move |stream| {
            let asked = heard(&stream, &state);
            match answers(&asked) {
                Some((code, body)) => write_answer(&stream, code, &body),
                None => sleep(Duration::from_hours(1)),
            }
        });
        Self { home, ..daemon }
    }

    /// Its address, as in `DOCKER_HOST`. There is a space in it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.home.path().join("the socket").display())
    }

    /// Every request, as `METHOD PATH`.
    pub fn asked(&self) -> Vec<String> {
        lock(&self.state).asked.clone()
    }

    /// Whether the container was paused at any time.
    pub fn was_paused(&self) -> bool {
        lock(&self.state).was_paused
    }

    /// Whether the container was let run again at any time.
    pub fn was_unpaused(&self) -> bool {
        lock(&self.state).was_unpaused
    }

    /// Whether the container runs.
    pub fn runs(&self) -> bool {
        lock(&self.state).status == "running"
    }
}

fn listen(each: impl Fn(UnixStream) + Clone + Send + 'static) -> TempDir {
    let home = tempfile::tempdir().expect("a directory for the test");
    let listener = UnixListener::bind(home.path().join("the socket")).expect("a socket");
    spawn(move || {
        for stream in listener.incoming().flatten() {
            let each = each.clone();
            spawn(move || each(stream));
        }
    });
    home
}

fn lock(state: &Mutex<FakeState>) -> MutexGuard<'_, FakeState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(stream: &UnixStream, state: &Mutex<FakeState>, pause: FakePause) {
    let asked = heard(stream, state);
    let (code, body) = if asked.ends_with("/unpause") {
        match unpause(state, stream) {
            Some(answer) => answer,
            None => return,
        }
    } else if asked.ends_with("/pause") {
        match do_pause(state, pause) {
            Some(answer) => answer,
            None => return,
        }
    } else {
        let status = lock(state).status;
        let body = format!(
            r#"{{"Id":"{FAKE_CONTAINER}","State":{{"Status":"{status}","Pid":1,"StartedAt":"then"}}}}"#
        );
        (200, body)
    };
    write_answer(stream, code, &body);
}

/// What was asked, as `METHOD PATH`.
fn heard(stream: &UnixStream, state: &Mutex<FakeState>) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let _head = lines.find(String::is_empty);
    let asked = first.trim_end_matches(" HTTP/1.1").to_owned();
    lock(state).asked.push(asked.clone());
    asked
}

fn write_answer(mut stream: &UnixStream, code: u16, body: &str) {
    let head = "Content-Type: application/json\r\nConnection: close";
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {code} X\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
}

fn unpause(state: &Mutex<FakeState>, stream: &UnixStream) -> Option<(u16, String)> {
    let takes = lock(state).unpause_takes;
    if !takes.is_zero() {
        sleep(takes);
        if is_closed(stream) {
            return None;
        }
    }
    let mut state = lock(state);
    if state.status != "paused" {
        return Some((500, message("Container x is not paused")));
    }
    state.status = "running";
    state.was_unpaused = true;
    Some((204, String::new()))
}

/// Whether whoever asked has gone: what he asked for is not done then, as with a real daemon that is told so.
fn is_closed(stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let mut rest = stream;
    let is_closed = matches!(rest.read(&mut [0]), Ok(0));
    stream.set_nonblocking(false).expect("a socket");
    is_closed
}

fn do_pause(state: &Mutex<FakeState>, pause: FakePause) -> Option<(u16, String)> {
    let happens = || {
        let mut state = lock(state);
        state.status = "paused";
        state.was_paused = true;
    };
    match pause {
        FakePause::After(time) => {
            sleep(time);
            happens();
            Some((204, String::new()))
        }
        FakePause::Unanswered(time) => {
            sleep(time);
            happens();
            // The connection stays open for longer than anybody waits.
            sleep(Duration::from_mins(1));
            None
        }
        FakePause::Answered(code, text) => {
            happens();
            Some((code, message(text)))
        }
        FakePause::Refused(code, text) => Some((code, message(text))),
    }
}

fn message(text: &str) -> String {
    format!(r#"{{"message":"{text}"}}"#)
}
