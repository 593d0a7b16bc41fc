//! Retired words: names that were replaced by the terms of the field, and must not come back.
//!
//! Only distinctive words are refused, and only in names that production code defines. Ordinary English (`still`, `memory`,
//! `words`) is left to review.

use super::{root, rust_files};
use std::path::Path;

/// Words that no name may hold, and names of several words.
const RETIRED: [&str; 18] = [
    "told",
    "hearer",
    "hearing",
    "beneath",
    "belief",
    "patience",
    "put_back",
    "mend_what_was_left",
    "finish_what_was_begun",
    "nothing_in_the_way",
    "surroundings",
    "furnish",
    "let_go",
    "take_away",
    "pile",
    "deed",
    "spared",
    "chance",
];

/// Types that were renamed, as whole names: their words are ordinary ones.
const RETIRED_TYPES: [&str; 1] = ["Exclusive"];

/// What comes before a name that is being defined.
const DEFINES: [&str; 9] = [
    "fn", "struct", "enum", "trait", "mod", "let", "const", "static", "type",
];

/// `PutBack` and `PUT_BACK` as `put_back`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && after_small {
            snake.push('_');
        }
        after_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn is_retired(name: &str) -> bool {
    let snake = snake(name);
    RETIRED_TYPES.contains(&name)
        || RETIRED.contains(&snake.as_str())
        || snake.split('_').any(|word| RETIRED.contains(&word))
}

/// The names that a line of code defines.
fn defined(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let words: Vec<&str> = code.split_whitespace().collect();
    let mut names = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let keyword = word.trim_start_matches(|c: char| !is_of_name(c));
        if !DEFINES.contains(&keyword) {
            continue;
        }
        let next = words.get(at + 1..).unwrap_or_default();
        let next = next.iter().find(|word| **word != "mut");
        let name = next.map(|word| word.split(|c: char| !is_of_name(c)).next());
        names.extend(name.flatten().filter(|name| !name.is_empty()));
    }
    names
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Every name of production code below `directory` that holds a retired word, with its place.
fn retired_names(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for file in rust_files(directory) {
        let is_test = |part| part == "tests" || part == "tests.rs";
        if file.iter().any(is_test) {
            continue;
        }
        let source = std::fs::read_to_string(&file).unwrap();
        let production = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (number, line) in production.lines().enumerate() {
            for name in defined(line).into_iter().filter(|name| is_retired(name)) {
                found.push(format!("{}:{}: {name}", file.display(), number + 1));
            }
        }
    }
    found
}

#[test]
fn no_name_holds_a_retired_word() {
    for room in ["model", "store", "disk", "quiesce", "engine", "stasis"] {
        let found = retired_names(&root().join("crates").join(room).join("src"));
        assert!(found.is_empty(), "names with retired words: {found:#?}");
    }
}

#[test]
fn a_retired_word_is_found_in_each_kind_of_name() {
    for line in [
        "pub(super) struct Patience {",
        "const READ_PATIENCE: u8 = 1;",
        "        let mut told = found;",
        "    async fn what_was_told(&self) {",
        "fn put_back<T>(all: T)",
        "pub struct Exclusive;",
        "(let Some(x) = y) let deed = 1",
    ] {
        assert!(defined(line).iter().any(|name| is_retired(name)), "{line}");
    }
    for line in [
        "let exclusive = lock();",
        "fn compile() {}",
        "// let told = 1;",
        "told.push(1);",
        "struct NonBlockingLockExclusive;",
        "let indeed = stockpiled;",
        "fn let_going() {}",
    ] {
        assert!(!defined(line).iter().any(|name| is_retired(name)), "{line}");
    }
}
