use super::super::agent::{Agent, Means};
use super::*;

fn form(agent: Agent) -> HookFormat {
    match agent.means() {
        Means::Settings(form) => form,
        Means::Plugin => panic!("{agent:?} has no settings"),
    }
}

fn claude() -> (HookFormat, Program) {
    let agent = Agent::ClaudeCode;
    (form(agent), Program::at(agent, "stasis"))
}

#[test]
fn a_file_that_was_not_there_is_made_and_goes_again() {
    let (form, program) = claude();

    let text = form.installed(None, &program).unwrap();

    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let handler = serde_json::json!([{
        "type": "command", "command": program.command(), "timeout": 30
    }]);
    let expected = serde_json::json!({"hooks": {
        "UserPromptSubmit": [{ "hooks": handler }],
        "PreToolUse": [{ "matcher": "Bash|Edit|Write|MultiEdit|NotebookEdit", "hooks": handler }],
    }});
    assert_eq!(read, expected);
    assert_eq!(form.uninstalled(&text, &program).unwrap(), None);
}

#[test]
fn what_was_there_comes_back_byte_for_byte() {
    let texts = [
        "{}",
        "{\n}\n",
        "{\"hooks\":{}}",
        "{\n  \"hooks\": {\n    \"PreToolUse\": [],\n    \"Stop\": []\n  }\n}\n",
        "{\"model\": \"x\", \"hooks\": {\"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": []}]}}",
        "{\n    \"a\": [1,2,\n 3],\n    \"hooks\": { \"PreToolUse\": [ {\"matcher\": \"Edit\",\n \"hooks\": [{}]} ] },\n\n    \"z\": 1e3\n}",
        "{\r\n\t\"model\": \"ü\"\r\n}\r\n",
    ];
    for agent in [Agent::ClaudeCode, Agent::Codex, Agent::Gemini] {
        let (form, program) = (form(agent), Program::at(agent, "/opt/it's/stasis"));
        for before in texts {
            let after = form.installed(Some(before), &program).unwrap();
            assert_eq!(
                form.state(&after, &program),
                Ok(State::Installed),
                "{after}"
            );
            assert_eq!(form.installed(Some(&after), &program).as_ref(), Ok(&after));
            let back = form.uninstalled(&after, &program).unwrap();
            assert_eq!(back.as_deref(), Some(before), "{after}");
        }
    }
}

#[test]
fn hooks_of_a_program_that_moved_are_replaced() {
    let (form, here) = claude();
    let there = Program::at(Agent::ClaudeCode, "/old place/stasis");
    let before = "{\n  \"model\": \"x\"\n}\n";
    let old = form.installed(Some(before), &there).unwrap();

    assert_eq!(form.state(&old, &here), Ok(State::Outdated));
    let new = form.installed(Some(&old), &here).unwrap();

    assert_eq!(new, form.installed(Some(before), &here).unwrap());
}

#[test]
fn a_command_as_it_was_written_before_is_replaced_with_what_was_added_to_it() {
    let (form, program) = claude();
    let now = form.installed(None, &program).unwrap();
    let old = now.replace(
        &program.command(),
        "stasis hook run claude-code --workspace /w",
    );

    assert_eq!(form.state(&old, &program), Ok(State::Outdated));
    let new = form.installed(Some(&old), &program).unwrap();

    let expected = program.command_with("--workspace /w");
    assert_eq!(new, now.replace(&program.command(), &expected));
    assert_eq!(form.installed(Some(&new), &program).as_ref(), Ok(&new));
}

#[test]
fn what_others_put_beside_our_command_stays() {
    let (form, program) = claude();
    let text = form.installed(None, &program).unwrap();
    let other = "{ \"type\": \"command\", \"command\": \"date\" }";
    let with_other = text.replacen("\"hooks\": [\n", &format!("\"hooks\": [\n{other},\n"), 1);

    let rest = form.uninstalled(&with_other, &program).unwrap().unwrap();

    assert!(rest.contains(other), "{rest}");
    assert_eq!(form.state(&rest, &program), Ok(State::Absent));
    let parsed: serde_json::Value = serde_json::from_str(&rest).unwrap();
    let events = parsed["hooks"].as_object().unwrap();
    assert_eq!(events.len(), 1, "{rest}");
}

#[test]
fn a_command_that_lost_its_matcher_is_outdated() {
    let (form, program) = claude();
    let text = form.installed(None, &program).unwrap();

    let everywhere = text.replace("\"Bash|Edit", "\"*|Edit");

    assert_eq!(form.state(&everywhere, &program), Ok(State::Outdated));
}

#[test]
fn what_is_no_place_for_hooks_is_refused_with_its_line() {
    let (form, program) = claude();
    let faults = [
        (
            "[]",
            "line 1: hooks are kept in an object, and this is none",
        ),
        (
            "{\n\"hooks\": []}",
            "line 2: hooks are kept in an object, and this is none",
        ),
        (
            "{\"hooks\": {\n\n\"PreToolUse\": {}}}",
            "line 3: hooks are kept in a list, and this is none",
        ),
        ("{\n// no\n}", "line 2: a comment, which JSON does not have"),
    ];

    for (text, expected) in faults {
        let fault = form.installed(Some(text), &program).unwrap_err();
        assert_eq!(fault.to_string(), expected);
    }
}

#[test]
fn comments_stay_where_the_agent_has_them() {
    let (form, program) = (form(Agent::Gemini), Program::at(Agent::Gemini, "stasis"));
    let before =
        "// mine\n{\n  \"ui\": {}, // themes\n  \"hooks\": {\n    // none, yet\n  } /* end */\n}\n";

    let after = form.installed(Some(before), &program).unwrap();

    for comment in ["// mine", "// themes", "// none, yet", "/* end */"] {
        assert!(after.contains(comment), "{after}");
    }
    assert_eq!(
        form.uninstalled(&after, &program).unwrap().as_deref(),
        Some(before)
    );
}

#[test]
fn a_switch_that_turns_all_hooks_off_is_found() {
    let form = form(Agent::Gemini);

    assert_eq!(form.switched_off("{}"), None);
    assert_eq!(form.switched_off("{\"disableAllHooks\": false}"), None);
    let off = form.switched_off("{\"hooksConfig\": {\"enabled\": false}}");
    assert_eq!(off.as_deref(), Some("hooksConfig.enabled: false"));
}
