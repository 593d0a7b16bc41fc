//! Extended attributes: a change of them alone is a change, and comes back.

use crate::workspace::{Tree, says};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const NAME: &str = "user.note";

fn set(tree: &Tree, path: &str, value: &str) {
    setxattr(tree.at(path), NAME, value.as_bytes(), XattrFlags::empty()).unwrap();
}

fn get(tree: &Tree, path: &str) -> Option<String> {
    let mut value = [0; 64];
    let length = getxattr(tree.at(path), NAME, &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

fn paths(changes: &Value) -> Vec<&str> {
    let rows = changes["items"].as_array().unwrap().iter();
    rows.map(|row| row["path"].as_str().unwrap()).collect()
}

/// In chunks where nothing is shared, and as whole copies.
#[test]
fn extended_attributes_alone_are_seen_checkpointed_and_restored() {
    for config in ["", "fallback = \"copy\"\n"] {
        let tree = Tree::new(&[("a", "one"), ("d/b", "one"), ("plain", "one")]);
        fs::write(tree.kept().join("config.toml"), config).unwrap();
        for path in ["a", "d"] {
            set(&tree, path, "first");
        }
        tree.checkpoint("first");
        let none = tree.json(0, &["changes"]);
        // Old enough to be remembered: from now on only the look of a file says that it changed.
        std::thread::sleep(Duration::from_millis(2_200));
        let same = tree.json(0, &["create", "--auto"]);
        let again = tree.json(0, &["create", "--auto"]);
        set(&tree, "a", "second");
        set(&tree, "d/b", "second");
        removexattr(tree.at("d"), NAME).unwrap();

        let changes = tree.json(0, &["changes", "--since", "first"]);
        let diff = tree.run(&["diff", "a", "first"]);
        let made = tree.json(0, &["create", "--auto"]);
        tree.checkpoint("second");
        let restored = tree.json(0, &["restore", "first"]);
        let first = ["a", "d", "d/b", "plain"].map(|path| get(&tree, path));
        let left = tree.json(0, &["changes", "--since", "first"]);
        tree.json(0, &["undo"]);
        let second = ["a", "d", "d/b"].map(|path| get(&tree, path));
        let reverted = tree.json(0, &["revert", "a", "first"]);

        assert_eq!(paths(&none), [""; 0], "{config}");
        says(&same, &json!({ "created": true }));
        says(&again, &json!({ "created": false }));
        assert_eq!(paths(&changes), ["a", "d", "d/b"], "{config}");
        assert!(diff.out.contains("modified"), "{}{}", diff.out, diff.err);
        assert!(
            diff.err.contains("a: other extended attributes"),
            "{}",
            diff.err
        );
        says(&made, &json!({ "created": true }));
        says(
            &restored["plan"],
            &json!({ "creates": 0, "replaces": 3, "deletes": 0 }),
        );
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(
            first,
            [said("first"), said("first"), None, None],
            "{config}"
        );
        assert_eq!(paths(&left), [""; 0], "{config}");
        assert_eq!(second, [said("second"), None, said("second")], "{config}");
        says(&reverted, &json!({ "reverted": true }));
        assert_eq!(get(&tree, "a"), said("first"), "{config}");
    }
}
