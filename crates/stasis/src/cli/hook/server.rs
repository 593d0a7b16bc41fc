//! `stasis mcp install`: our server in the settings of a coding agent.
//!
//! The command never names a workspace: all four agents start their servers in the project, and some keep their servers for all
//! projects in one place.

use super::agent::{Agent, Scope};
use super::file::Target;
use super::json_text::{Dialect, Node, Value};
use super::program::Program;
use super::{Asked, Told, diff, edit, refused};
use crate::cli::Context;
use crate::report::Exit;
use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What our server is called in settings.
const NAME: &str = "stasis";

#[derive(Debug, Args)]
pub(in crate::cli) struct McpInstall {
    /// The agent
    agent: Agent,
    /// Whose settings [default: those of the project in the current directory; for codex yours, since it has no others]
    #[arg(long, value_name = "SCOPE")]
    scope: Option<Scope>,
    /// Leave out --watch: no automatic checkpoints while the server runs
    #[arg(long)]
    no_watch: bool,
    #[command(flatten)]
    asked: Asked,
}

/// Where and how an agent keeps its servers.
enum Servers {
    /// In an object of a JSON file.
    Json { key: &'static str, dialect: Dialect },
    /// In a table of a TOML file.
    Toml,
}

impl McpInstall {
    pub(in crate::cli) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let project = std::env::current_dir().context("there is no current directory")?;
        let scope = self.scope.unwrap_or(match self.agent {
            Agent::Codex => Scope::User,
            Agent::ClaudeCode | Agent::Gemini | Agent::OpenCode => Scope::Project,
        });
        let path = self.file(scope, context, &project)?;
        let program = Program::find(self.agent, &context.environment.search_path)?;
        let target = Target::read(&path)?;
        let before = target.text.as_deref();
        let after = self
            .installed(before, &program)
            .with_context(|| refused(&path))?;
        let path = path.display().to_string();
        let mut told = Told {
            agent: self.agent,
            scope,
            command: self.words(&program).join(" "),
            changed: before != Some(&after),
            written: false,
            diff: diff::unified(&path, before, Some(&after)),
            path,
            remarks: self.remarks(),
            words: "",
        };
        if told.changed && self.asked.may_write(context, &told)? {
            target.write(&after)?;
            told.written = true;
        }
        told.words = match (told.changed, told.written) {
            (false, _) => "the MCP server was installed already; nothing changed",
            (true, true) => "MCP server installed",
            (true, false) => "nothing was changed",
        };
        self.asked.tell(context, &told)
    }

    fn file(&self, scope: Scope, context: &Context, project: &Path) -> anyhow::Result<PathBuf> {
        let settings = |scope| self.agent.file(scope, &context.environment, project);
        match (self.agent, scope) {
            (Agent::ClaudeCode, Scope::Project) => Ok(project.join(".mcp.json")),
            (Agent::ClaudeCode, Scope::User) => bail!(
                "Claude Code writes its own list of your servers all the time: type \
                 `claude mcp add --scope user {NAME} -- {NAME} mcp --watch`, or say --scope project"
            ),
            (Agent::Codex, Scope::Project) => {
                bail!("Codex keeps MCP servers for all projects in one place: leave out --scope")
            }
            (Agent::Codex, Scope::User) => Ok(settings(scope)?.with_file_name("config.toml")),
            (Agent::Gemini, _) => settings(scope),
            (Agent::OpenCode, Scope::Project) => Ok(project.join("opencode.json")),
            (Agent::OpenCode, Scope::User) => {
                let plugin = settings(scope)?;
                let home = plugin.parent().and_then(Path::parent);
                let home = home.context("OpenCode has no directory for settings")?;
                Ok(home.join("opencode.json"))
            }
        }
    }

    /// The program and its arguments.
    fn words<'a>(&self, program: &'a Program) -> Vec<&'a str> {
        let mut words = vec![program.path(), "mcp"];
        words.extend((!self.no_watch).then_some("--watch"));
        words
    }

    fn servers(&self) -> Servers {
        let (key, dialect) = match self.agent {
            Agent::Codex => return Servers::Toml,
            Agent::ClaudeCode => ("mcpServers", Dialect::Strict),
            Agent::Gemini => ("mcpServers", Dialect::Comments),
            Agent::OpenCode => ("mcp", Dialect::Comments),
        };
        Servers::Json { key, dialect }
    }

    /// The text with our server in it, and nothing else changed.
    fn installed(&self, text: Option<&str>, program: &Program) -> anyhow::Result<String> {
        let words = self.words(program);
        let (command, arguments) = (words[0], &words[1..]);
        match self.servers() {
            Servers::Toml => in_toml(text.unwrap_or_default(), command, arguments),
            Servers::Json { key, dialect } => {
                let entry = match self.agent {
                    Agent::OpenCode => {
                        json!({ "type": "local", "command": words, "enabled": true })
                    }
                    Agent::ClaudeCode => {
                        json!({ "type": "stdio", "command": command, "args": arguments })
                    }
                    Agent::Gemini | Agent::Codex => {
                        json!({ "command": command, "args": arguments })
                    }
                };
                in_json(text, (key, dialect), &entry)
            }
        }
    }

    fn remarks(&self) -> Vec<String> {
        let own = match self.agent {
            Agent::ClaudeCode => {
                Some("Claude Code asks once whether you approve the servers of a project")
            }
            Agent::Codex => {
                Some("it serves whatever project Codex is started in, if that is a workspace")
            }
            Agent::Gemini => {
                Some("Gemini CLI starts no servers in a folder that it does not trust")
            }
            Agent::OpenCode => None,
        };
        let own = own.map(str::to_owned).into_iter();
        own.chain(["an agent that runs already has to be started anew".to_owned()])
            .collect()
    }
}

fn in_json(
    text: Option<&str>,
    (key, dialect): (&str, Dialect),
    entry: &serde_json::Value,
) -> anyhow::Result<String> {
    let ours = BTreeMap::from([(NAME, entry)]);
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Ok(edit::document(&BTreeMap::from([(key, ours)])));
    };
    let root = Node::read(text, dialect)?;
    if !matches!(root.value, Value::Object(_)) {
        bail!("settings are an object, and this is none");
    }
    let Some(servers) = root.get(key) else {
        return Ok(edit::added(text, &root, Some(key), &ours));
    };
    if !matches!(servers.value.value, Value::Object(_)) {
        bail!("`{key}` is an object, and this is none");
    }
    let Some(there) = servers.value.get(NAME) else {
        return Ok(edit::added(text, &servers.value, Some(NAME), entry));
    };
    let value = text.get(there.value.span.clone()).unwrap_or_default();
    if serde_json::from_str::<serde_json::Value>(value).is_ok_and(|value| value == *entry) {
        return Ok(text.to_owned());
    }
    let without = edit::without(text, &servers.value, &there.span);
    in_json(Some(&without), (key, dialect), entry)
}

fn in_toml(text: &str, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
    const TABLE: &str = "mcp_servers";
    let parsed: toml::Table = toml::from_str(text)?;
    let there = parsed.get(TABLE).and_then(|servers| servers.get(NAME));
    let wanted = toml::Table::from_iter([
        ("command".to_owned(), toml::Value::from(command)),
        ("args".to_owned(), toml::Value::from(arguments.to_vec())),
    ]);
    match there.and_then(toml::Value::as_table) {
        Some(there)
            if wanted
                .iter()
                .all(|(key, value)| there.get(key) == Some(value)) =>
        {
            return Ok(text.to_owned());
        }
        Some(_) => bail!(
            "it has another server under our name: look at it, then take it away with `codex mcp remove {NAME}`"
        ),
        None => {}
    }
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let quoted: Vec<String> = arguments
        .iter()
        .map(|word| json!(word).to_string())
        .collect();
    let after = format!(
        "{text}{gap}[{TABLE}.{NAME}]\ncommand = {}\nargs = [{}]\n",
        json!(command),
        quoted.join(", ")
    );
    // What was there stays what it was; an inline table, say, cannot be added to like this.
    let mut again: toml::Table = toml::from_str(&after)
        .context("its `mcp_servers` is written in a way that we cannot add to")?;
    let added = again
        .get_mut(TABLE)
        .and_then(toml::Value::as_table_mut)
        .and_then(|servers| servers.remove(NAME));
    if added.as_ref().and_then(toml::Value::as_table) != Some(&wanted) {
        bail!("it is written in a way that we cannot add to");
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(agent: Agent) -> McpInstall {
        McpInstall {
            agent,
            scope: None,
            no_watch: false,
            asked: Asked {
                dry_run: false,
                yes: true,
            },
        }
    }

    #[test]
    fn no_agent_is_told_of_a_workspace_and_nothing_else_changes() {
        let (comments, toml) = (
            "{\n  // mine\n  \"theme\": \"x\"\n}\n",
            "model = \"m\"\n\n[tui]\nx = 1\n",
        );
        let cases = [
            (Agent::ClaudeCode, "{\n  \"mcpServers\": { \"a\": {} }\n}\n"),
            (Agent::Gemini, comments),
            (Agent::OpenCode, comments),
            (Agent::Codex, toml),
        ];
        for (agent, before) in cases {
            let program = Program::at(agent, "stasis");
            let after = install(agent).installed(Some(before), &program).unwrap();
            let again = install(agent).installed(Some(&after), &program).unwrap();

            assert_eq!(again, after, "{agent:?}");
            assert!(!after.contains("--workspace"), "{after}");
            let kept = before
                .lines()
                .filter(|line| line.len() > 3 && !line.contains('{'));
            for line in kept.map(|line| line.trim_end_matches(',')) {
                assert!(after.contains(line), "{after}");
            }
            install(agent).installed(None, &program).unwrap();
        }
    }

    #[test]
    fn a_server_that_pins_a_workspace_is_replaced_or_named() {
        let pinned = r#"{"mcpServers": {"stasis": {"command": "stasis", "args": ["mcp", "--workspace", "/a"]}}}"#;
        let program = Program::at(Agent::Gemini, "stasis");
        let after = install(Agent::Gemini)
            .installed(Some(pinned), &program)
            .unwrap();
        assert!(!after.contains("/a"), "{after}");
        assert_eq!(after.matches("stasis\"").count(), 2, "{after}");

        let pinned = "[mcp_servers.stasis]\ncommand = \"stasis\"\nargs = [\"mcp\", \"--workspace\", \"/a\"]\n";
        let program = Program::at(Agent::Codex, "stasis");
        let refused = install(Agent::Codex)
            .installed(Some(pinned), &program)
            .unwrap_err();
        assert!(
            refused.to_string().contains("codex mcp remove"),
            "{refused}"
        );
        assert!(
            install(Agent::Codex)
                .installed(Some("mcp_servers = {}\n"), &program)
                .is_err()
        );
    }
}
