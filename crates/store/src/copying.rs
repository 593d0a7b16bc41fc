//! Copies a lineage of a profile into another store, as it lies there.
//!
//! 1. read the pointer of the source   2. copy archives, then manifests
//! 3. read the pointer again; if it moved, go back to 2   4. write the key, then the pointer   5. look that everything is there
//!
//! *Always true:* a pointer in the target leads only to what is in the target, and an archive there is what its name says. A pointer of
//! the target is replaced only by a later version of itself; anything else is refused before it is touched. A copy that
//! stops can be run again: what is there is not copied twice. Leases are not copied: they belong to a store, not to what is in it.

use crate::bucket::{Bucket, BucketError, BucketErrorKind, ByteStream, Listed, Swap};
use crate::documents::lineages::{ReadError, read};
use crate::layout::{self, Key, Prefix, Role};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use stasis_model::digest::{ArchiveDigest, ArchiveHasher};
use stasis_model::failure::{ErrorKind, Failure, Kinded};
use stasis_model::format::document::{self, Document, Version, Versioned};
use stasis_model::format::key::KeyDocument;
use stasis_model::format::pointer::{Pointer, PointerMark};
use stasis_model::id::Lineage;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many objects are on their way at once.
const IN_FLIGHT: usize = 8;
/// Larger objects go piece by piece.
const PIECE: u64 = 8 << 20;
/// How often the pointer may move while we copy.
const ROUNDS: usize = 5;

/// What to do when the stores, though both answer, do not let one be copied.
const HINT: &str =
    "copy into a store that has nothing of it, or an earlier copy; run it again to go on";
/// What to do when there is nothing.
const NOTHING: &str = "`stasis list` shows every subject of the store";

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Objects that were copied.
    pub objects: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Objects that were there already.
    pub objects_there: u64,
    /// Manifests among those that were copied, one for each snapshot.
    pub manifests: u64,
    /// Manifests that were there already.
    pub manifests_there: u64,
}

/// A lineage in a store, as it was at one moment.
struct Lying {
    /// Archives, manifests, and whatever else is written once.
    rows: Vec<Listed>,
    latest: Option<Versioned<Pointer>>,
    key: Option<Versioned<KeyDocument>>,
    /// Whether anybody ever held a lease there, or rolled back.
    is_leased: bool,
}

impl Lying {
    async fn look(bucket: &dyn Bucket, lineage: &Lineage) -> Result<Self, Failure> {
        let latest = understood(read(bucket, &layout::pointer(lineage)).await)?;
        let key = understood(read(bucket, &layout::data_key(&lineage.clone().into())).await)?;
        let prefix = Prefix::lineage(lineage);
        let mut rows = bucket.list(&prefix, None, usize::MAX).await?;
        let is_leased = rows.iter().any(|row| row.key == layout::lock(lineage));
        rows.retain(|row| matches!(layout::role(&row.key), Role::Content | Role::Manifest));
        Ok(Self {
            rows,
            latest,
            key,
            is_leased,
        })
    }

    fn is_nothing(&self) -> bool {
        self.rows.is_empty() && self.latest.is_none()
    }

    /// Whether neither pointer nor key has moved since.
    fn is_as(&self, before: &Self) -> bool {
        fn version<D>(found: Option<&Versioned<D>>) -> Option<&Version> {
            found.map(|found| &found.version)
        }
        version(self.latest.as_ref()) == version(before.latest.as_ref())
            && version(self.key.as_ref()) == version(before.key.as_ref())
    }

    /// Whether the manifest of a snapshot lies here.
    fn has(&self, archive: ArchiveDigest) -> bool {
        let stem = format!("profile-{}", archive.prefix());
        let is_it = |row: &Listed| {
            let name = row.key.file_name();
            name.starts_with(&stem) && name.ends_with(".manifest.json")
        };
        self.rows.iter().any(is_it)
    }

    /// Refuses a target that is no earlier version of this.
    fn ensure_follows(&self, there: &Self, lineage: &Lineage) -> Result<(), Failure> {
        if let (Some(here), Some(there_key)) = (&self.key, &there.key)
            && here.value != there_key.value
        {
            // Another wrapping of the same data key, or another data key.
            let is_same = here.value.created_at == there_key.value.created_at;
            if !is_same || there_key.value.generation >= here.value.generation {
                return Err(diverged(&layout::data_key(&lineage.clone().into())));
            }
        }
        let (Some(here), Some(latest)) = (&self.latest, &there.latest) else {
            // A pointer that leads to something is not replaced by none.
            return match &there.latest {
                Some(_) => Err(diverged(&layout::pointer(lineage))),
                None => Ok(()),
            };
        };
        let (here, before) = (&here.value, &latest.value);
        let is_earlier = before.generation < here.generation
            && (here.remembers(before.op_id) || !there.is_leased && self.outgrew(before, here));
        if here == before || is_earlier {
            return Ok(());
        }
        Err(diverged(&layout::pointer(lineage)))
    }

    /// Whether a pointer goes on from one that it does not remember any more, in a store where nobody ever held a lease or
    /// rolled back: what that one leads to lies here, its fence is not ahead, and nothing is pinned or deleted there that is not here.
    fn outgrew(&self, before: &Pointer, here: &Pointer) -> bool {
        let has_all = |wanted: &[PointerMark], has: &[PointerMark]| {
            wanted
                .iter()
                .all(|one| has.iter().any(|mark| mark.sha256 == one.sha256))
        };
        before
            .active_archive()
            .is_none_or(|active| self.has(active))
            && before.fence.epoch <= here.fence.epoch
            && has_all(&before.pins, &here.pins)
            && has_all(&before.tombstones, &here.tombstones)
    }
}

/// A document, or why it cannot be used.
fn understood<T>(found: Result<T, ReadError>) -> Result<T, Failure> {
    found.map_err(|error| Failure::of(error.kind(), error))
}

/// The target holds something else under that name, or something newer.
fn diverged(key: &Key) -> Failure {
    let said = format!("`{key}` in the target is not an earlier version of the one to be copied");
    Failure::of(ErrorKind::Diverged, said).with_hint(HINT)
}

/// Copies a lineage from one store into another.
pub async fn copy(
    from: &Arc<dyn Bucket>,
    to: &Arc<dyn Bucket>,
    lineage: &Lineage,
) -> Result<Copied, Failure> {
    let mut copied = Copied::default();
    let mut source = Lying::look(&**from, lineage).await?;
    if source.is_nothing() {
        let said = format!("nothing is saved of profile `{lineage}`");
        return Err(Failure::of(ErrorKind::NotFound, said).with_hint(NOTHING));
    }
    let mut target = Lying::look(&**to, lineage).await?;
    source.ensure_follows(&target, lineage)?;
    for round in 0..ROUNDS {
        // What an object's version is called, each store decides for itself.
        let same = |row: &Listed| (row.key.clone(), row.size);
        let there: HashSet<(Key, u64)> = target.rows.iter().map(same).collect();
        for role in [Role::Content, Role::Manifest] {
            let wanted = source.rows.iter();
            let wanted = wanted.filter(|row| layout::role(&row.key) == role);
            let (old, new): (Vec<Listed>, Vec<Listed>) =
                wanted.cloned().partition(|row| there.contains(&same(row)));
            let is_manifest = u64::from(role == Role::Manifest);
            if round == 0 {
                copied.objects_there += old.len() as u64;
                copied.manifests_there += is_manifest * old.len() as u64;
            }
            copied.manifests += is_manifest * new.len() as u64;
            copy_all(from, to, new, &mut copied).await?;
        }
        let now = Lying::look(&**from, lineage).await?;
        target = Lying::look(&**to, lineage).await?;
        now.ensure_follows(&target, lineage)?;
        let is_still = now.is_as(&source);
        source = now;
        if !is_still {
            continue;
        }
        let (key, there) = (
            layout::data_key(&lineage.clone().into()),
            target.key.as_ref(),
        );
        point(&**to, &key, source.key.as_ref(), there, &mut copied).await?;
        let (key, there) = (layout::pointer(lineage), target.latest.as_ref());
        point(&**to, &key, source.latest.as_ref(), there, &mut copied).await?;
        // A sweep of the target knows what is needed only since the pointer is there.
        target = Lying::look(&**to, lineage).await?;
        let there: BTreeSet<&Key> = target.rows.iter().map(|row| &row.key).collect();
        if source.rows.iter().all(|row| there.contains(&row.key)) {
            return Ok(copied);
        }
    }
    let said = "the source is written to faster than it can be copied";
    Err(Failure::of(ErrorKind::Retry, said).with_hint(HINT))
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

/// Copies an object that is written once. An archive must be what its name says.
async fn copy_one(from: Arc<dyn Bucket>, to: Arc<dyn Bucket>, row: Listed) -> Result<u64, Failure> {
    let object = layout::lineage_of(&row.key)
        .and_then(|lineage| layout::snapshot_object(&lineage, &row.key))
        .filter(|object| !object.is_manifest);
    let is_wrong = Arc::new(AtomicBool::new(false));
    let damaged = |failed: BucketError| {
        if is_wrong.load(Ordering::Relaxed) {
            let why = "its bytes are not those that it is named for";
            return Failure::new(ErrorKind::Corrupt, "copy", &row.key).because(why);
        }
        failed.into()
    };
    let wanted = object.map(|object| object.digits);
    if row.size <= PIECE {
        // Removed since it was listed: whatever led to it does so no more.
        let Some(bytes) = from.get_range(&row.key, 0..PIECE + 1).await? else {
            return Ok(0);
        };
        let digest = ArchiveDigest::of(&bytes).to_string();
        if wanted.is_some_and(|wanted| !digest.starts_with(&wanted)) {
            is_wrong.store(true, Ordering::Relaxed);
            return Err(damaged(BucketError::new(
                BucketErrorKind::Corrupt,
                "copy",
                &row.key,
            )));
        }
        let length = bytes.len() as u64;
        to.put(&row.key, bytes).await?;
        return Ok(length);
    }
    let body = pieces(from, row.clone(), wanted, is_wrong.clone());
    to.put_stream(&row.key, body).await.map_err(damaged)
}

/// The bytes of an object. Without its last piece nothing is stored, so that one is handed on only when all are what they should be.
fn pieces(
    from: Arc<dyn Bucket>,
    row: Listed,
    wanted: Option<String>,
    is_wrong: Arc<AtomicBool>,
) -> ByteStream {
    let starts = (0..row.size).step_by(usize::try_from(PIECE).expect("it is small"));
    let begun = (ArchiveHasher::default(), starts);
    let pieces = stream::try_unfold(begun, move |(mut hasher, mut starts)| {
        let (from, row) = (from.clone(), row.clone());
        let (wanted, is_wrong) = (wanted.clone(), is_wrong.clone());
        async move {
            let Some(start) = starts.next() else {
                return Ok(None);
            };
            let end = (start + PIECE).min(row.size);
            let piece = from.get_range(&row.key, start..end).await;
            let piece = piece.map_err(io::Error::other)?;
            let piece = piece.ok_or_else(|| io::Error::other("the object is gone"))?;
            hasher.update(&piece);
            let digest = (end == row.size).then(|| hasher.clone().finish().to_string());
            if let (Some(digest), Some(wanted)) = (digest, wanted)
                && !digest.starts_with(&wanted)
            {
                is_wrong.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::InvalidData.into());
            }
            Ok(Some((piece, (hasher, starts))))
        }
    });
    pieces.boxed()
}

/// Writes a document of the source, unless the target has it; what was written there since it was looked at is left alone.
async fn point<D: Document + PartialEq>(
    to: &dyn Bucket,
    key: &Key,
    here: Option<&Versioned<D>>,
    there: Option<&Versioned<D>>,
    copied: &mut Copied,
) -> Result<(), Failure> {
    let Some(here) = here else {
        return Ok(());
    };
    let body = Bytes::from(document::render(&here.value));
    let length = body.len() as u64;
    let swap = match there {
        Some(there) if there.value == here.value => {
            copied.objects_there += 1;
            return Ok(());
        }
        Some(there) => to.swap(key, &there.version, body).await?,
        None => to.create(key, body).await?,
    };
    if !matches!(swap, Swap::Won(_)) {
        let now = understood(read::<D>(to, key).await)?;
        if now.is_none_or(|now| now.value != here.value) {
            let said = format!("`{key}` in the target was changed by somebody else meanwhile");
            return Err(Failure::of(ErrorKind::Retry, said).with_hint(HINT));
        }
    }
    copied.objects += 1;
    copied.bytes += length;
    Ok(())
}
