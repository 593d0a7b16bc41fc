//! Which browser a command starts.

use crate::programs;
use std::path::{Path, PathBuf};

/// Why the version of a browser is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// It could not be started, failed, or said nothing in time.
    #[error("`{} --version` gave no answer", .program.display())]
    NoAnswer {
        /// Which program.
        program: PathBuf,
    },
    /// It said something without a version in it.
    #[error("`{} --version` answered `{answer}`, which names no version", .program.display())]
    NotUnderstood {
        /// Which program.
        program: PathBuf,
        /// What it said, cut short.
        answer: String,
    },
}

/// Asks a browser for its major version; waits ten seconds at most.
pub async fn version(program: &Path) -> Result<u32, VersionError> {
    let answer = programs::ask(program, &["--version"]).await;
    let answer = answer.ok_or_else(|| VersionError::NoAnswer {
        program: program.to_owned(),
    })?;
    major(&answer).ok_or_else(|| VersionError::NotUnderstood {
        program: program.to_owned(),
        answer,
    })
}

/// The first number of the first word that is a version.
fn major(answer: &str) -> Option<u32> {
    let version = |word: &str| {
        let mut numbers = word.split('.').map(|number| number.parse::<u32>().ok());
        let major = numbers.next()??;
        (word.contains('.') && numbers.all(|number| number.is_some())).then_some(major)
    };
    answer.split_ascii_whitespace().find_map(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_found_among_the_words() {
        let debian = "Chromium 156.0.8078.79 built on Debian GNU/Linux 12 (bookworm)";

        assert_eq!(major(debian), Some(156));
        assert_eq!(major("Google Chrome 99.1.2.3 unknown"), Some(99));
        assert_eq!(major("Chromium"), None);
        assert_eq!(major("built 12 v1.2"), None);
    }

    #[tokio::test]
    async fn a_program_that_is_no_browser_is_told() {
        let failed = version(Path::new("false")).await.unwrap_err();

        assert_eq!(failed.to_string(), "`false --version` gave no answer");
    }
}
