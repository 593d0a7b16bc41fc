//! What each route takes and answers. One file for each noun.

pub(super) mod events;
pub(super) mod health;
pub(super) mod page;
pub(super) mod profile_snapshots;
pub(super) mod snapshots;
pub(super) mod subjects;
pub(super) mod token;
