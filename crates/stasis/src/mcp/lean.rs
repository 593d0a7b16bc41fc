//! Answers without what a reader knows already or did not ask for: half of the agents hand a model the structured answer, and
//! every byte of it costs.
//!
//! What goes: nulls; what a path's entry repeats of the checkpoint, which the answer names once; what says the same as another
//! field beside it; what is as always (`kind` of a file, `complete`); digests, unless they were asked for.

use serde_json::{Map, Value};

/// What a path's entry repeats of the answer it is in.
const OF_CHECKPOINT: [&str; 4] = [
    "checkpoint",
    "checkpoint_age",
    "checkpoint_origin",
    "checkpoint_name",
];
/// What other fields of a checkpoint say: `cp-N` has the slot, `age` the time.
const OF_ROW: [&str; 4] = ["slot", "epoch_millis", "timestamp", "form"];
const DIGESTS: [&str; 2] = ["hash", "digest"];

/// Makes an answer lean; `digests` stay if they were asked for.
pub(super) fn lean(answer: &mut Value, digests: bool) {
    match answer {
        Value::Array(items) => items.iter_mut().for_each(|item| lean(item, digests)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                // The digest of a plan is what its reader needs to confirm it.
                lean(field, digests || name == "plan");
            }
            lean_fields(fields, digests);
        }
        _ => {}
    }
}

fn lean_fields(fields: &mut Map<String, Value>, digests: bool) {
    let has = |name: &str| fields.contains_key(name);
    let (is_change, is_row, is_version) = (
        has("path") && has("op"),
        has("checkpoint") && has("files_count") && has("age"),
        has("checkpoint") && has("status") && has("age"),
    );
    let is_side = has("kind") && has("mode");
    fields.retain(|name, value| {
        let name = name.as_str();
        let goes = value.is_null()
            || (is_change && (OF_CHECKPOINT.contains(&name) || name == "is_symlink"))
            || (is_change && name == "kind" && value == "file")
            || ((is_row || is_version) && OF_ROW.contains(&name))
            || (is_row && name == "complete" && *value == Value::Bool(true))
            || (is_row && name == "events" && is_all_zero(value))
            || (!digests && (is_row || is_side) && DIGESTS.contains(&name));
        !goes
    });
}

fn is_all_zero(counts: &Value) -> bool {
    let counts = counts.as_object();
    counts.is_some_and(|counts| counts.values().all(|count| count.as_u64() == Some(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn leaned(mut value: Value) -> Value {
        lean(&mut value, false);
        value
    }

    #[test]
    fn a_path_says_only_what_is_its_own() {
        let change = |kind: &str| {
            json!({ "path": "a", "op": "modified", "kind": kind, "size": null, "is_symlink": false, "checkpoint": "cp-10",
                    "checkpoint_age": "3 s ago", "checkpoint_origin": "manual", "checkpoint_name": "x" })
        };
        let answer = json!({ "compared_with": ["cp-10"], "changes": [change("file"), change("symlink")], "next_index": null });

        assert_eq!(
            leaned(answer),
            json!({ "compared_with": ["cp-10"], "changes": [
                { "path": "a", "op": "modified" }, { "path": "a", "op": "modified", "kind": "symlink" }
            ] })
        );
    }

    #[test]
    fn digests_come_only_when_they_were_asked_for_and_with_plans() {
        let row = json!({ "checkpoint": "cp-1", "slot": 1, "files_count": 2, "age": "1 s ago", "hash": "ab", "complete": true,
                          "events": { "created": 0 } });
        let plain = json!({ "checkpoint": "cp-1", "files_count": 2, "age": "1 s ago" });
        assert_eq!(leaned(row.clone()), plain);
        let mut asked = row;
        lean(&mut asked, true);
        assert_eq!(asked["hash"], "ab");
        let planned = json!({ "plan": { "digest": "cd", "sample": [] } });
        assert_eq!(leaned(planned.clone()), planned);
        let made = json!({ "created": true, "checkpoint": "cp-1", "hash": "ab" });
        assert_eq!(leaned(made.clone()), made);
    }
}
