//! The data key of a lineage, and the tenant's key that wraps it.
//!
//! *Always true:* `key.json` is created once, only while the lineage has no snapshot, and never deleted; rotation rewraps
//! it by a conditional write. Where it lies, nobody takes plain bytes for encrypted ones, with a key or without; and who
//! holds none never adds plain snapshots to an encrypted lineage.

use super::session::SubjectSession;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
pub use stasis_disk::crypt::TenantKey;
use stasis_disk::crypt::{DataKey, KeyError};
use stasis_model::format::document;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::key::KeyDocument;
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::id::{Label, Lineage};
use stasis_store::bucket::{BucketError, BucketErrorKind, Swap};
use stasis_store::documents::lineages::read;
use stasis_store::layout;
use std::sync::Arc;

/// A lineage whose data key is wrapped by another key now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Rekeyed {
    /// Of what.
    pub subject: Lineage,
    /// The key that wraps it now.
    pub key_id: String,
}

impl Profiles<'_> {
    async fn key_document(
        self,
        lineage: &Lineage,
    ) -> Result<Option<document::Versioned<KeyDocument>>, Error> {
        Ok(read(&*self.bucket, &layout::data_key(lineage)).await?)
    }

    /// The key to write with: none for a lineage that is plain, a new one for a lineage that begins.
    pub(super) async fn key_to_save(
        self,
        session: &SubjectSession,
    ) -> Result<Option<Arc<DataKey>>, Error> {
        let (lineage, active) = (session.lineage(), session.lease.base.as_ref());
        if let (Some(tenant), None) = (&self.tenant_key, active) {
            return self.new_key(tenant, lineage).await.map(Some);
        }
        let document = self.key_document(lineage).await?;
        let tenant = match (&self.tenant_key, document) {
            (None, Some(_)) => return Err(ProfileError::KeyNeeded(lineage.clone()).into()),
            (Some(tenant), Some(document)) => {
                return Ok(Some(Arc::new(tenant.unwrap(&document.value, lineage)?)));
            }
            (tenant, None) => tenant,
        };
        let before = self.session_manifest(session).await;
        if before.is_some_and(|manifest| manifest.is_encrypted()) {
            return Err(ProfileError::NoKey(lineage.clone()).into());
        }
        match tenant {
            None => Ok(None),
            Some(_) => Err(ProfileError::PlainLineage(lineage.clone()).into()),
        }
    }

    /// The key to read a snapshot with, if it needs one.
    pub(super) async fn key_to_load(
        self,
        manifest: &ProfileManifest,
    ) -> Result<Option<Arc<DataKey>>, Error> {
        let lineage = manifest.lineage();
        if !manifest.is_encrypted() {
            self.ensure_never_encrypted(&lineage).await?;
        }
        match (&self.tenant_key, manifest.is_encrypted()) {
            (None, false) => Ok(None),
            (None, true) => Err(ProfileError::KeyNeeded(lineage).into()),
            (Some(_), false) => Err(ProfileError::PlainLineage(lineage).into()),
            (Some(tenant), true) => {
                let document = self.key_document(&lineage).await?;
                let document = document.ok_or_else(|| ProfileError::NoKey(lineage.clone()))?;
                Ok(Some(Arc::new(tenant.unwrap(&document.value, &lineage)?)))
            }
        }
    }

    /// Refuses a plain snapshot of a lineage that has a key: whoever can write to the store could have put it there, and
    /// who has no key must not be the one who believes it.
    pub(super) async fn ensure_never_encrypted(self, lineage: &Lineage) -> Result<(), Error> {
        match self.key_document(lineage).await? {
            None => Ok(()),
            Some(_) => Err(ProfileError::PlainInEncrypted(lineage.clone()).into()),
        }
    }

    /// The key of a lineage that begins: a new one, or the one that is there.
    async fn new_key(self, tenant: &TenantKey, lineage: &Lineage) -> Result<Arc<DataKey>, Error> {
        let (mut secret, mut nonce) = ([0; 32], [0; 12]);
        self.rng.fill(&mut secret);
        self.rng.fill(&mut nonce);
        let key = DataKey::from_random(&mut secret, lineage.clone());
        let (op_id, now) = (self.lineages.op_id(), self.lineages.now());
        let document = tenant.first_document(&key, nonce, op_id, now);
        let place = layout::data_key(lineage);
        let bytes = Bytes::from(document::render(&document));
        let created = self.bucket.create(&place, bytes).await?;
        if matches!(created, Swap::Won(_)) {
            return Ok(Arc::new(key));
        }
        // Somebody was first, perhaps we ourselves: whatever is there is the key.
        let there = self.key_document(lineage).await?;
        let unanswered = || BucketError::new(BucketErrorKind::Unreachable, "create", &place);
        let there = there.ok_or_else(unanswered)?;
        Ok(Arc::new(tenant.unwrap(&there.value, lineage)?))
    }

    /// Wraps the data key of a lineage with another tenant key; no archive is touched.
    pub async fn rekey(
        self,
        lineage: &Lineage,
        new: &TenantKey,
        actor: &Label,
    ) -> Result<Rekeyed, Error> {
        let needed = || ProfileError::KeyNeeded(lineage.clone());
        let old = self.tenant_key.as_ref().ok_or_else(needed)?;
        let found = self.key_document(lineage).await?;
        let found = found.ok_or_else(|| ProfileError::NoKey(lineage.clone()))?;
        let mut nonce = [0; 12];
        self.rng.fill(&mut nonce);
        let op_id = self.lineages.op_id();
        let document = old.rewrap(&found.value, new, nonce, op_id)?;
        let place = layout::data_key(lineage);
        let bytes = Bytes::from(document::render(&document));
        let swapped = self.bucket.swap(&place, &found.version, bytes).await?;
        if !matches!(swapped, Swap::Won(_)) {
            let there = self.key_document(lineage).await.ok().flatten();
            let is_applied = there.is_some_and(|there| there.value.op_id == op_id);
            if !is_applied {
                let lineage = lineage.clone();
                return Err(ProfileError::RekeyUnknown { lineage, op_id }.into());
            }
        }
        let event = self
            .events()
            .event(EventKind::Rekeyed, Severity::Info, actor);
        let event = event
            .about(lineage.clone(), op_id)
            .with("key_id", new.id().to_string());
        let _ = self.events().record(&lineage.tenant, event).await;
        Ok(Rekeyed {
            subject: lineage.clone(),
            key_id: new.id().to_string(),
        })
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        ProfileError::Key(error).into()
    }
}
