//! Subjects copied into another store.
//!
//! A directory goes snapshot by snapshot, oldest first:
//! 1. read `gc.json` and the index of the target   2. read the source's manifest and list   3. copy the chunks that the
//!    target's pool does not have, each checked against its name   4. put a manifest, under an id of its own, that says what it
//!    is a copy of   5. judge the names and publish, as a save does
//!
//! A profile goes as it lies there: archives, manifests, and then its pointer (`stasis_store::copying`).
//!
//! *Always true:* in the target an index leads only to what is durable there, wherever a copy stops; run again, it goes on after
//! the newest snapshot that it copied, so that what was forgotten there does not come back. What was saved into the target since is not touched: then nothing is copied, and it is
//! said. No name of a chunk and no id of a snapshot is used in two pools.

mod journey;

use crate::address::{CONTAINER_PREFIX, SESSION_PREFIX};
use crate::error::{EncryptionError, Error, ErrorKind, error_chain};
use crate::kind::project::Project;
use crate::open::Engine;
use crate::subjects::{DIR_PREFIX, PROFILE_PREFIX, SubjectRow};
use journey::Journey;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::failure::Failure;
use stasis_model::format::key::{KeyOwner, PoolId};
use stasis_model::id::{Lineage, ProjectId, TenantId};
use stasis_store::backend::file::is_store;
use stasis_store::copying;
use stasis_store::documents::policies;
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use std::sync::Arc;

/// What to do about a key that does not fit what is copied from.
const KEY_HERE: &str = "--key-file, --key-command and $STASIS_KEY_FILE give the key of the store that is copied from, and a plain one is copied \
    without them (`env -u STASIS_KEY_FILE stasis copy …`); --to-key-file gives the key of the other one";
/// The same for what is copied into.
const KEY_THERE: &str = "give the key of the store that is copied into with --to-key-file; one that is plain there stays plain, and is copied \
    into without a key";
/// Why profiles are not encrypted on the way.
const AS_IT_IS: &str = "profiles are copied as they are: copy them without --to-key-file, and change their key there with `stasis key rotate`";

/// What to do about a data key that lies where nothing is encrypted with it.
const LEFTOVER: &str = "if a save with a key was interrupted there, its `key.json` encrypts nothing and may be removed; else copy into another store";

/// An error about a key, with what to do in a command that has two.
fn with_key_hint(error: Error, hint: &'static str) -> Error {
    match error {
        Error::Encryption(error) => Failure::of(error.kind(), error).with_hint(hint).into(),
        error => error,
    }
}

/// What to do when nothing is there.
const NOTHING: &str = "`stasis list` shows every subject of the store";

/// What to do about a snapshot that cannot be read.
const DAMAGED: &str = "`stasis repo check --read-data` says what is damaged, in either store. A save of the directory heals what it still \
    has; `stasis repo forget ID` lets a snapshot go, and the others can be copied";

/// What is copied.
#[derive(Clone, Debug)]
pub enum CopySubject {
    /// The directory that this engine is about.
    Directory {
        /// Whose it is in the target.
        tenant: TenantId,
        /// What it is called there.
        id: ProjectId,
    },
    /// A profile of one browser version.
    Profile(Lineage),
    /// Every subject of the store, and the policies of its tenants that the target does not have.
    All,
}

/// Refuses a directory in which somebody has something else, and a store that ends with the program.
pub fn ensure_target(to: &StoreLocation) -> Result<(), Error> {
    let said = match to {
        StoreLocation::Memory => "a store in memory ends with this command".to_owned(),
        StoreLocation::File(path) => {
            let mut entries = std::fs::read_dir(path).into_iter().flatten();
            if entries.next().is_none() || is_store(path) {
                return Ok(());
            }
            format!("`{}` is not empty, and no store", path.display())
        }
        StoreLocation::S3(_) => return Ok(()),
    };
    let hint = "name a directory that is not there yet, or a bucket, with --to";
    Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into())
}

impl Project {
    /// The engine of its snapshots, and what they are as a subject of a tenant in another store.
    pub fn to_be_copied(
        self,
        tenant: TenantId,
        called: Option<ProjectId>,
    ) -> (Engine, CopySubject) {
        let what = CopySubject::Directory {
            tenant,
            id: called.unwrap_or(self.home.id),
        };
        (self.engine, what)
    }
}

/// A subject that was copied, or was not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CopiedSubject {
    /// What it is called in the target.
    pub subject: String,
    /// Whose.
    pub tenant: TenantId,
    /// Snapshots that were copied now.
    pub snapshots: u64,
    /// Snapshots that were there already.
    pub snapshots_there: u64,
    /// Snapshots that are older than what was copied before and are not there: they were forgotten there.
    pub snapshots_left: u64,
    /// Chunks, or objects of a profile, that were copied.
    pub objects: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Why it was not copied, or not to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What kind of error that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<ErrorKind>,
}

/// What was copied from one store into another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was not copied is said only here"]
pub struct StoreCopied {
    /// From where.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Every subject.
    pub subjects: Vec<CopiedSubject>,
    /// Policies of tenants that were copied.
    pub policies: u64,
    /// What else went wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// How long it took.
    pub elapsed_ms: u64,
}

impl StoreCopied {
    /// Whether everything is in the target by now.
    pub fn is_whole(&self) -> bool {
        self.errors.is_empty() && self.subjects.iter().all(|one| one.error.is_none())
    }
}

impl CopiedSubject {
    fn new(subject: String, tenant: TenantId) -> Self {
        Self {
            subject,
            tenant,
            snapshots: 0,
            snapshots_there: 0,
            snapshots_left: 0,
            objects: 0,
            bytes: 0,
            error: None,
            error_kind: None,
        }
    }

    fn failed(mut self, error: &Error) -> Self {
        self.error = Some(error_chain(error));
        self.error_kind = Some(error.kind());
        self
    }
}

impl Engine {
    /// Copies subjects into another store. With [`CopySubject::All`] one that fails does not keep the others from being copied.
    pub async fn copy_to(
        &self,
        to: &Self,
        what: CopySubject,
        progress: Arc<Progress>,
    ) -> Result<StoreCopied, Error> {
        let started = self.clock.uptime();
        self.ensure_other(to)?;
        let mut done = StoreCopied {
            from: self.location().to_string(),
            to: to.location().to_string(),
            subjects: Vec::new(),
            policies: 0,
            errors: Vec::new(),
            elapsed_ms: 0,
        };
        match what {
            CopySubject::Directory { tenant, id } => {
                let copied = self.copy_directory(to, &tenant, &id, progress).await;
                done.subjects.push(copied.map_err(|failed| failed.1)?);
            }
            CopySubject::Profile(lineage) => {
                done.subjects.push(self.copy_profile(to, &lineage).await?);
            }
            CopySubject::All => self.copy_all(to, progress, &mut done).await?,
        }
        done.elapsed_ms = self.dirs().elapsed_ms(started);
        Ok(done)
    }

    /// Refuses to copy a store into itself.
    fn ensure_other(&self, to: &Self) -> Result<(), Error> {
        let is_same = match self.location() {
            // Each that is opened is another one.
            StoreLocation::Memory => Arc::ptr_eq(&self.bucket, &to.bucket),
            location => location == to.location(),
        };
        if !is_same {
            return Ok(());
        }
        let said = format!("`{}` is the store that is copied from", to.location());
        let hint = "say another one with --to";
        Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into())
    }

    async fn copy_all(
        &self,
        to: &Self,
        progress: Arc<Progress>,
        done: &mut StoreCopied,
    ) -> Result<(), Error> {
        let subjects = self.subjects(None).await?.items;
        to.store().ensure_trusted().await?;
        let mut tenants: Vec<TenantId> = subjects.iter().map(|row| row.tenant.clone()).collect();
        tenants.dedup();
        for tenant in &tenants {
            match policies::copy(&*self.bucket, &*to.bucket, tenant).await {
                Ok(is_new) => done.policies += u64::from(is_new),
                Err(failure) => done.errors.push(error_chain(&failure)),
            }
        }
        let mut left = subjects.len();
        for row in subjects {
            left -= 1;
            let copied = Box::pin(self.copy_row(to, &row, progress.clone())).await;
            let is_away =
                matches!(&copied, Err((_, error)) if error.kind() == ErrorKind::Unreachable);
            done.subjects.push(match copied {
                Ok(copied) => copied,
                Err((one, error)) => one.failed(&error),
            });
            // A store that does not answer would be asked in vain for each of the others.
            if is_away && left > 0 {
                done.errors.push(format!("{left} more were not tried"));
                break;
            }
        }
        Ok(())
    }

    /// Copies one of the subjects of the store. On failure it says how far it came.
    async fn copy_row(
        &self,
        to: &Self,
        row: &SubjectRow,
        progress: Arc<Progress>,
    ) -> Result<CopiedSubject, (CopiedSubject, Error)> {
        let nothing = || CopiedSubject::new(row.subject.clone(), row.tenant.clone());
        if let Some(id) = row.subject.strip_prefix(DIR_PREFIX) {
            let id: ProjectId = id.parse().expect("it was listed under its id");
            let source = self.rooted(ChunkRoot::project(&row.tenant, &id));
            let copied = source.copy_directory(to, &row.tenant, &id, progress).await;
            return copied.map_err(|(partial, error)| {
                let partial = partial.map_or_else(nothing, |partial| *partial);
                (partial, error)
            });
        }
        if let Some(session) = row.subject.strip_prefix(SESSION_PREFIX) {
            let said = format!("the session `{session}` was not copied: it is where its store is");
            let hint =
                format!("`stasis session export {session} FILE.tar.gz` takes what it holds along");
            let failure = Failure::of(ErrorKind::Invalid, said).with_hint(hint);
            return Err((nothing(), failure.into()));
        }
        if let Some(container) = row.subject.strip_prefix(CONTAINER_PREFIX) {
            let said =
                format!("the container `{container}` was not copied: its images are on its engine");
            let hint = format!("`stasis container export latest {container} FILE` takes it along");
            let failure = Failure::of(ErrorKind::Invalid, said).with_hint(hint);
            return Err((nothing(), failure.into()));
        }
        let name = row.subject.strip_prefix(PROFILE_PREFIX);
        let lineage = name.and_then(|name| name.parse::<Lineage>().ok());
        let lineage = lineage.expect("what is no directory is a profile");
        let copied = self.copy_profile(to, &lineage).await;
        copied.map_err(|error| (nothing(), error))
    }

    /// Copies the directory that this engine is about. On failure it says how far it came.
    async fn copy_directory(
        &self,
        to: &Self,
        tenant: &TenantId,
        id: &ProjectId,
        progress: Arc<Progress>,
    ) -> Result<CopiedSubject, (Option<Box<CopiedSubject>>, Error)> {
        let to = to.rooted(ChunkRoot::project(tenant, id));
        let begun = Journey::begin(self, &to, tenant, id, progress).await;
        let mut journey = begun.map_err(|error| (None, error))?;
        match journey.go().await {
            Ok(()) => Ok(journey.copied),
            Err(error) => Err((Some(Box::new(journey.copied)), error)),
        }
    }

    /// Refuses to copy a lineage as it lies there where it should be encrypted, or wrapped by another key.
    async fn ensure_fitting_key(&self, to: &Self, lineage: &Lineage) -> Result<(), Error> {
        let owner = KeyOwner::from(lineage.clone());
        let Some(found) = self.key_document(&owner).await? else {
            if to.key_document(&owner).await?.is_some() {
                let said = format!(
                    "`{owner}` is plain here and has a data key in `{}`: a plain copy would be refused there, or believed to be encrypted",
                    to.location()
                );
                let failure = Failure::of(ErrorKind::Denied, said);
                return Err(failure.with_hint(LEFTOVER).into());
            }
            if to.has_tenant_key() {
                return Err(with_key_hint(
                    EncryptionError::Plain(owner).into(),
                    AS_IT_IS,
                ));
            }
            return to
                .ensure_may_be_plain(&PoolId::Tenant(lineage.tenant.clone()))
                .await;
        };
        let wrapped_by = found.value.key.key_id;
        match to.tenant_key().await? {
            Some(key) if key.id() != wrapped_by => {
                let said = format!(
                    "`{owner}` is encrypted with key {wrapped_by}, and not with the one for the other store"
                );
                let failure = Failure::of(ErrorKind::Denied, said);
                Err(failure.with_hint(AS_IT_IS).into())
            }
            _ => Ok(()),
        }
    }

    /// Copies a lineage of a profile as it lies in the store.
    async fn copy_profile(&self, to: &Self, lineage: &Lineage) -> Result<CopiedSubject, Error> {
        self.ensure_fitting_key(to, lineage).await?;
        to.store().ensure_trusted().await?;
        to.ensure_copy_room(self, lineage).await?;
        let copied = copying::copy(&self.bucket, &to.bucket, lineage).await?;
        let subject = format!("{PROFILE_PREFIX}{lineage}");
        let mut one = CopiedSubject::new(subject, lineage.tenant.clone());
        one.snapshots = copied.manifests;
        one.snapshots_there = copied.manifests_there;
        one.objects = copied.objects;
        one.bytes = copied.bytes;
        Ok(one)
    }
}

#[cfg(test)]
mod tests;
