//! The only place where blocking code enters the async world, or the other way round.

use std::future::Future;
use std::io;

/// Runs `work` to its end on a small runtime of its own.
pub fn run<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // A command that hangs must not keep us: what it was asked to do is finished or reported by now.
    runtime.shutdown_background();
    Ok(result)
}

/// Runs blocking `work` without keeping the async world from its own.
#[expect(clippy::disallowed_methods, reason = "this file is the crossing")]
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(gone) => std::panic::resume_unwind(gone.into_panic()),
    }
}
