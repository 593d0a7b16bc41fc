use super::*;
use stasis_engine::model::workspace::AgentEventKind;

fn working_directory(said: &[u8]) -> Option<PathBuf> {
    Input::parse(said).directory()
}

/// What kind of event it is, its text, session and turn.
fn call(
    said: &str,
) -> (
    AgentEventKind,
    Option<String>,
    Option<String>,
    Option<String>,
) {
    let call = Input::parse(said.as_bytes()).call("codex").unwrap();
    assert_eq!(call.agent.as_str(), "codex");
    let text = |text: Option<stasis_engine::model::workspace::EventText>| {
        text.map(|text| text.as_str().to_owned())
    };
    (
        call.kind,
        text(call.text),
        text(call.session),
        text(call.turn_id),
    )
}

#[test]
fn prompts_commands_and_edits_of_every_agent_are_distinguished() {
    let some = |text: &str| Some(text.to_owned());
    let said = [
        (
            r#"{"session_id": "s1", "cwd": "/w", "hook_event_name": "UserPromptSubmit", "prompt": "fix it\nplease"}"#,
            (AgentEventKind::Prompt, some("fix it"), some("s1"), None),
        ),
        (
            r#"{"session_id": "s1", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "rm -r x", "description": "d"}}"#,
            (AgentEventKind::Command, some("rm -r x"), some("s1"), None),
        ),
        (
            r#"{"hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": {"file_path": "/w/a", "content": "c"}}"#,
            (AgentEventKind::Edit, some("/w/a"), None, None),
        ),
        (
            r#"{"turn_id": "t7", "hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": "*** Begin Patch\n*** Update File: src/a.rs\n@@"}}"#,
            (AgentEventKind::Edit, some("src/a.rs"), None, some("t7")),
        ),
        (
            r#"{"hook_event_name": "PreToolUse", "tool_name": "shell", "tool_input": {"command": ["git", "clean", "-fdx"]}}"#,
            (AgentEventKind::Command, some("git clean -fdx"), None, None),
        ),
        (
            r#"{"hook_event_name": "BeforeAgent", "prompt": "tidy up"}"#,
            (AgentEventKind::Prompt, some("tidy up"), None, None),
        ),
        (
            r#"{"hook_event_name": "BeforeTool", "tool_name": "replace", "tool_input": {"file_path": "b", "old_string": "x"}}"#,
            (AgentEventKind::Edit, some("b"), None, None),
        ),
        (
            r#"{"hook_event_name": "UserPromptSubmit", "session_id": 7, "prompt": [{"text": "x"}]}"#,
            (AgentEventKind::Prompt, None, None, None),
        ),
        (
            r#"{"prompt": "no event"}"#,
            (AgentEventKind::Prompt, some("no event"), None, None),
        ),
        (
            r#"{"tool_name": "x", "tool_input": 3, "session_id": "s"}"#,
            (AgentEventKind::Command, None, some("s"), None),
        ),
        ("", (AgentEventKind::Command, None, None, None)),
    ];

    for (said, expected) in said {
        assert_eq!(call(said), expected, "{said}");
    }
}

#[test]
fn what_was_said_before_the_end_was_cut_off_is_known() {
    let cut = r#"{"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": {"file_path": "/w/a", "content": "xxx"#;

    let (kind, text, session, _) = call(cut);

    assert_eq!(
        (kind, text.as_deref(), session.as_deref()),
        (AgentEventKind::Edit, Some("/w/a"), Some("s"))
    );
}

#[test]
fn the_directory_is_found_in_what_an_agent_says() {
    let said = br#"{"session_id": "x", "cwd": "/home/me/tree", "prompt": {"cwd": "/inner"}}"#;

    assert_eq!(working_directory(said), Some("/home/me/tree".into()));
}

#[test]
fn the_directory_is_found_although_the_end_is_cut_off() {
    let said = br#"{"cwd": "/home/me/tree", "prompt": "a long story, which"#;

    assert_eq!(working_directory(said), Some("/home/me/tree".into()));
}

#[test]
fn what_makes_no_sense_names_no_directory() {
    let nonsense: [&[u8]; 8] = [
        b"",
        b"\xff\xfe",
        b"null",
        b"[\"cwd\"]",
        b"{\"cwd\": 7}",
        b"{\"cwd\": null}",
        b"{\"cwd\": \"relative\"}",
        b"{\"cwd\": \"/cut",
    ];

    for said in nonsense {
        assert_eq!(working_directory(said), None, "{said:?}");
    }
}

#[test]
fn a_failure_and_a_panic_end_well() {
    let ends = [
        undisturbed(|| Ok(ExitCode::from(7))),
        undisturbed(|| anyhow::bail!("no")),
        undisturbed(|| panic!("on purpose")),
    ];

    for end in ends {
        assert_eq!(format!("{end:?}"), format!("{:?}", ExitCode::SUCCESS));
    }
}

#[test]
fn a_command_line_that_is_not_understood_is_still_known_to_be_an_agents() {
    let asked = |line: &str| is_asked_to_run(line.split(' ').map(OsString::from));

    assert!(asked("stasis hook run unheard-of"));
    assert!(asked("stasis --odd hook run"));
    assert!(!asked("stasis hook install run"));
}
