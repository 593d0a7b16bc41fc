//! How it ends.

use crate::tree::walk::WalkError;
use stasis_model::failure::Failure;

/// Why there is no more to be reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootGone {
    /// The root was deleted.
    Deleted,
    /// The root's path leads elsewhere or nowhere: it was moved, replaced, mounted over or lazily unmounted.
    Moved,
    /// The filesystem of the root was unmounted.
    Unmounted,
}

/// Why a tree is not, or no longer, monitored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// The root is there no more; nothing else will be reported.
    #[error("the root is no longer there: {why:?}")]
    RootGone {
        /// What became of it.
        why: RootGone,
    },
    /// The system refused something. What was found is reported by the next call, which reads everything again.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The tree is too large.
    #[error("more than {limit} entries are in the tree")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A pattern is not one.
    #[error("could not use the ignore list")]
    Ignore(#[source] WalkError),
    /// The saved state is damaged; starting anew is the way out.
    #[error("the saved state is damaged")]
    SavedState,
}
