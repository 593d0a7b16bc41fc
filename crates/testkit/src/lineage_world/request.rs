//! What lies in the model store, and what is on its way there.

use super::conduct::Task;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::document::{Version, Versioned};
use stasis_model::protocol::settle::Body;
use std::rc::Rc;

/// One document and its version, a number that no later write repeats.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Cell<T> {
    pub(crate) value: T,
    pub(crate) version: u32,
}

impl<T: Clone> Cell<T> {
    pub(crate) fn versioned(&self) -> Versioned<T> {
        Versioned {
            value: self.value.clone(),
            version: Version::new(self.version.to_string()),
        }
    }
}

/// When a write is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Condition {
    Absent,
    Version(u32),
    Always,
}

impl Condition {
    pub(crate) fn of(expected: Option<&Version>) -> Self {
        let number = |version: &Version| version.as_str().parse().expect("our own version");
        expected.map_or(Self::Absent, |version| Self::Version(number(version)))
    }
}

/// A write on its way.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Request {
    pub(crate) task: Rc<Task>,
    pub(crate) condition: Condition,
    pub(crate) body: Body,
    /// What the writer really loaded.
    pub(crate) loaded: Option<ArchiveDigest>,
    /// The version of the lock that the actor read last.
    pub(crate) judged: u32,
}
