//! Whether the snapshots of a profile can be loaded: what is stored of them, and on request everything that is in it.

use super::subject::ShaPrefix;
use super::verify::ProfileVerify;
use crate::address::as_typed_if_known;
use crate::check::Spawn;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::id::{Lineage, ProfileRef};
use stasis_model::subject_ref::PROFILE_PREFIX;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is checked of a profile.
#[derive(Clone, Debug)]
pub struct ProfileCheck {
    /// Of what.
    pub subject: ProfileRef,
    /// Whether every snapshot is restored to a place of its own and its databases are opened.
    pub read_data: bool,
    /// How the process that opens databases is started.
    pub spawn: Spawn,
    /// Counts what is done.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
}

/// Something that is wrong with a profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileDamage {
    /// Of which lineage; none where a document of the profile itself is damaged.
    #[serde(serialize_with = "as_typed_if_known")]
    pub subject: Option<Lineage>,
    /// Which snapshot, by its first digits.
    pub snapshot: Option<String>,
    /// What is wrong.
    pub why: String,
}

/// What a check of a profile found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckedProfile {
    /// Of what.
    pub subject: String,
    /// How many snapshots there are.
    pub snapshots: u64,
    /// How many of them were restored and found sound.
    pub restored: u64,
    /// What is wrong.
    pub damage: Vec<ProfileDamage>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Profiles<'_> {
    /// Checks all snapshots of a profile.
    pub async fn check(self, command: &ProfileCheck) -> Result<CheckedProfile, Error> {
        let list = self.snapshots(&command.subject).await?;
        let mut checked = CheckedProfile {
            subject: format!("{PROFILE_PREFIX}{}", command.subject),
            snapshots: list.snapshots.len() as u64,
            restored: 0,
            damage: Vec::new(),
            warnings: list.warnings,
        };
        let documents = list.damage.into_iter().map(|why| ProfileDamage {
            subject: None,
            snapshot: None,
            why,
        });
        let manifests = list.damaged.into_iter().map(|one| ProfileDamage {
            subject: Some(one.subject),
            snapshot: None,
            why: format!("{}: {}", one.key, one.reason),
        });
        checked.damage.extend(documents.chain(manifests));
        for row in list.snapshots {
            let damage = |why| ProfileDamage {
                subject: Some(row.subject.clone()),
                snapshot: Some(row.sha256_prefix.clone()),
                why,
            };
            if let Some(why) = row.damage.clone() {
                checked.damage.push(damage(why));
            } else if command.read_data && !row.is_tombstoned() {
                let verify = ProfileVerify {
                    subject: row.subject.clone().into(),
                    sha: Some(ShaPrefix::from(row.manifest.archive_sha256)),
                    browser: Vec::new(),
                    spawn: command.spawn.clone(),
                    progress: command.progress.clone(),
                    cancel: command.cancel.clone(),
                };
                match Box::pin(self.verify(verify)).await {
                    Ok(_) => checked.restored += 1,
                    Err(error) if is_about_the_snapshot(&error) => {
                        checked.damage.push(damage(error_chain(&error)));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(checked)
    }
}

/// Whether an error says something of a snapshot, and not of the store or of this host.
fn is_about_the_snapshot(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt
}
