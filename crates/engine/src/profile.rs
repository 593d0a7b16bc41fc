//! A browser identity: its snapshots, and the directory that it lives in.

mod capture;
mod error;
mod fetch;
mod hot;
mod load;
mod record;
mod run;
mod save;

pub use capture::{BrowserState, Capture, ProfileSaved, SaveOutcome};
pub use error::ProfileError;
pub use load::{FallbackReason, LoadOutcome, OnFailure, ProfileLoad, ProfileLoaded};
pub use record::Record;
pub use run::{ProfileRan, ProfileRun, outcome_of};
pub use save::{OnBrowser, ProfileSave, browser_major};

use crate::error::Error;
use stasis_disk::beneath::Beneath;
use stasis_disk::chrome::{self, ProfileFacts};
use std::path::Path;
use std::time::Duration;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What a profile says of itself.
fn facts(root: &Beneath, dir: &Path) -> Result<ProfileFacts, Error> {
    chrome::facts(root).map_err(|source| Error::NoDirectory {
        path: dir.to_owned(),
        source: source.into(),
    })
}
