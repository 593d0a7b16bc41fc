//! A subject as far as the store has it, of whichever kind: what anybody who sees the store can look at, from any host.
//!
//! What a directory has on its own host only (checkpoints, what is there now) is not in it.

mod events;
mod restore;

pub use events::SubjectEvents;
pub use restore::{RestoreStored, StoredRestored};

use crate::catalog::ListedEntry;
use crate::diff::TreeDifference;
use crate::error::{Error, ErrorKind};
use crate::kind::container::{ContainerHost, Docker};
use crate::kind::directory::{DirSnapshot, Directory};
use crate::kind::profile::{
    Changes, CookieName, DiffSnapshots, ForkOrigin, LocatedProfile, ProfileDiff, SnapshotRow,
    SnapshotStatus, Wanted,
};
use crate::kind::project::{self, ProjectSnapshot, TableDiff};
use crate::open::Engine;
use crate::proofs::ProofShown;
use crate::subjects::SubjectKind;
use crate::tree_patch::{ComparedContent, PatchGap};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{Mode, ProfileManifest, SaveReason, SnapshotManifest};
use stasis_model::id::{ChromeMajor, Label, ProfileRef, SessionRef, TenantId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What looking takes of the host that looks.
#[derive(Clone, Debug)]
pub struct LookingHost {
    /// What it is called.
    pub name: Label,
    /// Its Docker engine, which tells containers of one name apart.
    pub docker: Docker,
    /// How it starts the process that opens databases.
    pub project: project::Host,
    /// A directory for copies of databases.
    pub scratch: PathBuf,
}

/// A subject whose snapshots are looked at.
#[derive(Clone, Debug)]
pub struct StoredSubject {
    engine: Engine,
    host: LookingHost,
    tenant: TenantId,
    of: Of,
}

/// How its snapshots are kept.
#[derive(Clone, Debug)]
enum Of {
    /// As trees of chunks: a directory, a session, a container.
    Chunks(Box<Directory>),
    /// As archives.
    Profile(ProfileRef),
}

/// One snapshot of a subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StoredSnapshot {
    /// What it is called.
    pub snapshot: String,
    /// The major version of the browser that a profile's is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chrome_major: Option<ChromeMajor>,
    /// When it was made.
    pub at: String,
    /// The same in milliseconds.
    pub at_ms: u64,
    /// The length of all its files.
    pub bytes: u64,
    /// What it takes of the store, where it shares nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_stored: Option<u64>,
    /// How many entries it has, or files.
    pub entries: u64,
    /// Whether `latest` means it.
    pub active: bool,
    /// Whether it is kept whatever a policy says.
    pub pinned: bool,
    /// What the save was made for; not known of a profile's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<SaveReason>,
    /// Whether the browser was running; of a profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// On which host a profile was captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Label>,
    /// The run that it was captured in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Label>,
    /// The snapshot that it derives from, where that is said without opening it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Of which snapshot of another profile it is a copy, if the profile began with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
    /// How a profile's stands to its pointer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<SnapshotStatus>,
    /// Words of the user's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Label>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// What became of the last attempt to restore it into a scratch place, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofShown>,
}

/// The snapshots of a subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StoredSnapshots {
    /// The newest first.
    pub items: Vec<StoredSnapshot>,
    /// Documents that cannot be read, and why: what they lead to is not among the rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// A snapshot with everything that it says of itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StoredSnapshotShown {
    /// As a list has it.
    #[serde(flatten)]
    pub row: StoredSnapshot,
    /// The stored document.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub metadata: StoredMetadata,
}

/// What a snapshot says of itself, as it is stored.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum StoredMetadata {
    /// That of a tree of chunks.
    Chunks(Box<SnapshotManifest>),
    /// That of a profile.
    Profile(Box<ProfileManifest>),
}

/// What differs between two snapshots of a subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StoredDiff {
    /// The older side.
    pub before: String,
    /// The newer side.
    pub after: String,
    /// Every entry that differs, in the order of paths.
    pub items: Vec<TreeDifference>,
    /// Databases whose tables have other numbers of rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableDiff>,
    /// Of a profile: cookies by site and name, without values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookies: Option<Changes<CookieName>>,
    /// Of a profile: origins with Local Storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_storage: Option<Changes<String>>,
    /// Of a profile: origins with `IndexedDB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indexed_db: Option<Changes<String>>,
    /// What could not be looked into, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// What `git apply` makes the newer entry of the older with, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// What differs and is not in the patch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_in_patch: Vec<PatchGap>,
}

impl From<ProjectSnapshot> for StoredSnapshot {
    fn from(row: ProjectSnapshot) -> Self {
        Self {
            snapshot: row.snapshot_id.to_string(),
            chrome_major: None,
            at: row.timestamp,
            at_ms: row.timestamp_ms,
            bytes: row.bytes,
            bytes_stored: None,
            entries: row.entries,
            active: row.active,
            pinned: row.pinned,
            reason: Some(row.reason),
            mode: None,
            host: None,
            run_id: None,
            parent: None,
            forked_from: None,
            marks: Vec::new(),
            labels: row.labels,
            damage: None,
            proof: None,
        }
    }
}

impl From<SnapshotRow> for StoredSnapshot {
    fn from(row: SnapshotRow) -> Self {
        let manifest = row.manifest;
        Self {
            forked_from: ForkOrigin::of(&manifest),
            snapshot: manifest.archive_sha256.to_string(),
            chrome_major: Some(manifest.chrome_major_version),
            at: manifest.captured_at_ms.to_string(),
            at_ms: manifest.captured_at_ms.millis(),
            bytes: manifest.uncompressed_size_bytes,
            bytes_stored: Some(manifest.archive_size_bytes),
            entries: manifest.file_count,
            active: row.marks.contains(&SnapshotStatus::Active),
            pinned: row.marks.contains(&SnapshotStatus::Pinned),
            reason: None,
            mode: Some(manifest.mode),
            host: Some(manifest.captured_by.host),
            run_id: Some(manifest.captured_by.host_run_id),
            parent: manifest.predecessor_sha256.map(|sha| sha.to_string()),
            marks: row.marks,
            labels: BTreeMap::new(),
            damage: row.damage,
            proof: row.proof,
        }
    }
}

impl From<ProfileDiff> for StoredDiff {
    fn from(diff: ProfileDiff) -> Self {
        let entry = |path: String, change| TreeDifference { path, change };
        let (added, removed) = (diff.files.added, diff.files.removed);
        let changed = diff.changed.into_iter();
        let mut items: Vec<TreeDifference> = changed
            .map(|one| entry(one.path, ChangeKind::Content))
            .collect();
        items.extend(
            added
                .into_iter()
                .map(|one| entry(one.path, ChangeKind::Added)),
        );
        items.extend(
            removed
                .into_iter()
                .map(|one| entry(one.path, ChangeKind::Removed)),
        );
        items.sort_by(|one, other| one.path.cmp(&other.path));
        Self {
            before: diff.before_sha256.to_string(),
            after: diff.after_sha256.to_string(),
            items,
            tables: Vec::new(),
            cookies: Some(diff.cookies),
            local_storage: Some(diff.local_storage),
            indexed_db: Some(diff.indexed_db),
            unread: diff.unread,
            patch: None,
            not_in_patch: Vec::new(),
        }
    }
}

impl Engine {
    /// A subject of a tenant, by what it is called after its prefix, and without the tenant: `notes`, `alice@131`, `42`, `web`.
    pub async fn stored(
        &self,
        tenant: &TenantId,
        kind: SubjectKind,
        name: &str,
        host: &LookingHost,
    ) -> Result<StoredSubject, Error> {
        let absent = || absent(kind, name);
        let of = match kind {
            SubjectKind::Dir => {
                let home = self.named_directory(tenant, name).await?;
                Of::directory(self.project(home, tenant, host.project.clone()))
            }
            SubjectKind::Session => {
                let session: Result<SessionRef, _> = format!("{tenant}/{name}").parse();
                let session = session.map_err(|_| absent())?;
                let looked = self.session_directory(&session, &host.name, host.project.clone());
                Of::directory(looked.await?)
            }
            SubjectKind::Container => {
                let of = ContainerHost {
                    docker: host.docker.clone(),
                    tenant: tenant.clone(),
                };
                let looked = self.container_directory(&of, name, host.project.clone());
                Of::directory(looked.await?)
            }
            SubjectKind::Profile => {
                let profile: Result<ProfileRef, _> = format!("{tenant}/{name}").parse();
                let profile = profile.map_err(|_| absent())?;
                // One that was never saved is not there, whatever major somebody asks for.
                self.profiles().snapshots(&profile).await?;
                Of::Profile(profile)
            }
        };
        Ok(StoredSubject {
            engine: self.clone(),
            host: host.clone(),
            tenant: tenant.clone(),
            of,
        })
    }
}

impl Of {
    fn directory(project: project::Project) -> Self {
        Self::Chunks(Box::new(Directory::new(Some(project), None)))
    }
}

/// A snapshot that was found.
enum Found {
    Chunks(DirSnapshot),
    Profile(LocatedProfile),
}

impl StoredSubject {
    /// All its snapshots, the newest first.
    pub async fn snapshots(&self) -> Result<StoredSnapshots, Error> {
        let (mut items, unreadable): (Vec<StoredSnapshot>, Vec<String>) = match &self.of {
            Of::Chunks(directory) => {
                let rows = directory.project()?.list().await?;
                (rows.into_iter().map(Into::into).collect(), Vec::new())
            }
            Of::Profile(profile) => {
                let list = self.engine.profiles().snapshots(profile).await?;
                let damaged = list.damaged.into_iter();
                // Where it lies says nothing to whoever does not see the bucket.
                let damaged = damaged.map(|one| format!("a manifest: {}", one.reason));
                let unreadable = damaged.chain(list.damage);
                let rows = list.snapshots.into_iter().map(Into::into);
                (rows.collect(), unreadable.collect())
            }
        };
        items.sort_by(|one, other| {
            let key = |row: &StoredSnapshot| (row.at_ms, row.snapshot.clone());
            key(other).cmp(&key(one))
        });
        self.add_proofs(&mut items).await?;
        Ok(StoredSnapshots { items, unreadable })
    }

    /// Says of each which was restored, and when; those of profiles say it already.
    async fn add_proofs(&self, rows: &mut [StoredSnapshot]) -> Result<(), Error> {
        if let Of::Chunks(directory) = &self.of {
            let known = directory.project()?.proofs().await?;
            for row in rows {
                row.proof = known.get(&row.snapshot).cloned();
            }
        }
        Ok(())
    }

    async fn find(&self, wanted: &SnapshotRef) -> Result<Found, Error> {
        Ok(match &self.of {
            Of::Chunks(directory) => Found::Chunks(directory.locate(wanted).await?),
            Of::Profile(profile) => {
                Found::Profile(self.engine.profiles().locate(profile, wanted).await?)
            }
        })
    }

    /// One snapshot, with what it says of itself.
    pub async fn show(&self, wanted: &SnapshotRef) -> Result<StoredSnapshotShown, Error> {
        match (&self.of, self.find(wanted).await?) {
            (Of::Profile(_), Found::Profile(found)) => {
                let subject = ProfileRef::from(found.lineage.clone());
                let shown = self.engine.profiles();
                let shown = shown.show(&subject, Some(&found.sha())).await?;
                let row = shown.lineages.into_iter().find_map(|one| one.snapshot);
                let row = row.ok_or_else(|| absent(SubjectKind::Profile, &wanted.to_string()))?;
                let metadata = StoredMetadata::Profile(Box::new(row.manifest.clone()));
                let row = row.into();
                Ok(StoredSnapshotShown { row, metadata })
            }
            (Of::Chunks(directory), Found::Chunks(found)) => {
                let wanted = SnapshotRef::from(found);
                let (row, manifest) = directory.project()?.show(&wanted).await?;
                let parent = manifest.parent_snapshot_id.as_ref();
                let mut row = StoredSnapshot {
                    parent: parent.map(ToString::to_string),
                    ..row.into()
                };
                self.add_proofs(std::slice::from_mut(&mut row)).await?;
                let metadata = StoredMetadata::Chunks(Box::new(manifest));
                Ok(StoredSnapshotShown { row, metadata })
            }
            _ => Err(mixed()),
        }
    }

    /// The entries of a snapshot that lie directly in `path`, or all beneath it, in the order of paths. With what the snapshot is called.
    pub async fn files(
        &self,
        wanted: &SnapshotRef,
        path: &EntryPath,
        is_deep: bool,
    ) -> Result<(String, Vec<ListedEntry>), Error> {
        let (name, mut entries) = match (&self.of, self.find(wanted).await?) {
            (Of::Chunks(directory), Found::Chunks(found)) => {
                (found.to_string(), directory.ls(&found, path).await?)
            }
            (_, Found::Profile(found)) => {
                let entries = self.engine.profiles().ls(&found, path).await?;
                (found.archive.to_string(), entries)
            }
            _ => return Err(mixed()),
        };
        entries.retain(|entry| is_deep || entry.is_directly_in(path));
        Ok((name, entries))
    }

    /// Writes the content of one file of a snapshot; the inner error is that of `out`.
    pub async fn content(
        &self,
        wanted: &SnapshotRef,
        path: &EntryPath,
        out: impl Write + Send + 'static,
    ) -> Result<io::Result<u64>, Error> {
        match (&self.of, self.find(wanted).await?) {
            (Of::Chunks(directory), Found::Chunks(found)) => directory.cat(&found, path, out).await,
            (_, Found::Profile(found)) => self.engine.profiles().cat(&found, path, out).await,
            _ => Err(mixed()),
        }
    }

    /// What differs between two snapshots, in one entry and what is in it; with a patch, where that is asked for.
    pub async fn diff(
        &self,
        before: &SnapshotRef,
        after: &SnapshotRef,
        within: &EntryPath,
        content: ComparedContent,
    ) -> Result<StoredDiff, Error> {
        match (&self.of, self.find(before).await?, self.find(after).await?) {
            (Of::Chunks(directory), Found::Chunks(before), Found::Chunks(after)) => {
                let diff = directory.diff_within(&before, Some(&after), content, within);
                let diff = diff.await?;
                let uncounted = diff.uncounted.into_iter();
                Ok(StoredDiff {
                    before: diff.before,
                    after: after.to_string(),
                    items: diff.items,
                    tables: diff.tables,
                    cookies: None,
                    local_storage: None,
                    indexed_db: None,
                    unread: uncounted
                        .map(|one| format!("{}: {}", one.path, one.why))
                        .collect(),
                    patch: diff.content.patch,
                    not_in_patch: diff.content.not_in_patch,
                })
            }
            (_, Found::Profile(before), Found::Profile(after)) => {
                if content != ComparedContent::None {
                    let said = "what differs in a profile is no text, so there is no patch";
                    return Err(Failure::of(ErrorKind::Invalid, said).into());
                }
                let mut diff = self.profile_diff(&before, &after).await?;
                diff.items.retain(|one| is_within(&one.path, within));
                Ok(diff)
            }
            _ => Err(mixed()),
        }
    }

    async fn profile_diff(
        &self,
        before: &LocatedProfile,
        after: &LocatedProfile,
    ) -> Result<StoredDiff, Error> {
        if before.lineage != after.lineage {
            let said = format!(
                "snapshots of `{}` and of `{}` are not compared: name two of one major version of Chrome",
                before.lineage, after.lineage
            );
            return Err(Failure::of(ErrorKind::Invalid, said).into());
        }
        let command = DiffSnapshots {
            lineage: before.lineage.clone(),
            before: Wanted::from(before.archive),
            after: Wanted::from(after.archive),
            scratch: self.host.scratch.clone(),
            spawn: self.host.project.check.clone(),
            cancel: Arc::default(),
        };
        Ok(self.engine.profiles().diff(&command).await?.into())
    }
}

fn is_within(path: &str, above: &EntryPath) -> bool {
    let path: Option<EntryPath> = path.parse().ok();
    path.is_some_and(|path| path.is_within(above))
}

fn absent(kind: SubjectKind, name: &str) -> Error {
    let kind = serde_json::to_value(kind).unwrap_or_default();
    let kind = kind.as_str().unwrap_or_default();
    let said = format!("there is no {kind} `{name}`");
    Failure::of(ErrorKind::NotFound, said).into()
}

/// A snapshot is found as its subject is kept.
fn mixed() -> Error {
    Failure::of(
        ErrorKind::Bug,
        "a snapshot was found that is kept otherwise than its subject",
    )
    .into()
}
