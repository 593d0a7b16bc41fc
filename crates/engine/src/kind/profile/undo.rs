//! What `undo` takes back of a profile: the last choice of a snapshot, if nothing was published since.

use super::locate::LocatedProfile;
use crate::error::{Error, ErrorKind};
use crate::handle::Profiles;
use stasis_model::failure::Failure;
use stasis_model::format::pointer::Pointer;
use stasis_model::id::ProfileRef;

impl Profiles<'_> {
    /// The snapshot that was active before somebody chose the one that is; an error says why there is nothing to take back.
    pub async fn before_last_choice(self, subject: &ProfileRef) -> Result<LocatedProfile, Error> {
        let lineage = self.one_lineage(subject).await?;
        let inventory = self.sound_inventory(&lineage).await?;
        let hint = format!(
            "`stasis log profile:{lineage}` lists its snapshots; `stasis restore profile:{lineage} SNAPSHOT` chooses one"
        );
        let nothing = |said: String| Failure::of(ErrorKind::NotFound, said).with_hint(hint.clone());
        let chosen = inventory.pointer.as_ref().filter(|one| was_chosen(one));
        let chosen = chosen.ok_or_else(|| {
            let said = "the snapshot that is active was saved, not chosen by a restore";
            nothing(format!(
                "there is nothing to take back of `{lineage}`: {said}"
            ))
        })?;
        let archive = chosen.published_from.ok_or_else(|| {
            let said = "no snapshot was active before the one that was chosen";
            nothing(format!(
                "there is nothing to take back of `{lineage}`: {said}"
            ))
        })?;
        Ok(LocatedProfile { lineage, archive })
    }
}

/// Whether the last change of the active snapshot was somebody's choice.
fn was_chosen(pointer: &Pointer) -> bool {
    let active = pointer.active_archive();
    let last = pointer.rollbacks.iter().max_by_key(|mark| mark.at_ms);
    last.is_some_and(|mark| Some(mark.sha256) == active && mark.at_ms >= pointer.published_at)
}
