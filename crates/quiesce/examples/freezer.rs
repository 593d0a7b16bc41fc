//! An engine that freezes and then hangs, and its watchdog, as tests start them.
//!
//! `freezer watchdog …` is the watchdog; `freezer hold PID JOURNALS MILLISECONDS` holds a process until it is killed.

use stasis_quiesce::freeze::{FreezeSettings, Frozen};
use stasis_quiesce::process::Process;
use stasis_quiesce::watchdog::{self, Spawn};
use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

fn main() -> io::Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((mode, rest)) if mode == "watchdog" => watchdog::run(rest),
        Some((mode, [pid, journals, max])) if mode == "hold" => hold(pid, journals, max),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn hold(pid: &OsString, journals: &OsString, max: &OsString) -> io::Result<()> {
    let number = |word: &OsString| {
        let number = word.to_str().and_then(|word| word.parse::<u32>().ok());
        number.ok_or(io::Error::from(io::ErrorKind::InvalidInput))
    };
    let root = Process::open(number(pid)?)?.ok_or(io::ErrorKind::NotFound)?;
    let watchdog = Spawn::this_program(&["watchdog"]);
    let settings = FreezeSettings {
        max: Duration::from_millis(number(max)?.into()),
        ..FreezeSettings::new(journals, watchdog)
    };
    let frozen = Frozen::freeze(&[root], &settings).map_err(io::Error::other)?;
    writeln!(io::stdout(), "frozen")?;
    // It never gets to this.
    std::thread::sleep(Duration::from_mins(10));
    drop(frozen);
    Ok(())
}
