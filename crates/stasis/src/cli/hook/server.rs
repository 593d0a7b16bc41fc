//! `stasis mcp install` and `uninstall`: our server in the settings of a coding agent.
//!
//! The command never names a workspace: all four agents start their servers in the project, and some keep their servers for all
//! projects in one place.

use super::agent::{Agent, Scope};
use super::file::Target;
use super::json_text::{Dialect, Node, Value};
use super::program::Program;
use super::{ChangeArgs, SettingsChange, diff, edit, refused};
use crate::cli::CliContext;
use crate::report::Exit;
use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What our server is called in settings.
const NAME: &str = "stasis";
/// Where Codex keeps its servers.
const TABLE: &str = "mcp_servers";
/// Why an entry stays.
const CHANGED: &str =
    "the server under our name is not as it was installed: look at it, then take it away yourself";

#[derive(Debug, Args)]
pub(in crate::cli) struct McpInstallArgs {
    /// The agent
    agent: Agent,
    /// Whose settings [default: those of the project in the current directory; for codex yours, since it has no others]
    #[arg(long, value_name = "SCOPE")]
    scope: Option<Scope>,
    /// Leave out --watch: no automatic checkpoints while the server runs
    #[arg(long)]
    no_watch: bool,
    #[command(flatten)]
    asked: ChangeArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct McpUninstallArgs {
    /// The agent
    agent: Agent,
    /// Whose settings [default: those of the project in the current directory; for codex yours, since it has no others]
    #[arg(long, value_name = "SCOPE")]
    scope: Option<Scope>,
    #[command(flatten)]
    asked: ChangeArgs,
}

/// An object of a JSON file that holds an agent's servers.
#[derive(Clone, Copy)]
struct JsonServers {
    key: &'static str,
    dialect: Dialect,
}

/// Where and how an agent keeps its servers.
enum Servers {
    Json(JsonServers),
    /// In a table of a TOML file.
    Toml,
}

impl McpInstallArgs {
    pub(in crate::cli) fn run(&self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = std::env::current_dir().context("there is no current directory")?;
        let scope = self.scope.unwrap_or(usual_scope(self.agent));
        let path = servers_file(self.agent, scope, context, &project)?;
        let program = Program::find(self.agent, &context.environment.search_path)?;
        let target = Target::read(&path)?;
        let before = target.text.as_deref();
        let after = self
            .installed(before, &program)
            .with_context(|| refused(&path))?;
        let path = path.display().to_string();
        let mut change = SettingsChange {
            agent: self.agent,
            scope,
            command: self.words(&program).join(" "),
            changed: before != Some(&after),
            written: false,
            diff: diff::unified(&path, before, Some(&after)),
            path,
            remarks: self.remarks(),
            outcome: "",
        };
        if change.changed && self.asked.may_write(context, &change)? {
            target.write(&after)?;
            change.written = true;
        }
        change.outcome = match (change.changed, change.written) {
            (false, _) => "the MCP server was installed already; nothing changed",
            (true, true) => "MCP server installed",
            (true, false) => "nothing was changed",
        };
        self.asked.report(context, &change)
    }

    /// The program and its arguments.
    fn words<'a>(&self, program: &'a Program) -> Vec<&'a str> {
        let mut words = vec![program.path(), "mcp"];
        words.extend((!self.no_watch).then_some("--watch"));
        words
    }

    /// The text with our server in it, and nothing else changed.
    fn installed(&self, text: Option<&str>, program: &Program) -> anyhow::Result<String> {
        let words = self.words(program);
        let (command, arguments) = (words[0], &words[1..]);
        match Servers::of(self.agent) {
            Servers::Toml => in_toml(text.unwrap_or_default(), command, arguments),
            Servers::Json(servers) => in_json(text, servers, &entry(self.agent, &words)),
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

impl McpUninstallArgs {
    pub(in crate::cli) fn run(&self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = std::env::current_dir().context("there is no current directory")?;
        let scope = self.scope.unwrap_or(usual_scope(self.agent));
        let path = servers_file(self.agent, scope, context, &project)?;
        let target = Target::read(&path)?;
        let before = target.text.as_deref();
        let after = match before {
            None => None,
            Some(text) => {
                let rest = uninstalled(self.agent, text).with_context(|| refused(&path))?;
                // Whoever made a link expects that it leads somewhere.
                let empty = match Servers::of(self.agent) {
                    Servers::Json(_) => "{}\n",
                    Servers::Toml => "",
                };
                rest.or_else(|| target.is_link().then(|| empty.to_owned()))
            }
        };
        let path = path.display().to_string();
        let mut change = SettingsChange {
            agent: self.agent,
            scope,
            command: String::new(),
            changed: before != after.as_deref(),
            written: false,
            diff: diff::unified(&path, before, after.as_deref()),
            path,
            remarks: Vec::new(),
            outcome: "",
        };
        if change.changed && self.asked.may_write(context, &change)? {
            match &after {
                Some(text) => target.write(text)?,
                None => target.remove()?,
            }
            change.written = true;
        }
        change.outcome = match (change.changed, change.written) {
            (false, _) => "there was no MCP server of ours; nothing changed",
            (true, true) => "MCP server uninstalled",
            (true, false) => "nothing was changed",
        };
        self.asked.report(context, &change)
    }
}

impl Servers {
    fn of(agent: Agent) -> Self {
        let (key, dialect) = match agent {
            Agent::Codex => return Self::Toml,
            Agent::ClaudeCode => ("mcpServers", Dialect::Strict),
            Agent::Gemini => ("mcpServers", Dialect::Comments),
            Agent::OpenCode => ("mcp", Dialect::Comments),
        };
        Self::Json(JsonServers { key, dialect })
    }
}

fn usual_scope(agent: Agent) -> Scope {
    match agent {
        Agent::Codex => Scope::User,
        Agent::ClaudeCode | Agent::Gemini | Agent::OpenCode => Scope::Project,
    }
}

/// The file in which an agent keeps its servers.
fn servers_file(
    agent: Agent,
    scope: Scope,
    context: &CliContext,
    project: &Path,
) -> anyhow::Result<PathBuf> {
    let settings = |scope| agent.file(scope, &context.environment, project);
    match (agent, scope) {
        (Agent::ClaudeCode, Scope::Project) => Ok(project.join(".mcp.json")),
        (Agent::ClaudeCode, Scope::User) => bail!(
            "Claude Code writes its own list of your servers all the time: type \
             `claude mcp add --scope user {NAME} -- {NAME} mcp --watch`, or `claude mcp remove --scope user {NAME}`; or say --scope project"
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

/// What a JSON file holds under our name.
fn entry(agent: Agent, words: &[&str]) -> serde_json::Value {
    let (command, arguments) = (words[0], &words[1..]);
    match agent {
        Agent::OpenCode => json!({ "type": "local", "command": words, "enabled": true }),
        Agent::ClaudeCode => json!({ "type": "stdio", "command": command, "args": arguments }),
        Agent::Gemini | Agent::Codex => json!({ "command": command, "args": arguments }),
    }
}

/// The text without our server and nothing else changed; `None` when nothing that somebody else wrote would be left.
fn uninstalled(agent: Agent, text: &str) -> anyhow::Result<Option<String>> {
    match Servers::of(agent) {
        Servers::Toml => out_of_toml(text),
        Servers::Json(servers) => out_of_json(agent, text, servers),
    }
}

/// Whether words are what we install: the program, wherever it lies, and our arguments.
fn are_ours(words: &[&str]) -> bool {
    matches!(words, [program, "mcp"] | [program, "mcp", "--watch"] if !program.is_empty())
}

fn out_of_json(agent: Agent, text: &str, at: JsonServers) -> anyhow::Result<Option<String>> {
    if text.trim().is_empty() {
        return Ok(Some(text.to_owned()));
    }
    let JsonServers { key, dialect } = at;
    let root = Node::read(text, dialect)?;
    let servers = root.get(key);
    let Some((servers, there)) = servers.and_then(|all| Some((all, all.value.get(NAME)?))) else {
        return Ok(Some(text.to_owned()));
    };
    let value = text.get(there.value.span.clone()).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(value).unwrap_or_default();
    let list = |value: &serde_json::Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.map(|word| word.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let mut words = list(&value["command"]);
    words.extend(value["command"].as_str().map(str::to_owned));
    words.extend(list(&value["args"]));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if !are_ours(&words) || entry(agent, &words) != value {
        bail!(CHANGED);
    }
    let steps = [(&servers.value, &there.span), (&root, &servers.span)];
    // A container that would be empty goes too, if we made it.
    let stays = |container: &Node| container.inside().len() > 1 || !edit::is_ours(text, container);
    let gone = steps.into_iter().find(|(container, _)| stays(container));
    Ok(gone.map(|(container, span)| edit::without(text, container, span)))
}

fn out_of_toml(text: &str) -> anyhow::Result<Option<String>> {
    let parsed: toml::Table = toml::from_str(text)?;
    let there = parsed.get(TABLE).and_then(|servers| servers.get(NAME));
    let Some(there) = there else {
        return Ok(Some(text.to_owned()));
    };
    let command = there.get("command").and_then(toml::Value::as_str);
    let arguments = there.get("args").and_then(toml::Value::as_array);
    let arguments = arguments.into_iter().flatten();
    let arguments: Vec<&str> = arguments.filter_map(toml::Value::as_str).collect();
    let words: Vec<&str> = command.into_iter().chain(arguments.clone()).collect();
    let has_more = there.as_table().is_none_or(|table| table.len() != 2);
    let ours = block(command.unwrap_or_default(), &arguments);
    let at = text
        .find(&ours)
        .filter(|at| *at == 0 || text[..*at].ends_with('\n'));
    let Some(at) = at.filter(|_| are_ours(&words) && !has_more) else {
        bail!("{CHANGED}, or with `codex mcp remove {NAME}`");
    };
    // The line end before it came with it.
    let before = text[..at].strip_suffix('\n').unwrap_or_default();
    let rest = format!("{before}{}", &text[at + ours.len()..]);
    Ok((!rest.is_empty()).then_some(rest))
}

/// What we add to a TOML file.
fn block(command: &str, arguments: &[&str]) -> String {
    let quoted: Vec<String> = arguments
        .iter()
        .map(|word| json!(word).to_string())
        .collect();
    let (command, arguments) = (json!(command), quoted.join(", "));
    format!("[{TABLE}.{NAME}]\ncommand = {command}\nargs = [{arguments}]\n")
}

fn in_json(
    text: Option<&str>,
    at: JsonServers,
    entry: &serde_json::Value,
) -> anyhow::Result<String> {
    let JsonServers { key, dialect } = at;
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
    in_json(Some(&without), at, entry)
}

fn in_toml(text: &str, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
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
    // One line end, also where the last line has none: taken away again, it leaves the bytes of before.
    let gap = if text.is_empty() { "" } else { "\n" };
    let after = format!("{text}{gap}{}", block(command, arguments));
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

    fn install(agent: Agent) -> McpInstallArgs {
        McpInstallArgs {
            agent,
            scope: None,
            no_watch: false,
            asked: ChangeArgs {
                dry_run: false,
                yes: true,
            },
        }
    }

    #[test]
    fn no_agent_is_given_a_workspace_and_nothing_else_changes() {
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
    fn what_was_installed_goes_and_every_other_byte_stays() {
        let texts = [
            (Agent::ClaudeCode, "{\n  \"mcpServers\": { \"a\": {} }\n}\n"),
            (Agent::ClaudeCode, "{\"mcpServers\": {}}"),
            (Agent::ClaudeCode, "{}"),
            (Agent::Gemini, "{\n  // mine\n  \"theme\": \"x\"\n}\n"),
            (
                Agent::OpenCode,
                "{\n\t\"mcp\": {\n\t\t\"b\": { \"type\": \"local\" } // b\n\t}\n}",
            ),
            (Agent::Codex, "model = \"m\"\n\n[tui]\nx = 1\n"),
            (Agent::Codex, "model = \"m\""),
            (Agent::Codex, "[mcp_servers.a]\ncommand = \"a\"\n\n\n"),
        ];
        for (agent, before) in texts {
            for (path, no_watch) in [("stasis", false), ("/opt/my tools/stasis-2", true)] {
                let install = McpInstallArgs {
                    no_watch,
                    ..install(agent)
                };
                let program = Program::at(agent, path);
                let with = install.installed(Some(before), &program).unwrap();
                assert_ne!(with, before);
                let without = uninstalled(agent, &with).unwrap();
                assert_eq!(without.as_deref(), Some(before), "{agent:?}: {with}");
                assert_eq!(uninstalled(agent, before).unwrap().as_deref(), Some(before));
            }
        }
        for agent in Agent::ALL {
            let alone = install(agent).installed(None, &Program::at(agent, "stasis"));
            assert_eq!(
                uninstalled(agent, &alone.unwrap()).unwrap(),
                None,
                "{agent:?}"
            );
        }
    }

    #[test]
    fn what_somebody_added_after_ours_stays_and_what_somebody_changed_in_ours_is_named() {
        let with =
            install(Agent::Codex).installed(Some("a = 1\n"), &Program::at(Agent::Codex, "stasis"));
        let with = with.unwrap();
        let later = format!("{with}\n[later]\nx = 1\n");
        let rest = uninstalled(Agent::Codex, &later).unwrap();
        assert_eq!(rest.as_deref(), Some("a = 1\n\n[later]\nx = 1\n"));
        let changed = [
            (Agent::Codex, format!("{with}startup_timeout_sec = 20\n")),
            (Agent::Codex, with.replace("\"mcp\"", "\"mcp\", \"--workspace\", \"/a\"")),
            (Agent::Gemini, r#"{"mcpServers": {"stasis": {"command": "stasis", "args": ["mcp"], "env": {}}}}"#.to_owned()),
            (Agent::OpenCode, r#"{"mcp": {"stasis": {"type": "local", "command": ["stasis", "mcp"], "enabled": false}}}"#.to_owned()),
        ];
        for (agent, text) in changed {
            let refused = uninstalled(agent, &text).unwrap_err();
            assert!(
                refused.to_string().contains("not as it was installed"),
                "{refused}"
            );
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
