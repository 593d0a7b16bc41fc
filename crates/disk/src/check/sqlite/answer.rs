//! What the process that checks a database says: one word and its value a line, the claim last.
//!
//! Without the last line the answer is not whole, and means nothing.

use crate::check::{Messages, Recovered};
use std::fmt::{self, Write};

/// What the process claims of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SqliteClaim {
    Sound,
    Damaged,
    NotADatabase,
    Limit,
    Unable,
}

const CLAIMS: [(SqliteClaim, &str); 5] = [
    (SqliteClaim::Sound, "sound"),
    (SqliteClaim::Damaged, "damaged"),
    (SqliteClaim::NotADatabase, "not_a_database"),
    (SqliteClaim::Limit, "limit"),
    (SqliteClaim::Unable, "unable"),
];

const RECOVERED: [(Recovered, &str); 3] = [
    (Recovered::Nothing, "nothing"),
    (Recovered::Journal, "journal"),
    (Recovered::Wal, "wal"),
];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SqliteAnswer {
    pub(super) claim: SqliteClaim,
    pub(super) pages: u64,
    pub(super) recovered: Recovered,
    pub(super) messages: Messages,
    pub(super) unchecked: Messages,
}

impl SqliteAnswer {
    pub(super) fn new(claim: SqliteClaim) -> Self {
        Self {
            claim,
            pages: 0,
            recovered: Recovered::Nothing,
            messages: Messages::default(),
            unchecked: Messages::default(),
        }
    }
}

impl fmt::Display for SqliteAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pages {}", self.pages)?;
        writeln!(f, "recovered {}", word(&RECOVERED, &self.recovered))?;
        for (name, messages) in [("message", &self.messages), ("unchecked", &self.unchecked)] {
            for message in messages.kept() {
                writeln!(f, "{name} {message}")?;
            }
            for _ in 0..messages.dropped().min(1000) {
                f.write_str(name)?;
                f.write_char('\n')?;
            }
        }
        writeln!(f, "claim {}", word(&CLAIMS, &self.claim))
    }
}

fn word<T: PartialEq>(words: &[(T, &'static str)], of: &T) -> &'static str {
    let found = words.iter().find(|(one, _)| one == of);
    found.map_or("nothing", |(_, word)| word)
}

fn meaning<T: Copy>(words: &[(T, &str)], text: &str) -> Option<T> {
    let found = words.iter().find(|(_, word)| *word == text);
    found.map(|(one, _)| *one)
}

/// Reads an answer; `None` when it is not whole. No more than `most` messages are kept.
pub(super) fn parse(said: &str, most: usize) -> Option<SqliteAnswer> {
    let mut answer = SqliteAnswer::new(SqliteClaim::Unable);
    for line in said.strip_suffix('\n')?.lines() {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "pages" => answer.pages = value.parse().ok()?,
            "recovered" => answer.recovered = meaning(&RECOVERED, value)?,
            "message" => answer.messages.push(most, value),
            "unchecked" => answer.unchecked.push(most, value),
            "claim" => {
                answer.claim = meaning(&CLAIMS, value)?;
                return Some(answer);
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_heard_as_it_was_said_or_not_at_all() {
        let mut answer = SqliteAnswer::new(SqliteClaim::Damaged);
        (answer.pages, answer.recovered) = (7, Recovered::Wal);
        for number in 0..5 {
            answer.messages.push(3, &format!("message {number}\nof it"));
        }
        answer.unchecked.push(3, "t");
        let said = answer.to_string();

        assert_eq!(parse(&said, 3), Some(answer));
        for length in 0..said.len() {
            assert_eq!(parse(&said[..length], 3), None, "{length}");
        }
    }
}
