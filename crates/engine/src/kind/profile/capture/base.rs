//! The archive that a new one is made from: frames that did not change are taken from it, and the store may copy them.

use crate::archive::remote::Remote;
use crate::bridge;
use crate::handle::Profiles;
use crate::kind::profile::fetch::{StoredView, opened_view};
use crate::kind::profile::session::SubjectSession;
use crate::open::StoreLocation;
use stasis_disk::crypt::DataKey;
use stasis_disk::form::archive::{Archive, EncryptedArchive};
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::pointer::Active;
use stasis_store::layout::{self, Key};
use std::path::PathBuf;
use std::sync::Arc;

/// An older archive.
#[derive(Clone)]
pub(super) struct BaseArchive {
    /// Its frames, which are near.
    pub(super) archive: Arc<Archive>,
    /// The same as they are encrypted, if they are.
    pub(super) encrypted: Option<Arc<EncryptedArchive>>,
    /// How many bytes are stored.
    pub(super) size: u64,
    /// Where the store has it, if the active snapshot is the one.
    pub(super) place: Option<Key>,
}

impl BaseArchive {
    fn new(view: StoredView, place: Option<Key>) -> Self {
        let StoredView {
            archive,
            encrypted,
            size,
        } = view;
        Self {
            archive: Arc::new(archive),
            encrypted,
            size,
            place,
        }
    }
}

impl Profiles<'_> {
    /// The archive that most frames can be taken from: in the cache, or in a store that is as near.
    pub(super) async fn base_archive(
        self,
        session: &SubjectSession,
        base: Option<ArchiveDigest>,
        key: Option<Arc<DataKey>>,
    ) -> Option<BaseArchive> {
        let base = base?;
        let cache = self.archive_cache().await;
        let (name, with) = (PathBuf::from(base.to_string()), key.clone());
        let cached = bridge::blocking(move || {
            let file = cache?.open(base)?;
            // A file that decayed has no index, and no frames to offer.
            let view = opened_view(Arc::new(file), &name, with.as_deref()).ok()?;
            view.archive.summary().is_some().then_some(view)
        });
        if let Some(view) = cached.await {
            let active = session.lease.last_pointer().and_then(|seen| seen.active);
            let active = active.or_else(|| session.lease.base.clone());
            let active = active.filter(|active| active.archive == base);
            let place = active.and_then(|active| place_of(session, &active));
            return Some(BaseArchive::new(view, place));
        }
        if !matches!(self.location, StoreLocation::File(_)) {
            return None;
        }
        let pointer = self.session_pointer(session).await.ok()??;
        let manifest = self.active_base(session, Some(pointer.clone()), Some(base));
        let size = manifest.await?.archive_size_bytes;
        let active = pointer.active?;
        let place = Key::from_listing(&active.archive_key)?;
        let remote = Arc::new(Remote::new(self.bucket.clone(), place, size));
        let name = PathBuf::from(&active.archive_key);
        let opened = bridge::blocking(move || opened_view(remote, &name, key.as_deref()));
        let view = opened.await.ok()?;
        let place = place_of(session, &active);
        let is_ours = view.archive.summary().is_some();
        is_ours.then(|| BaseArchive::new(view, place))
    }
}

/// Where the store has the archive of a snapshot of this lineage.
fn place_of(session: &SubjectSession, active: &Active) -> Option<Key> {
    let key = Key::from_listing(&active.archive_key)?;
    let object = layout::snapshot_object(session.lineage(), &key)?;
    let named = active.archive.to_string();
    let is_it = !object.is_manifest && named.starts_with(&object.digits);
    is_it.then_some(key)
}
