//! Hooks come into the settings of coding agents and go again, and what agents run never disturbs them.

use crate::session::{STASIS, Said, Session, said};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OTHERS: &str = r#"{
    "model": "one",
    "unknown": { "z": [1,  2], "a": "\u00fc" },
    "hooks": {
        "PreToolUse": [
            { "matcher": "Edit|Write", "hooks": [ { "type": "command", "command": "./check.sh" } ] }
        ],
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]
    },


    "last": null
}"#;

/// A home with `bin/stasis` on the PATH, and a project in it.
pub(crate) struct Home {
    session: Session,
}

impl Home {
    pub(crate) fn new() -> Self {
        let session = Session::new();
        fs::create_dir(session.home().join("bin")).unwrap();
        fs::create_dir(session.home().join("project")).unwrap();
        symlink(STASIS, session.home().join("bin/stasis")).unwrap();
        Self { session }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.session.home().join(path)
    }

    pub(crate) fn put(&self, path: &str, text: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.session.command(arguments);
        command
            .env("HOME", self.session.home())
            .env("XDG_CONFIG_HOME", self.at(".config"))
            .env("PATH", self.at("bin"))
            .current_dir(self.at("project"))
            .stdin(Stdio::null());
        command
    }

    /// Another program in the environment that ours has here.
    fn other(&self, program: &Path) -> Command {
        let ours = self.command(&[]);
        let mut other = Command::new(program);
        other.env_clear().current_dir(self.at("project"));
        for (key, value) in ours.get_envs() {
            other.env(key, value.unwrap_or_default());
        }
        other
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--json", "hook"];
        all.extend(arguments);
        let said = self.run(&all);
        assert_eq!(said.code, 0, "{arguments:?}\n{}{}", said.out, said.err);
        assert_eq!(said.err, "", "{arguments:?}");
        serde_json::from_str(&said.out).unwrap()
    }

    pub(crate) fn install(&self, agent: &str) -> Value {
        self.json(&["install", agent, "--yes"])
    }

    fn uninstall(&self, agent: &str) -> Value {
        self.json(&["uninstall", agent, "--yes"])
    }
}

/// Where each agent keeps what is the user's, and how it calls the two moments.
const AGENTS: [(&str, &str, [&str; 2]); 3] = [
    (
        "claude-code",
        ".claude/settings.json",
        ["UserPromptSubmit", "PreToolUse"],
    ),
    (
        "codex",
        ".codex/hooks.json",
        ["UserPromptSubmit", "PreToolUse"],
    ),
    (
        "gemini",
        ".gemini/settings.json",
        ["BeforeAgent", "BeforeTool"],
    ),
];
const PLUGIN: &str = ".config/opencode/plugins/stasis.js";

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn hooks_come_into_an_empty_home_once_and_go_without_a_trace() {
    let home = Home::new();
    for (agent, file, events) in AGENTS {
        let told = home.install(agent);
        let path = home.at(file);
        let first = text(&path);
        let again = home.install(agent);

        let settings: Value = serde_json::from_str(&first).unwrap();
        for event in events {
            let command = &settings["hooks"][event][0]["hooks"][0]["command"];
            let expected =
                format!("timeout -k 2 25 stasis hook run {agent} >/dev/null 2>&1 || true");
            assert_eq!(*command, json!(expected));
        }
        assert_eq!(told["written"], json!(true));
        assert!(told["diff"].as_str().unwrap().starts_with("--- /dev/null"));
        assert_eq!(
            (&again["changed"], &again["diff"]),
            (&json!(false), &json!(""))
        );
        assert_eq!(text(&path), first);

        home.uninstall(agent);
        assert_eq!(names(path.parent().unwrap()), [""; 0], "{agent}");
        assert_eq!(home.uninstall(agent)["changed"], json!(false));
    }
}

#[test]
fn everything_else_in_a_file_stays_as_it_is() {
    for (agent, file, _) in AGENTS {
        let home = Home::new();
        let path = home.put(file, OTHERS);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();

        home.install(agent);
        let with_hooks = text(&path);
        home.install(agent);
        let twice = text(&path);
        home.uninstall(agent);

        // What was there is there in its order, and between its parts is only what was added.
        let mut rest = with_hooks.as_str();
        for line in OTHERS.lines() {
            let at = rest
                .find(line)
                .unwrap_or_else(|| panic!("{line}\n{with_hooks}"));
            rest = &rest[at + line.len()..];
        }
        assert!(serde_json::from_str::<Value>(&with_hooks).is_ok());
        assert_eq!(twice, with_hooks);
        assert_eq!(text(&path), OTHERS, "{agent}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        assert_eq!(names(path.parent().unwrap()).len(), 1);
    }
}

#[test]
fn a_file_that_is_not_json_is_left_alone_and_its_line_is_told() {
    let broken = "{\n  \"a\": 1,\n  \"b\": \n}\n";
    for (agent, file, _) in AGENTS {
        let home = Home::new();
        let path = home.put(file, broken);
        for act in ["install", "uninstall"] {
            let said = home.run(&["hook", act, agent, "--yes"]);

            assert_eq!(said.code, 2, "{}", said.err);
            assert!(said.err.contains("line 4"), "{}", said.err);
            assert!(said.err.contains(path.to_str().unwrap()), "{}", said.err);
            assert_eq!(text(&path), broken);
        }
    }
}

#[test]
fn a_linked_file_is_changed_where_it_lies_and_the_link_stays() {
    let home = Home::new();
    let real = home.put("dotfiles/claude.json", OTHERS);
    fs::create_dir(home.at(".claude")).unwrap();
    let link = home.at(".claude/settings.json");
    symlink("../dotfiles/claude.json", &link).unwrap();

    home.install("claude-code");

    assert!(link.is_symlink());
    assert!(text(&real).contains("stasis hook run claude-code"));
    home.uninstall("claude-code");
    assert!(link.is_symlink());
    assert_eq!(text(&real), OTHERS);
    assert_eq!(names(&home.at(".claude")), ["settings.json"]);
}

#[test]
fn a_link_that_leads_nowhere_is_told_and_not_followed() {
    let home = Home::new();
    fs::create_dir(home.at(".claude")).unwrap();
    symlink("nowhere.json", home.at(".claude/settings.json")).unwrap();

    let said = home.run(&["hook", "install", "claude-code", "--yes"]);

    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("leads to no file"), "{}", said.err);
    assert_eq!(names(&home.at(".claude")), ["settings.json"]);
}

#[test]
fn a_dry_run_shows_the_change_and_makes_none() {
    let home = Home::new();
    let path = home.put(".claude/settings.json", OTHERS);

    let said = home.run(&["hook", "install", "claude-code", "--dry-run"]);
    let elsewhere = home.run(&["hook", "install", "opencode", "--dry-run"]);

    assert_eq!((said.code, elsewhere.code), (0, 0), "{}", said.err);
    assert!(said.err.contains("\n+"), "{}", said.err);
    assert!(said.err.contains("hook run claude-code"), "{}", said.err);
    assert!(!said.out.contains("hook run"), "{}", said.out);
    assert_eq!(text(&path), OTHERS);
    assert!(!home.at(PLUGIN).exists());
}

#[test]
fn without_a_terminal_nothing_is_changed_unless_told_to() {
    let home = Home::new();
    let path = home.put(".claude/settings.json", OTHERS);
    for more in [&[][..], &["--json"]] {
        for act in ["install", "uninstall"] {
            home.put(".claude/settings.json", OTHERS);
            if act == "uninstall" {
                home.install("claude-code");
            }
            let before = text(&path);
            let said = home.run(&[more, &["hook", act, "claude-code"]].concat());

            let told = format!("{}{}", said.out, said.err);
            assert_eq!(said.code, 2, "{told}");
            assert!(told.contains("--yes"), "{told}");
            assert_eq!(text(&path), before);
        }
    }
}

#[test]
fn a_program_that_is_not_on_the_path_is_named_whole() {
    let home = Home::new();
    let program = home.at("it's here/stasis");
    fs::create_dir(program.parent().unwrap()).unwrap();
    fs::copy(STASIS, &program).unwrap();
    let mut command = Command::new(&program);
    command
        .args(["hook", "install", "claude-code", "--yes"])
        .env_clear()
        .env("HOME", home.session.home())
        .env("PATH", "/nowhere")
        .current_dir(home.at("project"));

    let said = said(command.output().unwrap());

    assert_eq!(said.code, 0, "{}", said.err);
    let settings: Value = serde_json::from_str(&text(&home.at(".claude/settings.json"))).unwrap();
    let written = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str();
    let ran = Command::new("sh")
        .args(["-c", written.unwrap()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(0), 0));
    // The same program elsewhere replaces it, rather than adding itself.
    home.install("claude-code");
    let now = text(&home.at(".claude/settings.json"));
    assert_eq!(now.matches("hook run").count(), 2, "{now}");
    assert!(now.contains(" stasis hook run claude-code >"), "{now}");
}

#[test]
fn agents_keep_their_settings_where_their_variables_say() {
    let home = Home::new();
    let places = [
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("codex", "CODEX_HOME", "hooks.json"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/plugins/stasis.js"),
    ];
    for (agent, variable, file) in places {
        let directory = home.at(&format!("there/{agent}"));
        let mut command = home.command(&["hook", "install", agent, "--yes"]);
        let said = said(command.env(variable, &directory).output().unwrap());

        assert_eq!(said.code, 0, "{}", said.err);
        assert!(directory.join(file).is_file(), "{}", said.out);
    }
}

#[test]
fn a_project_has_hooks_of_its_own_and_all_are_listed() {
    let home = Home::new();
    home.json(&["install", "claude-code", "--scope", "project", "--yes"]);
    home.json(&["install", "opencode", "--yes"]);
    home.put(".gemini/settings.json", "not json");

    let shown = home.json(&["show"]);
    let words = home.run(&["hook", "show"]);

    assert!(home.at("project/.claude/settings.json").is_file());
    let state = |agent: &str, scope: &str| {
        let all = shown["items"].as_array().unwrap();
        let one = all
            .iter()
            .find(|one| one["agent"] == agent && one["scope"] == scope);
        one.unwrap()["state"].clone()
    };
    assert_eq!(shown["items"].as_array().unwrap().len(), 8);
    assert_eq!(state("claude-code", "project"), "installed");
    assert_eq!(state("claude-code", "user"), "absent");
    assert_eq!(state("opencode", "user"), "installed");
    assert_eq!(state("gemini", "user"), Value::Null);
    assert_eq!(words.code, 0);
    assert!(words.out.contains("line 1"), "{}", words.out);
}

#[test]
fn the_plugin_comes_and_goes_and_spares_what_is_not_ours() {
    let home = Home::new();
    let path = home.at(PLUGIN);
    home.install("opencode");
    let written = text(&path);
    assert_eq!(home.install("opencode")["changed"], json!(false));

    home.put(PLUGIN, &written.replace("\"bash\"", "\"zsh\""));
    let changed = home.run(&["hook", "uninstall", "opencode", "--yes"]);
    assert_eq!(changed.code, 2, "{}", changed.err);
    assert!(path.exists());
    home.install("opencode");
    home.uninstall("opencode");
    assert!(!path.exists());

    home.put(PLUGIN, "export default {}\n");
    let foreign = home.run(&["hook", "install", "opencode", "--yes"]);
    assert_eq!(foreign.code, 2, "{}", foreign.err);
    assert_eq!(home.uninstall("opencode")["changed"], json!(false));
    assert_eq!(text(&path), "export default {}\n");
}

/// Runs the plugin as both generations of `OpenCode` would, with a program that writes down how it was called.
const DRIVER: &str = r#"
const plugin = (await import(process.argv[2])).default;
const one = await plugin.server({ directory: process.argv[3] });
await one["chat.message"]({ sessionID: "s" }, { parts: [{ type: "text", text: "tidy up" }] });
await one["tool.execute.before"]({ tool: "bash", sessionID: "s" }, { args: { command: "rm -r src" } });
await one["tool.execute.before"]({ tool: "read", sessionID: "s" }, {});
await one["tool.execute.before"]({ tool: "edit" }, { args: { filePath: "/a" } });
const hooks = {};
const domain = (name) => ({ hook: async (event, call) => { hooks[name + event] = call; } });
const session = { ...domain("session "), get: async () => ({ location: { directory: process.argv[3] } }) };
await plugin.setup({ session, tool: domain("tool ") });
await hooks["session prompt"]({ sessionID: "s" });
await hooks["tool execute.before"]({ sessionID: "s", tool: "shell" });
await hooks["tool execute.before"]({ sessionID: "s", tool: "grep" });
await plugin.setup({});
const lost = await plugin.server({ directory: "/nowhere/at/all" });
await lost["chat.message"]({}, {});
"#;

/// Runs the plugin with `driver`, and a `stasis` that is a shell script; answers how long that took.
fn drive(home: &Home, driver: &str, script: &str, plugin: &str) -> std::time::Duration {
    let bin = home.at("fake");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("stasis"), script).unwrap();
    fs::set_permissions(bin.join("stasis"), fs::Permissions::from_mode(0o755)).unwrap();
    let plugin = home.put("plugin.mjs", plugin);
    let driver = home.put("driver.mjs", driver);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let began = std::time::Instant::now();
    let said = Command::new("node")
        .args([&driver, &plugin, &home.at("project")])
        .env("PATH", path)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{err}");
    began.elapsed()
}

fn has_node() -> bool {
    let has = Command::new("node").arg("--version").output().is_ok();
    if !has {
        println!("skipped: node is not installed");
    }
    has
}

#[test]
fn the_plugin_asks_before_prompts_commands_and_edits_and_survives_everything() {
    if !has_node() {
        return;
    }
    let home = Home::new();
    home.install("opencode");
    let calls = home.at("calls");
    let script = format!(
        "#!/bin/sh\necho \"$@ $(cat)\" >> '{}'\nexit 2\n",
        calls.display()
    );

    let outcome = drive(&home, DRIVER, &script, &text(&home.at(PLUGIN)));

    let calls = text(&calls);
    let calls: Vec<Value> = calls
        .lines()
        .map(|line| {
            let said = line.strip_prefix("hook run opencode ").unwrap();
            serde_json::from_str(said).unwrap()
        })
        .collect();
    let cwd = json!(home.at("project"));
    assert!(calls.iter().all(|call| call["cwd"] == cwd), "{calls:?}");
    let events: Vec<&str> = calls
        .iter()
        .map(|call| call["hook_event_name"].as_str().unwrap())
        .collect();
    let (prompt, tool) = ("UserPromptSubmit", "PreToolUse");
    assert_eq!(events, [prompt, tool, tool, prompt, tool]);
    assert_eq!(calls[0]["prompt"], "tidy up");
    assert_eq!(calls[1]["tool_input"]["command"], "rm -r src");
    assert_eq!(calls[2]["tool_name"], "edit");
    // Nothing of it is left that would keep the agent from ending.
    assert!(outcome.as_secs() < 20, "{outcome:?}");
}

#[test]
fn the_plugin_does_not_wait_for_a_program_that_hangs() {
    if !has_node() {
        return;
    }
    let home = Home::new();
    home.install("opencode");
    // A grandchild holds the pipe open, and nobody ends at a polite signal.
    let script = "#!/bin/sh\ntrap '' TERM\nsleep 20 &\nsleep 20\n";
    let plugin = text(&home.at(PLUGIN)).replace("25_000", "200");
    let driver = r#"
const plugin = (await import(process.argv[2])).default;
const one = await plugin.server({ directory: process.argv[3] });
await one["chat.message"]({}, {});
"#;

    let took = drive(&home, driver, script, &plugin);

    assert!(took.as_secs() < 15, "{took:?}");
}

#[test]
fn codex_users_are_told_what_is_left_to_do() {
    let home = Home::new();
    home.put(".codex/config.toml", "[features]\nhooks = false\n");

    let said = home.run(&["hook", "install", "codex", "--yes"]);

    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("/hooks"), "{}", said.err);
    assert!(said.err.contains("[features]"), "{}", said.err);
}

/// Runs `hook run` with `input` on its standard input.
pub(crate) fn hooked(home: &Home, arguments: &[&str], input: &[u8]) -> Said {
    let mut command = home.command(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Whoever writes must not find that nobody listens.
    stdin.write_all(input).unwrap();
    drop(stdin);
    said(child.wait_with_output().unwrap())
}

#[test]
fn an_agent_is_never_disturbed_whatever_it_says() {
    let home = Home::new();
    let huge = [b"{\"prompt\": \"".as_slice(), &vec![b'x'; 5 << 20]].concat();
    let inputs: [&[u8]; 5] = [
        b"",
        b"\xff\x00 garbage",
        b"{\"cwd\": \"/nowhere/at/all\"}",
        b"{\"cwd\": [[[[",
        &huge,
    ];
    for agent in ["claude-code", "codex", "gemini", "opencode"] {
        for input in inputs {
            for more in [&[][..], &["--json"]] {
                let said = hooked(&home, &[more, &["hook", "run", agent]].concat(), input);
                assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
            }
        }
    }
}

#[test]
fn an_agent_is_not_disturbed_by_our_own_mistakes() {
    let home = Home::new();
    let mistakes: [&[&str]; 4] = [
        &["hook", "run", "unheard-of"],
        &["hook", "run", "codex", "--unheard-of"],
        &["--json", "hook", "run"],
        &["--config", "/nowhere/at/all", "hook", "run", "codex"],
    ];
    for arguments in mistakes {
        // Nobody waits for what an agent says to somebody who does not know what to do.
        let mut command = home.command(arguments);
        let said = said(command.stdin(Stdio::null()).output().unwrap());
        assert_eq!((said.code, said.out.as_str()), (0, ""), "{arguments:?}");
        assert_ne!(said.err, "", "{arguments:?}");
    }
    home.put(".config/stasis/config.toml", "not toml");
    let said = hooked(&home, &["hook", "run", "claude-code"], b"{}");
    assert_eq!((said.code, said.out.as_str()), (0, ""));
}

#[test]
fn an_agent_that_never_ends_its_sentence_is_not_waited_for() {
    let home = Home::new();
    let mut command = home.command(&["hook", "run", "claude-code"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let began = std::time::Instant::now();

    let mut child = command.spawn().unwrap();
    let open = child.stdin.take().unwrap();
    let status = child.wait().unwrap();
    drop(open);

    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

/// Runs the command that is written into an agent's settings as the agent would, in `directory`.
fn as_the_agent(home: &Home, command: &str, directory: &Path, said: &str) -> std::process::Output {
    let path = format!("{}:/usr/bin:/bin", home.at("bin").display());
    let mut child = home
        .other(Path::new("/bin/sh"))
        .args(["-c", command])
        .env("PATH", path)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(said.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn a_written_command_blocks_nobody_when_stasis_is_gone() {
    let home = Home::new();
    for (agent, file, [prompt, _]) in AGENTS {
        home.install(agent);
        let settings: Value = serde_json::from_str(&text(&home.at(file))).unwrap();
        let command = settings["hooks"][prompt][0]["hooks"][0]["command"]
            .as_str()
            .unwrap()
            .to_owned();
        fs::rename(home.at("bin"), home.at("gone")).unwrap();

        let ran = as_the_agent(&home, &command, &home.at("project"), "{}");

        fs::rename(home.at("gone"), home.at("bin")).unwrap();
        assert_eq!(ran.status.code(), Some(0), "{agent}");
        assert_eq!((ran.stdout.len(), ran.stderr.len()), (0, 0), "{agent}");
    }
}

#[test]
fn hooks_that_a_renamed_program_wrote_are_shown_and_uninstalled() {
    let home = Home::new();
    let renamed = home.at("opt/stasis-0.2");
    fs::create_dir(home.at("opt")).unwrap();
    fs::copy(STASIS, &renamed).unwrap();
    for (agent, file, _) in AGENTS {
        let mut by_renamed = home.other(&renamed);
        by_renamed.args(["hook", "install", agent, "--yes"]);
        let ran = by_renamed.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let written = text(&home.at(file));
        assert!(written.contains("/opt/stasis-0.2 hook run"), "{written}");

        let shown = home.json(&["show"]);
        let is_outdated = |one: &Value| one["agent"] == agent && one["state"] == "outdated";
        assert!(
            shown["items"].as_array().unwrap().iter().any(is_outdated),
            "{shown}"
        );
        home.uninstall(agent);

        assert!(!home.at(file).exists(), "{agent}");
    }
}

#[test]
fn a_command_from_elsewhere_still_gets_the_project_its_checkpoint() {
    let home = Home::new();
    for directory in ["app", "other", "nothing"] {
        fs::create_dir(home.at(directory)).unwrap();
    }
    for directory in ["app", "other"] {
        home.put(&format!("{directory}/file"), directory);
        let path = home.at(directory);
        let made = home.run(&["workspace", "init", path.to_str().unwrap()]);
        assert_eq!(made.code, 0, "{}", made.err);
    }
    let count = |directory: &str| {
        let path = home.at(directory);
        let listed = home.run(&[
            "--json",
            "workspace",
            "--workspace",
            path.to_str().unwrap(),
            "list",
        ]);
        let listed: Value = serde_json::from_str(&listed.out).unwrap();
        listed["items"].as_array().unwrap().len()
    };
    let run = |variable: &str, cwd: &str| {
        let mut command = home.command(&["hook", "run", "claude-code"]);
        command.env(variable, home.at("app")).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = json!({ "cwd": home.at(cwd) }).to_string();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
    };
    let (app, other) = (count("app"), count("other"));

    // From no workspace at all.
    home.put("app/file", "one");
    run("CLAUDE_PROJECT_DIR", "nothing");
    assert_eq!((count("app"), count("other")), (app + 1, other));
    // From another workspace: both, and each once.
    home.put("app/file", "two");
    home.put("other/file", "two");
    run("GEMINI_PROJECT_DIR", "other");
    assert_eq!((count("app"), count("other")), (app + 2, other + 1));
    // From inside: once.
    home.put("app/file", "three");
    run("CLAUDE_PROJECT_DIR", "app");
    assert_eq!((count("app"), count("other")), (app + 3, other + 1));
}
