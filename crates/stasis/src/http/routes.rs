//! What each route takes and answers. One file for each noun.

pub(super) mod changes;
pub(super) mod directory;
pub(super) mod events;
pub(super) mod health;
pub(super) mod host;
pub(super) mod jobs;
pub(super) mod leases;
pub(super) mod mcp;
pub(super) mod metrics;
pub(super) mod operations;
pub(super) mod page;
pub(super) mod profile_snapshots;
pub(super) mod sessions;
pub(super) mod snapshots;
pub(super) mod stats;
pub(super) mod subjects;
pub(super) mod token;
