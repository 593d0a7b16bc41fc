//! The highest generation of each subject's document that this host saw: a store that went back is not believed.
//!
//! A bucket that was restored from a backup, or a disk from an image, has an index that leads to fewer snapshots, and looks whole.
//! Whoever saves on from it makes the lost ones garbage. This host remembers, in a file for each subject, which life of it
//! it saw and how often its index had been written; and which subjects and pools it saw a data key of, so that nobody makes
//! them plain behind its back (R9). Losing that file loses the protection, and nothing else.

use crate::address::SubjectAddress;
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::open::Engine;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded, remove_durably, replace_unsynced};
use stasis_model::digest::StoreDigest;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::format::key::KeyOwner;
use stasis_model::format::manifest::{RepoDocument, SnapshotIndex};
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Generation, Incarnation, Lineage, OpId, SnapshotId};
use stasis_store::documents::roots::Root;
use stasis_store::layout::{self, Key};
use stasis_store::location::StoreLocation;
use std::io;
use std::path::{Path, PathBuf};

/// How many earlier lives of a subject are remembered.
const LIVES: usize = 16;
/// How many snapshots are named that an index does not lead to.
const NAMED: usize = 3;
/// No such record is longer.
const LONGEST: u64 = 16 << 10;
/// Where those records lie, in the state directory of this host.
const SEEN: &str = "seen";

/// What this host saw of a document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct LastSeen {
    /// The pool that it belongs to: in a store that was made anew, everything begins anew.
    #[serde(default)]
    repo: OpId,
    incarnation: Incarnation,
    generation: Generation,
    /// Lives that are over.
    #[serde(default)]
    past: Vec<Incarnation>,
}

/// Which state of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentState {
    repo: OpId,
    incarnation: Incarnation,
    generation: Generation,
}

/// What a state of a document is to a host that saw others of it.
#[derive(PartialEq, Eq, Debug)]
enum Sight {
    /// What was seen before.
    Same,
    /// Something new, and what is remembered from now on.
    Newer(LastSeen),
    /// Something that was there before what was seen.
    Earlier,
}

impl DocumentState {
    /// That of an index in a pool.
    pub(crate) fn of_index(repo: &RepoDocument, index: &SnapshotIndex) -> Self {
        Self {
            repo: repo.op_id,
            incarnation: index.incarnation,
            generation: index.generation,
        }
    }

    /// That of the pointer of a lineage.
    pub(crate) fn of_pointer(generation: Generation) -> Self {
        Self {
            repo: OpId::default(),
            incarnation: Incarnation::default(),
            generation,
        }
    }

    fn compared(self, seen: Option<&LastSeen>) -> Sight {
        let is_pointer = self.repo == OpId::default();
        if is_pointer && self.generation == Generation::default() && seen.is_some() {
            // A pointer that is lost is found by what lies beside it; where nothing does, the store was made anew.
            return Sight::Newer(self.remembered(Vec::new()));
        }
        let Some(seen) = seen.filter(|seen| seen.repo == self.repo) else {
            // What nobody wrote yet is nothing to be remembered.
            if self.generation == Generation::default() {
                return Sight::Same;
            }
            return Sight::Newer(self.remembered(Vec::new()));
        };
        if self.incarnation == seen.incarnation {
            return match self.generation.cmp(&seen.generation) {
                std::cmp::Ordering::Less => Sight::Earlier,
                std::cmp::Ordering::Equal => Sight::Same,
                std::cmp::Ordering::Greater => Sight::Newer(self.remembered(seen.past.clone())),
            };
        }
        if self.incarnation == Incarnation::default() || seen.past.contains(&self.incarnation) {
            return Sight::Earlier;
        }
        let mut past = seen.past.clone();
        past.push(seen.incarnation);
        let old = past.len().saturating_sub(LIVES);
        past.drain(..old);
        Sight::Newer(self.remembered(past))
    }

    fn remembered(self, past: Vec<Incarnation>) -> LastSeen {
        LastSeen {
            repo: self.repo,
            incarnation: self.incarnation,
            generation: self.generation,
            past,
        }
    }
}

/// What this host remembers of a document, as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u64,
    /// Which document of which store: what is gone from there is found by what is remembered of it.
    store: String,
    document: String,
    #[serde(flatten)]
    seen: LastSeen,
}

/// Where this host remembers a document.
#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    store: String,
    document: Key,
    /// Whose document it is, as a command is told.
    subject: Option<SubjectAddress>,
}

impl Place {
    fn read(&self) -> Option<LastSeen> {
        read(&self.path).map(|record| record.seen)
    }

    /// Remembers what was seen, if this host can.
    fn remember(&self, seen: LastSeen) {
        if let Err(error) = replace_unsynced(&self.path, &self.record(seen)) {
            tracing::info!(%error, "this host could not remember what it saw");
        }
    }

    /// Remembers what somebody accepted, also after a power failure: whoever is told that it was accepted is not refused again.
    fn remember_durably(&self, seen: LastSeen) -> Result<(), Failure> {
        atomic_write(&self.path, &self.record(seen))
    }

    /// What is written of something that was seen.
    fn record(&self, seen: LastSeen) -> Vec<u8> {
        let record = Record {
            version: 1,
            store: self.store.clone(),
            document: self.document.to_string(),
            seen,
        };
        serde_json::to_vec(&record).expect("numbers and names")
    }

    /// Remembers a state, unless a later one is remembered by now.
    fn note(&self, state: DocumentState) {
        if let Sight::Newer(newer) = state.compared(self.read().as_ref()) {
            self.remember(newer);
        }
    }
}

/// What this host had seen of a document before it read it. Whatever another process notes since then, it may have written since then.
#[derive(Debug)]
pub(crate) struct Memory {
    place: Option<Place>,
    seen: Option<LastSeen>,
}

/// A document that went back: this host had seen a later one before it read it.
#[derive(Debug)]
pub(crate) struct WentBack {
    said: String,
    /// Whose document it is, as a command is told.
    subject: String,
}

impl WentBack {
    /// What went back, beside snapshots that it does not lead to.
    pub(crate) fn said(&self, newer: &[impl ToString]) -> String {
        let said = &self.said;
        match newer {
            [] => said.clone(),
            newer => format!(
                "{said}, and does not lead to {}, which the store still has",
                some_of(newer)
            ),
        }
    }

    /// Why it is not to be believed, and how to go on from it.
    pub(crate) fn error(&self, newer: &[impl ToString]) -> Error {
        let hint = format!(
            "snapshots may be missing; nothing was changed. If the store was restored from a backup, `stasis repair {} --accept-rollback` goes on from there",
            self.subject
        );
        self.failure(newer, hint)
    }

    /// The same of an index, which nobody goes on from while snapshots lie beside it that it does not lead to.
    pub(crate) fn index_error(&self, newer: &[SnapshotId]) -> Error {
        if newer.is_empty() {
            return self.error(newer);
        }
        let hint = format!(
            "nothing was changed. `stasis repair {}` shows an index that leads to every snapshot, and makes it with --confirm; what is \
             not wanted can be forgotten then",
            self.subject
        );
        self.failure(newer, hint)
    }

    fn failure(&self, newer: &[impl ToString], hint: String) -> Error {
        let failure = Failure::of(ErrorKind::Corrupt, self.said(newer));
        failure.with_hint(hint).into()
    }
}

/// The first of some snapshots, and how many others there are.
fn some_of(ids: &[impl ToString]) -> String {
    let named: Vec<String> = ids
        .iter()
        .take(NAMED)
        .map(|id| format!("`{}`", id.to_string()))
        .collect();
    match ids.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

impl Memory {
    /// Whether an index is not to be believed that was read after this: this host had seen a later one.
    pub(crate) async fn index_went_back(
        self,
        repo: &RepoDocument,
        index: &SnapshotIndex,
    ) -> Option<WentBack> {
        let state = DocumentState::of_index(repo, index);
        self.went_back(state).await
    }

    /// The same for the pointer of a lineage.
    pub(crate) async fn pointer_went_back(self, found: Generation) -> Option<WentBack> {
        self.went_back(DocumentState::of_pointer(found)).await
    }

    async fn went_back(self, state: DocumentState) -> Option<WentBack> {
        let Self { place, seen } = self;
        let place = place?;
        let key = place.document.clone();
        match state.compared(seen.as_ref()) {
            Sight::Same => return None,
            Sight::Newer(_) => {
                bridge::blocking(move || {
                    // Whoever noted another life meanwhile has seen a later one.
                    let now = place.read();
                    let is_other = |now: &LastSeen| now.incarnation != state.incarnation;
                    if now == seen || !now.as_ref().is_some_and(is_other) {
                        place.note(state);
                    }
                })
                .await;
                return None;
            }
            Sight::Earlier => {}
        }
        let said = if state.generation == Generation::default() {
            format!("`{key}` went back: this host has seen one, and the store has none any more")
        } else {
            format!("`{key}` went back: this host has seen a later one than the store has now")
        };
        let subject = place.subject.as_ref().map(ToString::to_string);
        let subject = subject.unwrap_or_else(|| "SUBJECT".to_owned());
        Some(WentBack { said, subject })
    }
}

impl Engine {
    /// What this host has seen of the index of a subject, to be asked before that is read.
    pub(crate) async fn memory_of_index(&self, root: &Root) -> Memory {
        self.memory(root.layout().index()).await
    }

    /// The same for the pointer of a lineage.
    pub(crate) async fn memory_of_pointer(&self, lineage: &Lineage) -> Memory {
        self.memory(layout::pointer(lineage)).await
    }

    async fn memory(&self, key: Key) -> Memory {
        let place = self.place(&key);
        let seen = match place.clone() {
            Some(place) => bridge::blocking(move || place.read()).await,
            None => None,
        };
        Memory { place, seen }
    }

    /// Goes on from a document that went back, or is not there any more. Says whether it did go back.
    pub(crate) async fn accept(
        &self,
        key: &Key,
        found: Option<DocumentState>,
    ) -> Result<bool, Error> {
        let Some(place) = self.place(key) else {
            return Ok(false);
        };
        let accepted = bridge::blocking(move || {
            let Some(seen) = place.read() else {
                return Ok::<bool, Error>(false);
            };
            match found {
                Some(found) if found.compared(Some(&seen)) != Sight::Earlier => return Ok(false),
                Some(found) if found.generation > Generation::default() => {
                    place.remember_durably(found.remembered(Vec::new()))?;
                }
                _ => remove_durably(&place.path)?,
            }
            Ok(true)
        });
        accepted.await
    }

    /// Every document of this store of which this host remembers something.
    pub(crate) async fn remembered_documents(&self) -> Result<Vec<Key>, Error> {
        let Some(place) = self.local_dirs.state.as_ref().map(|state| state.join(SEEN)) else {
            return Ok(Vec::new());
        };
        let store = self.location.to_string();
        let listed = bridge::blocking(move || {
            let records = match std::fs::read_dir(&place) {
                Ok(records) => records,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error).at("list", &place),
            };
            let mut keys = Vec::new();
            for record in records {
                let record = read(&record.at("list", &place)?.path());
                let record = record.filter(|record| record.store == store);
                keys.extend(record.and_then(|record| Key::from_listing(&record.document)));
            }
            Ok(keys)
        });
        Ok(listed.await?)
    }

    /// Remembers that something has a data key.
    pub(crate) async fn note_key(&self, owner: &KeyOwner) {
        let Some(place) = self.place(&layout::data_key(owner)) else {
            return;
        };
        let first = DocumentState::of_pointer(Generation::default().next());
        bridge::blocking(move || place.note(first)).await;
    }

    /// Whether this host has seen a data key of something.
    pub(crate) async fn has_seen_key(&self, owner: &KeyOwner) -> bool {
        let memory = self.memory(layout::data_key(owner)).await;
        memory.seen.is_some()
    }

    /// Goes on without the data key of something that is not there any more. Says whether this host had seen one.
    pub(crate) async fn accept_vanished_key(&self, owner: &KeyOwner) -> Result<bool, Error> {
        let key = layout::data_key(owner);
        if self.bucket.exists(&key).await? {
            return Ok(false);
        }
        self.accept(&key, None).await
    }

    /// Remembers an index that this host has just begun.
    pub(crate) async fn note_begun(&self, root: &Root, repo: &RepoDocument, index: &SnapshotIndex) {
        let Some(place) = self.place(&root.layout().index()) else {
            return;
        };
        let state = DocumentState::of_index(repo, index);
        bridge::blocking(move || place.note(state)).await;
    }

    /// Remembers that a refused owner wrote its fence into a pointer that went back: it is as far behind as it was.
    pub(crate) async fn note_refused(&self, lineage: &Lineage) {
        let Some(place) = self.place(&layout::pointer(lineage)) else {
            return;
        };
        bridge::blocking(move || {
            if let Some(mut seen) = place.read() {
                seen.generation = seen.generation.next();
                place.remember(seen);
            }
        })
        .await;
    }

    /// Remembers an index that this host has just written.
    pub(crate) async fn note_index(&self, root: &Root, index: &SnapshotIndex) {
        let (incarnation, generation) = (index.incarnation, index.generation);
        self.note(root.layout().index(), incarnation, generation)
            .await;
    }

    /// Remembers a pointer that this host has just written.
    pub(crate) async fn note_pointer(&self, lineage: &Lineage, pointer: &Pointer) {
        let key = layout::pointer(lineage);
        self.note(key, Incarnation::default(), pointer.generation)
            .await;
    }

    async fn note(&self, key: Key, incarnation: Incarnation, generation: Generation) {
        let Some(place) = self.place(&key) else {
            return;
        };
        bridge::blocking(move || {
            // Which pool it belongs to is known to whoever read it before, and that is noted already.
            let repo = place.read().map(|seen| seen.repo).unwrap_or_default();
            place.note(DocumentState {
                repo,
                incarnation,
                generation,
            });
        })
        .await;
    }

    fn place(&self, key: &Key) -> Option<Place> {
        // What is in memory only never comes back from anywhere.
        let is_kept = self.location != StoreLocation::Memory;
        let state = self.local_dirs.state.as_ref().filter(|_| is_kept)?;
        let name = StoreDigest::of(format!("{} {key}", self.location).as_bytes());
        Some(Place {
            path: state.join(SEEN).join(format!("{name}.json")),
            store: self.location.to_string(),
            document: key.clone(),
            subject: SubjectAddress::of_document(&self.location, key),
        })
    }
}

fn read(path: &Path) -> Option<Record> {
    let bytes = read_bounded(path, LONGEST).ok()?;
    let record: Option<Record> = serde_json::from_slice(&bytes).ok();
    record.filter(|record| record.version == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(number: u8) -> OpId {
        OpId::from_random([number; 16])
    }

    fn state(repo: u8, life: u8, generation: u64) -> DocumentState {
        let incarnation = match life {
            0 => Incarnation::default(),
            life => Incarnation::new(op(life)),
        };
        DocumentState {
            repo: op(repo),
            incarnation,
            generation: Generation(generation),
        }
    }

    /// What a host remembers that saw these one after the other.
    fn after(states: &[DocumentState]) -> LastSeen {
        let mut seen = None;
        for state in states {
            match state.compared(seen.as_ref()) {
                Sight::Newer(newer) => seen = Some(newer),
                Sight::Same => {}
                Sight::Earlier => panic!("{state:?} after {seen:?}"),
            }
        }
        seen.unwrap()
    }

    #[test]
    fn an_index_that_has_fewer_writes_went_back() {
        let seen = after(&[state(1, 1, 3), state(1, 1, 5)]);

        assert_eq!(state(1, 1, 4).compared(Some(&seen)), Sight::Earlier);
        assert_eq!(state(1, 1, 5).compared(Some(&seen)), Sight::Same);
        let newer = state(1, 1, 6).compared(Some(&seen));
        assert!(matches!(newer, Sight::Newer(_)));
        assert_eq!(
            state(1, 0, 0).compared(Some(&seen)),
            Sight::Earlier,
            "it is gone"
        );
    }

    #[test]
    fn another_life_is_new_unless_it_was_over() {
        let seen = after(&[state(1, 1, 30), state(1, 2, 3)]);

        assert_eq!(state(1, 1, 31).compared(Some(&seen)), Sight::Earlier);
        let third = state(1, 3, 1).compared(Some(&seen));
        assert!(matches!(third, Sight::Newer(_)));
    }

    #[test]
    fn a_pointer_that_is_not_there_begins_anew_and_one_that_went_back_does_not() {
        let state = |generation| DocumentState {
            repo: OpId::default(),
            incarnation: Incarnation::default(),
            generation: Generation(generation),
        };
        let seen = after(&[state(5)]);

        assert_eq!(state(4).compared(Some(&seen)), Sight::Earlier);
        let anew = state(0).compared(Some(&seen));
        assert_eq!(anew, Sight::Newer(state(0).remembered(Vec::new())));
    }

    #[test]
    fn in_a_store_that_was_made_anew_everything_begins_anew() {
        let seen = after(&[state(1, 1, 30)]);

        assert_eq!(state(2, 0, 0).compared(Some(&seen)), Sight::Same);
        let new = state(2, 5, 1).compared(Some(&seen));
        assert!(matches!(new, Sight::Newer(_)));
    }
}
