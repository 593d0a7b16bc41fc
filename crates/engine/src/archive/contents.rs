//! What is in an archive, and whether it is whole.

use super::{ReadArchive, millis};
use crate::bridge;
use crate::error::Error;
use crate::result::EntryType;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::archive::ArchiveError;
use stasis_model::digest::{ArchiveDigest, TreeDigest};
use stasis_model::time::Clock;
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::io::{self, Write};

/// What an archive was found to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "an archive may be whole and still be another one than expected"]
pub struct VerifiedArchive {
    /// Which archive.
    pub archive: String,
    /// Whether it has an index, and is in frames.
    pub is_framed: bool,
    /// SHA-256 of the stored bytes.
    pub archive_sha256: ArchiveDigest,
    /// Which tree is in it, if it is one of ours.
    pub tree_digest: Option<TreeDigest>,
    /// What made the stored bytes of the tar bytes, if it is one of ours.
    pub encoder_id: Option<String>,
    /// Entries of any kind.
    pub entries: u64,
    /// Regular files.
    pub files: u64,
    /// The length of all files.
    pub bytes: u64,
    /// The length of the tar.
    pub tar_bytes: u64,
    /// The length of the archive.
    pub stored_bytes: u64,
    /// Frames in it.
    pub frames: Option<u64>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Reads a whole archive and compares it with everything that is known of it.
#[tracing::instrument(skip_all, err(level = "info"), fields(archive = %command.archive))]
pub async fn verify(command: ReadArchive, clock: &dyn Clock) -> Result<VerifiedArchive, Error> {
    let started = clock.uptime();
    let name = command.archive.to_string();
    let (spool, cancel) = (&command.spool, &command.cancel);
    let archive = command.archive.bring(spool, cancel, &command.progress);
    let archive = archive.await?;
    let verified = bridge::blocking(move || {
        let report = archive.verify(&command.settings())?;
        let encoder_id = archive.summary().map(|summary| summary.encoder_id.clone());
        Ok::<_, ArchiveError>((report, encoder_id))
    });
    let (report, encoder_id) = verified.await?;
    Ok(VerifiedArchive {
        archive: name,
        is_framed: report.frames.is_some(),
        archive_sha256: report.archive_sha256,
        tree_digest: report.tree_digest,
        encoder_id,
        entries: report.entries,
        files: report.files,
        bytes: report.bytes,
        tar_bytes: report.tar_bytes,
        stored_bytes: report.stored_bytes,
        frames: report.frames,
        elapsed_ms: millis(clock.uptime().saturating_sub(started)),
    })
}

/// One entry of an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ListedArchive {
    /// Its name; bytes that are no text are written as `\xNN`, a backslash is doubled.
    pub path: String,
    /// What it is.
    pub kind: EntryType,
    /// The length of a file.
    pub size: u64,
    /// Permissions, in octal digits.
    pub mode: String,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// When it changed: seconds since 1970, rounded down.
    pub modified_seconds: i64,
    /// Nanoseconds after that second.
    pub modified_nanos: u32,
    /// Where a link leads, spelled as a name is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How many attributes it has.
    pub attributes: usize,
}

impl From<&Entry> for ListedArchive {
    fn from(entry: &Entry) -> Self {
        let (size, target) = match &entry.kind {
            EntryKind::File { size } => (*size, None),
            EntryKind::Symlink { target } => (0, Some(spelled(target))),
            EntryKind::HardLink { to } => (0, Some(to.to_string())),
            _ => (0, None),
        };
        Self {
            path: entry.path.to_string(),
            kind: (&entry.kind).into(),
            size,
            mode: format!("{:04o}", entry.metadata.mode),
            uid: entry.metadata.uid,
            gid: entry.metadata.gid,
            modified_seconds: entry.metadata.modified.seconds,
            modified_nanos: entry.metadata.modified.nanos,
            target,
            attributes: entry.attributes.len(),
        }
    }
}

/// The target of a symbolic link, which may be anything, as safe to print as a path is.
fn spelled(target: &[u8]) -> String {
    let parts = target.split(|byte| *byte == b'/');
    let parts = parts.map(|part| match EntryPath::parse(part) {
        Ok(path) if !path.is_root() => path.to_string(),
        _ => part.escape_ascii().to_string(),
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Somebody who is shown the entries of an archive one by one.
pub type Shown = Box<dyn FnMut(&ListedArchive) -> io::Result<()> + Send>;

/// Shows every entry in order; of an archive that is not sorted all are read first.
pub async fn list(command: ReadArchive, mut each: Shown) -> Result<(), Error> {
    let archive = command.archive.open().await?;
    let listed = bridge::blocking(move || {
        let settings = command.settings();
        let mut show = |entry: &Entry| {
            each(&ListedArchive::from(entry)).map_err(|source| ArchiveError::Sink {
                path: entry.path.clone(),
                source,
            })
        };
        if archive.summary().is_some() {
            return archive.list(&settings, show);
        }
        let mut entries = Vec::new();
        archive.list(&settings, |entry| {
            entries.push(entry.clone());
            Ok::<_, ArchiveError>(())
        })?;
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        entries.iter().try_for_each(&mut show)
    });
    Ok(listed.await?)
}

/// Writes the content of one file of an archive; returns its length.
pub async fn cat(
    command: ReadArchive,
    entry: EntryPath,
    mut sink: Box<dyn Write + Send>,
) -> Result<u64, Error> {
    let archive = command.archive.open().await?;
    let written = bridge::blocking(move || {
        let length = archive.cat(&entry, &mut *sink, &command.settings())?;
        match sink.flush() {
            Ok(()) => Ok(length),
            Err(source) => Err(ArchiveError::Sink {
                path: entry,
                source,
            }),
        }
    });
    Ok(written.await?)
}
