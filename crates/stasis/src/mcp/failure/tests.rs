use super::*;
use stasis_engine::model::workspace::Slot;

fn refused_as(error: WorkspaceError) -> Result<CallToolResult, ErrorData> {
    CallFailure::from(Error::from(error)).into_result("/w")
}

#[test]
fn what_could_never_work_is_an_error_of_the_protocol() {
    let path = || "a\u{202e}\n".to_owned();
    let why = || "it leads out of it".to_owned();
    let bad = [
        WorkspaceError::BadPath {
            path: path(),
            why: why(),
        },
        WorkspaceError::TooFew,
        WorkspaceError::NamedAuto,
    ];

    for error in bad {
        let refused = refused_as(error).unwrap_err();
        assert_eq!(refused.code.0, -32602);
        assert_eq!(refused.data, Some(json!({ "workspace": "/w" })));
        assert!(!refused.message.contains(['\u{202e}', '\n']));
    }
}

#[test]
fn what_the_workspace_stands_against_is_an_answer_that_can_be_acted_on() {
    let full = NoSlot::ManualFull { max: 12 };
    let cases = [
        (
            WorkspaceError::NoSlot(full),
            "limit",
            "pool_full",
            json!({ "max": 12 }),
        ),
        (
            WorkspaceError::NeedsConfirmation {
                deletes: 21,
                most: 20,
            },
            "denied",
            "needs_confirmation",
            json!({ "deletes": 21, "most_without_confirm": 20 }),
        ),
        (
            WorkspaceError::PlanChanged,
            "retry",
            "plan_changed",
            Value::Null,
        ),
        (
            WorkspaceError::NotYours(Slot::new(3)),
            "denied",
            "not_yours",
            Value::Null,
        ),
        (
            WorkspaceError::Busy("a restore".to_owned()),
            "conflict",
            "busy",
            Value::Null,
        ),
    ];

    for (error, kind, reason, details) in cases {
        let result = refused_as(error).unwrap();
        assert_eq!(result.is_error, Some(true));
        let answer = result.structured_content.unwrap();
        assert_eq!(answer["workspace"], "/w");
        let error = &answer["error"];
        assert_eq!(error["kind"], kind);
        assert_eq!(error["reason"], reason);
        assert_eq!(error["details"], details);
        assert!(error["hint"].is_string(), "{reason}");
        let words = &result.content[0].as_text().unwrap().text;
        assert!(words.contains(error["message"].as_str().unwrap()));
        assert!(words.contains("\nhint: "));
        assert!(words.ends_with("\nworkspace: /w"), "{words}");
    }
}
