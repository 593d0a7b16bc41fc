//! The pointer and the lock of a lineage, made anew from its archives and manifests.

use super::{NewDocument, Repair, overtaken};
use crate::catalog::references::damage;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Profiles;
use stasis_model::failure::Failure;
use stasis_model::format::lease::Lock;
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Label, Lineage, OpId};
use stasis_store::documents::profiles::{LineageSnapshots, StoredSnapshot, StoredSnapshots};
use stasis_store::documents::repair::DamagedDocument;
use stasis_store::layout;

impl Repair {
    /// Says which snapshots of a lineage can be used, and which cannot.
    fn tell_of(&mut self, stored: &StoredSnapshots) {
        for one in &stored.snapshots {
            match unusable(one) {
                Some(why) => self.leave_out(&one.active.archive, why),
                None => self.snapshots.push(one.active.archive.to_string()),
            }
        }
        for (key, error) in &stored.unfit {
            self.leave_out(key, error_chain(error));
        }
    }
}

impl Profiles<'_> {
    /// What of the documents of a lineage must be made anew. Nothing is changed.
    pub async fn plan_repair(self, lineage: &Lineage) -> Result<Repair, Error> {
        let found = self.find_repairs(lineage, self.rng.op_id()).await?;
        let mut repair = found.repair;
        repair.leaves_over(self.damage_of(lineage).await)?;
        Ok(repair)
    }

    /// Makes the pointer and the lock of a lineage anew if they are damaged or lost.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %lineage))]
    pub async fn repair(self, lineage: &Lineage, actor: &Label) -> Result<Repair, Error> {
        self.store().ensure_trusted().await?;
        let op_id = self.rng.op_id();
        let found = self.find_repairs(lineage, op_id).await?;
        let mut repair = found.repair;
        if repair.documents.is_empty() {
            repair.leaves_over(self.damage_of(lineage).await)?;
            return Ok(repair);
        }
        let mut kept = Vec::new();
        if let Some(one) = &found.pointer {
            kept.push(self.replaced(one, op_id, |pointer| pointer.op_id).await?);
        }
        if let Some(one) = &found.lock {
            kept.push(self.replaced(one, op_id, |lock| lock.write_id).await?);
        }
        for (document, kept) in repair.documents.iter_mut().zip(kept) {
            document.kept = kept.map(|key| key.to_string());
        }
        let tenant = lineage.tenant.clone();
        self.log_repair(&mut repair, op_id, tenant, actor).await;
        repair.leaves_over(self.damage_of(lineage).await)?;
        Ok(repair)
    }

    async fn find_repairs(self, lineage: &Lineage, op_id: OpId) -> Result<LineageRepair, Error> {
        let mut repair = Repair::of(format!("profile:{lineage}"));
        let stored = LineageSnapshots::of(&*self.bucket, lineage).all().await?;
        let leases = stored.snapshots.iter().map(|one| one.manifest.lease_epoch);
        let lock = damage(self.lineages.lock(lineage).await)?;
        let lock_epoch = lock.as_ref().ok().and_then(|lock| lock.as_ref());
        let lock_epoch = lock_epoch.map(|lock| lock.value.epoch);
        let epoch = leases.chain(lock_epoch).max().unwrap_or_default();
        let pointer_key = layout::pointer(lineage);
        let (pointer, fence) = match damage(self.lineages.pointer(lineage).await)? {
            Ok(found) => (
                None,
                found.map(|found| found.value.fence).unwrap_or_default(),
            ),
            Err(why) => {
                let damaged = DamagedDocument::look(&*self.bucket, pointer_key).await?;
                if damage(self.lineages.pointer(lineage).await)?.is_ok() {
                    return Err(overtaken(damaged.key()));
                }
                repair.add(&damaged, &why);
                let newest = newest_of(&stored.snapshots);
                if newest.is_none() && !stored.is_nothing() {
                    return Err(nothing_usable(lineage));
                }
                let with = Pointer::rebuilt(
                    newest.map(|one| one.active.clone()),
                    epoch,
                    op_id,
                    self.lineages.now(),
                );
                repair.latest = with.active_archive().map(|archive| archive.to_string());
                let fence = with.fence;
                (Some(NewDocument { damaged, with }), fence)
            }
        };
        if pointer.is_some() {
            repair.tell_of(&stored);
        }
        let lock = match lock {
            Ok(_) => None,
            Err(why) => {
                let damaged = DamagedDocument::look(&*self.bucket, layout::lock(lineage)).await?;
                if damage(self.lineages.lock(lineage).await)?.is_ok() {
                    return Err(overtaken(damaged.key()));
                }
                repair.add(&damaged, &why);
                let with = Lock::made_anew(fence, op_id, self.lineages.now());
                Some(NewDocument { damaged, with })
            }
        };
        Ok(LineageRepair {
            repair,
            pointer,
            lock,
        })
    }
}

/// What is wrong with the documents of a lineage.
struct LineageRepair {
    repair: Repair,
    pointer: Option<NewDocument<Pointer>>,
    lock: Option<NewDocument<Lock>>,
}

fn nothing_usable(lineage: &Lineage) -> Error {
    let said = format!("no snapshot of `{lineage}` can be used");
    let hint = "bring its archives and manifests back from the bucket's versions or a copy first; nothing was changed";
    let failure = Failure::of(ErrorKind::Corrupt, said);
    failure.with_hint(hint).into()
}

/// Why a snapshot is not one to go on from.
fn unusable(one: &StoredSnapshot) -> Option<&'static str> {
    if one.archive_size.is_none() {
        return Some("its archive is missing");
    }
    let is_damaged = !one.manifest.damaged_databases.is_empty();
    is_damaged.then_some("its save found damaged databases, and did not publish it")
}

/// The snapshot that the last owner made.
fn newest_of(all: &[StoredSnapshot]) -> Option<&StoredSnapshot> {
    let usable = all.iter().filter(|one| unusable(one).is_none());
    usable.max_by_key(|one| (one.manifest.lease_epoch, one.manifest.captured_at_ms))
}
