//! Writes a snapshot of a container as one file that any host can import, or as a directory of files.

use super::exported::{
    DIRECTORIES, ExportIndex, ExportPlace, ExportRow, ExportedMetadata, FORMAT, IMAGES,
    ImportedMetadata,
};
use super::find::FoundSnapshot;
use super::list::KnownImages;
use super::{ContainerHost, SeenEngine, failure};
use crate::address::shell_word;
use crate::archive::{self, ArchivePlace, CreateArchive};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::piped::StreamReader;
use bytes::Bytes;
use futures_util::Stream;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::atomic_write::{atomic_write, make_private_directory, read_bounded};
use stasis_disk::fs::lock_file::DirectoryLock;
use stasis_disk::progress::Progress;
use stasis_model::failure::AtPath as _;
use stasis_model::format::manifest::CapturedVolume;
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What an exported file is called.
const ENDING: &str = ".tar.zst";
/// No index of an export is longer.
const LONGEST_INDEX: u64 = 16 << 20;

/// What an export is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportLayout {
    /// One file with everything, the image too.
    #[default]
    File,
    /// A directory with `index.json`, `metadata/` and `volumes/`; the image stays on the engine.
    Seed,
}

/// What is exported, and where to.
#[derive(Clone, Debug)]
pub struct ExportContainer {
    /// Which snapshot.
    pub snapshot: SnapshotRef,
    /// Of which container, where that is not clear.
    pub container: Option<String>,
    /// The file, or the directory.
    pub target: PathBuf,
    /// What is written.
    pub layout: ExportLayout,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

/// A snapshot that was exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerExported {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Of which container.
    pub container_name: String,
    /// The file, or the directory.
    pub target: String,
    /// What was written.
    pub layout: ExportLayout,
    /// Whether the image is in it.
    pub has_image: bool,
    /// Volumes in it.
    pub volumes: u64,
    /// How many bytes were written.
    pub bytes: u64,
    /// How long it took.
    pub elapsed_ms: u64,
}

impl Containers<'_> {
    /// Exports a snapshot: whole, or not at all.
    pub async fn export(
        self,
        host: &ContainerHost,
        how: &ExportContainer,
    ) -> Result<ContainerExported, Error> {
        let started = self.clock.uptime();
        let seen = host.look().await;
        let here = seen.as_ref().ok().map(|seen| seen.digits.clone());
        let of = host.name_of(how.container.as_deref()).await;
        let of = of.as_deref();
        let found = self.snapshot(&host.tenant, &how.snapshot, of, here.as_deref());
        let found = found.await?;
        found.ensure_chunks().await?;
        ensure_target(how)?;
        let bytes = match how.layout {
            ExportLayout::Seed => {
                self.write_parts(host, &found, (&how.target, how)).await?;
                let (target, id) = (how.target.clone(), found.id.clone());
                bridge::blocking(move || bytes_of(&target, &id)).await
            }
            ExportLayout::File => {
                let view = self.engine.scratch().await?;
                let directory = view.root().join("export");
                let made = directory.clone();
                bridge::blocking(move || make_private_directory(&made)).await?;
                self.write_image(seen?, &found, &directory, how).await?;
                self.write_parts(host, &found, (&directory, how)).await?;
                let packed = Box::pin(self.pack(directory, view.root(), how)).await?;
                drop(view);
                packed
            }
        };
        Ok(ContainerExported {
            snapshot_id: found.id.clone(),
            container_name: found.container.container_name.clone(),
            target: how.target.display().to_string(),
            layout: how.layout,
            has_image: how.layout == ExportLayout::File,
            volumes: found.container.volumes.len() as u64,
            bytes,
            elapsed_ms: self.engine.dirs().elapsed_ms(started),
        })
    }

    /// Writes everything but the image; the index comes last.
    async fn write_parts(
        self,
        host: &ContainerHost,
        found: &FoundSnapshot,
        (directory, how): (&Path, &ExportContainer),
    ) -> Result<(), Error> {
        let place = ExportPlace {
            directory,
            id: &found.id,
        };
        let (begun, index) = (directory.to_owned(), place.index());
        bridge::blocking(move || begin_directory(&begun, &index)).await?;
        let mut archives = std::collections::BTreeMap::new();
        for volume in &found.container.volumes {
            let file = place.volume_file(volume);
            found
                .write_volume(volume, place.volume(&file), &how.cancel)
                .await?;
            archives.insert(volume.path.clone(), file);
        }
        let environment = found.environment().await?;
        let images = KnownImages::ask(host).await;
        let shown = found.shown(&images, self.restorations_of(found).await?);
        let metadata = ExportedMetadata {
            shown: &shown,
            import: ImportedMetadata {
                format: FORMAT.to_owned(),
                manifest: found.container.clone(),
                volume_manifests: found.opened.manifest.volume_manifests.clone(),
                archives,
                snapshot_labels: shown.row.labels.clone(),
            },
        };
        let row = ExportRow {
            snapshot_id: found.id.clone(),
            container_name: shown.row.container_name.clone(),
            created_at: shown.row.created_at.clone(),
            trigger: shown.row.trigger.to_string(),
            size_bytes: shown.row.size_bytes,
        };
        let written = [
            (place.environment(), document(&environment)?),
            (place.metadata(), document(&metadata)?),
        ];
        let (index, locked) = (place.index(), directory.to_owned());
        bridge::blocking(move || {
            for (path, text) in &written {
                atomic_write(path, text)?;
            }
            // Somebody else may export into the same directory.
            let locked = DirectoryLock::wait(&locked)?;
            let mut all = read_index(&index)?;
            all.snapshots
                .retain(|one| one.snapshot_id != row.snapshot_id);
            all.snapshots.push(row);
            atomic_write(&index, &document(&all)?)?;
            drop(locked);
            Ok::<_, Error>(())
        })
        .await
    }

    /// Writes the image: as the engine has it, or as the store has its layers.
    async fn write_image(
        self,
        seen: SeenEngine,
        found: &FoundSnapshot,
        directory: &Path,
        how: &ExportContainer,
    ) -> Result<(), Error> {
        let place = ExportPlace {
            directory,
            id: &found.id,
        };
        let (path, images) = (place.image(), directory.join(IMAGES));
        bridge::blocking(move || make_private_directory(&images)).await?;
        let image = &found.container.image;
        let there = seen.docker.image(&image.name).await?;
        let is_there = there.is_some_and(|there| there.layers == image.layers);
        if !is_there && image.is_portable {
            let (reading, stream) = self.image_stream(&found.of.tenant, &found.id).await?;
            let writing = written(stream, path, &how.cancel);
            let (read, written) = tokio::join!(reading, writing);
            return read.and(written);
        }
        Box::pin(found.ensure_image(self, &seen, false)).await?;
        let stream = seen.docker.save_image(&image.name).await?;
        written(stream, path, &how.cancel).await
    }

    /// Packs a directory into one file, which only its owner can read.
    async fn pack(
        self,
        source: PathBuf,
        spool: &Path,
        how: &ExportContainer,
    ) -> Result<u64, Error> {
        let create = CreateArchive {
            source,
            target: ArchivePlace::File(how.target.clone()),
            level: 3,
            base: None,
            threads: None,
            excludes: Vec::new(),
            strict: true,
            across_filesystems: false,
            spool: spool.to_owned(),
            is_watched: false,
            progress: how.progress.clone(),
            cancel: how.cancel.clone(),
        };
        let _ = archive::create(create, &*self.clock).await?;
        let target = how.target.clone();
        let length = bridge::blocking(move || target.metadata().map(|found| found.len()));
        Ok(length.await.at("look at", &how.target)?)
    }
}

impl FoundSnapshot {
    async fn write_volume(
        &self,
        volume: &CapturedVolume,
        path: PathBuf,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), Error> {
        let (tar, cancel) = (self.volume_tar(volume)?, cancel.clone());
        bridge::blocking(move || {
            let mut file = BufWriter::new(new_file(&path)?);
            let written = tar.write(&EntryPath::root(), &mut file, &cancel);
            written.map_err(|error| failure(ErrorKind::Failed, error_chain(&error)))?;
            file.flush().at("write", &path)?;
            Ok::<_, Error>(())
        })
        .await
    }
}

/// Writes a stream into a file.
async fn written(
    stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    path: PathBuf,
    cancel: &Arc<AtomicBool>,
) -> Result<(), Error> {
    let (mut reader, cancel) = (StreamReader::new(stream), cancel.clone());
    bridge::blocking(move || {
        let mut file = new_file(&path)?;
        let mut piece = vec![0; 256 << 10];
        loop {
            if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(failure(ErrorKind::Cancelled, "the export was cancelled").into());
            }
            let length =
                io::Read::read(&mut reader, &mut piece).at("read what goes into", &path)?;
            if length == 0 {
                return Ok(());
            }
            file.write_all(&piece[..length]).at("write", &path)?;
        }
    })
    .await
}

/// A file that only its owner reads. One of the same snapshot is written again.
fn new_file(path: &Path) -> Result<File, Error> {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let opened = options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    Ok(opened.open(path).at("create", path)?)
}

pub(super) fn document(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec_pretty(value);
    Ok(text.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?)
}

/// The index of a directory; an empty one if there is none.
pub(super) fn read_index(path: &Path) -> Result<ExportIndex, Error> {
    let text = match read_bounded(path, LONGEST_INDEX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(ExportIndex {
                format: FORMAT.to_owned(),
                snapshots: Vec::new(),
            });
        }
        read => read.at("read", path)?,
    };
    let index: Result<ExportIndex, _> = serde_json::from_slice(&text);
    let index = index.map_err(|error| {
        let said = format!("`{}` is no index of an export: {error}", path.display());
        failure(ErrorKind::Invalid, said)
    })?;
    if index.format != FORMAT {
        let said = format!(
            "`{}` is of the format `{}`, and not {FORMAT}",
            path.display(),
            index.format
        );
        return Err(failure(ErrorKind::Invalid, said).into());
    }
    Ok(index)
}

/// Makes a directory one of exports before anything else is in it: who comes meanwhile, or after a crash, knows it by its index.
fn begin_directory(directory: &Path, index: &Path) -> Result<(), Error> {
    make_private_directory(directory)?;
    let locked = DirectoryLock::wait(directory)?;
    let none = read_index(index)?;
    if none.snapshots.is_empty() {
        atomic_write(index, &document(&none)?)?;
    }
    drop(locked);
    for name in DIRECTORIES.iter().filter(|name| **name != IMAGES) {
        make_private_directory(&directory.join(name))?;
    }
    Ok(())
}

/// Refuses a place where something else is.
fn ensure_target(how: &ExportContainer) -> Result<(), Error> {
    let target = &how.target;
    let shown = target.display();
    let refused = |kind: ErrorKind, said: String, hint: String| {
        Err(failure(kind, said).with_hint(hint).into())
    };
    if how.layout == ExportLayout::Seed {
        let found = target.symlink_metadata().ok();
        let is_file = found.as_ref().is_some_and(|found| !found.is_dir());
        // Whoever begins to export into it writes its index while he has it.
        let locked = found.filter(std::fs::Metadata::is_dir);
        let locked = locked.map(|_| DirectoryLock::wait(target)).transpose()?;
        let mut inside = std::fs::read_dir(target).into_iter().flatten();
        if is_file || (!target.join("index.json").exists() && inside.next().is_some()) {
            let said = format!("`{shown}` is something else than a directory of exports");
            return refused(
                ErrorKind::Invalid,
                said,
                "name an empty directory".to_owned(),
            );
        }
        read_index(&target.join("index.json"))?;
        drop(locked);
        return Ok(());
    }
    if !shown.to_string().ends_with(ENDING) {
        let said = format!("`{shown}` does not end in {ENDING}");
        let hint = "an export is an archive of that format: give it a name that says so";
        return refused(ErrorKind::Invalid, said, hint.to_owned());
    }
    if target.symlink_metadata().is_ok() {
        let said = format!("`{shown}` is there already");
        return refused(
            ErrorKind::Invalid,
            said,
            "name a file that is not there".to_owned(),
        );
    }
    let above = target.parent().filter(|above| *above != Path::new(""));
    if let Some(above) = above.filter(|above| !above.is_dir()) {
        let said = format!("there is no directory `{}`", above.display());
        let hint = format!(
            "`mkdir -p {}` makes it",
            shell_word(&above.display().to_string())
        );
        return refused(ErrorKind::NotFound, said, hint);
    }
    Ok(())
}

/// How long the files of a snapshot are in a directory of exports.
fn bytes_of(directory: &Path, id: &SnapshotId) -> u64 {
    let mut bytes = 0;
    for name in DIRECTORIES {
        let inside = std::fs::read_dir(directory.join(name));
        for entry in inside.into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(id.as_str()) {
                bytes += entry.metadata().map_or(0, |found| found.len());
            }
        }
    }
    bytes
}
