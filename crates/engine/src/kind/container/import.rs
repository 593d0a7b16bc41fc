//! Makes a snapshot of an export: of a file, or of a directory of files.
//!
//! 1. *unpack* and look: the image has the layers that it should, and no other name   2. *load* it, under the name of a new snapshot
//!    3. *save* the volumes, and compare what was saved with what the export says   4. *publish*
//!
//! *Always true:* on an error before 4 nothing is listed, and the image is removed; what a crash leaves is written down before, and
//! cleanup removes it.

use super::create::VolumeSaved;
use super::export::read_index;
use super::exported::{ExportPlace, FORMAT, ImportedMetadata};
use super::find::{subject_name, typed};
use super::image::{discard_image, image_name};
use super::volumes::{PlannedVolume, PlannedVolumes, VolumePlace};
use super::{ContainerHost, SeenEngine, failure};
use crate::archive::{self, ArchivePlace, ExtractArchive, Placement, ReadArchive};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use crate::open::Engine;
use crate::piped::piped_file;
use crate::save::{RepoSave, RepoSaved, StatedBy};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stasis_disk::form::archive::{ReadSettings, files_of_tar, receive_entries};
use stasis_disk::fs::atomic_write::{atomic_write, make_directory, read_bounded};
use stasis_disk::progress::Progress;
use stasis_model::failure::AtPath as _;
use stasis_model::format::manifest::{
    BINDS, ContainerManifest, ENVIRONMENT_FILE, Environment, SaveReason, SnapshotImage, VOLUMES,
};
use stasis_model::id::{ContainerSubject, Label, SnapshotId, TenantId};
use stasis_model::tree::EntryPath;
use stasis_quiesce::docker::Docker;
use stasis_store::layout::ChunkRoot;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// No document of an export is longer.
const LONGEST: u64 = 64 << 20;
/// The label that says which snapshot one was imported of.
const IMPORTED: &str = "imported-from";

/// What is imported.
#[derive(Clone, Debug)]
pub struct ImportContainer {
    /// The file, or the directory.
    pub source: PathBuf,
    /// Which snapshot of it, where it has several.
    pub snapshot: Option<SnapshotId>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

/// A snapshot that was imported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerImported {
    /// The snapshot that was made.
    pub snapshot_id: SnapshotId,
    /// The one that was exported.
    pub imported_from: SnapshotId,
    /// The subject, as it is typed.
    pub subject: String,
    /// Whose it is.
    pub tenant: TenantId,
    /// What the container was called.
    pub container_name: String,
    /// The image.
    pub image: String,
    /// Its volumes: they were compared with what the export says.
    pub volumes: Vec<VolumeSaved>,
    /// Bytes that had to be stored for them.
    pub bytes_stored: u64,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// An export that was read.
struct Export {
    directory: PathBuf,
    id: SnapshotId,
    metadata: ImportedMetadata,
    environment: Environment,
}

/// A snapshot in the making.
struct Importing<'i> {
    seen: &'i SeenEngine,
    engine: Engine,
    export: &'i Export,
    how: &'i ImportContainer,
    id: SnapshotId,
    subject: ContainerSubject,
    tenant: TenantId,
}

impl Containers<'_> {
    /// Imports a snapshot.
    pub async fn import(
        self,
        host: &ContainerHost,
        how: &ImportContainer,
    ) -> Result<ContainerImported, Error> {
        let started = self.clock.uptime();
        self.store().ensure_trusted().await?;
        let seen = host.look().await?;
        let view = self.engine.scratch().await?;
        let directory = self.unpacked(how, view.root()).await?;
        let wanted = how.snapshot.clone();
        let export = bridge::blocking(move || Export::read(&directory, wanted)).await?;
        let name = &export.metadata.manifest.container_name;
        let subject = ContainerSubject::new(name, &seen.digits);
        let _lock = self.lock(&seen, name, "imported").await?;
        let engine = self.of(&host.tenant, &subject);
        engine.dirs().ensure_pool().await?;
        let id = ChunkRoot::new_id(self.lineages.now(), &*self.rng);
        let importing = Importing {
            seen: &seen,
            engine,
            export: &export,
            how,
            id: id.clone(),
            subject: subject.clone(),
            tenant: host.tenant.clone(),
        };
        let exported = &export.metadata.manifest.image.name;
        let is_loaded = seen.docker.image(exported).await?.is_none();
        let loaded = is_loaded.then(|| exported.clone());
        let of = (&host.tenant, &id);
        let record = self.begin_import(&seen, &subject, of, loaded).await?;
        let imported = match Box::pin(importing.run()).await {
            Ok(imported) => imported,
            Err(error) => {
                // What became of it is not known: whoever cleans up looks again. So does he if the image could not go.
                if error.kind() != ErrorKind::Unknown
                    && discard_image(&seen.docker, &image_name(&id)).await
                {
                    record.end().await;
                }
                return Err(error);
            }
        };
        record.end().await;
        drop(view);
        Ok(ContainerImported {
            elapsed_ms: self.engine.dirs().elapsed_ms(started),
            ..imported
        })
    }

    /// The directory of an export; a file is unpacked.
    async fn unpacked(self, how: &ImportContainer, scratch: &Path) -> Result<PathBuf, Error> {
        if how.source.is_dir() {
            return Ok(how.source.clone());
        }
        let target = scratch.join("export");
        let extract = ExtractArchive {
            read: ReadArchive {
                archive: ArchivePlace::File(how.source.clone()),
                spool: scratch.to_owned(),
                largest: None,
                threads: None,
                progress: how.progress.clone(),
                cancel: how.cancel.clone(),
            },
            target: target.clone(),
            placement: Placement::default(),
            only: None,
            owners: false,
        };
        let _ = Box::pin(archive::extract(extract, &*self.clock)).await?;
        Ok(target)
    }
}

impl Export {
    /// Reads what is said of a snapshot, and that it is of one kind.
    fn read(directory: &Path, wanted: Option<SnapshotId>) -> Result<Self, Error> {
        let index = directory.join("index.json");
        if !index.exists() {
            let said = format!("`{}` is no export of a container", directory.display());
            let hint = "`stasis container export SNAPSHOT FILE` makes one";
            return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
        }
        let rows = read_index(&index)?.snapshots;
        let id = match (wanted, &rows[..]) {
            (None, [one]) => one.snapshot_id.clone(),
            (Some(wanted), _) if rows.iter().any(|one| one.snapshot_id == wanted) => wanted,
            (wanted, rows) => {
                let all: Vec<&str> = rows.iter().map(|one| one.snapshot_id.as_str()).collect();
                let said = match wanted {
                    Some(wanted) => format!("the export has no snapshot `{wanted}`"),
                    None => format!("the export has {} snapshots", all.len()),
                };
                let hint = format!("say which: --snapshot {}", all.join(" | "));
                return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
            }
        };
        let place = ExportPlace { directory, id: &id };
        let metadata: ImportedMetadata = read_document(&place.metadata())?;
        let environment: Environment = read_document(&place.environment())?;
        if metadata.format != FORMAT {
            let said = format!("the export is of the format `{}`", metadata.format);
            return Err(failure(ErrorKind::Invalid, said).into());
        }
        let export = Self {
            id,
            metadata,
            environment,
            directory: directory.to_owned(),
        };
        export.ensure_sound()?;
        Ok(export)
    }

    /// Refuses places that lead anywhere else.
    fn ensure_sound(&self) -> Result<(), Error> {
        let manifest = &self.metadata.manifest;
        let mut places: Vec<&String> = manifest.volumes.iter().map(|one| &one.path).collect();
        places.sort_unstable();
        places.dedup();
        if places.len() != manifest.volumes.len() || manifest.image.name != image_name(&self.id) {
            let said = "the export says two things of one volume, or has the image of another one";
            return Err(failure(ErrorKind::Corrupt, said).into());
        }
        for volume in &manifest.volumes {
            let file = self.metadata.archives.get(&volume.path);
            let is_file = file.is_some_and(|file| !file.contains('/') && !file.starts_with('.'));
            let place: Result<EntryPath, _> = volume.path.parse();
            // None lies in another one: a link in that could lead anywhere.
            let parts: Vec<&str> = volume.path.split('/').collect();
            let is_placed = matches!(parts[..], [VOLUMES | BINDS, name] if !name.is_empty());
            let is_placed = is_placed && place.is_ok();
            if !is_file || !is_placed {
                let said = format!(
                    "the export says of volume `{}` where it is not",
                    volume.name
                );
                return Err(failure(ErrorKind::Corrupt, said).into());
            }
        }
        Ok(())
    }

    fn place(&self) -> ExportPlace<'_> {
        ExportPlace {
            directory: &self.directory,
            id: &self.id,
        }
    }
}

impl Importing<'_> {
    async fn run(&self) -> Result<ContainerImported, Error> {
        let image = self.load().await?;
        let saved = self.save(image).await?;
        Ok(saved)
    }

    /// Loads the image under the name of the new snapshot.
    async fn load(&self) -> Result<SnapshotImage, Error> {
        let docker = &self.seen.docker;
        let exported = &self.export.metadata.manifest.image;
        let before = docker.image(&exported.name).await?;
        let had_name = before.is_some();
        let there = match before.filter(|there| there.layers == exported.layers) {
            Some(there) => there,
            None if had_name => {
                let said = format!("the engine has another image `{}`", exported.name);
                return Err(failure(ErrorKind::Conflict, said).into());
            }
            None => {
                let path = self.export.place().image();
                let name = exported.name.clone();
                let checked = path.clone();
                bridge::blocking(move || ensure_image_file(&checked, &name)).await?;
                let loaded = load_file(docker, path).await;
                let there = match loaded {
                    Ok(()) => docker.image(&exported.name).await.map_err(Error::from),
                    Err(error) => Err(error),
                };
                let there = there.map(|there| there.filter(|one| one.layers == exported.layers));
                match there {
                    Ok(Some(there)) => there,
                    other => {
                        discard_image(docker, &exported.name).await;
                        let said = "the image of the export has other layers than it says";
                        let other = other.err();
                        return Err(
                            other.unwrap_or_else(|| failure(ErrorKind::Corrupt, said).into())
                        );
                    }
                }
            }
        };
        let name = image_name(&self.id);
        let (repository, tag) = name.split_once(':').unwrap_or((&name, "latest"));
        let tagged = docker.tag_image(&there.id, repository, tag).await;
        if !had_name {
            discard_image(docker, &exported.name).await;
        }
        tagged?;
        Ok(SnapshotImage {
            name: name.clone(),
            id: there.id,
            is_portable: false,
            ..exported.clone()
        })
    }

    /// Saves the volumes, and publishes them with the rest.
    async fn save(&self, image: SnapshotImage) -> Result<ContainerImported, Error> {
        let metadata = &self.export.metadata;
        let mut manifest = metadata.manifest.clone();
        manifest.engine.clone_from(&self.seen.digits);
        manifest.image = image;
        let planned = manifest.volumes.iter().map(|one| PlannedVolume {
            manifest: one.clone(),
            place: VolumePlace::Engine("it was imported".to_owned()),
        });
        let planned = PlannedVolumes {
            volumes: planned.collect(),
            ..PlannedVolumes::default()
        };
        let view = self.engine.scratch().await?;
        let stated = self.receive(&planned, view.root()).await?;
        let mut labels = metadata.snapshot_labels.clone();
        let from: Label = self.export.id.as_str().parse().unwrap_or_default();
        labels.insert(IMPORTED.to_owned(), from);
        // What `latest` means of a container that is saved here stays what somebody saved here.
        let index = self.engine.dirs().root().index().await?;
        let is_first = index.is_none_or(|index| index.value.latest().is_none());
        let command = RepoSave {
            reason: SaveReason::Manual,
            activates: is_first,
            labels,
            volumes: planned.facts()?,
            stated: Some(stated),
            snapshot_id: Some(self.id.clone()),
            force: true,
            allow_shrink: true,
            strict: true,
            cancel: self.how.cancel.clone(),
            progress: self.how.progress.clone(),
            ..RepoSave::new(view.root(), subject_name(&self.subject))
        };
        let dirs = self.engine.dirs();
        let mut tree = Box::pin(dirs.save_gather(command)).await?;
        tree.is_of(manifest.clone());
        let ready = dirs.save_describe(tree).await?;
        for (path, wanted) in &metadata.volume_manifests {
            let found = ready.volumes().get(path).map(|one| one.digest);
            if found != Some(wanted.digest) {
                ready.give_up().await;
                let said =
                    format!("`{path}` of the export is not what it was when it was exported");
                return Err(failure(ErrorKind::Corrupt, said).into());
            }
        }
        let volumes = ready.volumes().clone();
        let saved = dirs.save_publish(ready).await?;
        let rows = manifest.volumes.iter().filter_map(|one| {
            let measured = volumes.get(&one.path)?;
            Some(VolumeSaved::new(one, measured))
        });
        Ok(self.imported(&saved, &manifest, rows.collect()))
    }

    fn imported(
        &self,
        saved: &RepoSaved,
        manifest: &ContainerManifest,
        volumes: Vec<VolumeSaved>,
    ) -> ContainerImported {
        ContainerImported {
            snapshot_id: saved.snapshot_id.clone(),
            imported_from: self.export.id.clone(),
            subject: typed(&self.subject),
            tenant: self.tenant.clone(),
            container_name: manifest.container_name.clone(),
            image: manifest.image.name.clone(),
            volumes,
            bytes_stored: saved.bytes_stored,
            elapsed_ms: 0,
        }
    }

    /// Unpacks the volumes, each into its place; says what is to be said of their entries.
    async fn receive(&self, planned: &PlannedVolumes, view: &Path) -> Result<StatedBy, Error> {
        let text = super::export::document(&self.export.environment)?;
        let mut work = Vec::new();
        for one in &planned.volumes {
            let file = self.export.metadata.archives.get(&one.manifest.path);
            let file = self.export.place().volume(file.map_or("", |file| file));
            work.push((one.at()?, file, view.join(&one.manifest.path)));
        }
        let environment = view.join(ENVIRONMENT_FILE);
        let cancel = self.how.cancel.clone();
        let trees = bridge::blocking(move || {
            atomic_write(&environment, &text)?;
            let mut trees = Vec::new();
            for (place, file, target) in work {
                make_directory(&target)?;
                let settings = ReadSettings {
                    cancel: cancel.clone(),
                    ..ReadSettings::default()
                };
                let tar = File::open(&file).at("read", &file)?;
                let tree = receive_entries(tar, &file, &target, &settings)?;
                trees.push((place, tree));
            }
            Ok::<_, Error>(trees)
        });
        let trees = trees.await?;
        Ok(StatedBy::new(move |path| {
            let mut trees = trees.iter();
            trees.find_map(|(place, tree)| tree.stated(place, path))
        }))
    }
}

fn read_document<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = read_bounded(path, LONGEST).at("read", path)?;
    serde_json::from_slice(&text).map_err(|error| {
        let said = format!("`{}` is damaged: {error}", path.display());
        failure(ErrorKind::Corrupt, said).into()
    })
}

/// Refuses a file that would give a name to any other image of the engine.
fn ensure_image_file(path: &Path, name: &str) -> Result<(), Error> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let file = match File::open(path) {
        Err(error) if missing(&error) => {
            let said = "the export has no image, and this engine has it not either";
            let hint = "`stasis container export SNAPSHOT FILE` writes one with everything";
            return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
        }
        file => file.at("read", path)?,
    };
    let strange = |what: &str| {
        let said = format!("the image of the export is strange: {what}");
        Error::from(failure(ErrorKind::Corrupt, said))
    };
    let wanted = ["manifest.json", "index.json"].map(|one| EntryPath::parse(one.as_bytes()));
    let wanted: Vec<EntryPath> = wanted.into_iter().filter_map(Result::ok).collect();
    let found = files_of_tar(file, path, &wanted, &ReadSettings::default())?;
    let parsed = |at: usize| -> Result<Option<Value>, Error> {
        let mut all = found.iter().filter(|(path, _)| *path == wanted[at]);
        let first = all.next().map(|(_, text)| serde_json::from_slice(text));
        if all.next().is_some() {
            return Err(strange("it has one of its documents twice"));
        }
        first
            .transpose()
            .map_err(|error| strange(&error.to_string()))
    };
    let manifest = parsed(0)?.ok_or_else(|| strange("it has no manifest.json"))?;
    let images = manifest.as_array().map_or(0, Vec::len);
    let tags = manifest[0]["RepoTags"].as_array();
    let is_ours = tags.is_some_and(|tags| tags.len() == 1 && tags[0] == name);
    if images != 1 || !is_ours {
        return Err(strange("it has other names than that of the snapshot"));
    }
    let index = parsed(1)?.unwrap_or_default();
    let entries = index["manifests"].as_array().into_iter().flatten();
    for entry in entries {
        let full = &entry["annotations"]["io.containerd.image.name"];
        let is_other =
            |full: &str| full != name && full != format!("docker.io/library/{name}").as_str();
        if full.as_str().is_some_and(is_other) {
            return Err(strange("it has other names than that of the snapshot"));
        }
    }
    Ok(())
}

async fn load_file(docker: &Docker, path: PathBuf) -> Result<(), Error> {
    let (reading, stream) = piped_file(path);
    let (read, loaded) = tokio::join!(reading, docker.load_image(stream));
    loaded?;
    read
}
