//! Copies what lies under a prefix of a store, such as a lineage, into another store, as it lies there.
//!
//! 1. read the pointers of the source   2. copy contents, then manifests
//! 3. read the pointers again; if any moved, go back to 2   4. write the pointers   5. look that everything is there
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
use std::collections::{BTreeMap, BTreeSet, HashSet};
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
    /// Documents among those that were copied, each of which says what a snapshot is.
    pub manifests: u64,
    /// Such documents that were there already.
    pub manifests_there: u64,
}

/// What is copied, as it was at one moment.
#[derive(PartialEq)]
struct Source {
    pointers: BTreeMap<Key, Object>,
    /// The last parts of the keys of manifests.
    names: BTreeSet<String>,
}

/// Copies everything in `from` whose key begins so to `to`.
pub async fn copy(
    from: &Arc<dyn Bucket>,
    to: &Arc<dyn Bucket>,
    prefix: &Prefix,
) -> Result<Copied, Failure> {
    let mut copied = Copied::default();
    let mut source = source(&**from, prefix).await?;
    check(&**to, &source).await?;
    let mut is_first = true;
    for _ in 0..ROUNDS {
        let listed = from.list(prefix, None, usize::MAX).await?;
        let there = to.list(prefix, None, usize::MAX).await?;
        let there: HashSet<Listed> = there.into_iter().collect();
        for role in [Role::Content, Role::Manifest] {
            let wanted = listed.iter().filter(|row| layout::role(&row.key) == role);
            let (old, new): (Vec<Listed>, Vec<Listed>) =
                wanted.cloned().partition(|row| there.contains(row));
            let is_manifest = u64::from(role == Role::Manifest);
            if is_first {
                copied.objects_there += old.len() as u64;
                copied.manifests_there += is_manifest * old.len() as u64;
            }
            copied.manifests += is_manifest * new.len() as u64;
            copy_all(from, to, new, &mut copied).await?;
        }
        is_first = false;
        let now = self::source(&**from, prefix).await?;
        if now != source {
            source = now;
            check(&**to, &source).await?;
            continue;
        }
        for key in source.pointers.keys() {
            point(&**to, key, &source, &mut copied).await?;
        }
        // A sweep of the target knows what is needed only since the pointer is there.
        let now = to.list(prefix, None, usize::MAX).await?;
        let now: HashSet<&Key> = now.iter().map(|row| &row.key).collect();
        let is_lost = |row: &&Listed| {
            matches!(layout::role(&row.key), Role::Content | Role::Manifest)
                && !now.contains(&row.key)
        };
        if !listed.iter().any(|row| is_lost(&row)) {
            return Ok(copied);
        }
    }
    let said = "the source is written to faster than it can be copied";
    Err(Failure::of(ErrorKind::Retry, said).with_hint(HINT))
}

async fn source(bucket: &dyn Bucket, prefix: &Prefix) -> Result<Source, BucketError> {
    let (mut pointers, mut names) = (BTreeMap::new(), BTreeSet::new());
    let mut listed = objects(bucket, prefix);
    while let Some(row) = listed.try_next().await? {
        match layout::role(&row.key) {
            Role::Manifest => {
                names.insert(row.key.file_name().to_owned());
            }
            Role::Pointer => {
                let found = bucket.get(&row.key, DOCUMENT_MAX).await?;
                pointers.extend(found.map(|object| (row.key, object)));
            }
            Role::Content | Role::Private => {}
        }
    }
    Ok(Source { pointers, names })
}

/// Refuses a target whose pointers are not earlier versions of these.
async fn check(to: &dyn Bucket, source: &Source) -> Result<(), Failure> {
    for (key, object) in &source.pointers {
        if let Some(there) = to.get(key, DOCUMENT_MAX).await?
            && !source.follows(&there.body, &object.body)
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

impl Source {
    /// Whether a document of the source is the other one, or was that once.
    fn follows(&self, there: &Bytes, here: &Bytes) -> bool {
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
        before < now && (remembers(&here, &there["op_id"]) || self.outgrew(&there, &here))
    }

    /// Whether one pointer goes on from another that it does not remember any more: what the other leads to is among the
    /// snapshots of the source, its fence is not ahead, and nothing is pinned or deleted there that is not here.
    fn outgrew(&self, there: &Value, here: &Value) -> bool {
        let epoch = |value: &Value| value["fence"]["epoch"].as_u64();
        let is_known = there["active_sha256"].as_str().is_some_and(|active| {
            let stem = format!("profile-{}", active.get(..12).unwrap_or(active));
            let mut names = self.names.iter();
            active.is_empty() || names.any(|name| name.starts_with(&stem))
        });
        let has_all = |field: &str| {
            let none = Vec::new();
            let (wanted, has) = (there[field].as_array(), here[field].as_array());
            let (wanted, has) = (wanted.unwrap_or(&none), has.unwrap_or(&none));
            wanted.iter().all(|one| has.contains(one))
        };
        is_known && epoch(there) <= epoch(here) && has_all("pins") && has_all("tombstones")
    }
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
    source: &Source,
    copied: &mut Copied,
) -> Result<(), Failure> {
    let object = &source.pointers[key];
    let there = to.get(key, DOCUMENT_MAX).await?;
    let swap = match &there {
        Some(there) if there.body == object.body => {
            copied.objects_there += 1;
            return Ok(());
        }
        Some(there) if source.follows(&there.body, &object.body) => {
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
