//! What a tar that another system sends has in it: its entries, with the digests of their contents. Nothing is written.

use super::ArchiveError;
use super::plain::Stream;
use super::reader::{ReadSettings, read_stream};
use super::reading::ArchiveReading;
use super::tar_event::TarEvent;
use stasis_model::digest::FileHasher;
use stasis_model::tree::diff::DigestedEntry;
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// No file that is read whole is longer.
const LONGEST_FILE: usize = 16 << 20;
/// So many zeros are digested at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Lists a tar, known as `name`, by paths. Devices are not listed.
pub fn list_tar(
    tar: impl Read,
    name: &Path,
    settings: &ReadSettings,
) -> Result<BTreeMap<EntryPath, DigestedEntry>, ArchiveError> {
    let mut reading = ArchiveReading::naming_devices(name, settings.limits);
    let mut listing = TarListing::default();
    let stream = Stream::of(tar, name);
    read_stream(stream, &mut reading, &settings.cancel, |reading, tar| {
        for event in reading.feed(&tar)? {
            listing.take(event, &tar);
        }
        Ok::<_, ArchiveError>(())
    })?;
    Ok(listing.entries)
}

/// Reads some files of a tar, known as `name`, each of them short; one that is there twice comes twice.
pub fn files_of_tar(
    tar: impl Read,
    name: &Path,
    wanted: &[EntryPath],
    settings: &ReadSettings,
) -> Result<Vec<(EntryPath, Vec<u8>)>, ArchiveError> {
    let mut reading = ArchiveReading::naming_devices(name, settings.limits);
    let mut found: Vec<(EntryPath, Vec<u8>)> = Vec::new();
    let mut is_open = false;
    let stream = Stream::of(tar, name);
    read_stream(stream, &mut reading, &settings.cancel, |reading, tar| {
        for event in reading.feed(&tar)? {
            match event {
                TarEvent::Entry(entry, _) => {
                    is_open = wanted.contains(&entry.path);
                    if is_open {
                        found.push((entry.path, Vec::new()));
                    }
                }
                TarEvent::Content(range) => {
                    if let Some((_, text)) = found.last_mut().filter(|_| is_open) {
                        let left = LONGEST_FILE.saturating_sub(text.len()).min(range.len());
                        text.extend_from_slice(&tar[range][..left]);
                    }
                }
                TarEvent::Hole(_) => {}
            }
        }
        Ok::<_, ArchiveError>(())
    })?;
    Ok(found)
}

/// What was found so far.
#[derive(Default)]
struct TarListing {
    entries: BTreeMap<EntryPath, DigestedEntry>,
    /// A file whose content is not complete, and how much of it is to come.
    open: Option<(Entry, FileHasher, u64)>,
}

impl TarListing {
    fn take(&mut self, event: TarEvent, tar: &[u8]) {
        match event {
            TarEvent::Entry(entry, _) => match entry.kind {
                EntryKind::File { size } => self.open = Some((entry, FileHasher::default(), size)),
                _ => self.add(entry, None),
            },
            TarEvent::Content(range) => {
                if let Some((_, hasher, left)) = &mut self.open {
                    *left -= range.len() as u64;
                    hasher.update(&tar[range]);
                }
            }
            TarEvent::Hole(length) => self.hole(length),
        }
        if let Some((entry, hasher, _)) = self.open.take_if(|(_, _, left)| *left == 0) {
            self.add(entry, Some(hasher));
        }
    }

    fn hole(&mut self, mut length: u64) {
        if let Some((_, hasher, left)) = &mut self.open {
            *left -= length;
            while length > 0 {
                let part = length.min(ZEROS.len() as u64);
                length -= part;
                hasher.update(&ZEROS[..usize::try_from(part).unwrap_or(ZEROS.len())]);
            }
        }
    }

    fn add(&mut self, entry: Entry, content: Option<FileHasher>) {
        let digest = content.map(|hasher| hasher.finish());
        let path = entry.path.clone();
        self.entries.insert(path, DigestedEntry { entry, digest });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::archive::header::{Header, padding};
    use crate::form::archive::spelling::END;
    use stasis_model::digest::FileDigest;

    fn of(bytes: &[u8]) -> FileDigest {
        let mut hasher = FileHasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    #[test]
    fn entries_are_listed_with_what_is_in_them() {
        let mut tar = Vec::new();
        let mut add = |name: &str, kind: u8, target: &str, content: &[u8]| {
            let header = Header {
                name: name.as_bytes().to_vec(),
                mode: 0o640,
                uid: 1,
                gid: 2,
                size: content.len() as u64,
                seconds: 1_700_000_000,
                kind,
                target: target.as_bytes().to_vec(),
            };
            tar.extend_from_slice(&header.encode());
            tar.extend_from_slice(content);
            tar.resize(tar.len() + padding(content.len() as u64), 0);
        };
        add("etc/", b'5', "", b"");
        let long = vec![7; 100_000];
        add("etc/f", b'0', "", &long);
        add("empty", b'0', "", b"");
        add("link", b'2', "etc/f", b"");
        tar.extend_from_slice(&END);

        let listed = list_tar(&tar[..], Path::new("x"), &ReadSettings::default()).unwrap();

        let path = |text: &str| text.parse::<EntryPath>().unwrap();
        let names: Vec<String> = listed.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["empty", "etc", "etc/f", "link"]);
        assert_eq!(listed[&path("etc/f")].digest, Some(of(&long)));
        assert_eq!(listed[&path("empty")].digest, Some(of(b"")));
        assert_eq!(listed[&path("etc/f")].entry.metadata.mode, 0o640);
        assert_eq!(listed[&path("link")].digest, None);
    }
}
