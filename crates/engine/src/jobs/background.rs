//! What jobs may take of their host: threads that leave it to others, and so many bytes a second.
//!
//! Only the work of a job is there. Its clock, its lease and its record are not, so that no lease expires because the host is busy or the line
//! is full.

use crate::bridge::BackgroundThreads;
use crate::open::Engine;
use stasis_store::bucket::Bucket;
use stasis_store::documents::lineages::Lineages;
use stasis_store::paced::{Bandwidth, Paced};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Which threads jobs run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum JobThreads {
    /// Some of their own, which leave the processor and the disks to others.
    #[default]
    Own,
    /// Those of whoever starts them.
    Shared,
}

/// The threads themselves.
#[derive(Debug)]
pub(super) enum WorkThreads {
    Own(BackgroundThreads),
    Shared,
}

impl WorkThreads {
    /// Starts them; a system that has no threads left for that gives jobs those that there are.
    pub(super) fn start(which: JobThreads) -> Self {
        if which == JobThreads::Shared {
            return Self::Shared;
        }
        match BackgroundThreads::start() {
            Ok(own) => Self::Own(own),
            Err(error) => {
                tracing::warn!(%error, "jobs have no threads of their own: they run at the priority of requests");
                Self::Shared
            }
        }
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match self {
            Self::Own(own) => own.spawn(work),
            Self::Shared => tokio::spawn(work),
        }
    }
}

impl Engine {
    /// The same engine, whose content takes its turn on a line that others use too.
    pub(super) fn paced(&self, line: &Arc<Bandwidth>) -> Self {
        let paced = Paced::new(self.bucket.clone(), line.clone());
        let bucket: Arc<dyn Bucket> = Arc::new(paced);
        let lineages = Lineages::new(bucket.clone(), self.clock.clone(), self.rng.clone());
        Self {
            bucket,
            lineages,
            ..self.clone()
        }
    }
}
