//! An engine that holds something still and then hangs, with its watchdog and its launcher, as tests start them.
//!
//! - `freezer watchdog …` is the watchdog, `freezer launch …` becomes a service
//! - `freezer hold PID JOURNALS MILLISECONDS` holds a process until it is killed
//! - `freezer pause JOURNALS MILLISECONDS SERVICE…` holds services: `record=PATH`, or `docker=NAME` of the daemon that
//!   `DOCKER_HOST` names, or `start=PATH`, which is started before, a shell that writes `x` into `PATH.out` all the time

use stasis_quiesce::docker::Docker;
use stasis_quiesce::freeze::{FreezeSettings, Frozen};
use stasis_quiesce::invocation::Invocation;
use stasis_quiesce::pause::Paused;
use stasis_quiesce::process::Process;
use stasis_quiesce::service::{self, Handling, Service};
use stasis_quiesce::watchdog::{self, HelperCommand};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::time::Duration;

fn main() -> io::Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((mode, rest)) if mode == "watchdog" => watchdog::run(rest),
        Some((mode, rest)) if mode == "launch" => service::launch(rest),
        Some((mode, [pid, journals, max])) if mode == "hold" => hold(pid, journals, max),
        Some((mode, [journals, max, services @ ..])) if mode == "pause" => {
            pause(services, &settings(journals, max)?)
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn number(word: &OsStr) -> io::Result<u32> {
    let number = word.to_str().and_then(|word| word.parse().ok());
    number.ok_or(io::ErrorKind::InvalidInput.into())
}

fn settings(journals: &OsStr, max: &OsStr) -> io::Result<FreezeSettings> {
    let watchdog = HelperCommand::this_program(&["watchdog"]);
    Ok(FreezeSettings {
        max: Duration::from_millis(number(max)?.into()),
        ..FreezeSettings::new(journals, watchdog)
    })
}

fn hold(pid: &OsStr, journals: &OsStr, max: &OsStr) -> io::Result<()> {
    let root = Process::open(number(pid)?)?.ok_or(io::ErrorKind::NotFound)?;
    let frozen = Frozen::freeze(&[root], &settings(journals, max)?).map_err(io::Error::other)?;
    hang("frozen")?;
    drop(frozen);
    Ok(())
}

fn pause(services: &[OsString], settings: &FreezeSettings) -> io::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut parts = Vec::new();
    for words in services {
        let words = words.to_str().and_then(|words| words.split_once('='));
        let (kind, what) = words.ok_or(io::ErrorKind::InvalidInput)?;
        let service = service(kind, what);
        if kind == "start" {
            let started = runtime.block_on(service.start(Duration::from_secs(10)));
            started.map_err(io::Error::other)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        parts.push(service);
    }
    let parts: Vec<&Service> = parts.iter().collect();
    let paused = Paused::hold(&parts, settings).map_err(io::Error::other)?;
    hang("paused")?;
    drop(paused);
    Ok(())
}

fn service(kind: &str, what: &str) -> Service {
    let handling = if kind == "docker" {
        Handling::Docker {
            docker: Docker::from_variable(std::env::var_os("DOCKER_HOST")),
            container: what.to_owned(),
        }
    } else {
        let script = format!("while :; do echo x >> '{what}.out'; sleep 0.01; done");
        Handling::Command {
            start: Invocation::shell(script),
            stop: None,
            record: what.into(),
        }
    };
    Service {
        name: what.to_owned(),
        handling,
        log: format!("{what}.log").into(),
        launcher: HelperCommand::this_program(&["launch"]),
    }
}

/// Says how far it has come, and never gets further.
fn hang(said: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{said}")?;
    std::thread::sleep(Duration::from_mins(10));
    Ok(())
}
