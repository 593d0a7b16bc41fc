//! Whether an agent runs the hooks that its settings name: some skip them, without a word, until the user trusts them.

use super::agent::Agent;
use super::program::Program;
use crate::env::Environment;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

/// How long Codex may take to say what it trusts; it takes an eighth of a second.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// More than Codex ever says.
const LONGEST_ANSWER: u64 = 4 << 20;

/// Whether an agent runs our hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Trust {
    /// The agent runs whatever its settings name.
    NotNeeded,
    /// The user has trusted it.
    Trusted,
    /// The user has not trusted it; the agent skips it.
    Untrusted,
    /// The user trusted an earlier command; the agent skips this one.
    Changed,
    /// Nobody can tell.
    Unknown,
}

impl Trust {
    /// Whether the agent skips the hook.
    pub(super) fn is_missing(self) -> bool {
        matches!(self, Self::Untrusted | Self::Changed)
    }

    /// What to do about an agent that skips the hook.
    pub(super) fn hint(self, agent: Agent) -> Option<&'static str> {
        if !self.is_missing() {
            return None;
        }
        match agent {
            Agent::Codex => Some(
                "Codex skips this hook until you trust it: type /hooks in Codex once; without a terminal, run it with \
                 --dangerously-bypass-hook-trust, or copy [hooks.state] of config.toml from where it is trusted",
            ),
            Agent::Gemini => Some(
                "Gemini CLI runs no hooks in a folder that it does not trust: start it here once and trust the folder; \
                 without a terminal, set GEMINI_CLI_TRUST_WORKSPACE=true",
            ),
            Agent::ClaudeCode | Agent::OpenCode => None,
        }
    }

    /// Whether the agent runs our hook in `project`, which is written in `file`.
    pub(super) async fn of(
        agent: Agent,
        environment: &Environment,
        file: &Path,
        project: &Path,
    ) -> Self {
        match agent {
            Agent::ClaudeCode | Agent::OpenCode => Self::NotNeeded,
            Agent::Codex => {
                let asked = tokio::time::timeout(ANSWER_LIMIT, asked_codex(project)).await;
                let hooks = asked.ok().flatten();
                hooks.map_or_else(|| of_codex_config(file), |hooks| of_codex(&hooks, file))
            }
            Agent::Gemini => of_gemini(environment, project),
        }
    }
}

/// What `codex app-server` says of the hooks that it finds in a project.
async fn asked_codex(project: &Path) -> Option<Value> {
    let mut codex = Command::new("codex")
        .arg("app-server")
        .current_dir(project)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let client =
        json!({ "name": "stasis", "title": "Stasis", "version": env!("CARGO_PKG_VERSION") });
    let messages = [
        json!({ "id": 1, "method": "initialize", "params": { "clientInfo": client } }),
        json!({ "method": "initialized" }),
        json!({ "id": 2, "method": "hooks/list", "params": { "cwds": [project] } }),
    ];
    // Held open until the answer came: an end of input ends the server.
    let mut stdin = codex.stdin.take()?;
    for message in messages {
        stdin
            .write_all(format!("{message}\n").as_bytes())
            .await
            .ok()?;
    }
    stdin.flush().await.ok()?;
    let mut lines = BufReader::new(codex.stdout.take()?.take(LONGEST_ANSWER)).lines();
    while let Some(line) = lines.next_line().await.ok()? {
        let answer: Value = serde_json::from_str(&line).ok()?;
        if answer["id"] == 2 {
            return answer.get("result").cloned();
        }
    }
    None
}

/// The worst that Codex says of our hooks in a file.
fn of_codex(answer: &Value, file: &Path) -> Trust {
    let program = Program::at(Agent::Codex, "stasis");
    let projects = answer["data"].as_array().into_iter().flatten();
    let hooks = projects.flat_map(|project| project["hooks"].as_array().into_iter().flatten());
    let ours = hooks.filter(|hook| {
        let command = hook["command"].as_str().unwrap_or_default();
        let source = hook["sourcePath"].as_str().map(Path::new);
        program.wrote(command) && source.is_some_and(|source| is_same(source, file))
    });
    let states: Vec<&str> = ours
        .filter_map(|hook| hook["trustStatus"].as_str())
        .collect();
    let any = |state: &str| states.contains(&state);
    match states.as_slice() {
        [] => Trust::Unknown,
        _ if any("untrusted") => Trust::Untrusted,
        _ if any("modified") => Trust::Changed,
        all if all
            .iter()
            .all(|state| ["trusted", "managed"].contains(state)) =>
        {
            Trust::Trusted
        }
        _ => Trust::Unknown,
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// What Codex's configuration says where Codex itself cannot be asked: a hook that it never trusted is not in there.
fn of_codex_config(file: &Path) -> Trust {
    let config = file.with_file_name("config.toml");
    let config = std::fs::read_to_string(config).unwrap_or_default();
    let config: toml::Table = toml::from_str(&config).unwrap_or_default();
    let state = config.get("hooks").and_then(|hooks| hooks.get("state"));
    let prefix = format!("{}:", file.display());
    let is_named = state.and_then(toml::Value::as_table).is_some_and(|state| {
        let mut keys = state.keys();
        keys.any(|key| key.starts_with(&prefix))
    });
    // A trusted hash is that of one command, and only Codex knows how it makes it.
    if is_named {
        Trust::Unknown
    } else {
        Trust::Untrusted
    }
}

/// Whether Gemini CLI trusts a folder: the nearest rule above it decides.
fn of_gemini(environment: &Environment, project: &Path) -> Trust {
    let variable = |name: &str| environment.variables.get(name).map(String::as_str);
    if variable("GEMINI_CLI_TRUST_WORKSPACE") == Some("true") {
        return Trust::Trusted;
    }
    let Some(home) = environment.agents.gemini.as_ref() else {
        return Trust::Unknown;
    };
    let settings = std::fs::read_to_string(home.join("settings.json")).unwrap_or_default();
    let settings: Value = serde_json::from_str(&settings).unwrap_or_default();
    if settings.pointer("/security/folderTrust/enabled") == Some(&json!(false)) {
        return Trust::NotNeeded;
    }
    let rules = variable("GEMINI_CLI_TRUSTED_FOLDERS_PATH")
        .map_or_else(|| home.join("trustedFolders.json"), PathBuf::from);
    let rules = std::fs::read_to_string(rules).unwrap_or_default();
    let rules: BTreeMap<PathBuf, String> = serde_json::from_str(&rules).unwrap_or_default();
    of_folder(&rules, project)
}

fn of_folder(rules: &BTreeMap<PathBuf, String>, project: &Path) -> Trust {
    let mut covering: Vec<(usize, bool)> = rules
        .iter()
        .filter_map(|(path, rule)| {
            let (path, trusted) = match rule.as_str() {
                "TRUST_FOLDER" => (path.as_path(), true),
                "TRUST_PARENT" => (path.parent()?, true),
                "DO_NOT_TRUST" => (path.as_path(), false),
                _ => return None,
            };
            let covers = project.starts_with(path);
            covers.then(|| (path.components().count(), trusted))
        })
        .collect();
    covering.sort_unstable();
    match covering.last() {
        Some((_, true)) => Trust::Trusted,
        Some((_, false)) | None => Trust::Untrusted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(states: &[(&str, &str)]) -> Value {
        let hooks: Vec<Value> = states
            .iter()
            .map(|(command, trust)| {
                json!({ "command": command, "sourcePath": "/c/hooks.json", "trustStatus": trust })
            })
            .collect();
        json!({ "data": [{ "hooks": hooks }] })
    }

    #[test]
    fn codex_trusts_our_hook_only_if_it_trusts_every_part_of_it() {
        let (ours, theirs) = ("x hook run codex >/dev/null", "date");
        let trust =
            |states: &[(&str, &str)]| of_codex(&answered(states), Path::new("/c/hooks.json"));

        assert_eq!(
            trust(&[(ours, "trusted"), (ours, "trusted")]),
            Trust::Trusted
        );
        assert_eq!(
            trust(&[(ours, "trusted"), (theirs, "untrusted")]),
            Trust::Trusted
        );
        assert_eq!(
            trust(&[(ours, "trusted"), (ours, "untrusted")]),
            Trust::Untrusted
        );
        assert_eq!(
            trust(&[(ours, "modified"), (ours, "trusted")]),
            Trust::Changed
        );
        assert_eq!(trust(&[(theirs, "trusted")]), Trust::Unknown);
        let elsewhere = answered(&[(ours, "trusted")]);
        assert_eq!(
            of_codex(&elsewhere, Path::new("/d/hooks.json")),
            Trust::Unknown
        );
    }

    #[test]
    fn gemini_trusts_a_folder_by_the_nearest_rule_above_it() {
        let rule = |path: &str, rule: &str| (PathBuf::from(path), rule.to_owned());
        let rules = BTreeMap::from([
            rule("/home/me", "TRUST_FOLDER"),
            rule("/home/me/bad", "DO_NOT_TRUST"),
            rule("/srv/app/one", "TRUST_PARENT"),
        ]);
        let trust = |path: &str| of_folder(&rules, Path::new(path));

        assert_eq!(trust("/home/me/src/app"), Trust::Trusted);
        assert_eq!(trust("/home/me/bad/app"), Trust::Untrusted);
        assert_eq!(trust("/srv/app/two"), Trust::Trusted);
        assert_eq!(trust("/home/melanie"), Trust::Untrusted);
        assert_eq!(
            of_folder(&BTreeMap::new(), Path::new("/")),
            Trust::Untrusted
        );
    }
}
