//! What one command costs.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often we look at what a command has in memory. High-water marks only grow, so little is missed.
const LOOK: Duration = Duration::from_millis(5);
/// How much of what a failing command said is repeated.
const SAID: usize = 2000;

/// What a command cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// The largest sum, over all its processes at one moment, of what each has ever had in memory.
    pub(crate) peak_bytes: u64,
}

/// Runs a shell line with these variables; fails when any part of it does.
pub(crate) fn run(line: &str, variables: &[(String, String)], log: &Path) -> Result<Cost> {
    let said = File::create(log)?;
    let mut command = Command::new("bash");
    command
        .args(["-c", &format!("set -eo pipefail; {line}")])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said);
    let started = Instant::now();
    let mut child = command.spawn().context("could not start bash")?;
    let (id, is_done) = (child.id(), AtomicBool::new(false));
    let (status, peak_bytes) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&is_done, id));
        let status = child.wait().map(|status| (status, started.elapsed()));
        is_done.store(true, Ordering::Relaxed);
        (status, watcher.join().unwrap_or_default())
    });
    let (status, elapsed) = status?;
    if !status.success() {
        let said = fs::read(log).unwrap_or_default();
        let tail = &said[said.len().saturating_sub(SAID)..];
        let tail = String::from_utf8_lossy(tail);
        let tail: Vec<&str> = tail.split_whitespace().collect();
        bail!("`{line}` ended with {status}: {}", tail.join(" "));
    }
    Ok(Cost {
        seconds: elapsed.as_secs_f64(),
        peak_bytes,
    })
}

fn watch(is_done: &AtomicBool, id: u32) -> u64 {
    let mut peak = 0;
    while !is_done.load(Ordering::Relaxed) {
        peak = peak.max(in_memory(id));
        std::thread::sleep(LOOK);
    }
    peak
}

/// The high-water marks of a process and all that it started, together; the shell that runs the line is not counted.
fn in_memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let own = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .filter(|_| !status.starts_with("Name:\tbash\n"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or_default()
        * 1024;
    let threads = fs::read_dir(format!("/proc/{id}/task"))
        .into_iter()
        .flatten();
    let children = threads.flatten().flat_map(|thread| {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let ids = children.split_whitespace().filter_map(|id| id.parse().ok());
        ids.collect::<Vec<u32>>()
    });
    own + children.map(in_memory).sum::<u64>()
}

/// Lets the disk come to rest; with `drop_caches` (root only) the page cache too, which a large removal leaves slow.
pub(crate) fn settle(drop_caches: bool) {
    rustix::fs::sync();
    if drop_caches && rustix::process::geteuid().is_root() {
        // Where even root may not, the figures are those of a warm cache that was not reset.
        let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    }
}

/// Reads every file once, so that everybody starts with a warm cache.
pub(crate) fn warm(tree: &Path) -> Result<()> {
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            warm(&entry.path())?;
        } else if kind.is_file() {
            std::io::copy(&mut File::open(entry.path())?, &mut std::io::sink())?;
        }
    }
    Ok(())
}

/// The length of all files in a directory.
pub(crate) fn stored(path: &Path) -> Result<u64> {
    let seen = fs::symlink_metadata(path)?;
    if !seen.is_dir() {
        return Ok(seen.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += stored(&entry?.path())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_of_all_processes_of_a_line_are_measured() {
        let home = tempfile::tempdir().unwrap();
        let line = "head -c 30000000 /dev/zero | sort -S 100M > /dev/null; sleep 0.2";

        let cost = run(line, &[], &home.path().join("log")).unwrap();

        assert!(cost.seconds >= 0.2, "{cost:?}");
        assert!(cost.peak_bytes > 10 << 20, "{cost:?}");
    }

    #[test]
    fn a_line_of_which_any_part_fails_has_failed_and_says_what_it_said() {
        let home = tempfile::tempdir().unwrap();

        let failed = run("ls /no/such/thing | cat", &[], &home.path().join("log")).unwrap_err();

        assert!(failed.to_string().contains("/no/such/thing"), "{failed}");
    }
}
