//! Jobs: who runs one just now, and what its last run did.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::changing::{ChangingError, Recorded, change};
use crate::documents::lineages::{ReadError, read};
use crate::layout::{self, Prefix};
use futures_util::TryStreamExt;
use stasis_model::format::job::{JobLane, JobRecord};
use stasis_model::format::lease::{Fence, Holder, Lock};
use stasis_model::id::{Epoch, OpId};
use stasis_model::protocol::job::{self, JobRefusal};
use stasis_model::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// Why the lock or the record of a job was not changed.
pub type JobError = ChangingError<JobRefusal>;

impl Recorded for JobRecord {
    fn was_written_by(&self, op_id: OpId) -> bool {
        self.op_id == op_id
    }
}

/// What the last run did; none if there was none.
pub async fn last(bucket: &dyn Bucket, lane: JobLane) -> Result<Option<JobRecord>, ReadError> {
    let found = read(bucket, &layout::job_record(lane)).await?;
    Ok(found.map(|found| found.value))
}

/// Who runs it, or did so last.
pub async fn lock(bucket: &dyn Bucket, lane: JobLane) -> Result<Option<Lock>, ReadError> {
    let found = read(bucket, &layout::job_lock(lane)).await?;
    Ok(found.map(|found| found.value))
}

/// Every job of which anything is known, at each of its places.
pub async fn lanes(bucket: &dyn Bucket) -> Result<BTreeSet<JobLane>, BucketError> {
    let prefix = Prefix::jobs();
    let listed = objects(bucket, &prefix);
    let lanes = listed.try_filter_map(async |row| Ok(layout::job_lane(&row.key)));
    lanes.try_collect().await
}

/// Takes the lock; `seen` is the epoch of the last record.
pub async fn take(
    bucket: &dyn Bucket,
    lane: JobLane,
    holder: (&Holder, Epoch),
    op_id: OpId,
    (now, ttl): (Timestamp, Duration),
) -> Result<Lock, JobError> {
    let rule = |found: Option<&Lock>| job::take(found, holder, op_id, now, ttl);
    change(bucket, &layout::job_lock(lane), op_id, rule).await
}

/// Keeps it.
pub async fn renew(
    bucket: &dyn Bucket,
    lane: JobLane,
    fence: Fence,
    op_id: OpId,
    (now, ttl): (Timestamp, Duration),
) -> Result<Lock, JobError> {
    let rule = |found: Option<&Lock>| job::renew(found, fence, op_id, now, ttl);
    change(bucket, &layout::job_lock(lane), op_id, rule).await
}

/// Gives it back.
pub async fn release(
    bucket: &dyn Bucket,
    lane: JobLane,
    fence: Fence,
    op_id: OpId,
    now: Timestamp,
) -> Result<Lock, JobError> {
    let rule = |found: Option<&Lock>| job::release(found, fence, op_id, now);
    change(bucket, &layout::job_lock(lane), op_id, rule).await
}

/// Writes down what a run did, unless a later one has done so.
pub async fn record(
    bucket: &dyn Bucket,
    lane: JobLane,
    record: &JobRecord,
) -> Result<JobRecord, JobError> {
    let rule = |found: Option<&JobRecord>| job::record(found, record.clone());
    change(bucket, &layout::job_record(lane), record.op_id, rule).await
}
