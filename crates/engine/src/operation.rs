//! Operations whose outcome was unknown: kept on this host and, if it can be reached, in the store.

use crate::bridge;
use crate::error::Error;
use crate::handle::Operations;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded};
use stasis_model::failure::AtPath;
use stasis_model::format::document;
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::format::manifest::SnapshotIndex;
use stasis_model::id::{Label, OpId, TenantId};
use stasis_model::protocol::operation::{
    IndexOperation, OperationFate, OperationRecord, UnsettledChange,
};
use stasis_store::documents::lineages::{LineageError, ReadError};
use stasis_store::documents::operations;
use stasis_store::documents::roots::{ChangeError, Root};
use stasis_store::layout::ChunkRoot;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How long a store that may be out of reach is waited for when what we have to say is only useful, not needed.
pub(crate) const COURTESY: Duration = Duration::from_secs(3);

/// What became of an operation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Operation {
    /// What it was to do.
    #[serde(flatten)]
    #[schemars(with = "serde_json::Value")]
    pub record: OperationRecord,
    /// When it was given up.
    pub at: String,
    /// What became of it.
    pub fate: OperationFate,
}

impl Operations<'_> {
    /// Passes a result on; an unknown outcome is written down first, so that it can be asked about.
    pub(crate) async fn settled<T>(self, result: Result<T, LineageError>) -> Result<T, Error> {
        match result {
            Err(LineageError::Unknown(mut record)) => {
                record.store = self.location.to_string();
                let tenant = record.lineage.tenant.clone();
                let event = self.unknown().about(record.lineage.clone(), record.op_id);
                self.keep(&OperationRecord::Lineage(record.clone()), &tenant, event)
                    .await;
                Err(LineageError::Unknown(record).into())
            }
            settled => Ok(settled?),
        }
    }

    /// The same for a change of a repository's index.
    pub(crate) async fn known(
        self,
        change: IndexOperation,
        root: &Root,
        result: Result<SnapshotIndex, ChangeError>,
    ) -> Result<SnapshotIndex, Error> {
        match result {
            Err(ChangeError::Unknown { op_id, doubt }) => {
                let mut record = UnsettledChange::new(op_id, change, doubt, self.lineages.now());
                record.store = self.location.to_string();
                root.layout().name().clone_into(&mut record.root);
                let mut event = self.unknown();
                event.op_id = Some(op_id);
                let record = Box::new(record);
                let log = crate::check::log();
                // Rare, and large: it should not make every change's future larger.
                Box::pin(self.keep(&OperationRecord::Index(record.clone()), &log, event)).await;
                Err(Error::UnknownChange(record))
            }
            settled => {
                let index = settled?;
                self.note_index(root, &index).await;
                Ok(index)
            }
        }
    }

    fn unknown(self) -> AuditEvent {
        let nobody = Label::nobody();
        self.events()
            .event(EventKind::OutcomeUnknown, Severity::Warning, &nobody)
    }

    async fn keep(self, record: &OperationRecord, tenant: &TenantId, event: AuditEvent) {
        let op_id = record.op_id();
        let written = match self.record_path(op_id) {
            Some(path) => {
                let bytes = document::render(record);
                bridge::blocking(move || atomic_write(&path, &bytes))
                    .await
                    .is_ok()
            }
            None => false,
        };
        // A store that has just failed to answer is not waited for once more.
        let store = async {
            tokio::join!(
                operations::record(&*self.bucket, record),
                self.events().record(tenant, event)
            )
        };
        let stored = tokio::time::timeout(COURTESY, store).await;
        let stored = matches!(stored, Ok((Ok(()), _)));
        if !written && !stored {
            tracing::warn!(%op_id, "the record of an unknown outcome was not kept");
        }
    }

    fn record_path(self, op_id: OpId) -> Option<PathBuf> {
        let file = format!("{op_id}.json");
        self.local_dirs
            .state
            .as_ref()
            .map(|state| state.join("operations").join(file))
    }

    /// Finds out what became of an operation whose outcome was unknown.
    ///
    /// An operation that was recorded for another address is refused, unless the caller knows that it is the same store.
    pub async fn show(self, op_id: OpId, same_store: bool) -> Result<Operation, Error> {
        let record = match self.local_record(op_id).await? {
            Some(record) => record,
            None => operations::find(&*self.bucket, op_id)
                .await?
                .ok_or_else(|| Error::no_such_operation(op_id))?,
        };
        let store = record.store();
        let elsewhere = !store.is_empty() && store != self.location.to_string();
        if elsewhere && !same_store {
            return Err(Error::other_store(op_id, store));
        }
        let fate = match &record {
            OperationRecord::Lineage(record) => self.lineages.settle(record).await?,
            OperationRecord::Index(record) => {
                let root = ChunkRoot::named(&record.root);
                let root = root.ok_or_else(|| Error::no_such_operation(op_id))?;
                let root = self.rooted(root).dirs().root();
                let index = root.index().await?.map(|found| found.value);
                record.unknown.settle(op_id, index.as_ref())
            }
        };
        let at = match &record {
            OperationRecord::Lineage(record) => record.at,
            OperationRecord::Index(record) => record.at,
        };
        let at = at.to_string();
        Ok(Operation { record, at, fate })
    }

    async fn local_record(self, op_id: OpId) -> Result<Option<OperationRecord>, Error> {
        let Some(path) = self.record_path(op_id) else {
            return Ok(None);
        };
        let asked = path.clone();
        let limit = document::SIZE_LIMIT as u64;
        let bytes = match bridge::blocking(move || read_bounded(&asked, limit)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.at("read", path)?,
        };
        let key = stasis_store::layout::operation(op_id);
        let record = ReadError::of_document(&key, document::parse(&bytes));
        Ok(Some(record?))
    }
}
