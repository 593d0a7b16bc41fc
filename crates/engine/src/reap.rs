//! The reaper: frees locks whose holders are presumed dead. It never ends anybody's work; a holder that was wrongly
//! presumed dead finds its lock free under its own name and takes it back with its next renewal.
//!
//! One document that cannot be read, a lock or a tenant's policy, keeps nobody else's lock from being reaped.

use crate::address::as_typed;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Leases;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::lease::Holder;
use stasis_model::id::{Label, Lineage, TenantId};
use stasis_model::protocol::step::Refusal;
use stasis_store::documents::leases;
use stasis_store::documents::lineages::LineageError;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many locks are looked at together.
const TOGETHER: usize = 16;

/// A lock that was freed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Evicted {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Who had it.
    #[serde(flatten)]
    pub holder: Holder,
}

/// A lock that could not be judged and was left alone.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LeftAlone {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Why.
    pub reason: String,
    /// Whether a document is damaged, which is an operator's matter.
    pub corrupt: bool,
}

/// What a sweep of the locks did.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
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

enum ReapVerdict {
    Evicted(Evicted, Option<Warning>),
    Fresh,
    LeftAlone(LeftAlone),
}

impl Leases<'_> {
    /// Frees one expired lock, or all of them; `grace` is the tenant's policy when not given.
    #[tracing::instrument(skip_all, err(level = "info"))]
    pub async fn reap(
        self,
        only: Option<&Lineage>,
        grace: Option<Duration>,
    ) -> Result<Reaped, Error> {
        self.store().ensure_trusted().await?;
        let lineages = match only {
            Some(lineage) => {
                let lock = self.lineages.lock(lineage).await;
                if let Ok(None) = lock {
                    return Err(Error::never_locked(lineage));
                }
                vec![lineage.clone()]
            }
            None => leases::locked(&*self.bucket).await?,
        };
        let mut reaped = Reaped {
            scanned: lineages.len(),
            ..Reaped::default()
        };
        let mut graces = BTreeMap::new();
        for batch in lineages.chunks(TOGETHER) {
            let mut judging = JoinSet::new();
            for lineage in batch {
                let grace = match grace {
                    Some(grace) => Ok(grace),
                    None => self.grace_of(&lineage.tenant, &mut graces).await,
                };
                let (engine, lineage) = (self.engine.clone(), lineage.clone());
                judging.spawn(async move { engine.leases().judge(lineage, grace).await });
            }
            judging
                .join_all()
                .await
                .into_iter()
                .for_each(|judged| reaped.add(judged));
        }
        reaped.evicted.sort_by(|a, b| a.subject.cmp(&b.subject));
        reaped.left_alone.sort_by(|a, b| a.subject.cmp(&b.subject));
        reaped.warnings.extend(self.clock_warnings());
        Ok(reaped)
    }

    /// The tenant's grace, read once; why it cannot be told is remembered too.
    async fn grace_of(
        self,
        tenant: &TenantId,
        known: &mut BTreeMap<TenantId, Result<Duration, (String, bool)>>,
    ) -> Result<Duration, (String, bool)> {
        if let Some(grace) = known.get(tenant) {
            return grace.clone();
        }
        let policy = self.tenants().policy(tenant).await;
        let grace = policy
            .map(|policy| policy.grace())
            .map_err(|error| reason_of(&error));
        known.insert(tenant.clone(), grace.clone());
        grace
    }

    async fn judge(self, subject: Lineage, grace: Result<Duration, (String, bool)>) -> ReapVerdict {
        let grace = match grace {
            Ok(grace) => grace,
            Err((reason, corrupt)) => {
                return ReapVerdict::LeftAlone(LeftAlone {
                    subject,
                    reason,
                    corrupt,
                });
            }
        };
        match self.lineages.reap(&subject, grace).await {
            Ok((op_id, lock)) => {
                let run = lock.holder.run_id.as_str();
                tracing::warn!(subject = %subject, holder_run_id = run, epoch = %lock.epoch, "lock evicted");
                let event = self
                    .events()
                    .event(EventKind::LockReaped, Severity::Warning, &Label::nobody())
                    .about(subject.clone(), op_id)
                    .with("holder_run_id", run)
                    .with("holder_host", lock.holder.host.as_str());
                let warning = self.events().record(&subject.tenant, event).await;
                ReapVerdict::Evicted(
                    Evicted {
                        subject,
                        holder: lock.holder,
                    },
                    warning,
                )
            }
            Err(LineageError::Refused {
                refusal: Refusal::NotExpired | Refusal::NotHeld,
                ..
            }) => ReapVerdict::Fresh,
            Err(error) => {
                let error = self
                    .operations()
                    .settled::<()>(Err(error))
                    .await
                    .expect_err("an error stays one");
                let (reason, corrupt) = reason_of(&error);
                tracing::warn!(%subject, %reason, "lock left alone");
                ReapVerdict::LeftAlone(LeftAlone {
                    subject,
                    reason,
                    corrupt,
                })
            }
        }
    }
}

impl Reaped {
    fn add(&mut self, judged: ReapVerdict) {
        match judged {
            ReapVerdict::Evicted(evicted, warning) => {
                self.evicted.push(evicted);
                self.warnings.extend(warning);
            }
            ReapVerdict::Fresh => self.fresh += 1,
            ReapVerdict::LeftAlone(lock) => self.left_alone.push(lock),
        }
    }
}

fn reason_of(error: &Error) -> (String, bool) {
    (error_chain(error), error.kind() == ErrorKind::Corrupt)
}
