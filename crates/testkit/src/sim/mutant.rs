//! Mutants: what a careless implementation would do. A simulation that does not find them is worth nothing.

use super::oracle::Promise;

/// A mutant of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutant {
    /// The store accepts conditions and does not check them.
    IgnoresConditions,
    /// A refused or unanswered publish is reported as failed, without reading.
    TrustsLost,
    /// After a refused or unanswered publish the pointer is read once; what is not there yet is reported as failed.
    HastyVerdict,
    /// A refused publish is repeated on whatever is there now.
    RetriesBlindly,
    /// A publish checks its base, but not its fence.
    SkipsFence,
    /// A writer whose publish is unknown removes what it had stored.
    CleansUp,
    /// A run that fell back to a fresh profile publishes over the snapshot it could not load.
    PublishesFresh,
    /// The reaper reads the lock, then deletes it.
    ReaperDeletes,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::IgnoresConditions,
        Self::TrustsLost,
        Self::HastyVerdict,
        Self::RetriesBlindly,
        Self::SkipsFence,
        Self::CleansUp,
        Self::PublishesFresh,
        Self::ReaperDeletes,
    ];

    /// The promises that this bug may break.
    pub fn breaks(self) -> &'static [Promise] {
        match self {
            Self::IgnoresConditions => &[Promise::Growing, Promise::Linear, Promise::Fenced],
            Self::TrustsLost | Self::HastyVerdict => &[Promise::Truthful],
            Self::RetriesBlindly => &[Promise::Linear, Promise::Fenced],
            Self::SkipsFence => &[Promise::Fenced],
            Self::CleansUp => &[Promise::Closed],
            Self::PublishesFresh => &[Promise::Linear],
            Self::ReaperDeletes => &[Promise::Growing],
        }
    }

    /// Whether publishes are done by hand.
    pub(crate) fn is_a_publish(self) -> bool {
        matches!(
            self,
            Self::TrustsLost | Self::HastyVerdict | Self::RetriesBlindly | Self::SkipsFence
        )
    }
}
