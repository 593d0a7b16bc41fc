//! The coding agents whose hooks we know: where each keeps them, and what they are called there.

use super::json_text::Dialect;
use crate::env::Environment;
use anyhow::Context as _;
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How long an agent waits for us, in seconds; we give up before.
const HOOK_TIMEOUT_S: u32 = 30;

/// A coding agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Agent {
    /// Claude Code
    ClaudeCode,
    /// Codex CLI
    Codex,
    /// Gemini CLI
    Gemini,
    /// OpenCode
    #[value(name = "opencode")]
    #[serde(rename = "opencode")]
    OpenCode,
}

/// For whom hooks are installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scope {
    /// You, in all your projects
    User,
    /// Everybody who works on the project in the current directory
    Project,
}

/// How an agent is told of hooks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Means {
    /// By entries in a JSON file that holds other things too.
    Settings(HookFormat),
    /// By a program of its own language, a file that is all ours.
    Plugin,
}

/// What an agent calls things.
#[derive(Clone, Copy, Debug)]
pub(super) struct HookFormat {
    pub(super) dialect: Dialect,
    pub(super) events: [HookEvent; 2],
    /// How long the agent waits for us, in its own unit.
    pub(super) timeout: u32,
}

/// A moment at which a hook is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct HookEvent {
    pub(super) name: &'static str,
    /// Which tools it is about.
    pub(super) matcher: Option<&'static str>,
}

impl Agent {
    pub(super) const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Gemini, Self::OpenCode];

    /// As on our command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    /// What the agent itself is called on a command line.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    pub(super) fn means(self) -> Means {
        let prompt_and = |prompt, tool, matcher| {
            let event = |name, matcher| HookEvent { name, matcher };
            [event(prompt, None), event(tool, Some(matcher))]
        };
        match self {
            Self::ClaudeCode => Means::Settings(HookFormat {
                dialect: Dialect::Strict,
                events: prompt_and(
                    "UserPromptSubmit",
                    "PreToolUse",
                    "Bash|Edit|Write|MultiEdit|NotebookEdit",
                ),
                timeout: HOOK_TIMEOUT_S,
            }),
            Self::Codex => Means::Settings(HookFormat {
                dialect: Dialect::Strict,
                events: prompt_and("UserPromptSubmit", "PreToolUse", "^(Bash|apply_patch)$"),
                timeout: HOOK_TIMEOUT_S,
            }),
            Self::Gemini => Means::Settings(HookFormat {
                dialect: Dialect::Comments,
                events: prompt_and(
                    "BeforeAgent",
                    "BeforeTool",
                    "^(run_shell_command|replace|write_file)$",
                ),
                // This one counts milliseconds.
                timeout: HOOK_TIMEOUT_S * 1000,
            }),
            Self::OpenCode => Means::Plugin,
        }
    }

    /// Whether it is on this machine: its program can be found, or it has settings.
    pub(super) fn is_here(self, environment: &Environment) -> bool {
        let program = match self {
            Self::ClaudeCode => "claude",
            other => other.name(),
        };
        let has_program = |directory: PathBuf| directory.join(program).is_file();
        let mut search = std::env::split_paths(&environment.search_path);
        let settings = self.directory(Scope::User, environment, Path::new(""));
        settings.is_ok_and(|settings| settings.is_dir()) || search.any(has_program)
    }

    /// The shell that runs a hook's command; Codex takes the user's login shell, which is Bash almost everywhere.
    pub(super) fn shell(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::OpenCode => "/bin/sh",
            Self::Codex | Self::Gemini => "bash",
        }
    }

    /// What the agent calls its shell tool towards hooks.
    pub(super) fn shell_tool(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Codex => "Bash",
            Self::Gemini => "run_shell_command",
            Self::OpenCode => "bash",
        }
    }

    /// The variable in which a hook finds the agent's project.
    pub(super) fn project_variable(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some("CLAUDE_PROJECT_DIR"),
            Self::Gemini => Some("GEMINI_PROJECT_DIR"),
            Self::Codex | Self::OpenCode => None,
        }
    }

    /// The directory whose files an agent reads, and the file in it that has the hooks.
    pub(super) fn file(
        self,
        scope: Scope,
        environment: &Environment,
        project: &Path,
    ) -> anyhow::Result<PathBuf> {
        let file = match self {
            Self::ClaudeCode | Self::Gemini => "settings.json",
            Self::Codex => "hooks.json",
            Self::OpenCode => "plugins/stasis.js",
        };
        Ok(self.directory(scope, environment, project)?.join(file))
    }

    fn directory(
        self,
        scope: Scope,
        environment: &Environment,
        project: &Path,
    ) -> anyhow::Result<PathBuf> {
        let (hidden, directory, variable) = match self {
            Self::ClaudeCode => (
                ".claude",
                &environment.agents.claude_code,
                "CLAUDE_CONFIG_DIR",
            ),
            Self::Codex => (".codex", &environment.agents.codex, "CODEX_HOME"),
            Self::Gemini => (".gemini", &environment.agents.gemini, "GEMINI_CLI_HOME"),
            Self::OpenCode => (".opencode", &environment.agents.opencode, "XDG_CONFIG_HOME"),
        };
        if scope == Scope::Project {
            return Ok(project.join(hidden));
        }
        directory.clone().with_context(|| {
            format!(
                "neither HOME nor {variable} is set, so there is no place for your own settings of {}: set one, or say \
                 --scope project",
                self.name()
            )
        })
    }

    /// What a person still has to do or to know.
    pub(super) fn remarks(self, file: &Path, text: &str) -> Vec<String> {
        let mut remarks: Vec<String> = match self {
            Self::Codex => {
                let review = "Codex skips a new or changed hook until you trust it: type /hooks in Codex; `stasis hook show` says \
                              whether you did";
                let config = file.with_file_name("config.toml");
                let config = std::fs::read_to_string(&config).unwrap_or_default();
                let mut remarks = vec![review.to_owned()];
                remarks.extend(of_codex(&config).map(str::to_owned));
                remarks
            }
            Self::ClaudeCode | Self::Gemini => Vec::new(),
            Self::OpenCode => {
                let is_of_project = file.iter().any(|part| part == ".opencode");
                let what = "OpenCode installs some 50 MB of node_modules into .opencode when it starts; they are in no checkpoint unless \
                            you changed exclude = [\"/.opencode/node_modules/\"] in the workspace's config.toml, or made it with an \
                            older stasis";
                is_of_project.then(|| what.to_owned()).into_iter().collect()
            }
        };
        if let Means::Settings(form) = self.means()
            && let Some(switch) = form.switched_off(text)
        {
            let what = format!("`{switch}` in the file switches all hooks off, also this one");
            remarks.push(what);
        }
        remarks.push("an agent that runs already has to be started anew".to_owned());
        remarks
    }
}

/// What the configuration beside Codex's hooks says of hooks.
fn of_codex(config: &str) -> impl Iterator<Item = &'static str> + use<> {
    let config: toml::Table = toml::from_str(config).unwrap_or_default();
    let features = config.get("features").and_then(toml::Value::as_table);
    let off = ["hooks", "codex_hooks"].iter().any(|name| {
        let feature = features.and_then(|features| features.get(*name));
        feature.and_then(toml::Value::as_bool) == Some(false)
    });
    let off = off.then_some("`config.toml` beside it switches hooks off in its `[features]`");
    // `hooks.state` is where Codex keeps which hooks are trusted.
    let hooks = config.get("hooks").and_then(toml::Value::as_table);
    let both = hooks.is_some_and(|hooks| hooks.keys().any(|key| key != "state"));
    let both = both.then_some(
        "`config.toml` beside it has hooks too: Codex runs those of both files, and says so when it starts",
    );
    off.into_iter().chain(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_of_codex_that_is_in_the_way_is_remarked_upon() {
        assert_eq!(of_codex("").count(), 0);
        assert_eq!(of_codex("[features]\nhooks = true\n").count(), 0);
        assert_eq!(of_codex("[features]\nhooks = false\n").count(), 1);
        assert_eq!(of_codex("[features]\ncodex_hooks = false\n").count(), 1);
        assert_eq!(of_codex("[[hooks.Stop]]\n").count(), 1);
        assert_eq!(
            of_codex("[hooks.state.x]\ntrusted_hash = \"y\"\n").count(),
            0
        );
        assert_eq!(of_codex("not toml").count(), 0);
    }

    #[test]
    fn a_name_is_what_the_command_line_understands() {
        for agent in Agent::ALL {
            assert_eq!(Agent::from_str(agent.name(), false), Ok(agent));
        }
    }
}
