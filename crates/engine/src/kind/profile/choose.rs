//! Makes a snapshot the one that runs start from, as the everyday `restore` and `undo` of a profile do: shown first, done as it was shown.
//!
//! *Always true:* nothing is done but what the plan says, and whoever owns the profile is thrown out only by somebody who agreed to that.

use super::locate::LocatedProfile;
use super::rollback::{RollbackProfile, RolledBack};
use crate::error::{Error, ErrorKind};
use crate::handle::Profiles;
use stasis_model::failure::Failure;
use stasis_model::id::Label;

/// Why, in the events log.
const REASON: &str = "restore";

/// What becomes of whoever owns the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Eviction {
    /// The choice waits for them: it is refused.
    Refused,
    /// They cannot publish any more; somebody knows and wants that.
    Agreed,
}

/// A choice that was not made yet.
#[derive(Clone, Debug)]
#[must_use = "nothing is done before it is made"]
pub struct ProfileChoice {
    cmd: RollbackProfile,
    plan: RolledBack,
}

impl ProfileChoice {
    /// What it would do.
    pub fn plan(&self) -> &RolledBack {
        &self.plan
    }
}

impl Profiles<'_> {
    /// Looks at what the choice of a snapshot would do; writes nothing.
    pub async fn plan_choice(
        self,
        to: LocatedProfile,
        actor: Label,
    ) -> Result<ProfileChoice, Error> {
        let mut cmd = RollbackProfile {
            agreed: None,
            sha: to.sha(),
            lineage: to.lineage,
            reason: REASON.parse().expect("it is a label"),
            actor,
        };
        let plan = self.plan_rollback(&cmd).await?;
        cmd.agreed = Some((&plan).into());
        Ok(ProfileChoice { cmd, plan })
    }

    /// Makes it, if everything is still as it was shown.
    pub async fn make_choice(
        self,
        choice: &ProfileChoice,
        eviction: Eviction,
    ) -> Result<RolledBack, Error> {
        let ProfileChoice { cmd, plan } = choice;
        if let Some(holder) = plan.evicts.as_ref()
            && eviction == Eviction::Refused
        {
            let said = format!(
                "run `{}` on `{}` owns `{}` and would be thrown out",
                holder.run_id, holder.host, plan.subject
            );
            let failure = Failure::of(ErrorKind::Conflict, said);
            return Err(failure
                .with_hint("say --yes, or wait until it has ended")
                .into());
        }
        self.rollback(cmd).await
    }
}
