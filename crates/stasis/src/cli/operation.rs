//! `stasis operation …`

use super::CliContext;
use crate::report::Exit;
use clap::Subcommand;
use stasis_engine::model::id::OpId;
use stasis_engine::model::protocol::operation::{OperationFate, OperationRecord};

#[derive(Debug, Subcommand)]
pub(super) enum OperationCommand {
    /// Find out what became of an operation: applied, not applied, or still unknown
    ///
    /// Exits with 0 when it was applied, 1 when it was not, 10 when that is still unknown.
    Show {
        /// The id that was printed when the outcome was unknown
        id: OpId,
        /// Judge by this store although the operation was recorded for another address: they are the same
        #[arg(long)]
        same_store: bool,
    },
}

impl OperationCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let Self::Show { id, same_store } = self;
        let operation = context
            .engine()
            .await?
            .operations()
            .show(id, same_store)
            .await?;
        context.output.result(&operation, |operation| {
            let fate = match operation.fate {
                OperationFate::Applied => "applied",
                OperationFate::NotApplied => "not applied",
                OperationFate::Unknown => "still unknown",
            };
            match &operation.record {
                OperationRecord::Lineage(record) => format!(
                    "{fate}: {:?} of {}, given up at {}",
                    record.kind, record.lineage, record.at
                ),
                OperationRecord::Index(record) => format!(
                    "{fate}: {:?} in the repository, given up at {}",
                    record.change, record.at
                ),
            }
        })?;
        Ok(match operation.fate {
            OperationFate::Applied => Exit::Done,
            OperationFate::NotApplied => Exit::Failed,
            OperationFate::Unknown => Exit::Unknown,
        })
    }
}
