//! Brings back the tree that a restore replaced.

use crate::bridge;
use crate::error::Error;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::tree::restore::{self, RestoreOrigin};
use stasis_model::time::Clock;
use std::path::PathBuf;

/// What was put back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UndoneRestore {
    /// Where the tree is that was there before.
    pub target: String,
    /// Where the tree is kept that it took the place of.
    pub kept: String,
    /// What that one had been restored from.
    pub was: String,
}

/// Puts back the tree that a restore replaced; doing it again undoes that. Needs nothing of the store.
pub async fn undo(target: PathBuf, clock: &dyn Clock) -> Result<UndoneRestore, Error> {
    let origin = RestoreOrigin {
        at: clock.now(),
        from: "an undone restore".to_owned(),
    };
    let target = std::path::absolute(&target).unwrap_or(target);
    let shown = target.display().to_string();
    let kept = bridge::blocking(move || restore::undo(&target, &origin)).await?;
    Ok(UndoneRestore {
        target: shown,
        kept: kept.path.display().to_string(),
        was: kept.from,
    })
}
