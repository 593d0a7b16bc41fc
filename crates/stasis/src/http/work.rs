//! What is going on, counted, so that the end can wait for it.

use std::sync::Arc;
use tokio::sync::watch;

/// How many pieces of work there are.
#[derive(Clone, Debug)]
pub(super) struct WorkCount(Arc<watch::Sender<usize>>);

impl Default for WorkCount {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

/// One piece of work, for as long as this lives.
#[derive(Debug)]
#[must_use = "the work counts only for as long as this lives"]
pub(super) struct Work(WorkCount);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

impl WorkCount {
    /// One more.
    pub(super) fn begin(&self) -> Work {
        self.0.send_modify(|count| *count += 1);
        Work(self.clone())
    }

    /// Waits until there is none.
    pub(super) async fn idle(&self) {
        let mut count = self.0.subscribe();
        // The sender lives as long as we do.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_waits_for_what_is_going_on() {
        let all = WorkCount::default();
        all.idle().await;
        let (one, other) = (all.begin(), all.begin());
        let waiting = tokio::spawn({
            let all = all.clone();
            async move { all.idle().await }
        });

        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());

        drop(other);
        waiting.await.unwrap();
    }
}
