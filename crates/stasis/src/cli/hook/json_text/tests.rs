use super::*;

fn fault(text: &str, dialect: Dialect) -> String {
    Node::read(text, dialect).unwrap_err().to_string()
}

#[test]
fn everything_is_found_where_it_stands() {
    let text = r#"{ "a\n": [1, {"b": "c"}], "d": null }"#;

    let root = Node::read(text, Dialect::Strict).unwrap();

    let a = root.get("a\n").unwrap();
    assert_eq!(&text[a.span.clone()], r#""a\n": [1, {"b": "c"}]"#);
    let object = &a.value.elements()[1];
    assert_eq!(&text[object.span.clone()], r#"{"b": "c"}"#);
    assert_eq!(object.get("b").unwrap().value.text(), Some("c"));
    assert_eq!(root.get("d").unwrap().value.value, Value::Plain);
}

#[test]
fn of_two_equal_keys_the_last_one_counts() {
    let root = Node::read(r#"{"a": "first", "a": "second"}"#, Dialect::Strict).unwrap();

    assert_eq!(root.get("a").unwrap().value.text(), Some("second"));
}

#[test]
fn a_fault_has_its_line() {
    let faults = [
        ("", "line 1: it ends where a value should be"),
        ("{\n  \"a\": 1,\n}", "line 3: a key in quotes is missing"),
        ("{\n\"a\" 1}", "line 2: `:` is missing"),
        ("[1\n2]", "line 2: `,` or `]` is missing"),
        ("{\"a\": tru}", "line 1: something that is not a value"),
        ("{\"a\": \"\\x\"}", "line 1: a text that is not one"),
        ("{\"a\": \"b", "line 1: a text that does not end"),
        (
            "{}\n{}",
            "line 2: there is more after the end of the document",
        ),
        (
            "{\n// why\n}",
            "line 2: a comment, which JSON does not have",
        ),
    ];

    for (text, expected) in faults {
        assert_eq!(fault(text, Dialect::Strict), expected, "{text}");
    }
}

#[test]
fn comments_are_passed_over_where_they_are_allowed() {
    let text = "// top\n{ /* a */ \"a\": // b\n 1 /* c */ }\n// end";

    let root = Node::read(text, Dialect::Comments).unwrap();

    assert!(root.get("a").is_some());
    assert_eq!(
        fault("{ /* for ever }", Dialect::Comments),
        "line 1: a `/` that begins no comment, or one that does not end"
    );
}

#[test]
fn a_document_nested_without_end_is_refused_before_the_stack_is() {
    let deep = "[".repeat(100_000);

    assert_eq!(
        fault(&deep, Dialect::Strict),
        "line 1: it is nested too deeply"
    );
}

#[test]
fn a_byte_order_mark_is_no_fault() {
    assert!(Node::read("\u{feff}{}", Dialect::Strict).is_ok());
}
