//! Records of operations whose outcome was unknown, so that anybody can ask later.

use crate::bucket::{Bucket, BucketError};
use crate::documents::lineages::{Lineages, ReadError, read};
use crate::layout;
use bytes::Bytes;
use stasis_model::format::document;
use stasis_model::id::OpId;
use stasis_model::protocol::operation::{OperationFate, OperationRecord, Unsettled};

/// Writes the record down.
pub async fn record(bucket: &dyn Bucket, record: &OperationRecord) -> Result<(), BucketError> {
    let key = layout::operation(record.op_id());
    bucket
        .put(&key, Bytes::from(document::render(record)))
        .await
}

/// Finds a record.
pub async fn find(bucket: &dyn Bucket, op_id: OpId) -> Result<Option<OperationRecord>, ReadError> {
    Ok(read(bucket, &layout::operation(op_id))
        .await?
        .map(|found| found.value))
}

impl Lineages {
    /// Judges an operation by what its lineage says now.
    pub async fn settle(&self, unsettled: &Unsettled) -> Result<OperationFate, ReadError> {
        let lock = self
            .lock(&unsettled.lineage)
            .await?
            .map(|found| found.value);
        let pointer = self
            .pointer(&unsettled.lineage)
            .await?
            .map(|found| found.value);
        Ok(unsettled.settle(lock.as_ref(), pointer.as_ref()))
    }
}
