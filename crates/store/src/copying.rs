//! Copies a store into another one.
//!
//! 1. read the pointers of the source   2. copy contents, then manifests
//! 3. read the pointers again; if any moved, go back to 2   4. write the pointers
//!
//! *Always true:* a pointer in the target leads only to what is in the target. A pointer of the target is replaced only by a
//! later version of itself; anything else is refused before it is touched. A copy that stops can be run again: what is there
//! is not copied twice. Leases and what a probe found are not copied: they belong to a store, not to what is in it.

use crate::bucket::{Bucket, BucketError, Listed, Object, Swap, objects};
use crate::layout::{self, Key, Prefix, Role};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::Value;
use stasis_model::failure::{ErrorKind, Failure};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// How many objects are on their way at once.
const IN_FLIGHT: usize = 8;
/// Larger objects go piece by piece.
const PIECE: u64 = 8 << 20;
/// No document is larger.
const DOCUMENT_MAX: u64 = 16 << 20;
/// How often the pointers may move while we copy.
const ROUNDS: usize = 5;

/// What to do when the stores, though both answer, do not let one be copied.
const HINT: &str =
    "copy into an empty store, or into an earlier copy of the same one; run it again to go on";

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Objects that were copied.
    pub objects: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Objects that were there already.
    pub objects_there: u64,
}

/// The pointers of a store.
type Pointers = BTreeMap<Key, Object>;

/// Copies everything in `from` to `to`.
pub async fn copy(from: &Arc<dyn Bucket>, to: &Arc<dyn Bucket>) -> Result<Copied, Failure> {
    let mut copied = Copied::default();
    let mut pointers = pointers(&**from).await?;
    check(&**to, &pointers).await?;
    for _ in 0..ROUNDS {
        let listed = from.list(&Prefix::everything(), None, usize::MAX).await?;
        let there = to.list(&Prefix::everything(), None, usize::MAX).await?;
        let there: HashSet<Listed> = there.into_iter().collect();
        for role in [Role::Content, Role::Manifest] {
            let wanted = listed.iter().filter(|row| layout::role(&row.key) == role);
            let (old, new): (Vec<Listed>, Vec<Listed>) =
                wanted.cloned().partition(|row| there.contains(row));
            copied.objects_there += old.len() as u64;
            copy_all(from, to, new, &mut copied).await?;
        }
        let now = self::pointers(&**from).await?;
        if now == pointers {
            for (key, object) in &pointers {
                point(&**to, key, object, &mut copied).await?;
            }
            return Ok(copied);
        }
        pointers = now;
        check(&**to, &pointers).await?;
    }
    let said = "the source is written to faster than it can be copied";
    Err(Failure::of(ErrorKind::Retry, said).with_hint(HINT))
}

async fn pointers(bucket: &dyn Bucket) -> Result<Pointers, BucketError> {
    let mut pointers = Pointers::new();
    let prefix = Prefix::everything();
    let mut listed = objects(bucket, &prefix);
    while let Some(row) = listed.try_next().await? {
        if layout::role(&row.key) == Role::Pointer
            && let Some(object) = bucket.get(&row.key, DOCUMENT_MAX).await?
        {
            pointers.insert(row.key, object);
        }
    }
    Ok(pointers)
}

/// Refuses a target whose pointers are not earlier versions of these.
async fn check(to: &dyn Bucket, pointers: &Pointers) -> Result<(), Failure> {
    for (key, object) in pointers {
        if let Some(there) = to.get(key, DOCUMENT_MAX).await?
            && !is_earlier(&there.body, &object.body)
        {
            return Err(diverged(key));
        }
    }
    Ok(())
}

/// The target holds something else under that name, or something newer.
fn diverged(key: &Key) -> Failure {
    let said = format!("`{key}` in the target is not an earlier version of the one to be copied");
    Failure::of(ErrorKind::Diverged, said).with_hint(HINT)
}

/// Whether a document is the other one, or a version of it that was written before.
fn is_earlier(there: &Bytes, here: &Bytes) -> bool {
    if there == here {
        return true;
    }
    let parse = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).ok();
    let (Some(there), Some(here)) = (parse(there), parse(here)) else {
        return false;
    };
    let number = |value: &Value, field: &str| value[field].as_u64();
    let (Some(before), Some(now)) = (number(&there, "generation"), number(&here, "generation"))
    else {
        return false;
    };
    before < now
        && (remembers(&here, &there["op_id"])
            || holds_all(&there, &here)
            || is_swept(&there, &here)
            || is_rewrapped(&there, &here))
}

/// Whether a document says that it was once written by this operation.
fn remembers(value: &Value, op_id: &Value) -> bool {
    let recent = value["recent"].as_array();
    recent.is_some_and(|recent| {
        recent
            .iter()
            .any(|one| one == op_id || one["op_id"] == *op_id)
    })
}

/// Whether every snapshot that one index leads to is known to the other: still there, or forgotten there.
fn holds_all(there: &Value, here: &Value) -> bool {
    let (Some(before), Some(kept)) = (there["snapshots"].as_array(), here["snapshots"].as_array())
    else {
        return false;
    };
    let is_kept = |id: &Value| kept.iter().any(|one| one["id"] == *id);
    let is_forgotten = |id: &Value| {
        id.as_str()
            .is_some_and(|id| !here["tombstones"][id].is_null())
    };
    before
        .iter()
        .all(|one| is_kept(&one["id"]) || is_forgotten(&one["id"]))
}

/// Whether one `gc.json` is another's past: no round is under way, and no later one was finished.
fn is_swept(there: &Value, here: &Value) -> bool {
    let is_gc = there["epoch"].is_u64() && here["epoch"].is_u64();
    let is_idle = is_gc && there["condemned_sha256"].is_null();
    is_idle && there["epoch"].as_u64() <= here["epoch"].as_u64()
}

/// Whether one `key.json` is another's past: the same data key, wrapped before.
fn is_rewrapped(there: &Value, here: &Value) -> bool {
    let is_key = there["wrapped"].is_string() && here["wrapped"].is_string();
    let same = |field: &str| there[field] == here[field];
    is_key && same("created_at_ms") && same("lineage") && same("pool")
}

async fn copy_all(
    from: &Arc<dyn Bucket>,
    to: &Arc<dyn Bucket>,
    rows: Vec<Listed>,
    copied: &mut Copied,
) -> Result<(), Failure> {
    let one = |row: Listed| {
        let (from, to) = (from.clone(), to.clone());
        async move { copy_one(from, to, row).await }
    };
    let mut copying = stream::iter(rows).map(one).buffer_unordered(IN_FLIGHT);
    while let Some(bytes) = copying.try_next().await? {
        copied.objects += 1;
        copied.bytes += bytes;
    }
    Ok(())
}

/// Copies an object that is written once.
async fn copy_one(
    from: Arc<dyn Bucket>,
    to: Arc<dyn Bucket>,
    row: Listed,
) -> Result<u64, BucketError> {
    if row.size <= PIECE {
        // Removed since it was listed: whatever led to it does so no more.
        let Some(bytes) = from.get_range(&row.key, 0..PIECE + 1).await? else {
            return Ok(0);
        };
        let length = bytes.len() as u64;
        to.put(&row.key, bytes).await?;
        return Ok(length);
    }
    let pieces = (0..row.size.div_ceil(PIECE)).map(|number| number * PIECE);
    let key = row.key.clone();
    let pieces = stream::iter(pieces).then(move |start| {
        let (from, key, end) = (from.clone(), key.clone(), (start + PIECE).min(row.size));
        async move {
            let piece = from
                .get_range(&key, start..end)
                .await
                .map_err(std::io::Error::other)?;
            piece.ok_or_else(|| std::io::Error::other("the object is gone"))
        }
    });
    to.put_stream(&row.key, pieces.boxed()).await
}

/// Writes a pointer, if the target has none or an earlier version.
async fn point(
    to: &dyn Bucket,
    key: &Key,
    object: &Object,
    copied: &mut Copied,
) -> Result<(), Failure> {
    let there = to.get(key, DOCUMENT_MAX).await?;
    let swap = match &there {
        Some(there) if there.body == object.body => {
            copied.objects_there += 1;
            return Ok(());
        }
        Some(there) if is_earlier(&there.body, &object.body) => {
            to.swap(key, &there.version, object.body.clone()).await?
        }
        Some(_) => return Err(diverged(key)),
        None => to.create(key, object.body.clone()).await?,
    };
    if !matches!(swap, Swap::Won(_)) {
        let now = to.get(key, DOCUMENT_MAX).await?;
        if now.is_none_or(|now| now.body != object.body) {
            let said = format!("`{key}` in the target was changed by somebody else meanwhile");
            return Err(Failure::of(ErrorKind::Retry, said).with_hint(HINT));
        }
    }
    copied.objects += 1;
    copied.bytes += object.body.len() as u64;
    Ok(())
}
