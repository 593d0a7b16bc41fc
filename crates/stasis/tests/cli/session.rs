//! A home of its own for each test, and the program run in it.

use serde_json::Value;
use stasis_testkit::json_schema;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use tempfile::TempDir;

/// The program under test.
pub(crate) const STASIS: &str = env!("CARGO_BIN_EXE_stasis");

/// What commands print with `--json`, as it is published.
pub(crate) const SCHEMAS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/schema.json"
);

/// A home directory with nothing in it.
pub(crate) struct Session {
    home: TempDir,
    store: Option<String>,
    key_file: Option<PathBuf>,
}

/// What a command said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            store: None,
            key_file: None,
        }
    }

    /// The same, somewhere in a directory.
    pub(crate) fn beneath(directory: &Path) -> Self {
        Self {
            home: tempfile::tempdir_in(directory).unwrap(),
            store: None,
            key_file: None,
        }
    }

    /// The same, against another store than the default directory.
    pub(crate) fn on(store: &str) -> Self {
        Self {
            store: Some(store.to_owned()),
            ..Self::new()
        }
    }

    /// The same in a directory that is there.
    pub(crate) fn within(directory: &Path) -> Self {
        Self {
            home: tempfile::tempdir_in(directory).unwrap(),
            store: None,
            key_file: None,
        }
    }

    /// The same with a tenant's key.
    pub(crate) fn with_key(mut self, key_file: &Path) -> Self {
        self.key_file = Some(key_file.to_owned());
        self
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where the default store keeps `key`.
    pub(crate) fn object(&self, key: &str) -> PathBuf {
        self.home().join("data/stasis/store").join(key)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(STASIS);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for (name, place) in [
            ("DATA", "data"),
            ("CONFIG", "config"),
            ("CACHE", "cache"),
            ("STATE", "state"),
        ] {
            command.env(format!("XDG_{name}_HOME"), self.home().join(place));
        }
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        if let Some(store) = &self.store {
            command.env("STASIS_STORE", store);
        }
        if let Some(key_file) = &self.key_file {
            command.env("STASIS_KEY_FILE", key_file);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    /// Runs a command that must end with `code`, and returns what it wrote as data.
    pub(crate) fn data(&self, code: i32, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, code, "{arguments:?}\n{}\n{}", said.out, said.err);
        said.out.trim_end().to_owned()
    }

    /// The same as JSON.
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> serde_json::Value {
        let mut arguments = arguments.to_vec();
        arguments.insert(0, "--json");
        let document = serde_json::from_str(&self.data(code, &arguments)).unwrap();
        assert_published(&document);
        document
    }
}

/// Panics where a document that was printed is not what the published schemas say.
pub(crate) fn assert_published(document: &Value) {
    static PUBLISHED: LazyLock<Value> = LazyLock::new(|| {
        let text = std::fs::read_to_string(SCHEMAS).unwrap();
        serde_json::from_str(&text).unwrap()
    });
    let name = document["schema"].as_str();
    let name = name.unwrap_or_else(|| panic!("no schema in {document}"));
    let schema = PUBLISHED["$defs"].get(name);
    let schema = schema.unwrap_or_else(|| panic!("`{name}` is not published"));
    let faults = json_schema::misfits(&PUBLISHED, schema, document);
    assert!(faults.is_empty(), "{}\n{document:#}", faults.join("\n"));
}

pub(crate) fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or(-1);
    Said {
        code,
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// The commands that a text gives to type, in backticks or after `with: `, as words without `stasis`. A `DIR` that the user has to
/// choose is `dir`.
pub(crate) fn commands_in(text: &str, dir: &str) -> Vec<Vec<String>> {
    let quoted = text.split('`').skip(1).step_by(2);
    let after = text
        .lines()
        .filter_map(|line| Some(line.split_once("with: ")?.1));
    let all = quoted
        .chain(after)
        .filter_map(|command| command.strip_prefix("stasis "));
    let words = |command: &str| {
        let words = command.split_whitespace();
        let words = words.map(|word| if word == "DIR" { dir } else { word }.to_owned());
        words.collect()
    };
    all.map(words).collect()
}

/// Types the command that a text gives and that has all of these words.
pub(crate) fn type_command(session: &Session, text: &str, has: &[&str], dir: &str) -> Said {
    let commands = commands_in(text, dir);
    let is_meant =
        |words: &&Vec<String>| has.iter().all(|word| words.iter().any(|one| one == word));
    let command = commands.iter().find(is_meant);
    let command = command.unwrap_or_else(|| panic!("no command with {has:?} in {text}"));
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let output = session
        .command(&words)
        .current_dir(session.home())
        .output()
        .unwrap();
    said(output)
}

/// A whole conversation, with everything replaced that differs from run to run.
pub(crate) fn transcript(session: &Session, commands: &[&[&str]]) -> String {
    let said = |arguments: &&[&str]| {
        let said = session.run(arguments);
        format!(
            "$ stasis {}\n{}{}[{}]\n",
            arguments.join(" "),
            said.out,
            said.err,
            said.code
        )
    };
    commands.iter().map(said).collect::<Vec<_>>().join("\n")
}

/// What differs from run to run.
pub(crate) const FILTERS: [(&str, &str); 4] = [
    (
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[uuid]",
    ),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[time]"),
    (r"in \d+ s", "in [n] s"),
    (r"/tmp/[^\s`]*?/(data|state|cache|config)", "[home]/$1"),
];

/// The real S3 server that `scripts/with-s3` starts; `None` means that this test is skipped.
pub(crate) fn real_store(variable: &str) -> Option<String> {
    let store = std::env::var(variable).ok();
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(
        store.is_some() || !needed,
        "{variable} is not set: run scripts/test"
    );
    if store.is_none() {
        println!("skipped: {variable} is not set; scripts/with-s3 sets it");
    }
    store
}

/// What `stasis log` lists, the oldest first, without the restore that can be undone.
pub(crate) fn oldest_first(log: &serde_json::Value) -> serde_json::Value {
    let mut items = log["items"].as_array().unwrap().clone();
    items.retain(|one| one["kind"] != "restore");
    items.reverse();
    items.into()
}
