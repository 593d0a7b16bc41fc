//! The snapshot of a session as a `.tar.gz`.

use super::{failure, name_of, no_snapshot};
use crate::address::shell_word;
use crate::archive::{self, ArchivePlace, CreateArchive};
use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::error::{Error, ErrorKind};
use crate::handle::Sessions;
use crate::restore::RepoRestore;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::gzip;
use stasis_model::id::{SessionRef, SnapshotId};
use stasis_model::snapshot_ref::SnapshotRef;
use std::path::Path;
use std::sync::Arc;

/// What a gzipped tar archive is called.
const ENDINGS: [&str; 2] = [".tar.gz", ".tgz"];

/// A session that was exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionExported {
    /// Which.
    pub session: SessionRef,
    /// What of it.
    pub snapshot_id: SnapshotId,
    /// The file.
    pub target: String,
    /// How many bytes that has.
    pub bytes: u64,
    /// Regular files in it.
    pub files: u64,
}

impl Sessions<'_> {
    /// Writes the published snapshot of a session as a `.tar.gz`, whole or not at all.
    pub async fn export(
        self,
        session: &SessionRef,
        target: &Path,
    ) -> Result<SessionExported, Error> {
        let document = self.read(session).await?;
        if target.symlink_metadata().is_ok() {
            let said = format!("`{}` is there already", target.display());
            let failure = failure(ErrorKind::Invalid, said);
            return Err(failure.with_hint("name a file that is not there").into());
        }
        ensure_place(target)?;
        let Some(known) = &document.snapshot else {
            return Err(no_snapshot(session));
        };
        let engine = self.of(session);
        let scratch = engine.scratch().await?;
        let wanted = SnapshotSelector {
            snapshot: SnapshotRef::Text(known.snapshot_id.to_string()),
            name: Some(name_of(&document.session)),
        };
        let tree = scratch.root().join("tree");
        let mut restore = RepoRestore::new(wanted, &tree);
        restore.owner = true;
        let restored = engine.dirs().restore(restore).await?;
        let packed = scratch.root().join("session.tar.zst");
        let create = CreateArchive {
            source: tree,
            target: ArchivePlace::File(packed.clone()),
            level: 1,
            base: None,
            threads: None,
            excludes: Vec::new(),
            strict: true,
            across_filesystems: false,
            spool: scratch.root().to_owned(),
            is_watched: false,
            progress: Arc::default(),
            cancel: Arc::default(),
        };
        let archived = archive::create(create, &*self.clock).await?;
        let to = target.to_owned();
        let bytes = bridge::blocking(move || {
            let written = gzip::from_zstd(&packed, &to);
            drop(scratch);
            written
        });
        Ok(SessionExported {
            session: session.clone(),
            snapshot_id: restored.snapshot_id,
            target: target.display().to_string(),
            bytes: bytes.await?,
            files: archived.files,
        })
    }
}

/// Refuses a name that says another format than what is written, and a directory that is not there.
fn ensure_place(target: &Path) -> Result<(), Error> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    if !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        let said = format!("`{}` does not end in .tar.gz or .tgz", target.display());
        let failure = failure(ErrorKind::Invalid, said);
        let hint = "an export is a gzipped tar archive: give it a name that says so";
        return Err(failure.with_hint(hint).into());
    }
    let above = target.parent().unwrap_or(Path::new(""));
    if above != Path::new("") && !above.is_dir() {
        let said = format!("there is no directory `{}`", above.display());
        let hint = format!(
            "`mkdir -p {}` makes it",
            shell_word(&above.display().to_string())
        );
        return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
    }
    Ok(())
}
