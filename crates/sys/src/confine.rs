//! A process that gives up, for good, what it does not need, before it reads what a stranger wrote.
//!
//! Three things, each where the kernel has it and lets us: no program that is started has more rights (`no_new_privs`); nothing is
//! opened, made or removed outside what was named, and no port is bound or connected to (Landlock, whichever version there is); and
//! calls that a reader has no use for are refused (seccomp). A refused call answers `EPERM`, `EACCES` or `ENOSYS`, and the
//! process goes on.
//!
//! *Always true:* what was given up does not come back, and is given up by all that this thread starts. It says nothing of threads that
//! run already: to be called before there are any. What is open already stays open.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod calls;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use rustix::thread::{self, CapabilitySet, CapabilitySets};
use std::os::fd::BorrowedFd;

/// All that may still be opened.
#[derive(Clone, Copy, Debug)]
pub enum Reach<'a> {
    /// Nothing.
    Nothing,
    /// One file that is open, for reading, by any of its names.
    File(BorrowedFd<'a>),
    /// What lies in a directory: files in it are read, written, made and removed.
    Directory(BorrowedFd<'a>),
}

/// What of it the system enforces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Enforced {
    /// No program that is started has more rights.
    pub privileges: bool,
    /// Nothing else is opened.
    pub files: bool,
    /// Calls without a use are refused.
    pub calls: bool,
}

impl Enforced {
    /// Each of them by the name that the manual of this system has, and whether it is in force.
    pub fn by_name(self) -> [(&'static str, bool); 3] {
        [
            ("no_new_privs", self.privileges),
            ("Landlock", self.files),
            ("seccomp", self.calls),
        ]
    }
}

/// The newest version of the rules that was tried; an older kernel enforces what it knows of them.
const RULES: ABI = ABI::V7;

/// Gives up everything but `reach`, as far as the system has means for it.
pub fn confine(reach: Reach<'_>) -> Enforced {
    Enforced {
        privileges: thread::set_no_new_privs(true).is_ok(),
        files: enclose(reach).is_ok_and(|status| status != RulesetStatus::NotEnforced),
        calls: refuse_calls(),
    }
}

/// What [`confine`] would enforce here: a thread tries it, and ends.
pub fn offered() -> Enforced {
    let tried = std::thread::spawn(|| confine(Reach::Nothing));
    tried.join().unwrap_or_default()
}

/// Gives up the rights of root, if this process has them, but the one to open files of others: what it was given may lie where the system
/// makes somebody else its owner.
pub fn drop_privileges() {
    let kept = thread::capabilities(None).map(|now| CapabilitySets {
        effective: now.effective & CapabilitySet::DAC_OVERRIDE,
        permitted: now.permitted & CapabilitySet::DAC_OVERRIDE,
        inheritable: CapabilitySet::empty(),
    });
    // Where even this is refused, a container has taken them away already.
    let _ = kept.and_then(|kept| thread::set_capabilities(None, kept));
}

fn enclose(reach: Reach<'_>) -> Result<RulesetStatus, RulesetError> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?;
    let in_directory = make_bitflags!(AccessFs::{
        ReadFile | WriteFile | Truncate | ReadDir | MakeReg | RemoveFile
    });
    let allow = |place, access: BitFlags<AccessFs>| PathBeneath::new(place, access);
    let rules = match reach {
        Reach::Nothing => rules,
        Reach::File(file) => rules.add_rule(allow(file, AccessFs::ReadFile.into()))?,
        Reach::Directory(place) => rules.add_rule(allow(place, in_directory))?,
    };
    Ok(rules.restrict_self()?.ruleset)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn refuse_calls() -> bool {
    calls::refuse().is_ok()
}

/// Numbers of calls are known of two architectures.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn refuse_calls() -> bool {
    false
}

#[cfg(test)]
mod tests;
