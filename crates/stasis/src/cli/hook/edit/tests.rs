use super::*;
use crate::cli::hook::json_text::Dialect;
use serde_json::json;

fn read(text: &str) -> Node {
    Node::read(text, Dialect::Comments).unwrap()
}

/// Adds `"new": [1]` to an object, and takes it away again.
fn there_and_back(text: &str) -> (String, String) {
    let with_it = added(text, &read(text), Some("new"), &json!([1]));
    let root = read(&with_it);
    let member = root.get("new").unwrap();
    let back = without(&with_it, &root, &member.span);
    (with_it, back)
}

#[test]
fn what_is_added_is_written_as_its_neighbours_are() {
    let written = [
        (
            "{\n  \"a\": 1\n}\n",
            "{\n  \"a\": 1,\n  \"new\": [\n    1\n  ]\n}\n",
        ),
        (
            "{\n\t\"a\": 1\n}",
            "{\n\t\"a\": 1,\n\t\"new\": [\n\t\t1\n\t]\n}",
        ),
        (
            "{\r\n    \"a\": 1\r\n}",
            "{\r\n    \"a\": 1,\r\n    \"new\": [\r\n        1\r\n    ]\r\n}",
        ),
        ("{\"a\": 1}", "{\"a\": 1, \"new\": [ 1 ]}"),
        (
            "{\n  \"a\": 1 // one\n  // end\n}",
            "{\n  \"a\": 1, // one\n  // end\n  \"new\": [\n    1\n  ]\n}",
        ),
        ("{}\n", "{\"new\": [\n  1\n]}\n"),
        ("{ \n}\n", "{\"new\": [\n  1\n] \n}\n"),
    ];

    for (before, after) in written {
        assert_eq!(there_and_back(before).0, after, "{before}");
    }
}

#[test]
fn taking_away_what_was_added_gives_back_every_byte() {
    let texts = [
        "{}",
        "{ }",
        "{\n}\n",
        "{\"a\":1}",
        "{ \"a\" : 1 }",
        "{\n  \"a\": 1\n}\n",
        "{\n  \"a\": 1\n\n\n}\n",
        "{\r\n\t\"a\": {\"b\": []}\r\n}",
        "{\n  \"a\": \"ü, }\", // why, \n  \"b\": 2 /* , */ // two\n  /* end */\n}\n",
        "{\n\"a\":1}",
        "{\n\"a\":1 /*/ , */ }",
        "  // top\n{ \"a\": 1 // one\n }\n",
    ];

    for text in texts {
        assert_eq!(there_and_back(text).1, text);
    }
}

#[test]
fn the_first_the_middle_and_the_last_can_go() {
    let text = "{\n  \"a\": 1, // one,\n  \"b\": 2,\n  \"c\": 3\n}";
    let root = read(text);
    let gone = |key: &str| without(text, &root, &root.get(key).unwrap().span);

    assert_eq!(gone("a"), "{\n  // one,\n  \"b\": 2,\n  \"c\": 3\n}");
    assert_eq!(gone("b"), "{\n  \"a\": 1, // one,\n  \"c\": 3\n}");
    assert_eq!(gone("c"), "{\n  \"a\": 1, // one,\n  \"b\": 2\n}");
}

#[test]
fn a_comment_never_swallows_what_stood_behind_what_goes() {
    let texts = [
        "{\"a\": 1, // one\n  \"b\": 2 }",
        "{ // one\n  \"b\": 2, \"c\": 3 }",
    ];

    for text in texts {
        let root = read(text);
        let rest = without(text, &root, &root.get("b").unwrap().span);
        assert_eq!(read(&rest).inside().len(), 1, "{rest}");
    }
}

#[test]
fn a_container_that_was_filled_is_not_taken_for_one_that_was_made() {
    let filled = there_and_back("{}").0;
    let made = document(&json!({ "new": [1] }));

    assert!(!is_ours(&filled, &read(&filled)));
    assert!(is_ours(&made, &read(&made)));
    let beside = there_and_back("{\"a\": 1}").0;
    assert!(is_ours(&beside, &read(&beside).get("new").unwrap().value));
}
