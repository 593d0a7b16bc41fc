//! An archive is unpacked, checked and proven, all beside the directory; then it takes its place.

use super::command::{FallbackReason, ProfileLoad};
use super::judge::LoadFailure;
use crate::error::{Error, ProfileError};
use crate::kind::profile::checked::damaged;
use crate::kind::profile::directory::database_files;
use crate::kind::profile::fetch::{Proof, Unproven};
use stasis_disk::check::{self, CheckReport, CheckSettings, SqliteAccess};
use stasis_disk::form::archive::{
    Archive, ArchiveLimits, ReadSettings, UnpackSettings, UnpackedArchive, unpack_beside,
};
use stasis_disk::fs::metadata::Rights;
use stasis_disk::tree::restore::{RestoreOrigin, RestoredTree};
use std::path::PathBuf;

/// An archive that becomes a directory.
pub(super) struct Placing {
    pub(super) archive: Archive,
    pub(super) unproven: Unproven,
    pub(super) load: ProfileLoad,
    /// What the manifest says that the tree has.
    pub(super) bytes: u64,
    pub(super) scratch: PathBuf,
    pub(super) snapshot: String,
    pub(super) origin: RestoreOrigin,
}

/// What became of it.
pub(super) enum Outcome {
    /// It is the directory.
    Placed(Box<(RestoredTree, CheckReport)>),
    /// It was another one; nothing of it is left.
    Unproven(Proof),
}

impl Placing {
    /// Stages the tree while the archive is proven; swaps only what was.
    pub(super) fn place(self) -> Result<Outcome, LoadFailure> {
        let (staged, proof) = std::thread::scope(|scope| {
            let proof = scope.spawn(|| self.unproven.prove(&self.load.cancel));
            let staged = self.stage();
            let proof = proof.join();
            let proof = proof.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (staged, proof)
        });
        // What is wrong with something that is not the archive says nothing about the snapshot.
        match proof.map_err(extract_failed)? {
            Proof::Wanted => {}
            proof => return Ok(Outcome::Unproven(proof)),
        }
        let (unpacked, report) = staged?;
        let restored = unpacked.swap(&self.origin).map_err(extract_failed)?;
        Ok(Outcome::Placed(Box::new((restored, report))))
    }

    /// Extracts beside the directory, and checks the databases there.
    fn stage(&self) -> Result<(UnpackedArchive, CheckReport), LoadFailure> {
        let (unpacked, report, databases) = self.unpack().map_err(extract_failed)?;
        if databases.is_empty() {
            return Ok((unpacked, report));
        }
        let error = ProfileError::Integrity {
            snapshot: self.snapshot.clone(),
            databases,
        };
        Err(LoadFailure::new(FallbackReason::IntegrityFailed, error))
    }

    /// The tree beside the directory, what its databases are like, and those that are damaged.
    fn unpack(&self) -> Result<(UnpackedArchive, CheckReport, Vec<String>), Error> {
        let load = &self.load;
        let settings = UnpackSettings {
            placement: load.placement,
            only: None,
            rights: Rights::Own,
            read: ReadSettings {
                limits: ArchiveLimits {
                    bytes: self.bytes,
                    ..ArchiveLimits::default()
                },
                cancel: load.cancel.clone(),
                ..ReadSettings::default()
            },
            progress: load.progress.clone(),
        };
        let unpacked = unpack_beside(&self.archive, &load.dir, &settings)?;
        let checking = CheckSettings {
            // The tree is ours, and has not got the name yet by which a browser would open it.
            access: SqliteAccess::InPlace,
            cancel: load.cancel.clone(),
            ..CheckSettings::new(&self.scratch)
        };
        let tree = unpacked.tree();
        let report = unpacked.while_synced(|| check::tree(tree, &checking, &load.spawn))?;
        let files = database_files(unpacked.tree(), &load.dir)?;
        let databases = damaged(&report, &files);
        Ok((unpacked, report, databases))
    }
}

fn extract_failed(error: impl Into<Error>) -> LoadFailure {
    LoadFailure::new(FallbackReason::ExtractFailed, error)
}
