//! What moves are called in a counterexample.

use super::actor::{OPERATOR, REAPER};
use stasis_model::protocol::operation::OperationKind;
use stasis_model::protocol::step::Doc;
use std::fmt;

/// What happened in a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Read,
    ReadAfterExpiry,
    Unreadable,
    Received,
    Unanswered,
    RefusedByRetry,
    Delayed,
    Stale,
    StaleUnanswered,
    Landed,
    Stored,
    StoredNothing,
    Looked,
    Erased,
    ErasedArchive,
    Crashed,
}

/// One move, as it stands in a counterexample.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub(crate) actor: u8,
    pub(crate) kind: OperationKind,
    pub(crate) doc: Doc,
    pub(crate) event: Event,
}

impl fmt::Debug for Move {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.actor {
            REAPER => write!(out, "reaper")?,
            OPERATOR => write!(out, "operator")?,
            writer => write!(out, "writer {writer}")?,
        }
        let doc = match self.doc {
            Doc::Lock => "lock.json",
            Doc::Pointer => "latest.json",
        };
        let text = match self.event {
            Event::Read => "reads",
            Event::ReadAfterExpiry => "reads, with every lease expired,",
            Event::Unreadable => "cannot read",
            Event::Received => "writes",
            Event::Unanswered => "writes, but gets no answer,",
            Event::RefusedByRetry => "writes, but its own retry is refused,",
            Event::Delayed => "sends a write that may land later to",
            Event::Stale => "is refused to write",
            Event::StaleUnanswered => "is refused to write, but gets no answer,",
            Event::Landed => "has a late write land in",
            Event::Stored => return write!(out, " stores its archive"),
            Event::StoredNothing => return write!(out, " takes its archive for stored"),
            Event::Looked => "looks at",
            Event::Erased => "deletes",
            Event::ErasedArchive => return write!(out, " deletes its archive"),
            Event::Crashed => return write!(out, " crashes"),
        };
        write!(out, " ({:?}) {text} {doc}", self.kind)
    }
}
