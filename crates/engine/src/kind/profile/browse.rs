//! Looking into the snapshots of a profile where they lie in the store.

use super::fetch::{another, opened_view};
use super::inventory::Damage as _;
use super::locate::LocatedProfile;
use super::subject::ShaPrefix;
use crate::archive::remote::Remote;
use crate::bridge;
use crate::catalog::ListedEntry;
use crate::error::{Error, ErrorKind, ProfileError};
use crate::find::{FoundVersions, NamePattern, VersionFinder};
use crate::handle::Profiles;
use crate::result::BrowsedSnapshot;
use stasis_disk::form::archive::{Archive, ArchiveError, ReadSettings};
use stasis_model::failure::Failure;
use stasis_model::id::{Lineage, ProfileRef, TenantId};
use stasis_model::tree::EntryPath;
use stasis_store::documents::profiles;
use stasis_store::layout::Key;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

impl Profiles<'_> {
    /// The lineages of one tenant, or of all.
    pub(crate) async fn browsed_lineages(
        self,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<Lineage>, Error> {
        let all = profiles::lineages(&*self.bucket, tenant).await?;
        Ok(all.into_iter().collect())
    }

    /// The snapshots of a lineage that can be read; one that was deleted, or has lost its archive, is not among them.
    pub(crate) async fn browsed_snapshots(
        self,
        lineage: &Lineage,
    ) -> Result<Vec<BrowsedSnapshot>, Error> {
        let inventory = self.inventory(lineage).await?;
        let active = inventory.active();
        let is_pinned = |archive| {
            let pointer = inventory.pointer.as_ref();
            pointer.is_some_and(|pointer| pointer.is_pinned(archive))
        };
        let all = inventory.stored.snapshots.iter();
        let whole = all
            .filter(|one| one.damage().is_none() && !inventory.is_tombstoned(one.active.archive));
        let rows = whole.map(|one| BrowsedSnapshot {
            id: one.active.archive.to_string(),
            name: None,
            at: one.manifest.captured_at_ms,
            labels: Vec::new(),
            pinned: is_pinned(one.active.archive),
            latest: active == Some(one.active.archive),
        });
        Ok(rows.collect())
    }

    /// The archive of a snapshot, to be read where it lies: its index is read, and that it says it is of the tree that the manifest
    /// says. What is read of it later is checked frame by frame.
    pub(crate) async fn archive_in_store(
        self,
        lineage: &Lineage,
        id: &str,
    ) -> Result<Archive, Error> {
        let inventory = self.inventory(lineage).await?;
        let sha: ShaPrefix = id
            .parse()
            .map_err(|_| ProfileError::NoArchive(id.to_owned()))?;
        let chosen = inventory.choose_whole(&sha)?;
        let (manifest, active) = (chosen.manifest.clone(), chosen.active.clone());
        let key = self.key_to_load(&manifest).await?;
        let place = Key::from_listing(&active.archive_key);
        let place = place.ok_or_else(|| ProfileError::NoArchive(active.archive.prefix()))?;
        let name = PathBuf::from(place.as_str());
        let remote = Remote::new(self.bucket.clone(), place, manifest.archive_size_bytes);
        bridge::blocking(move || {
            let view = opened_view(Arc::new(remote), &name, key.as_deref())?;
            let tree = view.archive.summary().map(|summary| summary.tree_digest);
            let tree = tree.map(|tree| key.as_ref().map_or(tree, |key| key.veil(&tree)));
            if tree == Some(manifest.tree_digest) {
                Ok(view.archive)
            } else {
                Err(another(&active, "that of another tree"))
            }
        })
        .await
    }

    /// The entries of a snapshot in `path`, in order.
    pub async fn ls(
        self,
        of: &LocatedProfile,
        path: &EntryPath,
    ) -> Result<Vec<ListedEntry>, Error> {
        let within = path.clone();
        let is_in = move |_: &ListedEntry, one: &EntryPath| one.is_within(&within);
        let found = self.entries_that(of, is_in).await?;
        if found.is_empty() && !path.is_root() {
            return Err(no_entry(of, path));
        }
        Ok(found)
    }

    /// The entries of a snapshot that somebody wants, in order.
    async fn entries_that(
        self,
        of: &LocatedProfile,
        is_wanted: impl Fn(&ListedEntry, &EntryPath) -> bool + Send + 'static,
    ) -> Result<Vec<ListedEntry>, Error> {
        let archive = self
            .archive_in_store(&of.lineage, &of.archive.to_string())
            .await?;
        bridge::blocking(move || {
            let mut found = Vec::new();
            archive.list(&ReadSettings::default(), |entry| {
                let listed = ListedEntry::from(entry);
                if is_wanted(&listed, &entry.path) {
                    found.push(listed);
                }
                Ok::<_, ArchiveError>(())
            })?;
            Ok(found)
        })
        .await
    }

    /// Writes the content of one file of a snapshot; the inner error is that of `out`.
    pub async fn cat(
        self,
        of: &LocatedProfile,
        path: &EntryPath,
        mut out: impl Write + Send + 'static,
    ) -> Result<io::Result<u64>, Error> {
        let archive = self
            .archive_in_store(&of.lineage, &of.archive.to_string())
            .await?;
        let (wanted, of) = (path.clone(), of.clone());
        bridge::blocking(move || {
            let written = archive.cat(&wanted, &mut out, &ReadSettings::default());
            match written {
                Ok(length) => Ok(out.flush().map(|()| length)),
                Err(ArchiveError::Sink { source, .. }) => Ok(Err(source)),
                Err(ArchiveError::NoSuchEntry { .. }) => Err(no_entry(&of, &wanted)),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Every version of the entries that a name or a pattern fits, in all snapshots of a profile.
    pub async fn find_all(
        self,
        subject: &ProfileRef,
        pattern: &str,
    ) -> Result<FoundVersions, Error> {
        let pattern = NamePattern::parse(pattern)?;
        let mut finder = VersionFinder::default();
        for lineage in self.lineages_of(subject).await? {
            let inventory = self.inventory(&lineage).await?;
            let stored = inventory.stored.snapshots.iter();
            let is_there = |archive| !inventory.is_tombstoned(archive);
            let mut all: Vec<_> = stored
                .map(|one| (one.manifest.captured_at_ms, one.active.archive))
                .filter(|(_, archive)| is_there(*archive))
                .collect();
            all.sort_unstable();
            for (at, archive) in all {
                let lineage = lineage.clone();
                let of = LocatedProfile { lineage, archive };
                let pattern = pattern.clone();
                let fits = move |entry: &ListedEntry, path: &EntryPath| pattern.fits(entry, path);
                let entries = self.entries_that(&of, fits).await;
                finder.add(archive.to_string(), at, entries)?;
            }
        }
        Ok(finder.finish())
    }
}

fn no_entry(of: &LocatedProfile, path: &EntryPath) -> Error {
    let (sha, subject) = (of.archive.prefix(), &of.lineage);
    let said = format!("snapshot `{sha}` of `{subject}` has no entry `{path}`");
    let hint = format!("`stasis ls profile:{subject} {sha}` lists what it has");
    Failure::of(ErrorKind::NotFound, said)
        .with_hint(hint)
        .into()
}
