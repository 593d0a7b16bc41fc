//! What was used last, within a limit.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, of which those that were used longest ago go when all together weigh too much.
#[derive(Debug)]
pub(super) struct WeighedLru<K, V> {
    limit: u64,
    weight: u64,
    /// Counts uses.
    now: u64,
    values: HashMap<K, Held<V>>,
    by_use: BTreeMap<u64, K>,
}

#[derive(Debug)]
struct Held<V> {
    value: V,
    weight: u64,
    used: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> WeighedLru<K, V> {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            weight: 0,
            now: 0,
            values: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        let held = self.values.get_mut(key)?;
        self.now += 1;
        self.by_use.remove(&held.used);
        held.used = self.now;
        self.by_use.insert(self.now, key.clone());
        Some(held.value.clone())
    }

    /// Adds a value; others go for it. It stays itself, however much it weighs, until the next one comes.
    pub(super) fn add(&mut self, key: K, value: V, weight: u64) {
        self.remove(&key);
        self.now += 1;
        let used = self.now;
        self.weight += weight;
        self.by_use.insert(used, key.clone());
        self.values.insert(
            key,
            Held {
                value,
                weight,
                used,
            },
        );
        while self.weight > self.limit
            && self.values.len() > 1
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.values.contains_key(key)
    }

    fn remove(&mut self, key: &K) {
        if let Some(held) = self.values.remove(key) {
            self.weight -= held.weight;
            self.by_use.remove(&held.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut lru = WeighedLru::new(10);
        lru.add('a', 1, 4);
        lru.add('b', 2, 4);
        assert_eq!(lru.get(&'a'), Some(1));

        lru.add('c', 3, 4);

        assert_eq!(lru.get(&'b'), None);
        assert_eq!((lru.get(&'a'), lru.get(&'c')), (Some(1), Some(3)));
        assert_eq!(lru.weight, 8);
    }

    #[test]
    fn what_weighs_more_than_all_may_is_held_alone() {
        let mut lru = WeighedLru::new(10);
        lru.add('a', 1, 4);

        lru.add('b', 2, 11);
        assert_eq!((lru.weight, lru.values.len(), lru.by_use.len()), (11, 1, 1));
        lru.add('c', 3, 1);

        assert!(!lru.contains(&'b') && lru.contains(&'c'));
        assert_eq!((lru.weight, lru.values.len(), lru.by_use.len()), (1, 1, 1));
    }
}
