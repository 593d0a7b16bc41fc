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

use crate::bridge;
use crate::catalog::pool::closed;
use crate::catalog::port::ChunkFetcher;
use crate::catalog::references::{self, References};
use crate::catalog::{OpenedSnapshot, ensure_writable};
use crate::error::{EncryptionError, Error, ErrorKind, error_chain};
use crate::handle::DirRepo;
use crate::kind::project::Project;
use crate::open::Engine;
use crate::save::{ATTEMPTS, Donors, LongSave, Naming, StoringPlace, gc_of, may_borrow};
use crate::subjects::{DIR_PREFIX, PROFILE_PREFIX, SubjectRow};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::copy::{self, CopiedList, CopyParts};
use stasis_disk::form::chunked::list::root_of;
use stasis_disk::form::chunked::{ChunkCodec, ChunkError};
use stasis_disk::progress::Progress;
use stasis_model::digest::ChunkDigest;
use stasis_model::failure::Failure;
use stasis_model::format::key::{KeyOwner, PoolId};
use stasis_model::format::manifest::{
    Indexed, Publish, RepoDocument, SnapshotIndex, SnapshotManifest, StoredManifest,
};
use stasis_model::id::{Lineage, ProjectId, SnapshotId, SubjectName, TenantId};
use stasis_model::protocol::gc::{ChunkName, SaveAnswer, SaveGuard};
use stasis_model::tree::list::ListRoot;
use stasis_store::backend::file::is_store;
use stasis_store::copying;
use stasis_store::documents::{policies, roots::Root};
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use std::collections::HashMap;
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

/// The snapshot of the target that the next one shares chunks and sections with.
#[derive(Default)]
struct Previous {
    id: Option<SnapshotId>,
    names: HashMap<ChunkDigest, ChunkName>,
    /// What this copy has put or seen itself, by what it is called in the source.
    moved: HashMap<ChunkName, ChunkName>,
    list: ListRoot,
}

impl Previous {
    fn name_of(&self, digest: &ChunkDigest, guard: &SaveGuard) -> Option<ChunkName> {
        usable(*self.names.get(digest)?, guard)
    }

    fn moved_to(&self, name: &ChunkName, guard: &SaveGuard) -> Option<ChunkName> {
        usable(*self.moved.get(name)?, guard)
    }
}

/// A name that a snapshot has, unless it is condemned.
fn usable(name: ChunkName, guard: &SaveGuard) -> Option<ChunkName> {
    (guard.place(name.digest(), Some(name)) == name).then_some(name)
}

/// A directory on its way from one store into another.
struct Journey<'j> {
    from: DirRepo<'j>,
    source: Root,
    to: DirRepo<'j>,
    target: Root,
    name: SubjectName,
    repo: RepoDocument,
    /// How chunks are named and stored in the target.
    codec: ChunkCodec,
    /// The index of the source, when it was read.
    wanted: SnapshotIndex,
    progress: Arc<Progress>,
    previous: Arc<Previous>,
    copied: CopiedSubject,
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

impl<'j> Journey<'j> {
    /// From the directory that one engine is about to the one that the other is about.
    async fn begin(
        from: &'j Engine,
        to: &'j Engine,
        tenant: &TenantId,
        id: &ProjectId,
        progress: Arc<Progress>,
    ) -> Result<Self, Error> {
        let (from, to) = (from.dirs(), to.dirs());
        let (source, target) = (from.root(), to.root());
        let repo = from.settings(&source).await?;
        let wanted = from.believed_index(&source, &repo).await?;
        if wanted.snapshots.is_empty() {
            let said = format!(
                "nothing is saved of `{DIR_PREFIX}{id}` in `{}`",
                from.location()
            );
            let failure = Failure::of(ErrorKind::NotFound, said);
            return Err(failure.with_hint(NOTHING).into());
        }
        // Whoever cannot read it makes no pool for it, which would be a plain one.
        let readable = from.codec_of(&source, &repo).await;
        readable.map_err(|error| with_key_hint(error, KEY_HERE))?;
        to.store().ensure_trusted().await?;
        to.ensure_pool().await?;
        let repo = to.settings(&target).await?;
        ensure_writable(&repo)?;
        let codec = to.codec_of(&target, &repo).await;
        let codec = codec.map_err(|error| with_key_hint(error, KEY_THERE))?;
        if !repo.is_encrypted() {
            to.ensure_may_be_plain(&target.layout().pool_id()).await?;
        }
        let name = id.as_str().parse();
        Ok(Self {
            from,
            source,
            to,
            target,
            name: name.expect("the names of directories and of subjects follow one rule"),
            repo,
            codec,
            wanted,
            progress,
            previous: Arc::default(),
            copied: CopiedSubject::new(format!("{DIR_PREFIX}{id}"), tenant.clone()),
        })
    }

    /// Copies what the target does not have. A snapshot that cannot be copied ends it: what comes after it would never be
    /// followed by it.
    async fn go(&mut self) -> Result<(), Error> {
        let there = self.to.believed_index(&self.target, &self.repo).await?;
        let rest = self.left_to_copy(&there)?;
        let is_there = |row: &&Indexed| copy_of(&there, &row.id).is_some();
        let count = self.wanted.snapshots.iter().filter(is_there).count() as u64;
        self.copied.snapshots_there = count;
        let all = self.wanted.snapshots.len() as u64;
        self.copied.snapshots_left = all - count - rest.len() as u64;
        if rest.is_empty() {
            return Ok(());
        }
        self.choose(&there).await?;
        self.previous = Arc::new(self.last_copied(&there).await?);
        for row in &rest {
            self.copy_snapshot(row).await?;
        }
        Ok(())
    }

    /// The snapshots that are newer than what was copied before. A target that is not a copy of the source is refused.
    fn left_to_copy(&self, there: &SnapshotIndex) -> Result<Vec<Indexed>, Error> {
        let wanted = &self.wanted;
        if there.deleted_at_ms.is_some() {
            return Err(self.diverged("was deleted there"));
        }
        let has_original = |one: &Indexed| wanted.snapshots.iter().any(|row| is_copy_of(one, row));
        let is_of_this_life = |one: &Indexed| {
            let copied = one.copied_from.as_ref();
            copied.is_some_and(|copied| copied.incarnation == wanted.incarnation)
        };
        let mut rows = there.snapshots.iter();
        if let Some(own) = there.saved_here() {
            return Err(self.diverged(&format!("has snapshot `{}` of its own", own.id)));
        }
        if !there.snapshots.is_empty() && !rows.any(|one| has_original(one) || is_of_this_life(one))
        {
            return Err(self.diverged("is a copy of another directory"));
        }
        let is_copied = |row: &Indexed| there.snapshots.iter().any(|one| is_copy_of(one, row));
        let newest = wanted.snapshots.iter().rposition(is_copied);
        // Where everything that was copied is forgotten in one of the two, its time tells what is newer.
        let last = there.snapshots.iter().map(|one| one.at_ms).max();
        let is_newer = |(at, row): &(usize, &Indexed)| match newest {
            Some(newest) => *at > newest,
            None => last.is_none_or(|last| row.at_ms > last),
        };
        let rest = wanted.snapshots.iter().enumerate().filter(is_newer);
        Ok(rest.map(|(_, row)| row.clone()).collect())
    }

    fn diverged(&self, why: &str) -> Error {
        let (name, store) = (&self.copied.subject, self.to.location());
        let said = format!("`{name}` in `{store}` {why}: nothing was copied into it");
        let hint = "copy it under another name, with --as NAME";
        let failure = Failure::of(ErrorKind::Diverged, said);
        failure.with_hint(hint).into()
    }

    /// What the newest snapshot that was copied before has.
    async fn last_copied(&self, there: &SnapshotIndex) -> Result<Previous, Error> {
        let Some(row) = there.snapshots.last() else {
            return Ok(Previous::default());
        };
        match self.read_copy(there, &row.id).await {
            // What cannot be read helps nobody; what it shares is stored again.
            Err(error) if references::is_damage(&error) => Ok(Previous::default()),
            read => read,
        }
    }

    async fn read_copy(&self, there: &SnapshotIndex, id: &SnapshotId) -> Result<Previous, Error> {
        let opened = self.to.open_snapshot(&self.target, there, id).await?;
        let (source, list) = (self.there(), opened.list);
        let read = bridge::blocking(move || {
            let mut references = References::default();
            references.add(&source, &list)?;
            Ok::<_, ChunkError>((references, root_of(&source, &list)?))
        });
        let (references, list) = read.await?;
        let names = references.names().iter();
        Ok(Previous {
            id: Some(id.clone()),
            names: names.map(|name| (name.digest(), *name)).collect(),
            moved: HashMap::new(),
            list,
        })
    }

    /// Copies one snapshot. One that is forgotten in the source meanwhile is passed over.
    async fn copy_snapshot(&mut self, row: &Indexed) -> Result<(), Error> {
        for attempt in 1.. {
            let error = match Box::pin(self.try_snapshot(row)).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if let Error::SaveGaveUp(why) = error
                && attempt < ATTEMPTS
            {
                tracing::info!(why, "once more");
                continue;
            }
            // A full disk and a limit are no damage.
            if error.kind() != ErrorKind::Corrupt {
                return Err(error);
            }
            let now = self.from.index(&self.source).await?;
            if now.find(&row.id).is_none() {
                tracing::info!(snapshot = %row.id, "forgotten while it was copied");
                return Ok(());
            }
            let error = self.from.blame(&self.source, Some(&row.id), error).await;
            let failure = Failure::new(error.kind(), "copy snapshot", &row.id).because(error);
            return Err(failure.with_hint(DAMAGED).into());
        }
        Ok(())
    }

    async fn try_snapshot(&mut self, row: &Indexed) -> Result<(), Error> {
        let opened = self.from.open_snapshot(&self.source, &self.wanted, &row.id);
        let opened = opened.await?;
        let mut guard = SaveGuard::new();
        let _ = guard.next(SaveAnswer::Begin);
        let gc = gc_of(&self.target).await?;
        let may_borrow = may_borrow(&self.target, &gc);
        let _ = guard.next(SaveAnswer::Gc(gc));
        let index = self.to.living_index(&self.target, &self.repo).await?;
        if let Some(own) = index.saved_here() {
            return Err(self.diverged(&format!("has snapshot `{}` of its own", own.id)));
        }
        if copy_of(&index, &row.id).is_some() {
            // By somebody else, or by a request of ours that was believed to be lost.
            self.copied.snapshots_there += 1;
            return Ok(());
        }
        let is_live = |id: &SnapshotId| index.find(id).is_some();
        if !self.previous.id.as_ref().is_some_and(is_live) {
            self.previous = Arc::default();
        }
        let donors = may_borrow.then(|| self.donors(&index));
        let place = StoringPlace {
            root: &self.target,
            repo: &self.repo,
            codec: &self.codec,
            index: &index,
        };
        let storing = self.to.storing(place, &guard, donors).await?;
        let list = match self.copy_tree(&opened, &guard, &storing).await {
            Ok(list) => list,
            Err(error) => {
                storing.abandon().await;
                storing.give_up(&error).await;
                return Err(error);
            }
        };
        let manifest = self.manifest(&opened.manifest, &index, &list);
        let published = match self.settled(&manifest, &list, &storing).await {
            Ok(stored) => self.publish(&manifest, &stored, &index, row).await,
            Err(error) => Err(error),
        };
        if let Err(error) = published {
            storing.give_up(&error).await;
            return Err(error);
        }
        storing.remove_documents().await;
        for name in &storing.healed() {
            self.target.release(name).await?;
        }
        self.to
            .remember_donor(&self.target, &self.repo, &manifest.snapshot_id)
            .await;
        self.copied.snapshots += 1;
        self.copied.objects += list.chunks_new;
        self.copied.bytes += list.bytes_stored;
        self.remember(&manifest, list).await;
        Ok(())
    }

    /// Puts the manifest of a copy, and makes sure that no sweep can hurt what it names.
    async fn settled(
        &self,
        manifest: &SnapshotManifest,
        list: &CopiedList,
        storing: &LongSave,
    ) -> Result<StoredManifest, Error> {
        storing.finish().await?;
        let stored = closed(&self.target, &self.codec, manifest, &list.names);
        let naming = Naming {
            root: &self.target,
            repo: &self.repo,
            guard: &mut storing.guard(),
            names: &list.names,
            donors: storing.donors(),
        };
        self.to.settle(naming, &stored).await?;
        Ok(stored)
    }

    /// The chunks of the target.
    fn there(&self) -> ChunkFetcher {
        ChunkFetcher::new(self.target.clone(), self.codec.clone())
    }

    /// Other subjects of the target whose chunks may be used.
    fn donors(&self, index: &SnapshotIndex) -> Arc<Donors> {
        let (engine, root) = (self.to.engine.clone(), self.target.clone());
        let is_first = index.snapshots.is_empty();
        Arc::new(Donors::new(engine, root, self.repo.clone(), is_first))
    }

    /// Copies the list and the chunks of a snapshot.
    async fn copy_tree(
        &self,
        opened: &OpenedSnapshot,
        guard: &SaveGuard,
        storing: &Arc<LongSave>,
    ) -> Result<CopiedList, Error> {
        let from = ChunkFetcher::new(self.source.clone(), opened.codec.clone());
        let there = self.there();
        let (list, storing) = (opened.list.clone(), storing.clone());
        let (guard, progress) = (guard.clone(), self.progress.clone());
        let previous = self.previous.clone();
        let level = self.repo.compression.level;
        let copied = bridge::blocking(move || {
            let is_damaged = |name: &ChunkName| storing.damaged().contains(name);
            let known = |digest: &ChunkDigest| previous.name_of(digest, &guard);
            let held = |name: &ChunkName| {
                let moved = previous.moved_to(name, &guard);
                moved.filter(|name| !is_damaged(name))
            };
            let mut parent = previous.list.clone();
            parent
                .sections
                .retain(|place| !is_damaged(&place.slice.chunk.name));
            copy::copy(&CopyParts {
                list: &list,
                from: &from,
                to: &*storing,
                there: &there,
                held: &held,
                known: &known,
                parent: &parent,
                level,
                progress: &progress,
            })
        });
        let copied = copied.await?;
        opened.ensure_tree(copied.digest)?;
        Ok(copied)
    }

    fn manifest(
        &self,
        original: &SnapshotManifest,
        index: &SnapshotIndex,
        list: &CopiedList,
    ) -> SnapshotManifest {
        let id = ChunkRoot::new_id(original.timestamp_ms, &*self.to.rng);
        let op_id = self.to.rng.op_id();
        let mut manifest = original.copied(id, op_id, &list.list, self.wanted.incarnation);
        manifest.name = self.name.clone();
        manifest.incarnation = index.incarnation;
        manifest.lease_epoch = index.fence.epoch;
        let parent = original.parent_snapshot_id.as_ref();
        manifest.parent_snapshot_id = parent.and_then(|parent| copy_of(index, parent));
        manifest
    }

    async fn publish(
        &self,
        manifest: &SnapshotManifest,
        stored: &StoredManifest,
        index: &SnapshotIndex,
        original: &Indexed,
    ) -> Result<(), Error> {
        let mut snapshot = Indexed::of(manifest, stored);
        snapshot.pinned = original.pinned;
        snapshot.labels.clone_from(&original.labels);
        let publish = Publish {
            incarnation: index.incarnation,
            lease: index.fence.epoch,
            base: index.active.clone(),
            snapshot,
            activates: self.becomes_latest(index, original, manifest),
        };
        self.to.publish(&self.target, manifest, publish).await?;
        Ok(())
    }

    /// Remembers what the target has by now, for the next snapshot. What cannot be read of it is stored again with that one: this one
    /// is published.
    async fn remember(&mut self, manifest: &SnapshotManifest, copied: CopiedList) {
        let (source, list) = (self.there(), copied.list);
        let list = match bridge::blocking(move || root_of(&source, &list)).await {
            Ok(list) => list,
            Err(error) => {
                tracing::info!(snapshot = %manifest.snapshot_id, %error, "what was just copied could not be read");
                self.previous = Arc::default();
                return;
            }
        };
        let names = copied.names.iter();
        self.previous = Arc::new(Previous {
            id: Some(manifest.snapshot_id.clone()),
            names: names.map(|name| (name.digest(), *name)).collect(),
            moved: copied.moved,
            list,
        });
    }

    /// Whether `latest` means a copy from now on: that of what it means in the source and, as long as that is not there, the
    /// newest that it could mean.
    fn becomes_latest(
        &self,
        index: &SnapshotIndex,
        original: &Indexed,
        copy: &SnapshotManifest,
    ) -> bool {
        match &self.wanted.active {
            Some(active) if *active == original.id => true,
            Some(active) => copy.may_be_latest() && copy_of(index, active).is_none(),
            None => false,
        }
    }

    /// Lets `latest` mean in the target what it means in the source, if that is there already. It comes before anything new is
    /// published, so that no copy that stops leaves it behind.
    async fn choose(&self, there: &SnapshotIndex) -> Result<(), Error> {
        let active = self.wanted.active.as_ref();
        let chosen = active.and_then(|id| copy_of(there, id));
        if chosen.is_none() || chosen == there.active {
            return Ok(());
        }
        let seen = there.active.as_ref();
        self.to.adopt(&self.target, chosen.as_ref(), seen).await
    }
}

fn is_copy_of(copy: &Indexed, original: &Indexed) -> bool {
    let copied = copy.copied_from.as_ref();
    copied.is_some_and(|copied| copied.snapshot_id == original.id)
}

/// The copy of a snapshot, if an index leads to one.
fn copy_of(index: &SnapshotIndex, original: &SnapshotId) -> Option<SnapshotId> {
    let mut rows = index.snapshots.iter();
    let found = rows.find(|one| {
        let copied = one.copied_from.as_ref();
        copied.is_some_and(|copied| copied.snapshot_id == *original)
    });
    found.map(|one| one.id.clone())
}

#[cfg(test)]
mod tests;
