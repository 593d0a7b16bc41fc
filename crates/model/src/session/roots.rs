//! What of a session's workspace is saved.

use crate::invalid::Invalid;
use crate::tree::EntryPath;
use serde::{Deserialize, Serialize};

/// What is saved of a session that names nothing.
const DEFAULT: [&str; 3] = ["outputs", "attachments", ".opencode-data"];
/// No session has more.
const MOST: usize = 64;

/// The parts of a workspace that are saved, each with everything in it: sorted, none within another, at least one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct SessionRoots(Vec<String>);

impl Default for SessionRoots {
    fn default() -> Self {
        let all = DEFAULT.map(str::to_owned).to_vec();
        Self::try_from(all).expect("constants that are paths")
    }
}

impl TryFrom<Vec<String>> for SessionRoots {
    type Error = Invalid;

    fn try_from(named: Vec<String>) -> Result<Self, Invalid> {
        if named.len() > MOST {
            return Err(Invalid::new(format!(
                "a session has at most {MOST} roots; {} were named",
                named.len()
            )));
        }
        let mut roots = Vec::new();
        for one in &named {
            let trimmed = one.trim_end_matches('/');
            let path: EntryPath = trimmed.parse().map_err(|error| {
                Invalid::new(format!(
                    "`{one}` is not a path within the workspace: {error}"
                ))
            })?;
            if path.is_root() || trimmed == "." {
                // All of it.
                return Ok(Self(vec![".".to_owned()]));
            }
            roots.push(path.to_string());
        }
        roots.sort();
        roots.dedup();
        let above = roots.clone();
        let is_within = |one: &String, other: &String| {
            one.strip_prefix(other.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        roots.retain(|one| !above.iter().any(|other| is_within(one, other)));
        if roots.is_empty() {
            Ok(Self::default())
        } else {
            Ok(Self(roots))
        }
    }
}

impl From<SessionRoots> for Vec<String> {
    fn from(roots: SessionRoots) -> Self {
        roots.0
    }
}

impl SessionRoots {
    /// As they are named.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Whether the whole workspace is saved.
    pub fn is_everything(&self) -> bool {
        self.0 == ["."]
    }

    /// Gitignore-style patterns that leave out everything else.
    pub fn patterns(&self) -> Vec<String> {
        if self.is_everything() {
            return Vec::new();
        }
        let mut patterns = vec!["/*".to_owned()];
        for root in &self.0 {
            let mut path = String::new();
            let parts: Vec<&str> = root.split('/').collect();
            for (at, part) in parts.iter().enumerate() {
                path = format!("{path}/{}", escaped(part));
                let seen = format!("!{path}");
                if !patterns.contains(&seen) {
                    patterns.push(seen);
                    if at + 1 < parts.len() {
                        patterns.push(format!("{path}/*"));
                    }
                }
            }
        }
        patterns
    }
}

/// A name that means itself in a pattern.
fn escaped(name: &str) -> String {
    let is_special = |c: char| "\\*?[]!# ".contains(c);
    let escape = |c: char| {
        if is_special(c) {
            format!("\\{c}")
        } else {
            c.to_string()
        }
    };
    name.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(named: &[&str]) -> Result<SessionRoots, Invalid> {
        let named: Vec<String> = named.iter().map(|one| (*one).to_owned()).collect();
        SessionRoots::try_from(named)
    }

    #[test]
    fn roots_are_paths_within_the_workspace() {
        assert_eq!(
            SessionRoots::default().names(),
            [".opencode-data", "attachments", "outputs"]
        );
        assert_eq!(roots(&["b/", "a", "b", "a/x"]).unwrap().names(), ["a", "b"]);
        assert_eq!(roots(&[]).unwrap(), SessionRoots::default());
        assert!(roots(&["a", "."]).unwrap().is_everything());
        for bad in ["/etc", "../x", "a/../b", "a//b"] {
            assert!(roots(&[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn everything_but_the_roots_is_left_out() {
        assert_eq!(
            roots(&["outputs", "a/b", "a/c*"]).unwrap().patterns(),
            ["/*", "!/a", "/a/*", "!/a/b", "!/a/c\\*", "!/outputs",]
        );
        assert_eq!(roots(&["."]).unwrap().patterns(), [""; 0]);
    }
}
