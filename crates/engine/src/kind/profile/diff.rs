//! What differs between two snapshots of a profile: files, cookies by site and name, origins that keep something.
//!
//! Archives are read where they are: headers of both, the content of files of one size and two times, the databases of
//! cookies and of Local Storage. Values of cookies are never read out.

use super::inventory::Inventory;
use super::locate::Wanted;
use crate::address::as_typed;
use crate::bridge;
use crate::check::Spawn;
use crate::error::Error;
use crate::handle::Profiles;
use crate::result::EntryType;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::check::{self, CheckError, CheckSettings, ProfileIdentity};
use stasis_disk::form::archive::{Archive, ArchiveError, ReadSettings};
use stasis_model::digest::{ArchiveDigest, FileDigest, FileHasher};
use stasis_model::id::Lineage;
use stasis_model::tree::diff::{ContentChange, EntryChange, EntryDifference, diff_lists};
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How many files of one size and two times are compared by their content.
const MOST_COMPARED: usize = 20_000;

/// Asks for the differences of two snapshots.
#[derive(Clone, Debug)]
pub struct DiffSnapshots {
    /// Of which lineage.
    pub lineage: Lineage,
    /// The older one.
    pub before: Wanted,
    /// The newer one.
    pub after: Wanted,
    /// A directory for copies of databases.
    pub scratch: PathBuf,
    /// How the process that opens SQLite databases is started.
    pub spawn: Spawn,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
}

/// A file, a directory or something else that is in one of the two only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OneSided {
    /// Its name.
    pub path: String,
    /// What it is.
    pub kind: EntryType,
    /// The length of a file.
    pub size_bytes: u64,
}

/// An entry that is in both and is not the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Differing {
    /// Its name.
    pub path: String,
    /// Its length before.
    pub before_bytes: u64,
    /// Its length after.
    pub after_bytes: u64,
}

/// What came and what went of a set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Changes<T> {
    /// What is only in the newer one.
    pub added: Vec<T>,
    /// What is only in the older one.
    pub removed: Vec<T>,
}

/// A cookie, without its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CookieName {
    /// The site that set it.
    pub site: String,
    /// What it is called.
    pub name: String,
}

/// What differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileDiff {
    /// Of which lineage.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The older one.
    pub before_sha256: ArchiveDigest,
    /// The newer one.
    pub after_sha256: ArchiveDigest,
    /// Entries in one of them only.
    pub files: Changes<OneSided>,
    /// Entries that are not the same.
    #[serde(rename = "items")]
    pub changed: Vec<Differing>,
    /// Cookies by site and name; one whose value changed is in neither list.
    pub cookies: Changes<CookieName>,
    /// Origins with Local Storage.
    pub local_storage: Changes<String>,
    /// Origins with `IndexedDB`.
    pub indexed_db: Changes<String>,
    /// What could not be looked into, and why.
    pub unread: Vec<String>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Profiles<'_> {
    /// Compares two snapshots.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.lineage))]
    pub async fn diff(self, cmd: &DiffSnapshots) -> Result<ProfileDiff, Error> {
        let inventory = self.sound_inventory(&cmd.lineage).await?;
        let (before_sha256, before) = self.opened(&inventory, &cmd.before).await?;
        let (after_sha256, after) = self.opened(&inventory, &cmd.after).await?;
        let settings = CheckSettings {
            cancel: cmd.cancel.clone(),
            ..CheckSettings::new(&cmd.scratch)
        };
        let spawn = cmd.spawn.clone();
        let compared = bridge::blocking(move || {
            let before = Side::read(&before, &settings, &spawn)?;
            let after = Side::read(&after, &settings, &spawn)?;
            compare(&before, &after, &settings)
        });
        let compared = compared.await?;
        Ok(ProfileDiff {
            subject: cmd.lineage.clone(),
            before_sha256,
            after_sha256,
            warnings: self.clock_warnings(),
            ..compared.into_report(&cmd.lineage, before_sha256)
        })
    }

    /// The archive of a snapshot, on this host.
    pub(super) async fn opened(
        self,
        inventory: &Inventory,
        wanted: &Wanted,
    ) -> Result<(ArchiveDigest, Archive), Error> {
        let chosen = inventory.wanted_whole(wanted, &*self.clock)?;
        let cancel = Arc::default();
        let archive = self.fetch_archive(&chosen.manifest, &chosen.active, &cancel);
        Ok((chosen.active.archive, archive.await?))
    }
}

/// One of the two snapshots.
struct Side<'a> {
    archive: &'a Archive,
    entries: Vec<Entry>,
    identity: ProfileIdentity,
}

impl<'a> Side<'a> {
    fn read(
        archive: &'a Archive,
        settings: &CheckSettings,
        spawn: &Spawn,
    ) -> Result<Self, CheckError> {
        let mut entries = Vec::new();
        archive.list(&reading(settings), |entry| {
            entries.push(entry.clone());
            Ok::<_, ArchiveError>(())
        })?;
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        // A diff needs each path once; a foreign archive may have one twice.
        entries.dedup_by(|later, first| later.path == first.path);
        let named: Vec<(EntryPath, u64)> = entries
            .iter()
            .map(|entry| (entry.path.clone(), size(entry)))
            .collect();
        let identity = check::identity(archive, &named, settings, spawn)?;
        Ok(Self {
            archive,
            entries,
            identity,
        })
    }

    fn digest(
        &self,
        path: &EntryPath,
        settings: &CheckSettings,
    ) -> Result<FileDigest, ArchiveError> {
        let mut hashing = Hashing(FileHasher::default());
        self.archive.cat(path, &mut hashing, &reading(settings))?;
        Ok(hashing.0.finish())
    }
}

struct Hashing(FileHasher);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn reading(settings: &CheckSettings) -> ReadSettings {
    ReadSettings {
        cancel: settings.cancel.clone(),
        ..ReadSettings::default()
    }
}

fn size(entry: &Entry) -> u64 {
    match entry.kind {
        EntryKind::File { size } => size,
        _ => 0,
    }
}

fn one_sided(entry: &Entry) -> OneSided {
    OneSided {
        path: entry.path.to_string(),
        kind: (&entry.kind).into(),
        size_bytes: size(entry),
    }
}

/// What differs, before it has a name.
struct Compared {
    files: Changes<OneSided>,
    changed: Vec<Differing>,
    cookies: Changes<CookieName>,
    local_storage: Changes<String>,
    indexed_db: Changes<String>,
    unread: Vec<String>,
}

impl Compared {
    fn into_report(self, subject: &Lineage, sha256: ArchiveDigest) -> ProfileDiff {
        ProfileDiff {
            subject: subject.clone(),
            before_sha256: sha256,
            after_sha256: sha256,
            files: self.files,
            changed: self.changed,
            cookies: self.cookies,
            local_storage: self.local_storage,
            indexed_db: self.indexed_db,
            unread: self.unread,
            warnings: Vec::new(),
        }
    }
}

fn compare(
    before: &Side<'_>,
    after: &Side<'_>,
    settings: &CheckSettings,
) -> Result<Compared, CheckError> {
    let (old, new) = (&before.identity, &after.identity);
    let mut unread = old.unread.clone();
    unread.extend(new.unread.iter().cloned());
    unread.sort();
    unread.dedup();
    let cookie = |(site, name): &(String, String)| CookieName {
        site: site.clone(),
        name: name.clone(),
    };
    let mut compared = Compared {
        files: Changes {
            added: Vec::new(),
            removed: Vec::new(),
        },
        changed: Vec::new(),
        cookies: changes(&old.cookies, &new.cookies, cookie),
        local_storage: changes(&old.local_storage, &new.local_storage, String::clone),
        indexed_db: changes(&old.indexed_db, &new.indexed_db, String::clone),
        unread,
    };
    compared.join(before, after, settings)?;
    Ok(compared)
}

fn changes<T: Ord, U>(
    before: &BTreeSet<T>,
    after: &BTreeSet<T>,
    render: impl Fn(&T) -> U,
) -> Changes<U> {
    Changes {
        added: after.difference(before).map(&render).collect(),
        removed: before.difference(after).map(&render).collect(),
    }
}

impl Compared {
    /// Compares both lists of entries; files of one length and two times are read, but not too many of them.
    fn join(
        &mut self,
        before: &Side<'_>,
        after: &Side<'_>,
        settings: &CheckSettings,
    ) -> Result<(), CheckError> {
        let (mut compared, mut passed_over) = (0, 0);
        for change in diff_lists(&before.entries, &after.entries, difference) {
            match change {
                EntryChange::Removed(entry) => self.files.removed.push(one_sided(entry)),
                EntryChange::Added(entry) => self.files.added.push(one_sided(entry)),
                EntryChange::Changed {
                    old,
                    new,
                    difference,
                } => {
                    if difference.content == ContentChange::Unknown {
                        if compared == MOST_COMPARED {
                            passed_over += 1;
                        } else {
                            compared += 1;
                            let was = before.digest(&old.path, settings)?;
                            if was == after.digest(&new.path, settings)? {
                                continue;
                            }
                        }
                    }
                    self.changed.push(Differing {
                        path: old.path.to_string(),
                        before_bytes: size(old),
                        after_bytes: size(new),
                    });
                }
            }
        }
        if passed_over > 0 {
            self.unread.push(format!(
                "{passed_over} files of one size and two times are called changed without a look at their content"
            ));
        }
        Ok(())
    }
}

/// In what two entries differ. Metadata is no difference here: a browser touches everything.
fn difference(was: &Entry, is: &Entry) -> Option<EntryDifference> {
    let same_time = was.metadata.modified == is.metadata.modified;
    let content = || {
        if same_time {
            ContentChange::Same
        } else {
            ContentChange::Unknown
        }
    };
    EntryDifference::between(was, is, content)
        .filter(|difference| difference.kind || difference.content != ContentChange::Same)
}
