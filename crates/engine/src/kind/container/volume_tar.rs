//! A volume of a snapshot as a tar, with everything that is known of its entries.

use super::fill::part_of;
use super::find::FoundSnapshot;
use crate::catalog::port::ChunkFetcher;
use crate::error::{Error, ErrorKind};
use stasis_disk::form::chunked::tar::{TarError, TarParts, write_tar};
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{CapturedVolume, FileList};
use stasis_model::tree::{Attribute, EntryPath, Metadata};
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

/// A volume that can be written as a tar.
pub(super) struct VolumeTar {
    source: ChunkFetcher,
    list: FileList,
    root: Metadata,
    root_attributes: Vec<Attribute>,
    part: EntryPath,
    workers: NonZeroUsize,
}

impl FoundSnapshot {
    /// Finds what is needed to write a volume as a tar.
    pub(super) fn volume_tar(&self, volume: &CapturedVolume) -> Result<VolumeTar, Error> {
        let manifest = &self.opened.manifest;
        let attributes = manifest.root_attributes();
        Ok(VolumeTar {
            source: self.opened.fetcher(&self.of.root()),
            list: self.opened.list.clone(),
            root: manifest.root(),
            root_attributes: attributes.map_err(|error| Failure::of(ErrorKind::Corrupt, error))?,
            part: part_of(volume)?,
            workers: self.of.engine.dirs().restore_workers(),
        })
    }
}

impl VolumeTar {
    /// Writes it; in the tar its directory is called `name`.
    pub(super) fn write(
        &self,
        name: &EntryPath,
        output: &mut impl Write,
        cancel: &AtomicBool,
    ) -> Result<(), TarError> {
        let parts = TarParts {
            source: &self.source,
            list: &self.list,
            root: self.root,
            root_attributes: &self.root_attributes,
            directory: &self.part,
            name,
            workers: self.workers,
            cancel,
        };
        let _ = write_tar(&parts, output)?;
        Ok(())
    }
}
