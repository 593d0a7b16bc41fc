//! Which programs this machine has.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// A program that was found, with what it says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstalledProgram {
    /// Where it is.
    pub path: PathBuf,
    /// The first line of its answer, if it answered in time.
    pub answer: Option<String>,
}

/// Looks for the first of `names` in `search_path` (as in `PATH`).
pub fn located(names: &[&str], search_path: &OsStr) -> Option<PathBuf> {
    names.iter().find_map(|name| locate(name, search_path))
}

/// Looks for the first of `names` in `search_path` (as in `PATH`) and asks it with `arguments`.
pub async fn find(
    names: &[&str],
    search_path: &OsStr,
    arguments: &[&str],
) -> Option<InstalledProgram> {
    let path = located(names, search_path)?;
    let answer = ask(&path, arguments).await;
    Some(InstalledProgram { path, answer })
}

fn locate(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    std::env::split_paths(search_path)
        .map(|directory| directory.join(name))
        .find(executable)
}

pub(crate) async fn ask(path: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(path);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let answered = tokio::time::timeout(Duration::from_secs(10), command.output()).await;
    let output = answered
        .ok()?
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(
        line.trim()
            .chars()
            .filter(|c| !c.is_control())
            .take(120)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_is_found_on_the_search_path_and_asked() {
        let found = find(
            &["no-such-program", "echo"],
            OsStr::new("/nowhere:/bin:/usr/bin"),
            &["hello"],
        )
        .await;

        assert_eq!(found.unwrap().answer.as_deref(), Some("hello"));
    }

    #[tokio::test]
    async fn a_program_that_is_missing_or_fails_is_told_apart() {
        let path = OsStr::new("/bin:/usr/bin");

        assert_eq!(find(&["no-such-program"], path, &[]).await, None);
        assert_eq!(find(&["false"], path, &[]).await.unwrap().answer, None);
    }
}
