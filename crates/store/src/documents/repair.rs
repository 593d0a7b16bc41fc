//! Makes a document anew that is damaged or lost. What lay there is kept aside first.
//!
//! *Always true:* only the very bytes that were looked at are replaced; whoever wrote the document meanwhile wins.

use crate::bucket::{Bucket, BucketError, Object, Swap};
use crate::layout::{self, Key};
use bytes::Bytes;
use stasis_model::format::document::{self, Document};
use stasis_model::id::OpId;

/// No damaged document that is longer is kept aside, and none is replaced.
const LONGEST: u64 = 64 << 20;

/// A document as it lies there, be it one or not.
#[derive(Debug)]
pub struct DamagedDocument {
    key: Key,
    found: Option<Object>,
}

impl DamagedDocument {
    /// What lies at a key now.
    pub async fn look(bucket: &dyn Bucket, key: Key) -> Result<Self, BucketError> {
        let found = bucket.get(&key, LONGEST).await?;
        Ok(Self { key, found })
    }

    /// Which document.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether nothing lies there.
    pub fn is_lost(&self) -> bool {
        self.found.is_none()
    }

    /// Puts a document in its place; says where the damaged bytes are kept, and what became of the write.
    pub async fn replace<D: Document>(
        &self,
        bucket: &dyn Bucket,
        operation: OpId,
        with: &D,
    ) -> Result<(Option<Key>, Swap), BucketError> {
        let body = Bytes::from(document::render(with));
        let Some(found) = &self.found else {
            return Ok((None, bucket.create(&self.key, body).await?));
        };
        let aside = layout::set_aside(operation, &self.key);
        bucket.put(&aside, found.body.clone()).await?;
        let swap = bucket.swap(&self.key, &found.version, body).await?;
        Ok((Some(aside), swap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryBucket;
    use stasis_model::format::manifest::SnapshotIndex;

    fn op(number: u8) -> OpId {
        OpId::from_random([number; 16])
    }

    #[tokio::test]
    async fn what_was_damaged_is_kept_and_what_was_written_meanwhile_stays() {
        let bucket = MemoryBucket::new();
        let key = layout::operation(op(1));
        bucket.put(&key, Bytes::from("dama")).await.unwrap();
        let damaged = DamagedDocument::look(&bucket, key.clone()).await.unwrap();
        let index = SnapshotIndex::empty().begun(op(2));

        let (aside, swap) = damaged.replace(&bucket, op(3), &index).await.unwrap();
        let (_, again) = damaged.replace(&bucket, op(4), &index).await.unwrap();

        let aside = bucket.get(&aside.unwrap(), 99).await.unwrap().unwrap();
        assert_eq!(aside.body, "dama");
        assert!(matches!(swap, Swap::Won(_)) && matches!(again, Swap::Lost));
        let now = bucket.get(&key, 9999).await.unwrap().unwrap();
        assert_eq!(now.body, document::render(&index));
    }
}
