//! The only place where blocking code enters the async world, or the other way round.
//!
//! Whatever crosses is boxed first: a runtime that is handed each kind of work by value is compiled for each of them,
//! several times over.

use std::any::Any;
use std::cell::OnceCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// Runs `work` to its end on a small runtime of its own.
pub fn run<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let work: Pin<Box<dyn Future<Output = T> + '_>> = Box::pin(work);
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
    type Boxed = Box<dyn Any + Send>;
    let work: Box<dyn FnOnce() -> Boxed + Send> = Box::new(|| Box::new(work()));
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => *result.downcast().expect("it is what the work returned"),
        Err(gone) => std::panic::resume_unwind(gone.into_panic()),
    }
}

/// The result of work that is async in form only: blocking code behind a trait whose others wait.
pub(crate) fn ready<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("it waits for nothing"),
    }
}

/// A way back into the async world, for blocking code that was entered from it.
#[derive(Clone, Debug)]
pub(crate) struct Crossing(tokio::runtime::Handle);

impl Crossing {
    /// From where we are now, which must be async.
    pub(crate) fn here() -> Self {
        Self(tokio::runtime::Handle::current())
    }

    /// Waits for async work. Only for threads that may block.
    #[expect(clippy::disallowed_methods, reason = "this file is the crossing")]
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let work: Pin<Box<dyn Future<Output = T> + '_>> = Box::pin(work);
        self.0.block_on(work)
    }

    /// Starts async work and does not wait for it.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let work: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(work);
        self.0.spawn(work)
    }
}

/// A flag that is set when whoever waits for blocking work is gone.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// The flag, for whoever does the work.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads for work that nobody waits for: they leave the processor and the disks to others. Dropped, they begin nothing any more.
#[derive(Debug)]
pub(crate) struct BackgroundThreads(Option<tokio::runtime::Runtime>);

/// How many of them do async work; those that block are as many as there is work.
const BACKGROUND_WORKERS: usize = 2;

thread_local! {
    /// On threads for background work, a way back to those of whoever started them.
    static USUAL: OnceCell<tokio::runtime::Handle> = const { OnceCell::new() };
}

/// Does work on threads that have the usual priority of the process: for what starts programs, which would have that of our thread for
/// good, and for what others stand still for. Whoever drops this stops it.
pub(crate) async fn at_usual_priority<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let work: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(work);
    let Some(usual) = USUAL.with(|usual| usual.get().cloned()) else {
        return work.await;
    };
    let mut task = AbortOnDrop(usual.spawn(work));
    match (&mut task.0).await {
        Ok(done) => done,
        Err(gone) => match gone.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Those threads have ended, and so will ours.
            Err(_) => std::future::pending().await,
        },
    }
}

/// A task that ends with whoever waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl BackgroundThreads {
    /// Starts them.
    pub(crate) fn start() -> io::Result<Self> {
        let is_said = AtomicBool::new(false);
        let usual = tokio::runtime::Handle::try_current().ok();
        let yielding = move || {
            if let Some(usual) = &usual {
                // Once for each thread.
                let _ = USUAL.with(|own| own.set(usual.clone()));
            }
            let yielded = stasis_sys::background::yield_to_others();
            if let Err(error) = yielded
                && !is_said.swap(true, Ordering::Relaxed)
            {
                tracing::warn!(%error, "threads for background work could not be given a lower priority");
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(BACKGROUND_WORKERS)
            .thread_name("stasis-job")
            .on_thread_start(yielding)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Begins work on them, with all that it leaves to threads which may block.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let work: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(work);
        let runtime = self.0.as_ref();
        runtime
            .expect("it is there until it is dropped")
            .spawn(work)
    }
}

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        // Whoever drops it may be async, and does not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
