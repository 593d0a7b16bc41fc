//! How the objects of a profile's snapshot are called.

use super::{Key, Prefix, lineage_root};
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::Lineage;

/// How much of its digest is in the name of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spelling {
    /// 12 digits, as everywhere.
    Short,
    /// All 64: for archives that are not written by one conditional request, and after a clash.
    Full,
}

/// What an archive is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoredForm {
    /// As it is.
    Plain,
    /// Encrypted with the tenant's key.
    Encrypted,
}

impl StoredForm {
    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => ".tar.zst",
            Self::Encrypted => ".tar.zst.enc",
        }
    }
}

/// Where one snapshot lies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotKeys {
    /// Its bytes.
    pub archive: Key,
    /// What is known of it.
    pub manifest: Key,
}

impl SnapshotKeys {
    /// The names of a snapshot's objects.
    pub fn new(
        lineage: &Lineage,
        archive: ArchiveDigest,
        spelling: Spelling,
        form: StoredForm,
    ) -> Self {
        let digits = match spelling {
            Spelling::Short => archive.prefix(),
            Spelling::Full => archive.to_string(),
        };
        let stem = format!("{}profile-{digits}", lineage_root(lineage));
        Self {
            archive: Key(format!("{stem}{}", form.suffix())),
            manifest: Key(stem + ".manifest.json"),
        }
    }
}

/// What an object beneath a lineage is to its snapshots: the digits of its digest and the kind of object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotObject {
    /// 12 or 64 digits.
    pub digits: String,
    /// Whether it is the manifest; otherwise it is the archive.
    pub is_manifest: bool,
}

/// Which snapshot's object a key is, if it is one.
pub fn snapshot_object(lineage: &Lineage, key: &Key) -> Option<SnapshotObject> {
    let name = key.as_str().strip_prefix(&lineage_root(lineage))?;
    let name = name.strip_prefix("profile-")?;
    let (digits, suffix) = name.split_at_checked(name.find('.')?)?;
    let is_hex = digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex || !matches!(digits.len(), 12 | 64) {
        return None;
    }
    let is_manifest = match suffix {
        ".manifest.json" => true,
        ".tar.zst" | ".tar.zst.enc" => false,
        _ => return None,
    };
    Some(SnapshotObject {
        digits: digits.to_owned(),
        is_manifest,
    })
}

/// The lineage that an object belongs to, if it belongs to one.
pub fn lineage_of(key: &Key) -> Option<Lineage> {
    let rest = key.as_str().strip_prefix(Prefix::lineages().as_str())?;
    let mut parts = rest.splitn(4, '/');
    let (tenant, profile, major) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next()?;
    format!("{tenant}/{profile}@{major}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_snapshot_is_recognised_and_nothing_else() {
        let lineage: Lineage = "acme/alice@131".parse().unwrap();
        let digest = ArchiveDigest::of(b"abc");
        for spelling in [Spelling::Short, Spelling::Full] {
            for form in [StoredForm::Plain, StoredForm::Encrypted] {
                let keys = SnapshotKeys::new(&lineage, digest, spelling, form);
                let archive = snapshot_object(&lineage, &keys.archive).unwrap();
                let manifest = snapshot_object(&lineage, &keys.manifest).unwrap();
                assert!(!archive.is_manifest && manifest.is_manifest);
                assert_eq!(archive.digits, manifest.digits);
                assert!(digest.to_string().starts_with(&archive.digits));
                assert!(super::super::is_archive(
                    &lineage,
                    digest,
                    keys.archive.as_str()
                ));
                assert!(super::super::is_manifest(
                    &lineage,
                    digest,
                    keys.manifest.as_str()
                ));
                assert_eq!(lineage_of(&keys.archive), Some(lineage.clone()));
            }
        }
        for other in [
            "snapshots/acme/alice/131/latest.json",
            "snapshots/acme/alice/131/profile-ba78.tar.zst",
            "snapshots/acme/alice/131/profile-BA7816BF8F01.tar.zst",
            "snapshots/acme/alice/132/profile-ba7816bf8f01.tar.zst",
            "snapshots/acme/alice/131/profile-ba7816bf8f01.tar.gz",
        ] {
            let key = Key::from_listing(other).unwrap();
            assert_eq!(snapshot_object(&lineage, &key), None, "{other}");
        }
    }
}
