//! How it ends.

use crate::tree::walk::WalkError;
use rustix::io::Errno;
use stasis_model::tree::EntryPath;
use std::path::PathBuf;

/// Why there is no more to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
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
    /// The root is not a directory that can be opened.
    #[error("could not open the root `{}`", path.display())]
    Root {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The root is there no more; nothing else will be told.
    #[error("the root is no longer there: {why:?}")]
    Ended {
        /// What became of it.
        why: Ended,
    },
    /// The system refused something. What was found is told by the next call, which reads everything again.
    #[error("could not {doing} `{path}`")]
    Failed {
        /// What we were doing.
        doing: &'static str,
        /// To which entry.
        path: EntryPath,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The tree is too large.
    #[error("more than {limit} entries are in the tree")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A pattern is not one.
    #[error("could not use the ignore list")]
    Ignore(#[source] WalkError),
    /// Kept beliefs are damaged; starting anew is the way out.
    #[error("the kept beliefs are damaged")]
    Beliefs,
}

impl MonitorError {
    pub(super) fn failed(doing: &'static str, path: &EntryPath, error: Errno) -> Self {
        Self::Failed {
            doing,
            path: path.clone(),
            source: error.into(),
        }
    }
}
