//! A tar that another system sends of a directory, as files of our own.
//!
//! Its owners are not ours to give, and its permissions may lock us out: every entry becomes ours, open to us and closed to
//! others, without attributes, and what the tar says of it is kept beside. A save takes both together again
//! ([`save_stated`](crate::form::chunked::save::save_stated)).
//!
//! The tar begins with the directory, by whatever name it was asked for: `data/`, or `./`. Everything in it must lie in that
//! directory. The parser and the writer are those of every archive, so that nothing leads out of the target, and no link is
//! passed through. Devices are never made; they are named.

use super::extract::{Sorter, WantedEntries};
use super::plain::Stream;
use super::reader::{ReadSettings, read_stream};
use super::reading::ArchiveReading;
use super::tar_event::TarEvent;
use super::{ArchiveError, Problem};
use crate::fs::fd::open_dir;
use crate::fs::metadata::Rights;
use crate::fs::staging;
use crate::tree::stated::{StatedEntry, relative};
use crate::tree::write::{TreeWriter, WriteLimits, WriteReport, WriteSettings};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::tree::{Entry, EntryKind, EntryPath, Metadata};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

/// A tree that was received.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what the entries really are is said only here"]
pub struct ReceivedTree {
    /// What the tar says of each entry, by its path in the directory; also of the directory itself, if it says anything of that.
    /// All names of a file have what is said of the file.
    pub entries: HashMap<EntryPath, StatedEntry>,
    /// The devices among them, which were not made, and of which nothing else is kept.
    pub devices: Vec<EntryPath>,
    /// What was written.
    pub written: WriteReport,
}

impl ReceivedTree {
    /// What is said of an entry of a tree in which the directory lies at `place`; nothing of what lies elsewhere.
    pub fn stated(&self, place: &EntryPath, path: &EntryPath) -> Option<StatedEntry> {
        self.entries.get(&relative(path, place)?).cloned()
    }
}

/// Writes the tar of a directory, known as `name`, into the empty directory `target`, which nobody else enters.
///
/// After an error, what was written is for the caller to remove.
pub fn receive_tar(
    tar: impl Read,
    name: &Path,
    target: &Path,
    settings: &ReadSettings,
) -> Result<ReceivedTree, ArchiveError> {
    received((tar, name), None, target, settings)
}

/// The same of a tar whose entries lie in no directory of their own.
pub fn receive_entries(
    tar: impl Read,
    name: &Path,
    target: &Path,
    settings: &ReadSettings,
) -> Result<ReceivedTree, ArchiveError> {
    let top = Some(EntryPath::root());
    received((tar, name), top, target, settings)
}

fn received(
    (tar, name): (impl Read, &Path),
    top: Option<EntryPath>,
    target: &Path,
    settings: &ReadSettings,
) -> Result<ReceivedTree, ArchiveError> {
    let writer = writer(target, settings)?;
    let mut sorter = Sorter::new(&writer, WantedEntries::All);
    let mut reading = ArchiveReading::naming_devices(name, settings.limits);
    let mut receiver = Receiver {
        top,
        ..Receiver::default()
    };
    let stream = Stream::of(tar, name);
    read_stream(stream, &mut reading, &settings.cancel, |reading, tar| {
        let mut events = Vec::new();
        let found: Vec<TarEvent> = reading.feed(&tar)?.collect();
        receiver.note(reading.devices());
        for event in found {
            let taken = match event {
                TarEvent::Entry(entry, at) => {
                    let own = receiver.take(entry);
                    let own = own.map_err(|problem| reading.refused(problem))?;
                    own.map(|entry| TarEvent::Entry(entry, at))
                }
                content => Some(content),
            };
            events.extend(taken);
        }
        sorter.write(events, tar)
    })?;
    let root = sorter.finish(name)?;
    let devices = receiver.finish();
    let devices = devices.map_err(|problem| reading.refused(problem))?;
    let written = writer.finish(root.as_ref())?;
    Ok(ReceivedTree {
        entries: receiver.entries,
        devices,
        written,
    })
}

/// Begins the tree, in a directory that must be empty: no entry of the tar finds anything of another one there.
fn writer(target: &Path, settings: &ReadSettings) -> Result<TreeWriter, ArchiveError> {
    let opened = open_dir(target).at("open the directory", target)?;
    let is_entry = |name: &[u8]| !matches!(name, b"." | b"..");
    let names = staging::named(&opened, b"", is_entry);
    if !names.at("list the directory", target)?.is_empty() {
        Err(Errno::NOTEMPTY).at("receive a tree in", target)?;
    }
    let limits = settings.limits;
    let settings = WriteSettings {
        rights: Rights::Own,
        limits: WriteLimits {
            entries: limits.entries,
            bytes: limits.bytes,
            deepest: limits.deepest,
        },
        cancel: settings.cancel.clone(),
        progress: settings.progress.clone(),
    };
    Ok(TreeWriter::new(opened, settings)?)
}

/// What was received so far.
#[derive(Default)]
struct Receiver {
    /// The name of the directory in the tar, once something came.
    top: Option<EntryPath>,
    entries: HashMap<EntryPath, StatedEntry>,
    /// What links and pipes are: those, too, have further names on some systems.
    others: HashMap<EntryPath, EntryKind>,
    /// Further names of files, and what each is another name of.
    links: Vec<(EntryPath, EntryPath)>,
    /// Devices and their further names, as the tar has them.
    devices: HashSet<EntryPath>,
    /// How many of those that the parser has met are among them.
    devices_met: usize,
}

impl Receiver {
    /// Takes note of devices, of which the parser shows all that it has met so far.
    fn note(&mut self, met: &[EntryPath]) {
        self.devices.extend(met[self.devices_met..].iter().cloned());
        self.devices_met = met.len();
    }

    /// Keeps what the tar says of an entry; says what is to be made of it here.
    fn take(&mut self, entry: Entry) -> Result<Option<Entry>, Problem> {
        let path = self.inside(&entry.path)?;
        if path.is_root() && entry.kind != EntryKind::Directory {
            return Err(Problem::NoTree);
        }
        let mut kind = entry.kind;
        if let EntryKind::HardLink { to } = &kind {
            if self.devices.contains(to) {
                self.devices.insert(entry.path);
                return Ok(None);
            }
            let to = self.inside(to)?;
            kind = match self.others.get(&to) {
                Some(other) => other.clone(),
                None => EntryKind::HardLink { to },
            };
        }
        match &kind {
            EntryKind::HardLink { to } => self.links.push((path.clone(), to.clone())),
            EntryKind::Symlink { .. } | EntryKind::Fifo => {
                self.others.insert(path.clone(), kind.clone());
            }
            _ => {}
        }
        let stated = StatedEntry {
            metadata: entry.metadata,
            attributes: entry.attributes,
        };
        let own = Entry {
            path: path.clone(),
            metadata: own(&kind, &stated.metadata),
            kind,
            attributes: Vec::new(),
        };
        self.entries.insert(path, stated);
        Ok(Some(own))
    }

    /// The path of an entry in the directory that the tar begins with.
    fn inside(&mut self, path: &EntryPath) -> Result<EntryPath, Problem> {
        let top = self.top.get_or_insert_with(|| {
            let first = path.components().next().unwrap_or_default();
            EntryPath::parse(first).expect("a component of a path is one")
        });
        relative(path, top).ok_or(Problem::Outside)
    }

    /// Says of all names of a file what was said of the file; names the devices.
    fn finish(&mut self) -> Result<Vec<EntryPath>, Problem> {
        for (path, to) in std::mem::take(&mut self.links) {
            if let Some(stated) = self.entries.get(&to).cloned() {
                self.entries.insert(path, stated);
            }
        }
        let devices = std::mem::take(&mut self.devices);
        let devices: Result<Vec<_>, _> = devices.iter().map(|path| self.inside(path)).collect();
        let mut devices = devices?;
        devices.sort();
        Ok(devices)
    }
}

/// What an entry of ours gets: its time, and permissions for us alone.
fn own(kind: &EntryKind, stated: &Metadata) -> Metadata {
    Metadata {
        mode: match kind {
            EntryKind::Directory => 0o700,
            _ => 0o600,
        },
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        modified: stated.modified,
    }
}

#[cfg(test)]
mod tests;
