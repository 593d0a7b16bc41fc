//! The reaper: frees locks whose holders are presumed dead. It never ends anybody's work; a holder that was wrongly
//! presumed dead finds its lock free under its own name and takes it back with its next renewal.

use crate::error::Error;
use crate::open::Engine;
use crate::warning::Warning;
use serde::Serialize;
use stasis_model::event::{EventKind, Severity};
use stasis_model::id::{Label, Lineage};
use stasis_model::lease::Holder;
use stasis_model::step::Refusal;
use stasis_store::leases;
use stasis_store::lineages::LineageError;
use std::time::Duration;

/// A lock that was freed.
#[derive(Clone, Debug, Serialize)]
pub struct Evicted {
    /// Of what.
    pub subject: Lineage,
    /// Who had it.
    #[serde(flatten)]
    pub holder: Holder,
}

/// A lock that could not be judged and was left alone.
#[derive(Clone, Debug, Serialize)]
pub struct LeftAlone {
    /// Of what.
    pub subject: Lineage,
    /// Why.
    pub reason: String,
    /// Whether the document is damaged, which is an operator's matter.
    pub corrupt: bool,
}

/// What a sweep of the locks did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reaped {
    /// How many locks were looked at.
    pub scanned: usize,
    /// Those that were freed.
    pub evicted: Vec<Evicted>,
    /// How many are held by the living, or free already.
    pub fresh: usize,
    /// Those that could not be judged.
    pub left_alone: Vec<LeftAlone>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Engine {
    /// Frees one expired lock, or all of them; `grace` is the tenant's policy when not given.
    #[tracing::instrument(skip_all, err(level = "info"))]
    pub async fn reap(
        &self,
        only: Option<&Lineage>,
        grace: Option<Duration>,
    ) -> Result<Reaped, Error> {
        self.ensure_trusted().await?;
        let lineages = match only {
            Some(lineage) => vec![lineage.clone()],
            None => leases::locked(&*self.bucket).await?,
        };
        let mut reaped = Reaped {
            scanned: lineages.len(),
            ..Reaped::default()
        };
        for lineage in lineages {
            self.reap_one(lineage, grace, &mut reaped).await?;
        }
        reaped.warnings.extend(self.clock_warnings());
        Ok(reaped)
    }

    async fn reap_one(
        &self,
        lineage: Lineage,
        grace: Option<Duration>,
        so_far: &mut Reaped,
    ) -> Result<(), Error> {
        let grace = match grace {
            Some(grace) => grace,
            None => self.policy(&lineage.tenant).await?.grace(),
        };
        match self.lineages.reap(&lineage, grace).await {
            Ok((op_id, lock)) => {
                let run = lock.holder.run_id.as_str();
                tracing::warn!(subject = %lineage, holder_run_id = run, epoch = %lock.epoch, "lock evicted");
                let event = self
                    .event(EventKind::LockReaped, Severity::Warning, &Label::nobody())
                    .about(lineage.clone(), op_id)
                    .with("holder_run_id", run)
                    .with("holder_host", lock.holder.host.as_str());
                so_far
                    .warnings
                    .extend(self.record(&lineage.tenant, event).await);
                so_far.evicted.push(Evicted {
                    subject: lineage,
                    holder: lock.holder,
                });
            }
            Err(LineageError::Refused {
                refusal: Refusal::NotExpired | Refusal::NotHeld,
                ..
            }) => {
                so_far.fresh += 1;
            }
            Err(error) => {
                let error = self
                    .settled::<()>(Err(error))
                    .await
                    .expect_err("an error stays one");
                let corrupt = error.kind() == crate::error::ErrorKind::Corrupt;
                let reason = std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), ToString::to_string);
                tracing::warn!(subject = %lineage, %reason, "lock left alone");
                so_far.left_alone.push(LeftAlone {
                    subject: lineage,
                    reason,
                    corrupt,
                });
            }
        }
        Ok(())
    }
}
