//! An ordinary user for a test that runs as root: what may not be read or moved is refused to it.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

/// The user id that owns nothing by itself.
pub const UNPRIVILEGED: u32 = 65_534;

/// Gives a place and everything below it to the unprivileged user; nothing where the test is no root.
pub fn give_to_unprivileged(place: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    chown(place, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root gives files away");
    if place.is_dir() {
        for entry in fs::read_dir(place).expect("root reads every directory") {
            give_to_unprivileged(&entry.expect("root reads every entry").path());
        }
    }
}

/// The same command as the unprivileged user, with no more than its own variables.
///
/// Where the test is no root, it is the same command. An exit code of 126 or 127 says that this user cannot run the program: where it
/// was built is not open to everybody.
pub fn as_unprivileged(plain: &Command) -> Command {
    let mut command = Command::new(plain.get_program());
    if rustix::process::geteuid().is_root() {
        let id = UNPRIVILEGED.to_string();
        command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
        command.arg(plain.get_program());
    }
    command.args(plain.get_args()).env_clear();
    let set = plain.get_envs();
    command.envs(set.filter_map(|(name, value)| Some((name, value?))));
    command
}
