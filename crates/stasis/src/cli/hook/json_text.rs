//! A JSON text that remembers where everything in it stands, so that a change touches only what it names.

use std::ops::Range;

/// How deep a document may be nested.
const DEEPEST: usize = 100;

/// What a program reads as JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    /// As the standard has it.
    Strict,
    /// With `//` and `/* */` comments.
    Comments,
}

/// Why a text is not JSON, or not what we can add to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Counted from 1.
    pub(super) line: usize,
    /// What is wrong there.
    pub(super) what: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Fault {}

impl Fault {
    pub(super) fn at(text: &str, offset: usize, what: impl Into<String>) -> Self {
        let before = text.as_bytes().iter().take(offset);
        Self {
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
            what: what.into(),
        }
    }
}

/// A value and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    /// From its first byte to behind its last one.
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Text(String),
    /// A number, `true`, `false` or `null`.
    Plain,
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    /// From the key's quote to behind the value.
    pub(super) span: Range<usize>,
    pub(super) key: String,
    pub(super) value: Node,
}

impl Node {
    /// Reads a whole text.
    pub(super) fn read(text: &str, dialect: Dialect) -> Result<Self, Fault> {
        let mut reader = Reader {
            text,
            dialect,
            at: 0,
        };
        // Some editors begin a file with this mark.
        if text.starts_with('\u{feff}') {
            reader.at = '\u{feff}'.len_utf8();
        }
        let root = reader.value(0)?;
        reader.blank()?;
        match reader.peek() {
            None => Ok(root),
            Some(_) => Err(reader.fault("there is more after the end of the document")),
        }
    }

    /// The value under `key`; of several, the last one counts, as in the programs that read these files.
    pub(super) fn get(&self, key: &str) -> Option<&Member> {
        match &self.value {
            Value::Object(members) => members.iter().rev().find(|member| member.key == key),
            _ => None,
        }
    }

    /// The elements of an array; of anything else, none.
    pub(super) fn elements(&self) -> &[Node] {
        match &self.value {
            Value::Array(elements) => elements,
            _ => &[],
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Where the elements or members of a container stand.
    pub(super) fn inside(&self) -> Vec<Range<usize>> {
        match &self.value {
            Value::Object(members) => members.iter().map(|member| member.span.clone()).collect(),
            Value::Array(elements) => elements.iter().map(|node| node.span.clone()).collect(),
            Value::Text(_) | Value::Plain => Vec::new(),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    dialect: Dialect,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::at(self.text, self.at, what)
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Passes over white space and, where they are allowed, comments.
    fn blank(&mut self) -> Result<(), Fault> {
        loop {
            while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            if self.peek() != Some(b'/') {
                return Ok(());
            }
            let rest = self.rest();
            let length = if self.dialect == Dialect::Strict {
                return Err(self.fault("a comment, which JSON does not have"));
            } else if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(end) = rest.strip_prefix("/*").and_then(|rest| rest.find("*/")) {
                end + "/**/".len()
            } else {
                return Err(self.fault("a `/` that begins no comment, or one that does not end"));
            };
            self.at += length;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        self.blank()?;
        if self.peek() != Some(byte) {
            return Err(self.fault(format!("`{}` is missing", char::from(byte))));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Node, Fault> {
        self.blank()?;
        if depth > DEEPEST {
            return Err(self.fault("it is nested too deeply"));
        }
        let start = self.at;
        let value = match self.peek() {
            None => return Err(self.fault("it ends where a value should be")),
            Some(b'{') => Value::Object(self.members(depth)?),
            Some(b'[') => Value::Array(self.array(depth)?),
            Some(b'"') => Value::Text(self.string()?),
            Some(_) => {
                self.plain()?;
                Value::Plain
            }
        };
        let span = start..self.at;
        Ok(Node { span, value })
    }

    fn members(&mut self, depth: usize) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::new();
        self.expect(b'{')?;
        self.blank()?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(members);
        }
        loop {
            self.blank()?;
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.fault("a key in quotes is missing"));
            }
            let key = self.string()?;
            self.expect(b':')?;
            let value = self.value(depth + 1)?;
            let span = start..self.at;
            members.push(Member { span, key, value });
            if self.ends(b'}')? {
                return Ok(members);
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Node>, Fault> {
        let mut elements = Vec::new();
        self.expect(b'[')?;
        self.blank()?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(elements);
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if self.ends(b']')? {
                return Ok(elements);
            }
        }
    }

    /// Whether a container ends here, rather than goes on after a comma.
    fn ends(&mut self, close: u8) -> Result<bool, Fault> {
        self.blank()?;
        let ends = match self.peek() {
            Some(byte) if byte == close => true,
            Some(b',') => false,
            _ => {
                let close = char::from(close);
                return Err(self.fault(format!("`,` or `{close}` is missing")));
            }
        };
        self.at += 1;
        Ok(ends)
    }

    fn string(&mut self) -> Result<String, Fault> {
        let mut escaped = false;
        let inside = self.rest().bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let Some(inside) = inside else {
            return Err(self.fault("a text that does not end"));
        };
        let end = self.at + 1 + inside + 1;
        let decoded = serde_json::from_str(self.text.get(self.at..end).unwrap_or_default());
        let decoded = decoded.map_err(|_| self.fault("a text that is not one"))?;
        self.at = end;
        Ok(decoded)
    }

    fn plain(&mut self) -> Result<(), Fault> {
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
        let rest = self.rest();
        let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let word = rest.get(..length).unwrap_or_default();
        if serde_json::from_str::<serde_json::Value>(word).is_err() {
            return Err(self.fault("something that is not a value"));
        }
        self.at += length;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
