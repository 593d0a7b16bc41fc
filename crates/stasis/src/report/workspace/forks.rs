//! Hints for what goes wrong with forks, and what a program needs to know of it.

use crate::cli::byte_size::size;
use serde_json::{Value, json};
use stasis_engine::address::shell_word;
use stasis_engine::kind::workspace::WorkspaceError;

/// What to do now.
pub(super) fn hint(error: &WorkspaceError) -> Option<String> {
    let text = match error {
        WorkspaceError::NoFork {
            parent: Some(parent),
            ..
        } => {
            return Some(format!(
                "this is itself a fork of {}: stand there, or say --workspace {}",
                parent.display(),
                shell_word(&parent.display().to_string())
            ));
        }
        WorkspaceError::NoFork { .. } => "`stasis fork list` shows the forks there are",
        WorkspaceError::ForkTaken(_) => "choose another --name; `stasis fork list` shows them",
        WorkspaceError::ForkGone { name, .. } | WorkspaceError::ForkReplaced { name, .. } => {
            return Some(format!(
                "`stasis fork rm {name}` forgets it, and leaves what lies there alone"
            ));
        }
        WorkspaceError::ForkHasWork { name, .. } | WorkspaceError::ForkHasMore { name, .. } => {
            return Some(format!(
                "nothing was removed; `stasis fork promote {name}` keeps it, `stasis fork rm {name} --discard` lets it go"
            ));
        }
        WorkspaceError::OverwritesWork { .. } => {
            "nothing was changed; --dry-run shows the plan, --keep-mine leaves these as they are, --yes overwrites them, with an undo"
        }
        WorkspaceError::ForkHasForks { .. } => {
            "nothing was removed; remove those first, from in it"
        }
        WorkspaceError::ForkWatched { .. } => "nothing was removed; end the watch first",
        WorkspaceError::ForkNotYours(name) => {
            return Some(format!("a person removes it with `stasis fork rm {name}`"));
        }
        WorkspaceError::ForksFull { .. } => "`stasis fork rm NAME` removes one",
        WorkspaceError::ForksOverBudget { forks, .. } => return Some(forks_hint(forks)),
        WorkspaceError::ForkBaseGone { name, .. } => {
            return Some(format!(
                "`stasis fork diff main {name}` compares it with the workspace"
            ));
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// Which forks could go so that there is room.
fn forks_hint(forks: &[(String, u64)]) -> String {
    let freeing = forks.iter().filter(|(_, bytes)| *bytes > 0).take(3);
    let mut words: Vec<String> = freeing
        .map(|(name, bytes)| format!("`stasis fork rm {name}` frees {}", size(*bytes)))
        .collect();
    words.push("`budget_bytes` in config.toml of the session allows more".to_owned());
    format!("nothing was made; {}", words.join(", "))
}

/// What a program would otherwise have to read out of the words.
pub(super) fn fields(error: &WorkspaceError) -> Vec<(&'static str, Value)> {
    match error {
        WorkspaceError::NoFork { name, .. } | WorkspaceError::ForkGone { name, .. } => {
            vec![("fork", json!(name))]
        }
        WorkspaceError::ForkHasWork {
            name,
            files,
            commits,
            ..
        } => vec![
            ("fork", json!(name)),
            ("files", json!(files)),
            ("commits", json!(commits)),
        ],
        WorkspaceError::OverwritesWork { name, count, paths } => vec![
            ("fork", json!(name)),
            ("overwrites", json!(count)),
            ("paths", json!(paths)),
        ],
        WorkspaceError::ForksOverBudget { needs, budget, .. } => {
            vec![("needs", json!(needs)), ("budget", json!(budget))]
        }
        _ => Vec::new(),
    }
}
