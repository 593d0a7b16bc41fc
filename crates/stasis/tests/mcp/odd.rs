//! Names that are hard to write down, and paths that lead elsewhere.

use crate::world::World;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A name on the disk comes back by the name that answers write.
async fn comes_back(name: &[u8], written: &str) {
    let world = World::new();
    let path = Path::new(OsStr::from_bytes(name));
    world.write(path, "first");
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write(path, "second");

    let changes = client.call("changes", json!({ "format": "json" })).await;
    assert_eq!(changes["total"], 1, "{changes}");
    let told = changes["items"][0]["path"].as_str().unwrap();
    assert_eq!(told, written);
    let words = client.words("changes", json!({})).await;
    assert!(words.contains(written), "{words}");
    client.call("diff", json!({ "path": told })).await;
    client.call("history", json!({ "path": told })).await;
    let reverted = client.call("revert", json!({ "path": told })).await;

    assert_eq!(reverted["path"], told);
    assert_eq!(world.read(path), "first");
}

macro_rules! odd_names {
    ($($test:ident: $name:expr => $written:expr;)*) => {$(
        #[tokio::test]
        async fn $test() {
            comes_back($name, $written).await;
        }
    )*};
}

odd_names! {
    a_name_with_a_newline: b"two\nlines" => "two\\x0alines";
    a_name_with_quotes: b"it's \"so\"" => "it's \"so\"";
    a_name_with_blanks: b" a  b " => " a  b ";
    a_name_with_a_tab: b"a\tb" => "a\\x09b";
    a_name_with_an_escape_sequence: b"\x1b[31mred" => "\\x1b[31mred";
    a_name_in_other_letters: "naïve-日本語-🚀".as_bytes() => "naïve-日本語-🚀";
    a_name_that_runs_backwards: "gpj.\u{202e}exe".as_bytes() => "gpj.\\xe2\\x80\\xaeexe";
    a_name_with_a_letter_nobody_sees: "a\u{200b}b".as_bytes() => "a\\xe2\\x80\\x8bb";
    a_name_with_a_soft_hyphen: "a\u{ad}b".as_bytes() => "a\\xc2\\xadb";
    a_name_that_is_no_text: b"caf\xe9" => "caf\\xe9";
    a_name_with_a_backslash: b"back\\slash" => "back\\\\slash";
    a_name_that_looks_escaped: b"\\x41" => "\\\\x41";
    a_name_that_begins_with_a_dash: b"-rf" => "-rf";
    a_name_with_two_dots: b"a..b" => "a..b";
    a_name_of_three_dots: b"..." => "...";
    a_name_with_a_dot_before_it: b".hidden" => ".hidden";
    a_name_like_a_pattern: b"*[?]{a,b}" => "*[?]{a,b}";
    a_name_like_a_shells: b"$(touch x); `id` | $HOME" => "$(touch x); `id` | $HOME";
    a_name_like_a_checkpoints: b"cp-10" => "cp-10";
}

/// A file with a line break in its name, one whose name is what answers write for that, and the model that looks at both.
async fn twins() -> (World, crate::world::Client) {
    let world = World::with(&[("a\nb", "break"), ("a\\x0ab", "literal")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a\nb", "break changed");
    world.write("a\\x0ab", "literal changed");
    let changed = client.changed(json!({})).await;
    let paths: Vec<&str> = changed.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, [r"a\\x0ab", r"a\x0ab"]);
    (world, client)
}

/// All that is done with a path that an answer wrote is done to the entry that it stands for.
async fn is_meant(client: &crate::world::Client, written: &str, content: &str) {
    let path = json!({ "path": written });
    let diff = client.words("diff", path.clone()).await;
    let history = client.call("history", path.clone()).await;
    let reverted = client.call("revert", path).await;

    assert!(diff.contains(&format!("+{content} changed")), "{diff}");
    assert_eq!(
        (&history["path"], &reverted["path"]),
        (&json!(written), &json!(written))
    );
}

#[tokio::test]
async fn a_name_that_looks_like_the_escape_of_another_is_the_one_that_is_meant() {
    let (world, client) = twins().await;

    is_meant(&client, r"a\\x0ab", "literal").await;

    assert_eq!(
        (world.read("a\\x0ab").as_str(), world.read("a\nb").as_str()),
        ("literal", "break changed")
    );
}

#[tokio::test]
async fn a_name_whose_escape_is_the_name_of_another_is_the_one_that_is_meant() {
    let (world, client) = twins().await;

    is_meant(&client, r"a\x0ab", "break").await;

    assert_eq!(
        (world.read("a\nb").as_str(), world.read("a\\x0ab").as_str()),
        ("break", "literal changed")
    );
}

#[tokio::test]
async fn an_error_shows_no_letter_that_nobody_sees() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    let path = json!({ "path": "soft\u{ad}hyphen" });

    let error = client.fails("diff", path.clone()).await;
    let words = client.words("diff", path).await;

    for said in [error["message"].as_str().unwrap(), &words] {
        assert!(said.contains("soft\\xc2\\xadhyphen"), "{said:?}");
    }
}

#[tokio::test]
async fn a_name_as_long_as_can_be() {
    let name = "n".repeat(255);
    comes_back(name.as_bytes(), &name).await;
}

#[tokio::test]
async fn a_path_that_leads_out_of_the_workspace_is_refused() {
    let world = World::with(&[("a", "1"), ("d/b", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    let outside = world.home().join("secret");
    let outside = outside.to_str().unwrap();
    let paths = [
        "../x",
        "..",
        "../secret",
        "d/../../secret",
        "d/../../../../../etc/passwd",
        "/etc/passwd",
        "/",
        outside,
        "",
        "a\0b",
    ];

    for path in paths {
        for tool in ["diff", "history", "revert"] {
            let error = client.refused(tool, json!({ "path": path })).await;
            assert_eq!(error.code.0, -32602, "{tool} {path:?}");
        }
    }
    world.assert_outside_untouched();
}

#[tokio::test]
async fn an_escape_that_no_answer_writes_is_a_name_like_any_other() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;

    for path in ["\\x2e\\x2e/secret", "\\x2f", "\\x00", "\\xzz"] {
        for tool in ["diff", "history", "revert"] {
            let error = client.fails(tool, json!({ "path": path })).await;
            assert_eq!(error["reason"], "no_such_entry", "{tool} {path}");
        }
    }
    world.assert_outside_untouched();
}

#[tokio::test]
async fn a_path_through_a_linked_directory_is_not_followed() {
    let world = World::with(&[("d/secret", "inside")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("d");
    world.link("d", world.home());

    let path = json!({ "path": "d/secret", "checkpoint": "x" });
    for tool in ["diff", "revert"] {
        let heard = client.heard(tool, path.clone()).await;
        assert!(!heard.contains("xyzzy"), "{tool}: {heard}");
    }

    world.assert_outside_untouched();
}

#[tokio::test]
async fn the_content_of_what_a_link_points_to_is_never_shown() {
    let world = World::with(&[("a", "1")]);
    world.link("link", "../secret");
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("link");
    world.write("link", "1");

    let diff = client
        .call(
            "diff",
            json!({ "path": "link", "checkpoint": "x", "format": "json" }),
        )
        .await;

    assert!(!diff.to_string().contains("xyzzy"), "{diff}");
}
