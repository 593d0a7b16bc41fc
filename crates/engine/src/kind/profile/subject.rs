//! What an operator's words mean: which lineage, and which snapshot of it.

use super::inventory::{Damage as _, Inventory};
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::{Lineage, ProfileRef};
use stasis_model::invalid::Invalid;
use stasis_model::snapshot_ref::{Unresolved, resolve_text};
use stasis_store::documents::lineages::ReadError;
use stasis_store::documents::profiles::{self, LineageSnapshots, StoredSnapshot};
use stasis_store::layout::Prefix;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The beginning of a snapshot's digest, as people type it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShaPrefix(String);

impl FromStr for ShaPrefix {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let is_hex = text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex && matches!(text.len(), 1..=64) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Invalid::new(
                "a snapshot is named by 1 to 64 digits 0-9 a-f: the beginning of its sha256",
            ))
        }
    }
}

impl From<ArchiveDigest> for ShaPrefix {
    fn from(digest: ArchiveDigest) -> Self {
        Self(digest.to_string())
    }
}

impl fmt::Display for ShaPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ShaPrefix {
    /// Whether a digest begins so.
    pub(super) fn fits(&self, digest: ArchiveDigest) -> bool {
        digest.to_string().starts_with(&self.0)
    }

    /// Whether it has digits enough not to fit by chance.
    pub(super) fn is_telling(&self) -> bool {
        self.0.len() >= 4
    }

    /// The one digest that begins so.
    pub(super) fn choose(
        &self,
        among: impl IntoIterator<Item = ArchiveDigest>,
        subject: &ProfileRef,
    ) -> Result<ArchiveDigest, Error> {
        let among: BTreeSet<ArchiveDigest> = among.into_iter().collect();
        match resolve_text(&self.0, among) {
            Ok(one) => Ok(one),
            Err(Unresolved::Absent | Unresolved::NoLatest) => Err(ProfileError::NoSnapshot {
                wanted: self.0.clone(),
                subject: subject.clone(),
            }
            .into()),
            Err(Unresolved::Ambiguous(fits)) => Err(ProfileError::AmbiguousSha {
                wanted: self.0.clone(),
                subject: subject.clone(),
                fits: fits.iter().map(|one| self.longer_prefix(*one)).collect(),
            }
            .into()),
        }
    }

    /// A few digits more than were typed, and at least as many as everywhere.
    fn longer_prefix(&self, digest: ArchiveDigest) -> String {
        let digits = (self.0.len() + 4).clamp(12, 64);
        digest.to_string()[..digits].to_owned()
    }
}

impl Profiles<'_> {
    /// Every lineage that a subject means; none is an error that names what there is instead.
    pub async fn lineages_of(self, subject: &ProfileRef) -> Result<Vec<Lineage>, Error> {
        let (tenant, profile) = (&subject.tenant, &subject.profile);
        let of_profile = profiles::lineages_of_profile(&*self.bucket, tenant, profile).await?;
        let is_meant =
            |lineage: &&Lineage| subject.major.is_none_or(|major| lineage.major == major);
        let meant: Vec<Lineage> = of_profile.iter().filter(is_meant).cloned().collect();
        if meant.is_empty() {
            let majors = of_profile.iter().map(|lineage| lineage.major).collect();
            let subject = subject.clone();
            return Err(ProfileError::NoProfile { subject, majors }.into());
        }
        Ok(meant)
    }

    /// The lineage that a subject means; several are an error that names them.
    pub async fn one_lineage(self, subject: &ProfileRef) -> Result<Lineage, Error> {
        if let Some(major) = subject.major {
            let lineage = subject.lineage(major);
            let first = self
                .bucket
                .list(&Prefix::lineage(&lineage), None, 1)
                .await?;
            if !first.is_empty() {
                return Ok(lineage);
            }
        }
        let mut meant = self.lineages_of(subject).await?;
        if meant.len() > 1 {
            let majors = meant.iter().map(|lineage| lineage.major).collect();
            let subject = subject.clone();
            return Err(ProfileError::SeveralMajors { subject, majors }.into());
        }
        Ok(meant.swap_remove(0))
    }

    /// Everything that lies in a lineage. The pointer is read before the snapshots are listed: whatever is deleted after
    /// that changes the pointer first.
    pub(super) async fn inventory(self, lineage: &Lineage) -> Result<Inventory, Error> {
        let mut damage = Vec::new();
        let pointer = readable(self.lineages.pointer(lineage).await, &mut damage)?;
        let lock = readable(self.lineages.lock(lineage).await, &mut damage)?;
        let stored = LineageSnapshots::of(&*self.bucket, lineage).all().await?;
        Ok(Inventory {
            lineage: lineage.clone(),
            pointer: pointer.map(|found| found.value),
            lock: lock.map(|found| found.value),
            stored,
            damage,
        })
    }

    /// The same, when something is to be changed: then both documents must be understood.
    pub(super) async fn sound_inventory(self, lineage: &Lineage) -> Result<Inventory, Error> {
        let inventory = self.inventory(lineage).await?;
        if !inventory.damage.is_empty() {
            self.lineages.pointer(lineage).await?;
            self.lineages.lock(lineage).await?;
        }
        Ok(inventory)
    }
}

/// A document, or a line about its damage; a store that does not answer is an error.
pub(super) fn readable<T>(
    read: Result<Option<T>, ReadError>,
    damage: &mut Vec<String>,
) -> Result<Option<T>, Error> {
    match read {
        Ok(found) => Ok(found),
        Err(ReadError::Bucket(error)) => Err(error.into()),
        Err(error) => {
            damage.push(crate::error::error_chain(&error));
            Ok(None)
        }
    }
}

impl Inventory {
    /// The lineage as people name it.
    pub(super) fn subject(&self) -> ProfileRef {
        self.lineage.clone().into()
    }

    /// The snapshot whose digest begins so.
    pub(super) fn choose(&self, sha: &ShaPrefix) -> Result<&StoredSnapshot, Error> {
        let all = || self.stored.snapshots.iter();
        let chosen = sha.choose(all().map(|one| one.active.archive), &self.subject())?;
        let found = all().find(|one| one.active.archive == chosen);
        Ok(found.expect("it was chosen among these"))
    }

    /// The active snapshot, which must be whole.
    pub(super) fn active_whole(&self) -> Result<&StoredSnapshot, Error> {
        let active = self.active();
        let active = active.ok_or_else(|| ProfileError::NoActive(self.subject()))?;
        self.choose_whole(&ShaPrefix::from(active))
    }

    /// The one whose digest begins so, which must be whole and not be deleted.
    pub(super) fn choose_whole(&self, sha: &ShaPrefix) -> Result<&StoredSnapshot, Error> {
        let chosen = self.choose(sha)?;
        let archive = chosen.active.archive;
        let (sha, subject) = (archive.prefix(), self.lineage.clone());
        if self.is_tombstoned(archive) {
            return Err(ProfileError::Gone { sha, subject }.into());
        }
        match chosen.damage() {
            Some(why) => Err(ProfileError::NotWhole { sha, subject, why }.into()),
            None => Ok(chosen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile_error(error: Error) -> ProfileError {
        match error {
            Error::Profile(error) => *error,
            error => panic!("{error}"),
        }
    }

    #[test]
    fn a_beginning_must_fit_exactly_one() {
        let all = [b"a", b"b", b"c"].map(|bytes| ArchiveDigest::of(bytes));
        let subject: ProfileRef = "acme/alice".parse().unwrap();
        let prefix = |text: &str| text.parse::<ShaPrefix>().unwrap();

        // ca97…, 3e23…, 2e7d…
        assert_eq!(prefix("ca").choose(all, &subject).unwrap(), all[0]);
        let none = prefix("ff").choose(all, &subject).unwrap_err();
        assert!(matches!(
            profile_error(none),
            ProfileError::NoSnapshot { .. }
        ));
        let twice = [all[0], all[0]];
        assert_eq!(prefix("ca").choose(twice, &subject).unwrap(), all[0]);
        let zero = ArchiveDigest::from_document([0x3e; 32]);
        let several = prefix("3e").choose([all[1], zero], &subject).unwrap_err();
        let ProfileError::AmbiguousSha { fits, .. } = profile_error(several) else {
            panic!("one of two was chosen")
        };
        assert_eq!(fits, ["3e23e8160039", "3e3e3e3e3e3e"]);
    }

    #[test]
    fn only_lower_case_digits_begin_a_digest() {
        for bad in ["", "g", "AB", "../x", "latest", &"a".repeat(65)] {
            assert!(bad.parse::<ShaPrefix>().is_err(), "{bad:?}");
        }
    }
}
