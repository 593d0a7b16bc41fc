//! What the forks of a workspace are called.

use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest name of a fork, in bytes.
pub const LONGEST_FORK_NAME: usize = 64;
/// The workspace itself, where a fork could be named.
const MAIN: &str = "main";

/// The name of a fork.
///
/// *Always true:* it is one component of a path that no shell and no tool takes for anything else, and never means the workspace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ForkName(String);

impl ForkName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ForkName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_name = text.len() <= LONGEST_FORK_NAME
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(is_plain);
        if !is_name {
            return Err(Invalid::new(format!(
                "the name of a fork has at most {LONGEST_FORK_NAME} letters, digits, `-`, `_` or `.`, and begins with a letter or a digit"
            )));
        }
        if text.eq_ignore_ascii_case(MAIN) {
            return Err(Invalid::new(
                "`main` is the workspace itself, and no name of a fork",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ForkName {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<ForkName> for String {
    fn from(name: ForkName) -> Self {
        name.0
    }
}

impl fmt::Display for ForkName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// One of two trees that are compared: a fork, or the workspace that it was made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForkSide {
    /// `.` or `main`
    Workspace,
    /// A fork by its name.
    Fork(ForkName),
}

impl FromStr for ForkSide {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text == "." || text.eq_ignore_ascii_case(MAIN) {
            return Ok(Self::Workspace);
        }
        text.parse().map(Self::Fork)
    }
}

impl fmt::Display for ForkSide {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace => out.write_str(MAIN),
            Self::Fork(name) => name.fmt(out),
        }
    }
}

/// The names of so many new forks: as somebody wants them, with a number behind each if there are several; else the first of `fork-1`,
/// `fork-2`, … that are not taken.
pub fn fork_names(
    wanted: Option<&ForkName>,
    count: u32,
    is_taken: impl Fn(&ForkName) -> bool,
) -> Result<Vec<ForkName>, Invalid> {
    match wanted {
        Some(name) if count == 1 => Ok(vec![name.clone()]),
        Some(name) => (1..=count)
            .map(|number| format!("{name}-{number}").parse())
            .collect(),
        None => {
            let all = (1_u32..).map(|number| {
                let name = format!("fork-{number}").parse::<ForkName>();
                name.expect("letters and digits are a name")
            });
            let free = all.filter(|name| !is_taken(name));
            Ok(free.take(count as usize).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ForkName {
        text.parse().unwrap()
    }

    #[test]
    fn a_fork_gets_a_plain_name_or_none() {
        for good in ["a", "try-2", "v1.2_x", "0", "mainline"] {
            assert_eq!(name(good).as_str(), good);
        }
        let long = "a".repeat(LONGEST_FORK_NAME + 1);
        for bad in [
            "", ".", "..", ".git", "-rf", "a/b", "a\\b", "a b", "ä", "a\n", "a\0", "main", "Main",
            &long,
        ] {
            assert!(bad.parse::<ForkName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_workspace_is_a_dot_or_main() {
        assert_eq!(".".parse(), Ok(ForkSide::Workspace));
        assert_eq!("main".parse(), Ok(ForkSide::Workspace));
        assert_eq!("try".parse(), Ok(ForkSide::Fork(name("try"))));
    }

    #[test]
    fn new_forks_take_the_first_free_numbers_or_the_names_that_somebody_wants() {
        let is_taken = |one: &ForkName| one.as_str() == "fork-2";
        let all = |names: Vec<ForkName>| {
            let all: Vec<String> = names.iter().map(ToString::to_string).collect();
            all.join(" ")
        };

        assert_eq!(
            all(fork_names(None, 3, is_taken).unwrap()),
            "fork-1 fork-3 fork-4"
        );
        assert_eq!(all(fork_names(Some(&name("x")), 1, is_taken).unwrap()), "x");
        assert_eq!(
            all(fork_names(Some(&name("x")), 2, is_taken).unwrap()),
            "x-1 x-2"
        );
        let longest = name(&"a".repeat(LONGEST_FORK_NAME));
        assert!(fork_names(Some(&longest), 2, is_taken).is_err());
    }
}
