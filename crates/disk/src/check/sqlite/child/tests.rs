#![expect(
    clippy::disallowed_methods,
    reason = "tests try what the process must not be able to do"
)]

use super::*;
use crate::check::sqlite::limits::RowValues;
use crate::fs::sys::{confine as system, descriptor};
use rustix::io::Errno;
use rustix::process;
use stasis_testkit::unprivileged;
use std::fs::{self as files, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The words of the limits, and the directory to reach for: set only by [`attempts`].
const LIMITS: &str = "STASIS_TEST_CHILD_LIMITS";
const OUTSIDE: &str = "STASIS_TEST_CHILD_OUTSIDE";
const WORD: &str = "attempt ";

/// In the other process: tries what it must not, bound as a child is. Does nothing in a run of all tests.
#[test]
fn within_the_child() {
    let (Ok(words), Some(outside)) = (std::env::var(LIMITS), std::env::var_os(OUTSIDE)) else {
        return;
    };
    let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
    let outside = Path::new(&outside);
    let address = outside.join("address");
    let address: std::net::SocketAddr = files::read_to_string(address).unwrap().parse().unwrap();
    let parent = process::getppid().unwrap();

    bind(&ChildLimits::parse(&words).unwrap()).unwrap();

    said("read", files::read(outside.join("secret")));
    said("write", files::write(outside.join("secret"), "changed"));
    said("make", files::write(outside.join("made"), ""));
    said("remove", files::remove_file(outside.join("secret")));
    said("connect", TcpStream::connect(address));
    said("listen", TcpListener::bind("127.0.0.1:0"));
    said("local", UnixStream::pair());
    said("start", Command::new("/bin/true").spawn());
    said("exec", Err::<(), _>(Command::new("/bin/true").exec()));
    let signal = process::test_kill_process(parent);
    said("signal", signal.map_err(io::Error::from));
    said("own", files::write("db-journal", "x"));
    said("own-again", files::remove_file("db"));
    said("input", File::open(descriptor::STANDARD_INPUT));
    println!("{WORD}end Ok");
}

fn said<T>(what: &str, result: io::Result<T>) {
    let became = match result {
        Ok(_) => "Ok".to_owned(),
        Err(error) => format!("{:?}", Errno::from_io_error(&error)),
    };
    println!("{WORD}{what} {became}");
}

/// Who runs the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Runner {
    Ourselves,
    Somebody,
}

/// What became of each attempt of a child with this task.
fn attempts(task: ChildTask, runner: Runner) -> Vec<(String, String)> {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| -> PathBuf { home.path().join(name) };
    for name in ["scratch", "outside"] {
        files::create_dir(place(name)).unwrap();
    }
    files::write(place("scratch/db"), "").unwrap();
    files::write(place("outside/secret"), "a secret").unwrap();
    files::write(place("outside/input"), "a database").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    files::write(place("outside/address"), address).unwrap();
    // Where it was built may be closed to others.
    files::copy(std::env::current_exe().unwrap(), place("program")).unwrap();
    let limits = ChildLimits {
        task,
        memory: 4 << 30,
        seconds: 20,
        largest: 1 << 20,
        messages: 20,
    };
    let words: Vec<String> = limits
        .arguments()
        .into_iter()
        .map(|word| word.into_string().unwrap())
        .collect();

    let mut command = Command::new(place("program"));
    let this = "check::sqlite::child::tests::within_the_child";
    command.args([this, "--exact", "--nocapture"]);
    command.env(LIMITS, words.join(" "));
    command.env(OUTSIDE, place("outside"));
    if runner == Runner::Somebody {
        unprivileged::give_to_unprivileged(home.path());
        command = unprivileged::as_unprivileged(&command);
    }
    command.current_dir(place("scratch"));
    command.stdin(File::open(place("outside/input")).unwrap());
    let output = command.output().unwrap();

    assert!(output.status.success(), "{runner:?}: {output:?}");
    assert_eq!(files::read(place("outside/secret")).unwrap(), b"a secret");
    assert!(!place("outside/made").exists());
    let said = String::from_utf8(output.stdout).unwrap();
    let said = said.lines().filter_map(|line| line.split_once(WORD));
    let said = said.filter_map(|(_, attempt)| attempt.split_once(' '));
    said.map(|(what, became)| (what.to_owned(), became.to_owned()))
        .collect()
}

fn expected(task: ChildTask, runner: Runner) -> Vec<(String, String)> {
    let is_in_place = task.is_in_place();
    let is_enclosed = runner == Runner::Ourselves && process::geteuid().is_root() && !is_in_place;
    let (denied, refused) = (Errno::ACCESS, format!("{:?}", Some(Errno::PERM)));
    // Beneath its new root there are no such names.
    let elsewhere = if is_enclosed { Errno::NOENT } else { denied };
    let elsewhere = format!("{:?}", Some(elsewhere));
    let is = |allowed: bool| {
        if allowed {
            "Ok".to_owned()
        } else {
            format!("{:?}", Some(denied))
        }
    };
    let input = if is_enclosed {
        elsewhere.clone()
    } else {
        is(is_in_place)
    };
    [
        ("read", &elsewhere),
        ("write", &elsewhere),
        ("make", &elsewhere),
        ("remove", &elsewhere),
        ("connect", &refused),
        ("listen", &refused),
        ("local", &refused),
        ("start", &refused),
        ("exec", &refused),
        ("signal", &refused),
        ("own", &is(!is_in_place)),
        ("own-again", &is(!is_in_place)),
        ("input", &input),
        ("end", &is(true)),
    ]
    .map(|(what, became)| (what.to_owned(), became.clone()))
    .to_vec()
}

#[test]
fn the_process_reaches_nothing_but_what_it_was_given_and_goes_on() {
    let offered = system::offered();
    assert!(offered.privileges && offered.calls, "{offered:?}");
    if !offered.files {
        println!("skipped: this kernel has no rules about files");
        return;
    }
    for runner in [Runner::Ourselves, Runner::Somebody] {
        for task in [
            ChildTask::Check(Depth::Full),
            ChildTask::CheckInPlace(Depth::Quick),
            ChildTask::CookieRows(RowValues::With),
            ChildTask::CookieStore,
            ChildTask::TableRows,
            ChildTask::TableRowsInPlace,
        ] {
            let became = attempts(task, runner);

            assert_eq!(became, expected(task, runner), "{task:?} {runner:?}");
        }
    }
}
