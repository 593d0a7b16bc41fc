//! Events on their way out, at most one per path.

use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use std::collections::HashMap;

/// What happened to a file or a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Action {
    /// It was not there before.
    Created,
    /// It has, or may have, another content.
    Modified,
    /// It is there no more.
    Deleted,
}

impl Action {
    /// The word for it in `fs_events`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
        }
    }

    /// What two actions on one path come to, the later one being `then`; `None` when nothing happened after all.
    fn followed_by(self, then: Self) -> Option<Self> {
        match (self, then) {
            (Self::Created, Self::Deleted) => None,
            (Self::Created, _) => Some(Self::Created),
            (Self::Deleted, Self::Created) => Some(Self::Modified),
            (Self::Modified | Self::Deleted, _) => Some(then),
        }
    }
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileEvent {
    /// What.
    pub action: Action,
    /// To which file or symbolic link.
    pub path: EntryPath,
    /// How long it is now, or how long the target of a symbolic link is; `None` when it was deleted.
    pub size: Option<u64>,
    /// When the first event of it was read; of what a rescan found, when that began.
    pub at: Timestamp,
}

/// Events in the order of the first event of each.
#[derive(Debug, Default)]
pub(super) struct OutgoingEvents {
    events: Vec<Option<FileEvent>>,
    places: HashMap<EntryPath, usize>,
    /// How often something was reported, ever.
    pub(super) count: usize,
}

impl OutgoingEvents {
    pub(super) fn push(&mut self, event: FileEvent) {
        self.count += 1;
        let Some(&place) = self.places.get(&event.path) else {
            self.places.insert(event.path.clone(), self.events.len());
            self.events.push(Some(event));
            return;
        };
        let Some(before) = self.events[place].take() else {
            return;
        };
        if let Some(action) = before.action.followed_by(event.action) {
            let at = before.at;
            self.events[place] = Some(FileEvent {
                action,
                at,
                ..event
            });
        } else {
            self.places.remove(&event.path);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<FileEvent> {
        self.places.clear();
        std::mem::take(&mut self.events)
            .into_iter()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_actions_on_one_path_come_to_one_or_none() {
        use Action::{Created, Deleted, Modified};
        let cases = [
            (Created, Modified, Some(Created)),
            (Created, Deleted, None),
            (Deleted, Created, Some(Modified)),
            (Modified, Modified, Some(Modified)),
            (Modified, Deleted, Some(Deleted)),
        ];
        for (first, then, expected) in cases {
            let mut outgoing = OutgoingEvents::default();
            let event = |path: &str, action, size| FileEvent {
                action,
                path: EntryPath::parse(path.as_bytes()).unwrap(),
                size: Some(size),
                at: Timestamp::from_millis(size),
            };

            outgoing.push(event("one", first, 1));
            outgoing.push(event("other", Modified, 2));
            outgoing.push(event("one", then, 3));

            let mut events = outgoing.take();
            assert_eq!(events.pop(), Some(event("other", Modified, 2)));
            let merged = events.pop().map(|event| {
                let at = event.at.millis();
                (event.action, event.size, at)
            });
            let expected = expected.map(|action| (action, Some(3), 1));
            assert_eq!(merged, expected, "{first:?}, then {then:?}");
            assert!(events.is_empty() && outgoing.is_empty());
        }
    }
}
