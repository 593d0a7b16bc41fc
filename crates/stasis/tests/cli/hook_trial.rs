//! Whether a hook works is seen: by `hook test`, `hook show`, `status` and `doctor`.

use crate::hook::{Home, hooked};
use crate::session::Said;
use serde_json::{Value, json};
use std::fs;

/// A home whose project is a workspace; the tools that hooks need are on the PATH.
fn home() -> Home {
    let home = Home::new();
    for tool in ["timeout", "bash", "cat"] {
        let found = ["/usr/bin", "/bin"].map(|place| format!("{place}/{tool}"));
        let found = found.iter().find(|path| fs::metadata(path).is_ok());
        std::os::unix::fs::symlink(found.unwrap(), home.at(&format!("bin/{tool}"))).unwrap();
    }
    home
}

fn init(home: &Home) {
    let said = home.run(&["workspace", "init", "."]);
    assert_eq!(said.code, 0, "{}", said.err);
}

/// What `hook test` reports, and its exit code.
fn tested(home: &Home, agent: &str) -> (Value, i32) {
    let Said { code, out, err } = home.run(&["--json", "hook", "test", agent]);
    let report = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    (report, code)
}

fn problems(report: &Value) -> String {
    report["problems"].to_string()
}

fn shown(home: &Home, agent: &str) -> Value {
    let all = home.json(&["show"]);
    let mut rows = all["items"].as_array().unwrap().iter();
    let row = rows.find(|row| row["agent"] == agent && row["scope"] == "user");
    row.unwrap().clone()
}

#[test]
fn a_hook_that_works_is_seen_to_make_checkpoints() {
    let home = home();
    init(&home);
    home.put("project/file", "one");
    for agent in ["claude-code", "opencode"] {
        home.install(agent);

        let (report, code) = tested(&home, agent);

        assert_eq!(code, 0, "{report:#}");
        assert_eq!(report["works"], true);
        let trials = report["trials"].as_array().unwrap();
        let outcome = |trial: &Value| (trial["scratch"].clone(), trial["ran"]["outcome"].clone());
        let outcomes: Vec<_> = trials.iter().map(outcome).collect();
        assert_eq!(outcomes[0], (true.into(), "made".into()), "{report:#}");
        assert_eq!(outcomes[1], (true.into(), "made".into()), "{report:#}");
        assert_eq!(outcomes[2].0, false);
        for trial in trials {
            assert_eq!(trial["exit_code"], 0);
            assert_eq!(
                (&trial["stdout"], &trial["stderr"]),
                (&"".into(), &"".into())
            );
        }
    }
    // An unchanged tree costs nothing.
    let (report, _) = tested(&home, "claude-code");
    assert_eq!(report["trials"][2]["ran"]["outcome"], "unchanged");
    let row = shown(&home, "claude-code");
    assert_eq!(row["last"]["outcome"], "unchanged", "{row:#}");
    // Nobody takes the test for a run of the agent.
    assert_eq!(row["last"]["test"], true, "{row:#}");
    let words = home.run(&["hook", "show"]);
    assert!(
        words.out.contains("ago (test): nothing had changed"),
        "{}",
        words.out
    );
    let status = home.run(&["workspace", "status"]);
    let line = status.out.lines().find(|line| line.contains("claude-code"));
    assert!(
        line.is_some_and(|line| line.ends_with("nothing had changed")),
        "{}",
        status.out
    );
    prompted(&home, "for real");
    assert_eq!(shown(&home, "claude-code")["last"]["test"], Value::Null);
    let words = home.run(&["hook", "show"]);
    let line = words.out.lines().find(|line| line.contains("claude-code"));
    assert!(
        line.is_some_and(|line| !line.contains("(test)")),
        "{}",
        words.out
    );
}

/// Runs the hook as Claude Code does before a prompt.
fn prompted(home: &Home, words: &str) {
    let about = json!({ "cwd": home.at("project"), "hook_event_name": "UserPromptSubmit", "prompt": words });
    let said = hooked(
        home,
        &["hook", "run", "claude-code"],
        about.to_string().as_bytes(),
    );
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
}

#[test]
fn a_failure_behind_a_broken_configuration_is_shown_in_its_workspace_and_its_prompt_is_missed() {
    let home = home();
    init(&home);
    home.install("claude-code");
    home.put("project/file", "one");
    prompted(&home, "the first");
    home.put("project/file", "two");
    let config = home.put(".config/stasis/config.toml", "not toml");
    prompted(&home, "the second");
    fs::remove_file(config).unwrap();

    let row = shown(&home, "claude-code");
    let words = home.run(&["hook", "show"]);
    let status = home.run(&["workspace", "status"]);
    let rewound = home.run(&["rewind", "--yes"]);

    assert_eq!(row["last"]["outcome"], "failed", "{row:#}");
    assert!(words.out.contains("failed: "), "{}", words.out);
    assert!(
        words.err.contains("no checkpoint was made"),
        "{}",
        words.err
    );
    assert!(status.err.contains("made no checkpoint"), "{}", status.err);
    assert!(status.err.contains("has no checkpoint"), "{}", status.err);
    assert_eq!(rewound.code, 3, "{}{}", rewound.out, rewound.err);
    assert!(rewound.err.contains("config.toml"), "{}", rewound.err);
    assert_eq!(fs::read_to_string(home.at("project/file")).unwrap(), "two");
    // The next prompt is protected again, and the failure is no longer the last word.
    prompted(&home, "the third");
    home.put("project/file", "three");
    assert_eq!(shown(&home, "claude-code")["last"]["outcome"], "made");
    assert_eq!(home.run(&["rewind", "--yes"]).code, 0);
    assert_eq!(fs::read_to_string(home.at("project/file")).unwrap(), "two");
}

#[test]
fn a_hook_that_is_not_there_or_has_no_workspace_or_no_program_does_not_work() {
    let home = home();
    let (report, code) = tested(&home, "claude-code");
    assert_eq!(code, 1);
    assert!(problems(&report).contains("stasis hook install claude-code"));

    home.install("claude-code");
    let (report, code) = tested(&home, "claude-code");
    assert_eq!(code, 1);
    assert!(problems(&report).contains("stasis protect"), "{report:#}");
    assert_eq!(
        report["trials"][0]["ran"]["outcome"], "made",
        "the command itself works"
    );
    let words = home.run(&["hook", "show"]);
    assert!(
        words.err.contains("not inside a workspace"),
        "{}",
        words.err
    );

    init(&home);
    let settings = home.at(".claude/settings.json");
    let written = fs::read_to_string(&settings).unwrap();
    home.put(
        ".claude/settings.json",
        &written.replace("25 stasis", "25 /gone/stasis"),
    );
    let (report, code) = tested(&home, "claude-code");
    assert_eq!(code, 1);
    assert!(
        problems(&report).contains("stasis did not run"),
        "{report:#}"
    );
}

#[test]
fn a_hook_as_it_was_written_before_is_said_to_block_its_agent() {
    let home = home();
    init(&home);
    home.install("gemini");
    let settings = home.at(".gemini/settings.json");
    let written = fs::read_to_string(&settings).unwrap();
    let old = written
        .replace("timeout -k 2 25 stasis", "/gone/stasis")
        .replace(" >/dev/null 2>&1 || true", "");
    home.put(".gemini/settings.json", &old);

    let (report, code) = tested(&home, "gemini");

    assert_eq!(code, 1);
    assert!(problems(&report).contains("exit code 127"), "{report:#}");
    assert!(problems(&report).contains("veto"), "{report:#}");
}

#[test]
fn a_failure_that_no_agent_shows_is_shown_by_us() {
    let home = home();
    init(&home);
    home.install("claude-code");
    home.put("config/stasis/config.toml", "not toml");
    home.put(".config/stasis/config.toml", "not toml");
    let mut command = home.command(&["hook", "run", "claude-code"]);
    assert!(command.status().unwrap().success());
    fs::remove_file(home.at(".config/stasis/config.toml")).unwrap();
    fs::remove_file(home.at("config/stasis/config.toml")).unwrap();

    let found = home.run(&["--json", "doctor"]);

    let findings: Value = serde_json::from_str(&found.out).unwrap();
    let mut findings = findings["items"].as_array().unwrap().iter();
    let hook = findings
        .find(|one| one["name"] == "hook claude-code")
        .unwrap();
    assert_eq!(hook["health"], "broken", "{hook}");
    assert!(
        hook["detail"].as_str().unwrap().contains("config.toml"),
        "{hook}"
    );
}

#[test]
fn an_agent_that_skips_what_nobody_trusted_is_said_to() {
    let home = home();
    init(&home);
    for agent in ["codex", "gemini"] {
        home.install(agent);
        assert_eq!(shown(&home, agent)["trust"], "untrusted");
        let (report, code) = tested(&home, agent);
        assert_eq!(code, 1);
        assert!(problems(&report).contains("trust"), "{report:#}");
    }
    let folders = serde_json::json!({ home.at("project").to_str().unwrap(): "TRUST_FOLDER" });
    home.put(".gemini/trustedFolders.json", &folders.to_string());

    assert_eq!(shown(&home, "gemini")["trust"], "trusted");
    assert_eq!(tested(&home, "gemini").1, 0);
    assert_eq!(shown(&home, "claude-code")["trust"], Value::Null);
}

/// Codex itself is asked where it is there; this one answers as 0.166 does.
#[test]
fn codex_is_asked_whether_it_trusts_the_hook() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = home();
    init(&home);
    home.install("codex");
    for (state, expected) in [("trusted", "trusted"), ("modified", "changed")] {
        let hook = serde_json::json!({ "command": "x hook run codex", "trustStatus": state,
            "sourcePath": home.at(".codex/hooks.json") });
        let answer = serde_json::json!({ "id": 2, "result": { "data": [{ "hooks": [hook] }] } });
        let script = format!(
            "#!/bin/bash\nread a; read b; read c\nprintf '%s\\n' '{{\"id\":1}}' '{answer}'\ncat >/dev/null\n"
        );
        let script = script.replace("/bin/bash", home.at("bin/bash").to_str().unwrap());
        let path = home.put("bin/codex", &script);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();

        assert_eq!(shown(&home, "codex")["trust"], expected);
    }
}

#[test]
fn the_server_is_installed_without_a_workspace() {
    let home = home();
    let places = [
        ("claude-code", "project/.mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", "project/.gemini/settings.json"),
        ("opencode", "project/opencode.json"),
    ];
    for (agent, file) in places {
        let said = home.run(&["mcp", "install", agent, "--yes"]);

        assert_eq!(said.code, 0, "{agent}: {}", said.err);
        let text = fs::read_to_string(home.at(file)).unwrap();
        assert!(
            text.contains("--watch") && !text.contains("--workspace"),
            "{text}"
        );
        let again = home.run(&["--json", "mcp", "install", agent, "--yes"]);
        let again: Value = serde_json::from_str(&again.out).unwrap();
        assert_eq!(again["changed"], false);
        let without = home.run(&["mcp", "uninstall", agent, "--dry-run"]);
        assert!(without.err.contains("--watch"), "{}", without.err);
        assert!(home.at(file).exists(), "a dry run changes nothing");
        let gone = home.run(&["--json", "mcp", "uninstall", agent, "--yes"]);
        let gone: Value = serde_json::from_str(&gone.out).unwrap();
        assert_eq!(gone["written"], true, "{gone}");
        assert!(!home.at(file).exists(), "nothing else was in {file}");
        let again = home.run(&["--json", "mcp", "uninstall", agent, "--yes"]);
        let again: Value = serde_json::from_str(&again.out).unwrap();
        assert_eq!(again["changed"], false);
    }
    let global = home.run(&["mcp", "install", "codex", "--scope", "project", "--yes"]);
    assert_eq!(global.code, 2, "{}", global.err);
}

/// `OpenCode` installs 50 MB into a project that has plugins for it.
#[test]
fn what_a_tool_installs_for_itself_is_in_no_checkpoint_and_stays_at_a_restore() {
    let home = home();
    home.put("project/.opencode/plugins/mine.js", "export default {}");
    home.put("project/.opencode/node_modules/zod/index.js", "large");
    home.put("project/file", "one");

    let made = home.run(&["workspace", "init", "."]);

    assert_eq!(made.code, 0, "{}", made.err);
    assert!(
        made.err
            .contains(".opencode/node_modules is in no checkpoint"),
        "{}",
        made.err
    );
    let kept = home.run(&["--json", "workspace", "create", "x"]);
    let kept: Value = serde_json::from_str(&kept.out).unwrap();
    assert_eq!(kept["files_count"], 2, "{kept}");
    home.put("project/file", "two");
    fs::remove_file(home.at("project/.opencode/plugins/mine.js")).unwrap();
    let restored = home.run(&["workspace", "restore", "x", "--yes"]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert_eq!(fs::read_to_string(home.at("project/file")).unwrap(), "one");
    assert!(home.at("project/.opencode/plugins/mine.js").exists());
    assert!(
        home.at("project/.opencode/node_modules/zod/index.js")
            .exists()
    );

    // OpenCode may come to the project later than `init`.
    let other = self::home();
    other.put("project/file", "one");
    let made = other.run(&["workspace", "init", "."]);
    assert!(!made.err.contains("opencode"), "{}", made.err);
    assert_eq!(other.run(&["workspace", "create", "before"]).code, 0);
    other.put("project/.opencode/node_modules/zod/index.js", "large");
    other.put("project/.opencode/plugins/mine.js", "export default {}");
    let kept = other.run(&["--json", "workspace", "create", "x"]);
    let kept: Value = serde_json::from_str(&kept.out).unwrap();
    assert_eq!(kept["files_count"], 2, "{kept}");
    // It goes with its directory, and comes back with it.
    let restored = other.run(&["workspace", "restore", "before", "--yes"]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert!(!other.at("project/.opencode/plugins/mine.js").exists());
    let undone = other.run(&["workspace", "undo", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    for file in ["plugins/mine.js", "node_modules/zod/index.js"] {
        assert!(
            other.at(&format!("project/.opencode/{file}")).exists(),
            "{file}"
        );
    }
}
