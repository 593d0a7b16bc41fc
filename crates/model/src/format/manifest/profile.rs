//! `profile-<sha256 prefix>.manifest.json`: one snapshot of a browser profile. Written once, beside its archive.
//!
//! *Always true:* a manifest is believed only for the lineage and the archive that it names itself: one that was copied
//! from another tenant, profile or major is refused by [`ProfileManifest::check`].

use crate::digest::{ArchiveDigest, TreeDigest};
use crate::format::document::Document;
use crate::id::{ChromeMajor, Epoch, Label, Lineage, OpId, ProfileId, TenantId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the documents of this kind call themselves.
const SCHEMA: &str = "computer-plane.profile-snapshot";
/// What `notes` says of a profile whose browser had crashed before it was captured.
pub const CRASHED: &str = "chrome-crashed-before-capture";
/// The features that this build understands.
const KNOWN: [&str; 1] = [ENCRYPTED];
/// The feature of archives that are encrypted.
pub const ENCRYPTED: &str = "encrypted";

/// The document `profile-….manifest.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProfileManifest {
    version: u64,
    schema: String,
    /// Features without which it cannot be understood: an unknown one means "refuse".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incompat: Vec<String>,
    /// Whose profile.
    pub tenant_id: TenantId,
    /// Which profile.
    pub profile_id: ProfileId,
    /// Which Chrome wrote it.
    pub chrome_major_version: ChromeMajor,
    /// The same in full, as Chrome wrote it down; empty when it did not.
    #[serde(default)]
    pub chrome_version: Label,
    /// SHA-256 of the stored bytes.
    pub archive_sha256: ArchiveDigest,
    /// How many they are.
    pub archive_size_bytes: u64,
    /// The length of all files.
    pub uncompressed_size_bytes: u64,
    /// How many files.
    #[serde(default)]
    pub file_count: u64,
    /// Which tree it is.
    pub tree_digest: TreeDigest,
    /// What made the stored bytes of the tree.
    #[serde(default)]
    pub encoder_id: String,
    /// When it was captured, by the writer's clock.
    pub captured_at_ms: Timestamp,
    /// By whom.
    pub captured_by: CapturedBy,
    /// Where.
    #[serde(default)]
    pub captured_in: CapturedIn,
    /// Whether the browser was running.
    pub mode: Mode,
    /// How long the browser had been running when it was stopped or frozen; 0 when it was not running.
    pub chrome_uptime_seconds_at_capture: u64,
    /// Whether the browser ended by itself, with everything written; `None` where its end was not seen.
    #[serde(default)]
    pub clean_exit: Option<bool>,
    /// How it was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<EndingRecord>,
    /// How long it stood still for a hot capture.
    #[serde(default)]
    pub freeze_ms: u64,
    /// What the key to the cookies is.
    #[serde(default)]
    pub cookie_store: CookieStore,
    /// Whether caches were left out.
    #[serde(default)]
    pub caches_left_out: bool,
    /// When its databases were checked and none was found damaged; `None` when they were not, or when one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at_ms: Option<Timestamp>,
    /// The databases that its save found damaged, the first few: it was stored, and not published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged_databases: Vec<String>,
    /// The SQLite databases in it whose paths name no site, so that its successor can be missed one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sqlite_databases: Vec<String>,
    /// The snapshot of an older major that the profile was carried from, here or in a predecessor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgraded_from: Option<Ancestor>,
    /// The snapshot this one supersedes.
    #[serde(with = "crate::format::pointer::blank")]
    pub predecessor_sha256: Option<ArchiveDigest>,
    /// The lease's epoch.
    #[serde(default)]
    pub lease_epoch: Epoch,
    /// The operation that made it.
    #[serde(default)]
    pub op_id: OpId,
    /// Words: of the caller, or [`CRASHED`].
    #[serde(default)]
    pub notes: String,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for ProfileManifest {
    const NAME: &'static str = "manifest.json";
}

/// Who captured a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CapturedBy {
    /// On which host.
    pub host: Label,
    /// What the host calls the run.
    pub host_run_id: Label,
    /// Which program.
    pub writer_version: Label,
}

/// The snapshot of an older major that a profile was carried from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ancestor {
    /// Which Chrome wrote it.
    pub chrome_major: ChromeMajor,
    /// Which snapshot.
    pub sha256: ArchiveDigest,
}

/// Where a snapshot was captured, as far as it was given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CapturedIn {
    /// The host's region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_region: Option<Label>,
    /// Where the world sees the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_ip_geo: Option<Geo>,
}

/// Where the world sees a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Geo {
    /// For example `US`.
    pub country: Label,
    /// For example `NY`; may be empty.
    pub region: Label,
}

/// Whether the browser was running when it was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It had ended.
    #[default]
    Cold,
    /// It was running, and stood still for a moment.
    Hot,
}

/// How a browser was ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndingRecord {
    /// `not_running`, `exited`, `closed`, `interrupted`, `terminated` or `killed`.
    pub how: String,
    /// How long that took.
    pub waited_ms: u64,
}

/// What the key to the cookies of a profile is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CookieStore {
    /// Unknown.
    #[default]
    Unknown,
    /// There are no cookies.
    None,
    /// The same on every host: the profile can move.
    Basic,
    /// In the host's keyring: on another host the cookies cannot be read.
    Keyring,
}

/// What a new manifest says besides what is the same for all.
#[derive(Clone, Debug)]
pub struct NewProfileManifest {
    /// Of which lineage.
    pub lineage: Lineage,
    /// SHA-256 of the stored bytes.
    pub archive_sha256: ArchiveDigest,
    /// How many they are.
    pub archive_size_bytes: u64,
    /// Which tree it is.
    pub tree_digest: TreeDigest,
    /// When it was captured.
    pub captured_at: Timestamp,
    /// By whom.
    pub captured_by: CapturedBy,
    /// The operation that makes it.
    pub op_id: OpId,
}

impl ProfileManifest {
    /// A manifest of a cold capture of which nothing else is known; the other fields are set by the caller.
    pub fn new(new: NewProfileManifest) -> Self {
        let Lineage {
            tenant,
            profile,
            major,
        } = new.lineage;
        Self {
            version: Self::VERSION,
            schema: SCHEMA.to_owned(),
            incompat: Vec::new(),
            tenant_id: tenant,
            profile_id: profile,
            chrome_major_version: major,
            chrome_version: Label::nobody(),
            archive_sha256: new.archive_sha256,
            archive_size_bytes: new.archive_size_bytes,
            uncompressed_size_bytes: 0,
            file_count: 0,
            tree_digest: new.tree_digest,
            encoder_id: String::new(),
            captured_at_ms: new.captured_at,
            captured_by: new.captured_by,
            captured_in: CapturedIn::default(),
            mode: Mode::Cold,
            chrome_uptime_seconds_at_capture: 0,
            clean_exit: None,
            ending: None,
            freeze_ms: 0,
            cookie_store: CookieStore::Unknown,
            caches_left_out: false,
            checked_at_ms: None,
            damaged_databases: Vec::new(),
            sqlite_databases: Vec::new(),
            upgraded_from: None,
            predecessor_sha256: None,
            lease_epoch: Epoch::default(),
            op_id: new.op_id,
            notes: String::new(),
            extra: Map::new(),
        }
    }

    /// Which lineage it says it belongs to.
    pub fn lineage(&self) -> Lineage {
        Lineage {
            tenant: self.tenant_id.clone(),
            profile: self.profile_id.clone(),
            major: self.chrome_major_version,
        }
    }

    /// Whether the archive is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.incompat.iter().any(|feature| feature == ENCRYPTED)
    }

    /// Whether nothing is in the profile.
    pub fn is_empty(&self) -> bool {
        self.file_count == 0 && self.uncompressed_size_bytes == 0
    }

    /// Whether the browser had crashed before it was captured.
    pub fn has_crashed(&self) -> bool {
        self.notes.lines().any(|line| line == CRASHED)
    }

    /// Whether this build may use it, for this snapshot of this lineage.
    pub fn check(&self, lineage: &Lineage, archive: ArchiveDigest) -> Result<(), UnfitManifest> {
        if self.schema != SCHEMA {
            return Err(UnfitManifest::Schema(shown(&self.schema)));
        }
        let unknown = |feature: &&String| !KNOWN.contains(&feature.as_str());
        if let Some(feature) = self.incompat.iter().find(unknown) {
            return Err(UnfitManifest::Feature(shown(feature)));
        }
        if self.lineage() != *lineage {
            return Err(UnfitManifest::OtherLineage(self.lineage()));
        }
        if self.archive_sha256 != archive {
            return Err(UnfitManifest::OtherArchive(self.archive_sha256));
        }
        Ok(())
    }
}

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// Why a manifest is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnfitManifest {
    /// It is a document of another kind.
    #[error("it is a document of the kind `{0}`, not `{SCHEMA}`")]
    Schema(String),
    /// It needs something that this build does not know.
    #[error("it needs the feature `{0}`, which this build does not know; use a newer stasis")]
    Feature(String),
    /// It belongs to another lineage.
    #[error("it belongs to `{0}`")]
    OtherLineage(Lineage),
    /// It is of another snapshot.
    #[error("it describes the archive {}", .0.prefix())]
    OtherArchive(ArchiveDigest),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::document::{BadDocument, parse, render};
    use crate::tree::canonical::TreeHasher;

    fn manifest() -> ProfileManifest {
        ProfileManifest::new(NewProfileManifest {
            lineage: "acme/alice@131".parse().unwrap(),
            archive_sha256: ArchiveDigest::of(b"stored"),
            archive_size_bytes: 6,
            tree_digest: TreeHasher::default().finish(),
            captured_at: Timestamp::from_millis(1_733_456_512_000),
            captured_by: CapturedBy {
                host: "e2b".parse().unwrap(),
                host_run_id: "fc-01".parse().unwrap(),
                writer_version: "stasis-0.1.0".parse().unwrap(),
            },
            op_id: OpId::default(),
        })
    }

    #[test]
    fn manifest_schema_round_trips_with_every_field_of_the_contract_and_rejects_v0() {
        let mut manifest = manifest();
        manifest.captured_in.host_region = Some("us-east-1".parse().unwrap());
        manifest.predecessor_sha256 = Some(ArchiveDigest::of(b"older"));

        let bytes = render(&manifest);
        let json: Value = serde_json::from_slice(&bytes).unwrap();

        assert_eq!(parse::<ProfileManifest>(&bytes).unwrap(), manifest);
        let fields = [
            "version",
            "schema",
            "tenant_id",
            "profile_id",
            "chrome_major_version",
            "archive_sha256",
            "archive_size_bytes",
            "uncompressed_size_bytes",
            "captured_at_ms",
            "captured_by",
            "mode",
            "chrome_uptime_seconds_at_capture",
            "predecessor_sha256",
            "notes",
        ];
        for field in fields {
            assert!(json.get(field).is_some(), "{field} is missing");
            let mut without = json.clone();
            without.as_object_mut().unwrap().remove(field);
            let parsed = parse::<ProfileManifest>(without.to_string().as_bytes());
            assert!(parsed.is_err() || field == "notes", "{field}");
        }
        assert_eq!(json["captured_in"]["host_region"], "us-east-1");
        let v0 = String::from_utf8(bytes).unwrap();
        let v0 = v0.replacen("\"version\": 1", "\"version\": 0", 1);
        let refused = parse::<ProfileManifest>(v0.as_bytes()).unwrap_err();
        assert!(matches!(refused, BadDocument::Version { found: 0, .. }));
    }

    #[test]
    fn a_manifest_is_believed_only_for_what_it_names_itself() {
        let (manifest, sha) = (manifest(), ArchiveDigest::of(b"stored"));
        let check = |lineage: &str, sha| manifest.check(&lineage.parse().unwrap(), sha);

        assert_eq!(check("acme/alice@131", sha), Ok(()));
        for other in ["acme/alice@132", "acme/bob@131", "acmE/alice@131"] {
            let refused = check(other, sha);
            assert!(matches!(refused, Err(UnfitManifest::OtherLineage(_))));
        }
        let other = ArchiveDigest::of(b"other");
        assert!(matches!(
            check("acme/alice@131", other),
            Err(UnfitManifest::OtherArchive(_))
        ));
        let mut newer = manifest.clone();
        newer.incompat.push("holograms".to_owned());
        let lineage = "acme/alice@131".parse().unwrap();
        assert!(matches!(
            newer.check(&lineage, sha),
            Err(UnfitManifest::Feature(_))
        ));
    }
}
