//! Several checks at once.

use super::find::Database;
use super::{CheckError, CheckSettings, Checked};
use crate::worker_pool::{WorkerPool, into_inner, lock};
use std::cmp::Reverse;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Checks everything that was found, in parallel; the first error ends it. The answers are sorted by path.
///
/// The heaviest comes first, so that in the end nobody waits for one that was begun last.
pub(super) fn check_all(
    mut found: Vec<Database>,
    settings: &CheckSettings,
    check: impl Fn(Database) -> Result<Checked, CheckError> + Sync,
) -> Result<Vec<Checked>, CheckError> {
    found.sort_by_key(|database| Reverse(database.weight));
    let checked = Mutex::new(Vec::new());
    WorkerPool::for_each(settings.workers, found, |next| {
        if settings.cancel.load(Ordering::Relaxed) {
            return Err(CheckError::Cancelled);
        }
        let one = check(next)?;
        lock(&checked).push(one);
        Ok(())
    })?;
    let mut all = into_inner(checked);
    all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(all)
}
