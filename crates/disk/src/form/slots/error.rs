//! Why something was not done to a slot.

use crate::form::chunked::ChunkError;
use crate::tree::clone::CloneError;
use crate::tree::restore::RestoreError;
use crate::tree::walk::WalkError;
use crate::tree::write::TreeWriteError;
use stasis_model::failure::Failure;
use stasis_model::invalid::Invalid;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{OverBudget, Slot};
use std::io;
use std::path::{Path, PathBuf};

/// Why something was not done to a slot. What was in it is in it still.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// The filesystem does not share bytes: the checkpoint has to be kept in another form.
    #[error("the filesystem cannot share the bytes of `{path}` with a checkpoint")]
    Unsupported {
        /// The first file for which that was found.
        path: EntryPath,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The workspace or the system could not be cloned.
    #[error("could not clone `{}` into a checkpoint", .path.display())]
    Clone {
        /// Which of them.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<CloneError>,
    },
    /// A tree could not be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// There is no room for it.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// Nothing is in the slot.
    #[error("there is no checkpoint {0}")]
    Empty(Slot),
    /// What is there is never overwritten.
    #[error("the checkpoint {0} stays until it is deleted")]
    Occupied(Slot),
    /// Nobody knows what is there.
    #[error("{slot} holds something that cannot be used: {why}")]
    Unreadable {
        /// Where.
        slot: Slot,
        /// What is wrong with it.
        why: String,
    },
    /// Another checkpoint took the slot meanwhile.
    #[error("{0} is another checkpoint by now")]
    Replaced(Slot),
    /// The tree could not be stored in chunks.
    #[error("could not store the tree in chunks")]
    Pack(#[source] ChunkError),
    /// The chunks of a checkpoint could not be read.
    #[error("could not read the chunks of the checkpoint")]
    Chunks(#[from] ChunkError),
    /// The tree could not be made from its chunks.
    #[error("could not make the tree from its chunks")]
    Unpack(#[source] ChunkError),
    /// Something that the tree is made of is lost. Nothing was changed.
    #[error("{slot} is damaged, and nothing was changed")]
    Damaged {
        /// Which checkpoint.
        slot: Slot,
        /// What is lost.
        #[source]
        source: ChunkError,
    },
    /// The tree could not be put in its place.
    #[error(transparent)]
    Place(#[from] RestoreError),
    /// The checkpoint could not be read, or not all of it.
    #[error("could not read the checkpoint")]
    Checkpoint(#[source] WalkError),
    /// Somebody asked us to stop.
    #[error("putting the workspace back was cancelled")]
    Cancelled,
    /// What says what a tree is cannot be used.
    #[error("the checkpoint cannot be used: {0}")]
    Document(String),
    /// What nobody branches on.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl From<TreeWriteError> for SlotError {
    fn from(error: TreeWriteError) -> Self {
        Self::Place(error.into())
    }
}

impl From<Invalid> for SlotError {
    fn from(error: Invalid) -> Self {
        Self::Document(error.to_string())
    }
}

impl SlotError {
    /// Says which checkpoint it is that something is lost of.
    pub(super) fn in_slot(self, slot: Slot) -> Self {
        match self {
            Self::Unpack(source) if is_lost(&source) => Self::Damaged { slot, source },
            error => error,
        }
    }
}

fn is_lost(error: &ChunkError) -> bool {
    matches!(
        error,
        ChunkError::LostVersion { .. }
            | ChunkError::NoVersion(_)
            | ChunkError::Absent(_)
            | ChunkError::Damaged { .. }
            | ChunkError::List { .. }
    )
}

/// Sorts out the refusal of a clone that has another way around it.
pub(super) trait CloneContext<T> {
    fn of_checkpoint(self, path: &Path) -> Result<T, SlotError>;
}

impl<T> CloneContext<T> for Result<T, CloneError> {
    fn of_checkpoint(self, path: &Path) -> Result<T, SlotError> {
        self.map_err(|error| match error {
            CloneError::CannotShare { path, source } => SlotError::Unsupported { path, source },
            error => SlotError::Clone {
                path: path.to_owned(),
                source: Box::new(error),
            },
        })
    }
}
