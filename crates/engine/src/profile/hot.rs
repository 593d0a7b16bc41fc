//! Captures a profile while its browser runs.

use super::capture::{Capture, ProfileSaved};
use super::error::ProfileError;
use crate::error::Error;
use crate::open::Engine;
use stasis_store::leases::Lease;

impl Engine {
    pub(super) async fn capture_hot(
        &self,
        capture: &Capture,
        lease: &Lease,
    ) -> Result<ProfileSaved, Error> {
        let _ = capture;
        Err(ProfileError::HotNotAllowed(lease.lineage.clone()).into())
    }
}
