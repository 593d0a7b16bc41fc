use super::*;

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
