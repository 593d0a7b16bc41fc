//! Which directory has which path, both ways.

use stasis_model::tree::EntryPath;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Directories by what the kernel calls them.
///
/// *Always true:* a directory has one path, and a path is one directory.
#[derive(Debug)]
pub(super) struct WatchTable<K> {
    by_key: HashMap<K, EntryPath>,
    by_path: HashMap<EntryPath, K>,
}

impl<K> Default for WatchTable<K> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            by_path: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> WatchTable<K> {
    /// Keeps that `path` is the directory `key`; gives back another directory that had this path until now.
    pub(super) fn put(&mut self, path: &EntryPath, key: &K) -> Option<K> {
        // The same directory under another name: it moved, and the old name is about to be found gone.
        if let Some(old) = self.by_key.insert(key.clone(), path.clone())
            && old != *path
        {
            self.by_path.remove(&old);
        }
        let before = self.by_path.insert(path.clone(), key.clone());
        let other = before.filter(|before| before != key)?;
        self.by_key.remove(&other);
        Some(other)
    }

    /// Forgets what has this path.
    pub(super) fn take(&mut self, path: &EntryPath) -> Option<K> {
        let key = self.by_path.remove(path)?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// Forgets a directory; gives back its path.
    pub(super) fn lose<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<EntryPath>
    where
        K: Borrow<Q>,
    {
        let path = self.by_key.remove(key)?;
        self.by_path.remove(&path);
        Some(path)
    }

    pub(super) fn path<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&EntryPath>
    where
        K: Borrow<Q>,
    {
        self.by_key.get(key)
    }

    pub(super) fn has(&self, path: &EntryPath) -> bool {
        self.by_path.contains_key(path)
    }

    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    #[cfg(test)]
    pub(super) fn key(&self, path: &EntryPath) -> Option<&K> {
        self.by_path.get(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> EntryPath {
        EntryPath::parse(path.as_bytes()).unwrap()
    }

    #[test]
    fn directories_that_move_and_trade_places_have_one_path_each() {
        let mut table = WatchTable::default();
        assert_eq!(table.put(&path("a"), &1), None);
        assert_eq!(table.put(&path("b"), &2), None);

        assert_eq!(
            table.put(&path("b"), &1),
            Some(2),
            "1 moved to the place of 2"
        );
        assert_eq!((table.has(&path("a")), table.len()), (false, 1));
        assert_eq!(table.put(&path("a"), &2), None);
        assert_eq!(
            (table.path(&1), table.path(&2)),
            (Some(&path("b")), Some(&path("a")))
        );

        assert_eq!(table.take(&path("b")), Some(1));
        assert_eq!(table.lose(&2), Some(path("a")));
        assert_eq!(
            (table.lose(&1), table.take(&path("a")), table.len()),
            (None, None, 0)
        );
    }
}
