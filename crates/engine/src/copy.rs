//! A store, or a repository, copied into another one.

use crate::error::Error;
use crate::open::Engine;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::time::Clock;
use stasis_store::copying::copy;

/// A store that was copied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StoreCopied {
    /// From where.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Objects that were copied.
    pub objects: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Objects that were there already.
    pub objects_there: u64,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Copies everything in one store into another.
pub async fn copy_store(
    from: &Engine,
    to: &Engine,
    clock: &dyn Clock,
) -> Result<StoreCopied, Error> {
    let started = clock.uptime();
    to.store().ensure_trusted().await?;
    let copied = copy(&from.bucket, &to.bucket).await?;
    let elapsed = clock.uptime().saturating_sub(started);
    Ok(StoreCopied {
        from: from.location().to_string(),
        to: to.location().to_string(),
        objects: copied.objects,
        bytes: copied.bytes,
        objects_there: copied.objects_there,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
    })
}
