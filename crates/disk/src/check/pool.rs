//! Several checks at once.

use super::find::Database;
use super::{CheckError, CheckSettings, Checked};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Checks everything that was found, in parallel; the first error ends it. The answers are sorted by path.
///
/// The heaviest comes first, so that in the end nobody waits for one that was begun last.
pub(super) fn check_all(
    mut found: Vec<Database>,
    settings: &CheckSettings,
    check: impl Fn(Database) -> Result<Checked, CheckError> + Sync,
) -> Result<Vec<Checked>, CheckError> {
    found.sort_by_key(|database| Reverse(database.weight));
    let workers = settings.workers.get().min(found.len());
    let waiting = Mutex::new(VecDeque::from(found));
    let answers: Mutex<Result<Vec<Checked>, CheckError>> = Mutex::new(Ok(Vec::new()));
    let work = || {
        while let Some(next) = lock(&waiting).pop_front() {
            let answer = if settings.cancel.load(Ordering::Relaxed) {
                Err(CheckError::Cancelled)
            } else {
                check(next)
            };
            let mut answers = lock(&answers);
            match (answer, &mut *answers) {
                (Ok(one), Ok(all)) => all.push(one),
                (Err(error), Ok(_)) => {
                    *answers = Err(error);
                    lock(&waiting).clear();
                }
                (_, Err(_)) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut all = answers
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)?;
    all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(all)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
