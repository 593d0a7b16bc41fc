//! Several checks at once.

use super::{CheckError, CheckSettings, Checked, DatabaseKind};
use stasis_model::tree::EntryPath;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Checks everything that was found, in parallel; the first error ends it. The answers are sorted by path.
pub(super) fn check_all(
    found: Vec<(EntryPath, DatabaseKind)>,
    settings: &CheckSettings,
    check: impl Fn((EntryPath, DatabaseKind)) -> Result<Checked, CheckError> + Sync,
) -> Result<Vec<Checked>, CheckError> {
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
