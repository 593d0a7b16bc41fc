//! A whole tree in memory, for trees that fit.

use super::{Visitor, WalkError, WalkReport, WalkSettings, WalkSkip, WalkedDir, WalkedEntry, walk};
use crate::fs::metadata::{self, Attributes};
use crate::fs::root_dir::RootDir;
use crate::worker_pool::{into_inner, lock};
use stasis_model::failure::AtPath;
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Reads everything beneath `root` with its user attributes, sorted by path; the root itself is not among it.
pub fn list(
    root: &RootDir,
    settings: &WalkSettings,
) -> Result<(Vec<Entry>, WalkReport), WalkError> {
    let collector = TreeCollector::default();
    let report = walk(root, &collector, settings)?;
    let CollectedTree {
        mut entries,
        mut directories,
    } = into_inner(collector.0);
    entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    for entry in &mut entries {
        if let Some(attributes) = directories.remove(&entry.path) {
            entry.attributes = attributes;
        }
    }
    Ok((entries, report))
}

#[derive(Default)]
struct CollectedTree {
    entries: Vec<Entry>,
    /// The attributes of directories that have some.
    directories: BTreeMap<EntryPath, Vec<Attribute>>,
}

#[derive(Default)]
struct TreeCollector(Mutex<CollectedTree>);

impl Visitor for TreeCollector {
    type Error = WalkError;

    fn enter(&self, place: &WalkedDir<'_>) -> Result<(), WalkError> {
        let Attributes { user, .. } = attributes(place.fd, place.path)?;
        if !user.is_empty() {
            let mut collected = lock(&self.0);
            collected.directories.insert(place.path.clone(), user);
        }
        Ok(())
    }

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        let mut read = Vec::with_capacity(entries.len());
        for found in entries {
            let path = place.child(found.name)?;
            let (mut seen, mut user) = (found.seen, Vec::new());
            let mut kind = found.kind.clone();
            if let EntryKind::File { .. } = kind {
                let Some((file, now)) = place.open_file(found.name)? else {
                    continue;
                };
                (seen, kind) = (now, EntryKind::File { size: now.size });
                user = attributes(&file, &path)?.user;
            } else if kind == EntryKind::Fifo {
                place.skip(found.name, WalkSkip::Fifo)?;
            }
            read.push(Entry {
                path,
                kind,
                metadata: seen.metadata(),
                attributes: user,
            });
        }
        let mut collected = lock(&self.0);
        collected.entries.append(&mut read);
        Ok(())
    }
}

fn attributes(fd: impl std::os::fd::AsFd, path: &EntryPath) -> Result<Attributes, WalkError> {
    Ok(metadata::attributes(fd).on("read the attributes of", path)?)
}
