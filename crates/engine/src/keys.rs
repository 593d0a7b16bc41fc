//! Data keys of lineages and pools, and the tenant's key that wraps them.
//!
//! *Always true:* `key.json` is created once, only while nothing is stored that it should have encrypted, and never deleted;
//! rotation rewraps it by a conditional write. Where it lies, nobody takes plain bytes for encrypted ones, with a key or
//! without. The tenant's key is read only when something must be opened or closed with it.

use crate::error::{EncryptionError, Error, ErrorKind, error_chain};
use crate::open::Engine;
use bytes::Bytes;
use futures_util::TryStreamExt;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::crypt::DataKey;
pub use stasis_disk::crypt::{KeyError, TenantKey};
use stasis_model::failure::{AtPath, Failure};
use stasis_model::format::document::{self, Versioned};
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::key::{KeyDocument, KeyOwner, PoolId};
use stasis_model::id::{Label, TenantId};
use stasis_model::policy::tenant::TenantPolicy;
use stasis_model::rng::Rng;
use stasis_store::bucket::{BucketError, BucketErrorKind, Swap, objects};
use stasis_store::documents::lineages::read;
use stasis_store::layout;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// A lineage or pool whose data key is wrapped by another key now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Rekeyed {
    /// Of what: `<tenant>/<profile>@<major>`, `pools/<tenant>`, or `state`.
    pub subject: String,
    /// The key that wraps it now.
    pub key_id: String,
}

/// A tenant's key that was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct NewKey {
    /// Where.
    pub file: String,
    /// Which key it is; no secret.
    pub key_id: String,
}

/// Data keys that another key wraps now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RotatedKeys {
    /// Each of them.
    pub items: Vec<Rekeyed>,
    /// Those that neither key opens: another one wraps them.
    pub left: Vec<KeyLeft>,
}

/// A data key that was not rewrapped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct KeyLeft {
    /// Of what.
    pub subject: String,
    /// Why not.
    pub reason: String,
}

/// Writes a new tenant's key to a file that is not there yet, for its owner only.
pub fn new_key(path: &Path, rng: &dyn Rng) -> Result<NewKey, Error> {
    let mut random = [0; 32];
    rng.fill(&mut random);
    let text = TenantKey::spell(&mut random);
    let key = TenantKey::parse(text.as_bytes())?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Its name must last as well: what it encrypts is lost with it.
        let above = std::path::absolute(path)?;
        File::open(above.parent().unwrap_or(Path::new("/")))?.sync_all()
    });
    if let Err(error) = &written
        && error.kind() == io::ErrorKind::AlreadyExists
    {
        let said = format!("`{}` exists already: no key is overwritten", path.display());
        return Err(Failure::of(ErrorKind::Invalid, said).into());
    }
    written.at("write the key to", path)?;
    Ok(NewKey {
        file: path.display().to_string(),
        key_id: key.id().to_string(),
    })
}

/// A data key, and whether it was made just now.
pub(crate) struct FoundKey {
    pub(crate) key: Arc<DataKey>,
    pub(crate) is_new: bool,
}

impl Engine {
    /// Whether somebody gave a tenant's key, which may not have been read yet.
    pub(crate) fn has_tenant_key(&self) -> bool {
        self.tenant_key.is_some()
    }

    /// The tenant's key, if somebody gave one.
    pub(crate) async fn tenant_key(&self) -> Result<Option<Arc<TenantKey>>, Error> {
        let Some(source) = &self.tenant_key else {
            return Ok(None);
        };
        let key = source.get().await.map_err(EncryptionError::Unread)?;
        Ok(Some(key))
    }

    /// The wrapped key of something, if it has one. Where this host saw one that is gone, nobody without a key goes on: what is there
    /// now would be believed though anybody may have put it there.
    pub(crate) async fn key_document(
        &self,
        owner: &KeyOwner,
    ) -> Result<Option<Versioned<KeyDocument>>, Error> {
        let found = read(&*self.bucket, &layout::data_key(owner)).await?;
        match found {
            Some(_) => self.note_key(owner).await,
            None if !self.has_tenant_key() && self.has_seen_key(owner).await => {
                return Err(EncryptionError::KeyVanished(owner.clone()).into());
            }
            None => {}
        }
        Ok(found)
    }

    /// The data key of something that is encrypted.
    pub(crate) async fn data_key(&self, owner: &KeyOwner) -> Result<Arc<DataKey>, Error> {
        let document = self.key_document(owner).await?.map(|found| found.value);
        self.unwrapped(owner, document).await
    }

    /// The same for one whose document was just read.
    pub(crate) async fn unwrapped(
        &self,
        owner: &KeyOwner,
        document: Option<KeyDocument>,
    ) -> Result<Arc<DataKey>, Error> {
        let Some(tenant) = self.tenant_key().await? else {
            return Err(key_needed(owner, document.as_ref()).into());
        };
        let document = document.ok_or_else(|| EncryptionError::NoKey(owner.clone()))?;
        Ok(Arc::new(tenant.unwrap(&document, owner)?))
    }

    /// The data key of something that begins: a new one, or the one that is there.
    pub(crate) async fn new_data_key(
        &self,
        tenant: &TenantKey,
        owner: &KeyOwner,
    ) -> Result<FoundKey, Error> {
        let (mut secret, mut nonce) = ([0; 32], [0; 12]);
        self.rng.fill(&mut secret);
        self.rng.fill(&mut nonce);
        let key = DataKey::from_random(&mut secret, owner.clone());
        let (op_id, now) = (self.lineages.op_id(), self.lineages.now());
        let document = tenant.first_document(&key, nonce, op_id, now);
        let place = layout::data_key(owner);
        let bytes = Bytes::from(document::render(&document));
        let created = self.bucket.create(&place, bytes).await?;
        if matches!(created, Swap::Won(_)) {
            self.note_key(owner).await;
            let key = Arc::new(key);
            return Ok(FoundKey { key, is_new: true });
        }
        // Somebody was first, perhaps we ourselves: whatever is there is the key.
        let there = self.key_document(owner).await?;
        let unanswered = || BucketError::new(BucketErrorKind::Unreachable, "create", &place);
        let there = there.ok_or_else(unanswered)?.value;
        Ok(FoundKey {
            key: Arc::new(tenant.unwrap(&there, owner)?),
            is_new: there.op_id == op_id,
        })
    }

    /// Wraps a data key with another tenant key; nothing that it encrypts is touched.
    #[tracing::instrument(skip_all, err(level = "info"), fields(%owner))]
    pub async fn rotate_key(
        &self,
        owner: &KeyOwner,
        new: &TenantKey,
        actor: &Label,
    ) -> Result<Rekeyed, Error> {
        let found = self.key_document(owner).await?;
        let found = found.ok_or_else(|| EncryptionError::NoKey(owner.clone()))?;
        let rekeyed = Rekeyed {
            subject: owner.to_string(),
            key_id: new.id().to_string(),
        };
        if new.unwrap(&found.value, owner).is_ok() {
            // An earlier rotation came this far.
            return Ok(rekeyed);
        }
        let needed = || key_needed(owner, Some(&found.value));
        let old = self.tenant_key().await?.ok_or_else(needed)?;
        let mut nonce = [0; 12];
        self.rng.fill(&mut nonce);
        let op_id = self.lineages.op_id();
        let document = old.rewrap(&found.value, new, nonce, op_id)?;
        let place = layout::data_key(owner);
        let bytes = Bytes::from(document::render(&document));
        let swapped = self.bucket.swap(&place, &found.version, bytes).await?;
        if !matches!(swapped, Swap::Won(_)) {
            let there = self.key_document(owner).await.ok().flatten();
            let is_applied = there.is_some_and(|there| there.value.op_id == op_id);
            if !is_applied {
                let owner = owner.clone();
                return Err(EncryptionError::RekeyUnknown { owner, op_id }.into());
            }
        }
        let event = self
            .events()
            .event(EventKind::Rekeyed, Severity::Info, actor);
        let mut event = event.with("key_id", new.id().to_string());
        event.op_id = Some(op_id);
        let event = match owner {
            KeyOwner::Lineage(lineage) => event.about(lineage.clone(), op_id),
            KeyOwner::Pool(pool) => event.with("pool", pool.to_string()),
        };
        let _ = self.events().record(&tenant_of(owner), event).await;
        Ok(rekeyed)
    }

    /// Wraps every data key of a tenant with another tenant key. Begun again, it goes on where it ended.
    pub async fn rotate_keys(
        &self,
        tenant: &TenantId,
        new: &TenantKey,
        actor: &Label,
    ) -> Result<RotatedKeys, Error> {
        let mut owners = vec![
            KeyOwner::Pool(PoolId::State),
            KeyOwner::Pool(PoolId::Tenant(tenant.clone())),
        ];
        let prefix = layout::Prefix::lineages_of(tenant);
        let mut listed = std::pin::pin!(objects(&*self.bucket, &prefix));
        while let Some(row) = listed.try_next().await? {
            let owner = layout::lineage_of(&row.key).map(KeyOwner::from);
            owners.extend(owner.filter(|owner| layout::data_key(owner) == row.key));
        }
        let (mut items, mut left) = (Vec::new(), Vec::new());
        for owner in owners {
            if !self.bucket.exists(&layout::data_key(&owner)).await? {
                continue;
            }
            match self.rotate_key(&owner, new, actor).await {
                Ok(rekeyed) => items.push(rekeyed),
                // It may be somebody else's, who has a key of their own; the others are not.
                Err(error) if is_foreign(&error) => left.push((owner, error)),
                Err(error) => return Err(error),
            }
        }
        if items.is_empty() && !left.is_empty() {
            return Err(left.remove(0).1);
        }
        let left = left.into_iter().map(|(owner, error)| KeyLeft {
            subject: owner.to_string(),
            reason: error_chain(&error),
        });
        let left = left.collect();
        Ok(RotatedKeys { items, left })
    }

    /// Refuses to store something plain of a tenant whose policy wants everything encrypted.
    pub(crate) async fn ensure_may_be_plain(&self, pool: &PoolId) -> Result<(), Error> {
        self.policy_of_plain(pool).await.map(drop)
    }

    /// The policy of a pool that is not encrypted, which it must allow.
    pub(crate) async fn policy_of_plain(
        &self,
        pool: &PoolId,
    ) -> Result<Option<TenantPolicy>, Error> {
        let PoolId::Tenant(tenant) = pool else {
            return Ok(None);
        };
        let policy = self.tenants().policy(tenant).await?;
        if !policy.require_encryption {
            return Ok(Some(policy));
        }
        Err(EncryptionError::Required {
            tenant: tenant.clone(),
            what: format!("`{pool}` is not encrypted"),
        }
        .into())
    }
}

/// Whether a data key is wrapped by a key that nobody gave.
fn is_foreign(error: &Error) -> bool {
    matches!(error, Error::Encryption(error)
        if matches!(**error, EncryptionError::Key(KeyError::WrongKey { .. })))
}

/// In whose log an act on a data key is written down.
pub(crate) fn tenant_of(owner: &KeyOwner) -> TenantId {
    match owner {
        KeyOwner::Lineage(lineage) => lineage.tenant.clone(),
        KeyOwner::Pool(PoolId::Tenant(tenant)) => tenant.clone(),
        KeyOwner::Pool(PoolId::State) => TenantId::default(),
    }
}

pub(crate) fn key_needed(owner: &KeyOwner, document: Option<&KeyDocument>) -> EncryptionError {
    EncryptionError::KeyNeeded {
        owner: owner.clone(),
        key_id: document.map(|document| document.key.key_id),
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        EncryptionError::Key(error).into()
    }
}
