//! Which browser a command starts.

use super::error::BrowserError;
use crate::programs;
use std::path::Path;

/// Asks a browser for its major version; waits ten seconds at most.
pub async fn version(program: &Path) -> Result<u32, BrowserError> {
    let answer = programs::ask(program, &["--version"]).await;
    let answer = answer.ok_or_else(|| BrowserError::NoVersion {
        program: program.to_owned(),
    })?;
    major(&answer).ok_or_else(|| BrowserError::UnknownVersion {
        program: program.to_owned(),
        answer,
    })
}

/// What browsers are called, in the order in which they are looked for.
pub const NAMES: [&str; 7] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "brave-browser",
];

/// How the names of browsers begin, those included that other programs bring along.
const BEGINNINGS: [&str; 7] = [
    "chromium",
    "chrome",
    "google-chrome",
    "headless_shell",
    "microsoft-edge",
    "msedge",
    "brave",
];

/// Whether a program is called like a browser. Any other is not asked for its version: to ask is to run it, and a user who
/// wrote it may not know the question.
pub fn is_browser_name(program: &Path) -> bool {
    let name = program.file_name().and_then(std::ffi::OsStr::to_str);
    let name = name.map(str::to_lowercase).unwrap_or_default();
    BEGINNINGS.iter().any(|begin| name.starts_with(begin)) && !name.contains("driver")
}

/// The first of the four numbers of a version; other programs than Chromium's kin have fewer.
fn major(answer: &str) -> Option<u32> {
    answer.split_ascii_whitespace().find_map(|word| {
        let numbers: Option<Vec<u32>> = word.split('.').map(|part| part.parse().ok()).collect();
        numbers
            .filter(|numbers| numbers.len() == 4)?
            .first()
            .copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_found_among_the_words() {
        let debian = "Chromium 156.0.8078.79 built on Debian GNU/Linux 12 (bookworm)";

        assert_eq!(major(debian), Some(156));
        assert_eq!(major("Google Chrome 99.1.2.3 unknown"), Some(99));
        for other in [
            "Chromium",
            "built 12 v1.2",
            "Python 3.11.2",
            "v20.11.1",
            "GNU bash 5.2.15(1)",
        ] {
            assert_eq!(major(other), None, "{other}");
        }
    }

    #[test]
    fn a_browser_is_known_by_its_name() {
        for browser in [
            "chromium",
            "/usr/bin/google-chrome-stable",
            "/x/chrome-linux/chrome",
            "headless_shell",
        ] {
            assert!(is_browser_name(Path::new(browser)), "{browser}");
        }
        for other in [
            "python3",
            "node",
            "sh",
            "./agent",
            "chromedriver",
            "/usr/bin/env",
            "",
        ] {
            assert!(!is_browser_name(Path::new(other)), "{other}");
        }
    }

    #[tokio::test]
    async fn a_program_that_is_no_browser_is_told() {
        let failed = version(Path::new("false")).await.unwrap_err();

        assert_eq!(failed.to_string(), "`false --version` gave no answer");
    }
}
