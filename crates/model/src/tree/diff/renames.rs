//! Names that moved: a file that was removed here and added there, with the same content.

use super::{Change, Item};
use crate::tree::EntryKind;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A change, after names that moved were found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Moved<D> {
    /// A change that is no move.
    Change(Change<D>),
    /// One file under another name; what besides its name differs can be seen from the two.
    Renamed {
        /// As it was.
        from: Box<Item<D>>,
        /// As it is.
        to: Box<Item<D>>,
    },
}

/// Joins removed and added files of the same content, in order, and returns the changes sorted by the new path.
///
/// Each file moves at most once, the first removed one to the first added one. Empty files, and files whose digest is
/// not known, never moved: they say too little. With more than `limit` changes nothing is joined.
pub fn find_renames<D: Clone + Eq + Hash>(changes: Vec<Change<D>>, limit: usize) -> Vec<Moved<D>> {
    if changes.len() > limit {
        return changes.into_iter().map(Moved::Change).collect();
    }
    let mut gone: HashMap<(u64, D), VecDeque<usize>> = HashMap::new();
    let mut origin: HashMap<usize, usize> = HashMap::new();
    for (index, change) in changes.iter().enumerate() {
        if let Change::Removed(item) = change
            && let Some(key) = key(item)
        {
            gone.entry(key).or_default().push_back(index);
        }
    }
    for (index, change) in changes.iter().enumerate() {
        if let Change::Added(item) = change
            && let Some(from) = key(item).and_then(|key| gone.get_mut(&key)?.pop_front())
        {
            origin.insert(index, from);
        }
    }
    join(changes, &origin)
}

fn key<D: Clone>(item: &Item<D>) -> Option<(u64, D)> {
    match item.entry.kind {
        EntryKind::File { size } if size > 0 => Some((size, item.digest.clone()?)),
        _ => None,
    }
}

/// Puts each removal that has gone into a move to where it went.
fn join<D>(changes: Vec<Change<D>>, origin: &HashMap<usize, usize>) -> Vec<Moved<D>> {
    let mut changes: Vec<Option<Change<D>>> = changes.into_iter().map(Some).collect();
    let mut from: HashMap<usize, Change<D>> = HashMap::new();
    for (to, source) in origin {
        from.extend(changes[*source].take().map(|change| (*to, change)));
    }
    let mut joined = Vec::with_capacity(changes.len());
    for (index, change) in changes.into_iter().enumerate() {
        joined.extend(match (change, from.remove(&index)) {
            (Some(Change::Added(to)), Some(Change::Removed(from))) => Some(Moved::Renamed {
                from: Box::new(from),
                to: Box::new(to),
            }),
            (change, _) => change.map(Moved::Change),
        });
    }
    joined
}
