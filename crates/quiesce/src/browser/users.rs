//! Who uses a user data directory.
//!
//! 1. every process is asked for its command line and its open files
//! 2. the browser is the one that `SingletonLock` names, if that process lives on this host and works in the directory;
//!    without such a lock, those that have it open and name it, or that have it open and started a browser's helpers
//! 3. everything the browser started, and every helper that names the directory, is a child
//! 4. who only names the directory is a launcher, who only has it open a bystander

use super::evidence::{Directory, DirectoryClaim, has_open, is_in_environment};
use crate::process::{LOOK, PROC, Process, ProcessId, ProcessInfo, ProcessTable};
use stasis_model::failure::{AtPath, Failure};
use std::path::Path;

/// What a process is to the directory it uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ProcessRole {
    /// The browser itself, its first process.
    Browser,
    /// A process of the browser.
    Child,
    /// Names the directory on its command line and has nothing open there: a script that started a browser, or will.
    Launcher,
    /// Has something open there without being of the browser, such as a reader of a log.
    Bystander,
}

/// A process that uses a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryUser {
    /// Which process.
    pub process: Process,
    /// What it is to the directory.
    pub role: ProcessRole,
}

/// Finds the live processes that use a user data directory: the browser first, then its children, then all others. This
/// process is never one of them, nor is one that started it and only names the directory.
pub fn users_of(directory: &Path) -> Result<Vec<DirectoryUser>, Failure> {
    let directory = Directory::open(directory).at("open the directory", directory)?;
    let table = ProcessTable::read().at(LOOK, PROC)?;
    let ours = std::process::id();
    let others = table.living().filter(|row| row.pid() != ours);
    let evidence: Vec<Evidence> = others
        .map(|row| Evidence::read(*row, &directory))
        .filter(|found| found.opened || found.claim != DirectoryClaim::default())
        .collect();
    let roles = roles(&table, &evidence, locked_by(&directory), ours);
    let mut users = Vec::new();
    for (identity, role) in roles {
        let process = Process::reopen(identity).at(LOOK, PROC)?;
        users.extend(process.map(|process| DirectoryUser { process, role }));
    }
    Ok(users)
}

/// Whether any live process but this one uses a directory in whatever way: works in it, has something of it open, names it
/// on its command line, or was started with its path in the environment variable `variable`, as its children are in turn. A
/// directory that is not there is not used; where nobody can tell, it is.
pub fn is_used(directory: &Path, variable: &str) -> bool {
    let opened = match Directory::open(directory) {
        Ok(opened) => opened,
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    let Ok(users) = users_of(directory) else {
        return true;
    };
    let Ok(table) = ProcessTable::read() else {
        return true;
    };
    let ours = std::process::id();
    let mut others = table.living().map(ProcessInfo::pid);
    !users.is_empty() || others.any(|pid| pid != ours && is_in_environment(pid, &opened, variable))
}

/// Whether a browser of this host left its lock in a directory that no browser runs in: it was killed, or ended by SIGTERM,
/// and did not write what it held back. One that was closed, or interrupted, removes it. Measured with Chromium 156.
pub fn has_stale_lock(directory: &Path) -> bool {
    Directory::open(directory).is_ok_and(|directory| locked_by(&directory).is_some())
}

/// The process that the lock names, if the lock was made on this host.
fn locked_by(directory: &Directory) -> Option<u32> {
    let target = std::fs::read_link(directory.join("SingletonLock")).ok()?;
    let (host, pid) = target.to_str()?.rsplit_once('-')?;
    let uname = rustix::system::uname();
    (uname.nodename().to_bytes() == host.as_bytes())
        .then(|| pid.parse().ok())
        .flatten()
}

#[derive(Clone, Debug)]
struct Evidence {
    row: ProcessInfo,
    line: Vec<u8>,
    claim: DirectoryClaim,
    opened: bool,
}

impl Evidence {
    fn read(row: ProcessInfo, directory: &Directory) -> Self {
        let line = stasis_sys::processes::command_line(row.pid());
        Self {
            row,
            claim: DirectoryClaim::read(row.pid(), &line, directory),
            opened: has_open(row.pid(), directory),
            line,
        }
    }

    fn pid(&self) -> u32 {
        self.row.pid()
    }
}

/// The browsers: as a rule one, or none.
fn browsers(table: &ProcessTable, evidence: &[Evidence], lock: Option<u32>) -> Vec<ProcessInfo> {
    let works_here =
        |found: &&Evidence| !found.claim.is_helper && (found.opened || found.claim.names_it);
    let locked = |found: &&Evidence| Some(found.pid()) == lock;
    if let Some(found) = evidence.iter().filter(works_here).find(locked) {
        return vec![found.row];
    }
    let has_helpers = |pid| {
        let mut helpers = evidence.iter().filter(|found| found.claim.is_helper);
        helpers.any(|helper| helper.row.parent == pid)
    };
    let mut likely: Vec<&Evidence> = evidence
        .iter()
        .filter(works_here)
        .filter(|found| found.opened && (found.claim.names_it || has_helpers(found.pid())))
        .collect();
    // One that was started a moment ago and has not begun its program looks exactly like who started it.
    let all = likely.clone();
    likely.retain(|found| {
        let parent = all.iter().find(|other| other.pid() == found.row.parent);
        parent.is_none_or(|parent| parent.line != found.line)
    });
    let started_another = |pid: u32| {
        let mut others = likely.iter().map(|found| table.ancestors(found.pid()));
        others.any(|ancestors| ancestors.contains(&pid))
    };
    let mut browsers: Vec<ProcessInfo> = likely.iter().map(|found| found.row).collect();
    browsers.retain(|row| !started_another(row.pid()));
    browsers.sort_by_key(|row| row.identity.started());
    browsers
}

fn roles(
    table: &ProcessTable,
    evidence: &[Evidence],
    lock: Option<u32>,
    ours: u32,
) -> Vec<(ProcessId, ProcessRole)> {
    let browsers = browsers(table, evidence, lock);
    let identities: Vec<ProcessId> = browsers.iter().map(|row| row.identity).collect();
    let family = table.family(&identities);
    let mut roles: Vec<(ProcessId, ProcessRole)> = identities
        .iter()
        .map(|browser| (*browser, ProcessRole::Browser))
        .collect();
    let children = family
        .iter()
        .filter(|row| row.pid() != ours && !identities.contains(&row.identity));
    roles.extend(children.map(|row| (row.identity, ProcessRole::Child)));
    let our_ancestors = table.ancestors(ours);
    for found in evidence {
        let identity = found.row.identity;
        if roles.iter().any(|(known, _)| *known == identity) {
            continue;
        }
        let role = match (found.claim, found.opened) {
            (claim, _) if claim.names_it && claim.is_helper => ProcessRole::Child,
            (_, true) => ProcessRole::Bystander,
            (claim, false) if claim.names_it && !our_ancestors.contains(&found.pid()) => {
                ProcessRole::Launcher
            }
            _ => continue,
        };
        roles.push((identity, role));
    }
    roles.sort_by_key(|(_, role)| *role);
    roles
}

#[cfg(test)]
mod tests;
