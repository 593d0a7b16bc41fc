use super::*;

#[test]
fn a_change_is_shown_with_what_is_around_it() {
    let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    let after = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";

    let diff = unified("f", Some(before), Some(after));

    assert_eq!(
        diff,
        "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
    );
}

#[test]
fn changes_far_apart_have_hunks_of_their_own() {
    let numbers: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let before = numbers.join("\n");
    let after = before
        .replace("\n5\n", "\n")
        .replace("\n30\n", "\n30\nnew\n");

    let diff = unified("f", Some(&before), Some(&after));

    assert_eq!(diff.matches("@@ -").count(), 2, "{diff}");
    assert_eq!(diff.matches("\n-").count(), 1, "{diff}");
    assert!(diff.contains("\n+new\n"), "{diff}");
}

#[test]
fn a_file_that_comes_or_goes_is_shown_whole() {
    assert_eq!(
        unified("f", None, Some("a\n")),
        "--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+a\n"
    );
    assert_eq!(
        unified("f", Some("a"), None),
        "--- f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n"
    );
}

#[test]
fn equal_texts_have_no_diff() {
    assert_eq!(unified("f", Some("a"), Some("a")), "");
}

#[test]
fn an_empty_file_that_comes_has_a_header_and_no_hunk() {
    assert_eq!(unified("f", None, Some("")), "--- /dev/null\n+++ f\n");
}

#[test]
fn a_carriage_return_alone_ends_no_line() {
    assert_eq!(
        unified("f", Some("a\rb\r\n"), Some("a\rc\r\n")),
        "--- f\n+++ f\n@@ -1 +1 @@\n-a\rb\r\n+a\rc\r\n"
    );
}
