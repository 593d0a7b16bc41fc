//! Which key a lineage is written and read with.
//!
//! *Always true:* a data key is made only while the lineage has no snapshot. Where one lies, nobody takes plain bytes for
//! encrypted ones, with a key or without; and who holds none never adds plain snapshots to an encrypted lineage.

use super::session::SubjectSession;
use crate::error::{EncryptionError, Error};
use crate::handle::Profiles;
use crate::keys::key_needed;
use stasis_disk::crypt::DataKey;
use stasis_model::format::key::KeyOwner;
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::id::Lineage;
use std::sync::Arc;

impl Profiles<'_> {
    /// The key to write with: none for a lineage that is plain, a new one for a lineage that begins.
    pub(super) async fn key_to_save(
        self,
        session: &SubjectSession,
    ) -> Result<Option<Arc<DataKey>>, Error> {
        let owner = KeyOwner::from(session.lineage().clone());
        let tenant = self.tenant_key().await?;
        if let (Some(tenant), None) = (&tenant, &session.lease.base) {
            let found = self.new_data_key(tenant, &owner).await?;
            return Ok(Some(found.key));
        }
        let document = self.key_document(&owner).await?.map(|found| found.value);
        match (&tenant, document) {
            (None, Some(document)) => return Err(key_needed(&owner, Some(&document)).into()),
            (Some(tenant), Some(document)) => {
                return Ok(Some(Arc::new(tenant.unwrap(&document, &owner)?)));
            }
            (_, None) => {}
        }
        let before = self.session_manifest(session).await;
        if before.is_some_and(|manifest| manifest.is_encrypted()) {
            return Err(EncryptionError::NoKey(owner).into());
        }
        match tenant {
            Some(_) => Err(EncryptionError::Plain(owner).into()),
            None if session.policy.require_encryption => Err(EncryptionError::Required {
                tenant: session.lineage().tenant.clone(),
                what: format!("`{owner}` is not encrypted"),
            }
            .into()),
            None => Ok(None),
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
        match (self.has_tenant_key(), manifest.is_encrypted()) {
            (false, false) => Ok(None),
            (true, false) => Err(EncryptionError::Plain(lineage.into()).into()),
            (_, true) => self.data_key(&lineage.into()).await.map(Some),
        }
    }

    /// Refuses a plain snapshot of a lineage that has a key: whoever can write to the store could have put it there, and
    /// who has no key must not be the one who believes it.
    pub(super) async fn ensure_never_encrypted(self, lineage: &Lineage) -> Result<(), Error> {
        let owner = KeyOwner::from(lineage.clone());
        match self.key_document(&owner).await? {
            None => Ok(()),
            Some(_) => Err(EncryptionError::PlainInEncrypted(owner).into()),
        }
    }
}
