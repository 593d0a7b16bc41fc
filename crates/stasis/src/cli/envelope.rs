//! The envelope of everything that `--json` prints: which command answers, about what, and then the fields of its result (ADR 81).

use clap::ArgMatches;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use stasis_engine::subjects::PROFILE_PREFIX;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What every schema begins with.
const PROGRAM: &str = "stasis";
/// Grows when a field goes, or means something else; new fields leave it as it is.
const VERSION: u32 = 1;
/// The command whose schema errors have.
pub(crate) const ERROR: &str = "error";

/// What the command is about, as soon as that is known.
static SUBJECT: Mutex<Option<String>> = Mutex::new(None);
/// The snapshot that it is about, where the result does not name it.
static SNAPSHOT: Mutex<Option<String>> = Mutex::new(None);

/// From now on what is printed is about this subject, named as a user types it.
pub(crate) fn about(subject: impl Into<String>) {
    *held(&SUBJECT) = Some(subject.into());
}

/// From now on what is printed is about this snapshot, unless the result names one.
pub(crate) fn about_snapshot(snapshot: impl Into<String>) {
    *held(&SNAPSHOT) = Some(snapshot.into());
}

fn held(about: &'static Mutex<Option<String>>) -> MutexGuard<'static, Option<String>> {
    about.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A profile that is named by an argument is what the command is about, whatever becomes of it. Other subjects are found first.
pub(super) fn about_typed(words: &[&str], arguments: &ArgMatches) {
    if !matches!(
        words.first(),
        Some(&("lease" | "profile" | "profile-snapshots"))
    ) {
        return;
    }
    let typed = arguments.try_get_raw("subject").ok().flatten();
    if let Some(typed) = typed.and_then(|mut all| all.next()?.to_str()) {
        let name = typed.strip_prefix(PROFILE_PREFIX).unwrap_or(typed);
        about(format!("{PROFILE_PREFIX}{name}"));
    }
}

/// The name of a command's schema: `stasis.workspace.list/1`.
pub(crate) fn schema_name(command: &str) -> String {
    format!("{PROGRAM}.{command}/{VERSION}")
}

/// What stands before the fields of every result.
#[derive(Serialize)]
struct Envelope<T> {
    /// Which command answers, and the version of what it answers.
    schema: String,
    /// What it is about, as it is typed: `dir:notes`, `profile:acme/alice@131`, or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The snapshot or checkpoint that it is about, as it is typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    #[serde(flatten)]
    result: T,
}

/// A result that is a list.
#[derive(Serialize)]
struct Items<T> {
    items: T,
}

/// Fields of a result that the envelope has too, or that name a snapshot.
#[derive(Default, Deserialize)]
struct OwnFields {
    #[serde(default)]
    subject: Presence,
    #[serde(default)]
    snapshot: Presence,
    snapshot_id: Option<String>,
    checkpoint: Option<String>,
    sha256: Option<String>,
}

/// Whether a field is there, be it null.
#[derive(Clone, Copy, Default)]
struct Presence(bool);

impl<'de> Deserialize<'de> for Presence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(true))
    }
}

impl OwnFields {
    /// The envelope of a result that has these.
    fn envelope<T>(self, command: &str, result: T) -> Envelope<T> {
        let snapshot = self.snapshot_id.or(self.checkpoint).or(self.sha256);
        let snapshot = snapshot.or_else(|| held(&SNAPSHOT).clone());
        Envelope {
            schema: schema_name(command),
            // A field that stands twice is no JSON that everybody reads.
            subject: held(&SUBJECT).clone().filter(|_| !self.subject.0),
            snapshot: snapshot.filter(|_| !self.snapshot.0),
            result,
        }
    }
}

/// A result in its envelope, over several lines.
pub(crate) fn document<T: Serialize + ?Sized>(
    command: &str,
    result: &T,
) -> serde_json::Result<String> {
    enveloped(command, result, Layout::Lines)
}

/// The same on one line, where several stand below each other.
pub(super) fn line<T: Serialize + ?Sized>(command: &str, result: &T) -> serde_json::Result<String> {
    enveloped(command, result, Layout::OneLine)
}

/// What stands before a list that is written item by item, up to where its first item comes.
pub(super) fn list_begin(command: &str) -> serde_json::Result<String> {
    let empty: [(); 0] = [];
    let whole = enveloped(command, &empty, Layout::OneLine)?;
    Ok(whole.trim_end_matches("]}").to_owned())
}

#[derive(Clone, Copy)]
enum Layout {
    Lines,
    OneLine,
}

impl Layout {
    fn text<T: Serialize>(self, value: &T) -> serde_json::Result<String> {
        match self {
            Self::Lines => serde_json::to_string_pretty(value),
            Self::OneLine => serde_json::to_string(value),
        }
    }
}

fn enveloped<T: Serialize + ?Sized>(
    command: &str,
    result: &T,
    layout: Layout,
) -> serde_json::Result<String> {
    // Written twice, so that the first time tells which fields it has: a list may be too long to hold as a tree of values.
    let bare = serde_json::to_string(result)?;
    if bare.starts_with('[') {
        let items = Items { items: result };
        return layout.text(&OwnFields::default().envelope(command, items));
    }
    let own: OwnFields = serde_json::from_str(&bare)?;
    drop(bare);
    layout.text(&own.envelope(command, result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_result_begins_with_its_schema_and_a_list_is_items() {
        let object = document("save", &json!({ "snapshot_id": "a27b", "files": 1 })).unwrap();
        let list = document("ls", &["a", "b"]).unwrap();

        assert!(
            object.starts_with("{\n  \"schema\": \"stasis.save/1\","),
            "{object}"
        );
        assert_eq!(read(&object)["snapshot"], "a27b");
        assert_eq!(read(&list)["items"], json!(["a", "b"]));
        assert_eq!(read(&list)["schema"], "stasis.ls/1");
    }

    #[test]
    fn no_field_stands_twice() {
        let own = json!({ "snapshot": null, "subject": "dir:notes", "snapshot_id": "a27b" });
        let text = line("show", &own).unwrap();

        assert_eq!(text.matches("\"snapshot\":").count(), 1, "{text}");
        assert_eq!(text.matches("\"subject\":").count(), 1, "{text}");
    }

    #[test]
    fn a_list_that_is_written_item_by_item_is_the_same_document() {
        let begin = list_begin("archive.list").unwrap();

        let whole = read(&format!("{begin}\n1,\n2\n]}}"));

        assert_eq!(
            whole,
            json!({ "schema": "stasis.archive.list/1", "items": [1, 2] })
        );
    }
}
