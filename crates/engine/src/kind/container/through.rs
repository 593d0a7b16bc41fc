//! Volumes that are read and written through the engine: it is on another host, or this user may not read them where they lie.
//!
//! They come and go as tars, through a container that is made of the snapshot's own image and never started. What a tar says of owners,
//! modes and times goes into the snapshot, whoever we are.

use super::failure;
use super::fill::part_of;
use super::find::FoundSnapshot;
use super::helper_mount::HelperMount;
use super::image::{MadeFor, helper, image_name, remove_helper};
use super::volumes::{PlannedVolumes, VolumePlace};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::piped::{StreamReader, piped};
use crate::save::StatedBy;
use stasis_disk::form::archive::{ReadSettings, ReceivedTree, receive_tar};
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::form::chunked::tar::TarError;
use stasis_disk::tree::compare::digest_of;
use stasis_model::failure::{AtPath as _, Failure};
use stasis_model::format::manifest::CapturedVolume;
use stasis_model::tree::list::ListRow;
use stasis_model::tree::{EntryKind, EntryPath, Metadata};
use stasis_quiesce::docker::Docker;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl PlannedVolumes {
    /// Whether all of them can be read where they lie.
    pub(super) fn are_all_here(&self) -> bool {
        let mut all = self.volumes.iter();
        all.all(|one| matches!(one.place, VolumePlace::Directory(_)))
    }

    /// Reads those that cannot through the engine, each into its place in a directory of ours; says what is to be said of their entries.
    pub(super) async fn receive(
        &self,
        docker: &Docker,
        made_for: &MadeFor,
        view: &Path,
        cancel: &Arc<AtomicBool>,
    ) -> Result<StatedBy, Error> {
        let far = self.volumes.iter();
        let far: Vec<_> = far
            .filter(|one| matches!(one.place, VolumePlace::Engine(_)))
            .collect();
        let mut mounts = Vec::new();
        for (number, one) in far.iter().enumerate() {
            mounts.push(HelperMount::of(&one.manifest, &one.manifest.name, number));
        }
        let image = image_name(&made_for.snapshot);
        let helper = helper(docker, &image, made_for, &mounts).await?;
        let read = async {
            let mut trees = Vec::new();
            for (one, mount) in far.iter().zip(&mounts) {
                let target = view.join(&one.manifest.path);
                let tree = receive(docker, &helper, &mount.destination, target, cancel).await;
                let tree = tree.map_err(|error| not_read(&one.manifest.name, error))?;
                trees.push((one.at()?, tree));
            }
            Ok::<_, Error>(trees)
        };
        let read = read.await;
        remove_helper(docker, &helper).await;
        let trees = read?;
        Ok(StatedBy::new(move |path| {
            let mut trees = trees.iter();
            trees.find_map(|(place, tree)| tree.stated(place, path))
        }))
    }
}

/// Says which volume could not be read: nobody knows the container through which it was.
fn not_read(volume: &str, error: Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::Cancelled => return error,
        // The container and its volume are there.
        ErrorKind::NotFound => ErrorKind::Failed,
        kind => kind,
    };
    let failure = Failure::new(kind, "read the volume", volume);
    failure.because(error).into()
}

/// Reads a directory of a container into an empty one of ours.
async fn receive(
    docker: &Docker,
    container: &str,
    path: &str,
    target: PathBuf,
    cancel: &Arc<AtomicBool>,
) -> Result<ReceivedTree, Error> {
    let stream = docker.read_archive(container, path).await?;
    let reader = StreamReader::new(stream);
    let settings = ReadSettings {
        cancel: cancel.clone(),
        ..ReadSettings::default()
    };
    let name = PathBuf::from(path);
    let received = bridge::blocking(move || receive_tar(reader, &name, &target, &settings)).await;
    Ok(received?)
}

impl FoundSnapshot {
    /// Writes a volume of the snapshot into an empty volume `name`, and compares what is there then.
    pub(super) async fn fill_through(
        &self,
        docker: &Docker,
        volume: &CapturedVolume,
        name: &str,
        made_for: &MadeFor,
    ) -> Result<(), Error> {
        let mount = HelperMount {
            is_bind: false,
            ..HelperMount::of(volume, name, 0)
        };
        let image = image_name(&self.id);
        let helper = helper(docker, &image, made_for, std::slice::from_ref(&mount)).await?;
        let filled = async {
            self.send(docker, &helper, volume, &mount.destination)
                .await?;
            self.compare_received(docker, &helper, volume, &mount.destination)
                .await
        };
        let filled = filled.await;
        remove_helper(docker, &helper).await;
        filled
    }

    /// Sends a volume into a directory of a container.
    async fn send(
        &self,
        docker: &Docker,
        container: &str,
        volume: &CapturedVolume,
        destination: &str,
    ) -> Result<(), Error> {
        let (above, name) = split(destination)?;
        let tar = self.volume_tar(volume)?;
        let (mut writer, stream) = piped();
        let writing = bridge::blocking(move || {
            let written = tar.write(&name, &mut writer, &AtomicBool::new(false));
            let error = written.as_ref().err();
            let ended = writer.end(error.map(|error| error as &(dyn std::error::Error + 'static)));
            match written {
                Ok(()) => Ok(ended.map_err(|error| error_chain(&error))),
                // Why nobody takes it is said by whoever should.
                Err(error @ TarError::Output(_)) => Ok(Err(error_chain(&error))),
                Err(TarError::Chunk(error)) => Err(Error::from(error)),
                Err(error) => Err(failure(ErrorKind::Failed, error_chain(&error)).into()),
            }
        });
        let sending = docker.write_archive(container, &above, stream);
        let (written, sent) = tokio::join!(writing, sending);
        // What could not be read is why nothing more was sent.
        let ended = written?;
        sent?;
        ended.map_err(|why| {
            let said = format!("the volume `{}` could not be sent: {why}", volume.name);
            failure(ErrorKind::Failed, said).into()
        })
    }

    /// Reads a volume back, and compares it with what the snapshot has: contents by their digests.
    async fn compare_received(
        &self,
        docker: &Docker,
        container: &str,
        volume: &CapturedVolume,
        destination: &str,
    ) -> Result<(), Error> {
        let view = self.of.engine.scratch().await?;
        let target = view.root().join("received");
        let made = target.clone();
        bridge::blocking(move || stasis_disk::fs::atomic_write::make_directory(&made)).await?;
        let never = Arc::default();
        let tree = receive(docker, container, destination, target.clone(), &never).await?;
        let (part, list) = (part_of(volume)?, self.opened.list.clone());
        let source = self.opened.fetcher(&self.of.root());
        let differing = bridge::blocking(move || {
            let mut reader = ListReader::new(&source, &list)?;
            let mut count = 0_usize;
            while let Some(row) = reader.next_row()? {
                let Some(path) = row.entry.path.seen_from(&part) else {
                    continue;
                };
                count += 1;
                if !is_same(&row, &path, &tree, &target)? {
                    return Ok(Some(path.to_string()));
                }
            }
            // The directory itself is among those that came.
            let more = tree.entries.keys().filter(|path| !path.is_root()).count();
            Ok::<_, Error>((more != count).then(|| "something more".to_owned()))
        });
        let differing = differing.await?;
        drop(view);
        match differing {
            None => Ok(()),
            Some(path) => {
                let said = format!(
                    "the volume `{}` is not what the snapshot has: `{path}` differs",
                    volume.name
                );
                Err(failure(ErrorKind::Failed, said).into())
            }
        }
    }
}

/// Whether what came back is the entry that the snapshot has. Engines give times in whole seconds.
fn is_same(
    row: &ListRow,
    path: &EntryPath,
    tree: &ReceivedTree,
    target: &Path,
) -> Result<bool, Error> {
    let Some(stated) = tree.entries.get(path) else {
        return Ok(false);
    };
    let known = |one: &Metadata| (one.mode, one.uid, one.gid);
    let is_link = matches!(row.entry.kind, EntryKind::Symlink { .. });
    let is_further_name = matches!(row.entry.kind, EntryKind::HardLink { .. });
    if !is_link && !is_further_name && known(&stated.metadata) != known(&row.entry.metadata) {
        return Ok(false);
    }
    let place = target.join(OsStr::from_bytes(path.as_bytes()));
    match &row.entry.kind {
        EntryKind::File { .. } => {
            let file = File::open(&place).at("read", &place)?;
            let digest = digest_of(file).at("read", &place)?;
            let wanted = row.content.as_ref().map(|content| content.digest);
            Ok(wanted.is_none_or(|wanted| wanted == digest))
        }
        EntryKind::Symlink { target } => {
            let found = std::fs::read_link(&place).at("read", &place)?;
            Ok(found.as_os_str().as_bytes() == &target[..])
        }
        _ => Ok(place.symlink_metadata().is_ok()),
    }
}

/// The directory in which a place of a container lies, and its name there.
fn split(destination: &str) -> Result<(String, EntryPath), Error> {
    let trimmed = destination.trim_end_matches('/');
    let (above, last) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    let name = EntryPath::parse(last.as_bytes());
    let name = name.map_err(|error| Failure::of(ErrorKind::Invalid, error))?;
    let above = if above.is_empty() { "/" } else { above };
    Ok((above.to_owned(), name))
}
