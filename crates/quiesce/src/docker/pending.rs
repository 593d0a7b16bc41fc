//! A question to a daemon that is asked by a thread which is in no runtime, or must not wait yet.

use stasis_model::failure::{ErrorKind, Failure, error_chain};
use std::error::Error;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// How much later than its own limit a call is given up.
const MARGIN: Duration = Duration::from_secs(1);

/// A call that goes on in a thread and a small runtime of its own. It ends by itself, also when nobody waits for it.
#[derive(Debug)]
pub(crate) struct PendingCall<T> {
    answer: Receiver<Result<T, Failure>>,
    limit: Duration,
}

impl<T: Send + 'static> PendingCall<T> {
    /// Begins a call that ends within `limit`.
    pub(crate) fn begin<F, W>(limit: Duration, call: F) -> io::Result<Self>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = Result<T, Failure>>,
    {
        let (sender, answer) = sync_channel(1);
        // A thread of a runtime may not enter another one: a thread of our own may.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let work = move || {
            let _ = sender.send(runtime.block_on(call()));
            // A name that is still being looked up is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("docker".to_owned());
        thread.spawn(work)?;
        Ok(Self { answer, limit })
    }

    /// Waits for the answer.
    pub(crate) fn answer(self) -> Result<T, Failure> {
        let answer = self.answer.recv_timeout(self.limit + MARGIN);
        answer.unwrap_or_else(|_| {
            let why = format!("no answer within {:?}", self.limit);
            Err(Failure::of(ErrorKind::Unreachable, why))
        })
    }
}

/// Why something failed, in one line, for who says what failed.
pub(crate) fn reason(failure: &Failure) -> String {
    let why = failure.source().map(error_chain);
    why.unwrap_or_else(|| failure.to_string())
}
