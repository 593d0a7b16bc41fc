//! What an exported snapshot consists of: the files of a directory, which an export packs into one.
//!
//! | file | what it is |
//! |---|---|
//! | `index.json` | which snapshots there are |
//! | `metadata/<id>.json` | everything that is known of one; values of the environment are masked |
//! | `environment/<id>.json` | the values of its environment, readable by the owner only |
//! | `volumes/<id>_<volume>.tar` | a volume |
//! | `images/<id>.tar` | its image, as `docker save` writes it |

use super::list::ContainerSnapshotShown;
use serde::{Deserialize, Serialize};
use stasis_model::container::mount::ContainerMountKind;
use stasis_model::format::manifest::{CapturedVolume, ContainerManifest, VolumeManifest};
use stasis_model::id::{Label, SnapshotId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the format is called.
pub(super) const FORMAT: &str = "stasis.container-export/1";

/// Which snapshots a directory has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ExportIndex {
    pub(super) format: String,
    pub(super) snapshots: Vec<ExportRow>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ExportRow {
    pub(super) snapshot_id: SnapshotId,
    pub(super) container_name: String,
    pub(super) created_at: String,
    pub(super) trigger: String,
    pub(super) size_bytes: u64,
}

/// Everything that is known of a snapshot, for people and for an import.
#[derive(Debug, Serialize)]
pub(super) struct ExportedMetadata<'e> {
    #[serde(flatten)]
    pub(super) shown: &'e ContainerSnapshotShown,
    #[serde(flatten)]
    pub(super) import: ImportedMetadata,
}

/// What an import needs of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ImportedMetadata {
    pub(super) format: String,
    pub(super) manifest: ContainerManifest,
    /// What each volume is, by its place in the snapshot.
    pub(super) volume_manifests: BTreeMap<String, VolumeManifest>,
    /// The files that have them.
    pub(super) archives: BTreeMap<String, String>,
    /// Labels of the snapshot.
    pub(super) snapshot_labels: BTreeMap<String, Label>,
}

/// Where the parts of a snapshot are.
pub(super) struct ExportPlace<'p> {
    pub(super) directory: &'p Path,
    pub(super) id: &'p SnapshotId,
}

/// The directories of an export.
pub(super) const DIRECTORIES: [&str; 4] = ["metadata", "environment", "volumes", IMAGES];
/// The one that has images.
pub(super) const IMAGES: &str = "images";

impl ExportPlace<'_> {
    pub(super) fn index(&self) -> PathBuf {
        self.directory.join("index.json")
    }

    pub(super) fn metadata(&self) -> PathBuf {
        self.directory.join(format!("metadata/{}.json", self.id))
    }

    pub(super) fn environment(&self) -> PathBuf {
        self.directory.join(format!("environment/{}.json", self.id))
    }

    pub(super) fn image(&self) -> PathBuf {
        self.directory.join(format!("images/{}.tar", self.id))
    }

    pub(super) fn volume(&self, file: &str) -> PathBuf {
        self.directory.join("volumes").join(file)
    }

    /// What the file of a volume is called.
    pub(super) fn volume_file(&self, volume: &CapturedVolume) -> String {
        let name = volume.path.rsplit('/').next().unwrap_or_default();
        let kind = match volume.kind {
            // No volume has a name that begins so.
            ContainerMountKind::Bind => "%bind_",
            _ => "",
        };
        format!("{}_{kind}{name}.tar", self.id)
    }
}
