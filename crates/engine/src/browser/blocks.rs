//! What was fetched and may be asked for again, within a limit of bytes; nobody fetches the same twice at the same time.

use super::lru::WeighedLru;
use crate::error::Error;
use stasis_model::digest::FileDigest;
use stasis_model::protocol::gc::ChunkName;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What is fetched, checked and kept as one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Block {
    Chunk(ChunkName),
    Frame(u32),
    /// A stretch of a version of a file that is held whole, and what must be in it.
    Version {
        file: FileDigest,
        number: u32,
        length: u32,
        digest: FileDigest,
    },
}

/// A block, and where: names mean something only in their pool, and numbers in their archive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct BlockKey {
    pub(super) space: u32,
    pub(super) block: Block,
}

/// What was used last: blocks, and the trees of snapshots.
#[derive(Debug)]
pub(super) struct SharedCache<K, V> {
    state: Mutex<CacheState<K, V>>,
    /// Somebody has ended a fetch, be it well or not.
    ended: Condvar,
}

#[derive(Debug)]
struct CacheState<K, V> {
    held: WeighedLru<K, Arc<V>>,
    under_way: HashSet<K>,
}

/// A fetch that somebody else waits for; ends when it is dropped, whatever became of it.
struct Fetching<'a, K: Clone + Eq + Hash, V> {
    cache: &'a SharedCache<K, V>,
    key: K,
}

impl<K: Clone + Eq + Hash, V> Drop for Fetching<'_, K, V> {
    fn drop(&mut self) {
        self.cache.lock().under_way.remove(&self.key);
        self.cache.ended.notify_all();
    }
}

impl<K: Clone + Eq + Hash, V> SharedCache<K, V> {
    /// Of values that weigh no more together.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            state: Mutex::new(CacheState {
                held: WeighedLru::new(limit),
                under_way: HashSet::new(),
            }),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A value, from here or fetched. A failure is not remembered: whoever asks next tries again.
    pub(super) fn get(
        &self,
        key: &K,
        weight: impl FnOnce(&V) -> u64,
        fetch: impl FnOnce() -> Result<V, Error>,
    ) -> Result<Arc<V>, Error> {
        let mut state = self.lock();
        loop {
            if let Some(held) = state.held.get(key) {
                return Ok(held);
            }
            if state.under_way.insert(key.clone()) {
                break;
            }
            let waited = self.ended.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let key = key.clone();
        let fetching = Fetching { cache: self, key };
        let value = Arc::new(fetch()?);
        let (key, weight) = (fetching.key.clone(), weight(&value));
        self.lock().held.add(key, value.clone(), weight);
        Ok(value)
    }

    /// Whether a value is here, or on its way.
    pub(super) fn is_known(&self, key: &K) -> bool {
        let state = self.lock();
        state.held.contains(key) || state.under_way.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    #[expect(clippy::ptr_arg, reason = "it is what the cache holds")]
    fn weight(bytes: &Vec<u8>) -> u64 {
        bytes.len() as u64
    }

    fn frame(number: u32) -> BlockKey {
        BlockKey {
            space: 0,
            block: Block::Frame(number),
        }
    }

    #[test]
    fn a_block_that_many_want_at_once_is_fetched_once() {
        let (cache, fetched) = (SharedCache::new(100), AtomicUsize::new(0));
        let (begun, has_begun) = channel();
        let (end, may_end) = channel::<()>();

        thread::scope(|scope| {
            let (cache, fetched) = (&cache, &fetched);
            scope.spawn(move || {
                cache.get(&frame(1), weight, || {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    fetched.fetch_add(1, Ordering::SeqCst);
                    Ok(vec![7])
                })
            });
            has_begun.recv().unwrap();
            let others = [(); 4].map(|()| {
                scope.spawn(|| {
                    let again = || {
                        fetched.fetch_add(1, Ordering::SeqCst);
                        Ok(vec![8])
                    };
                    cache.get(&frame(1), weight, again).unwrap()
                })
            });
            end.send(()).unwrap();
            for other in others {
                assert_eq!(*other.join().unwrap(), [7]);
            }
        });

        assert_eq!(fetched.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_fetch_that_failed_is_tried_again() {
        let cache = SharedCache::new(100);
        let failed = cache.get(&frame(1), weight, || Err(Error::NoRepo("x".to_owned())));
        assert!(failed.is_err());
        assert!(!cache.is_known(&frame(1)));

        let found = cache.get(&frame(1), weight, || Ok(vec![1]));

        assert_eq!(*found.unwrap(), [1]);
    }

    #[test]
    fn no_more_bytes_are_held_than_may_be() {
        let cache = SharedCache::new(10);
        for number in 0..5 {
            cache
                .get(&frame(number), weight, || Ok(vec![0; 4]))
                .unwrap();
        }

        let held = (0..5).filter(|number| cache.is_known(&frame(*number)));
        assert_eq!(held.collect::<Vec<_>>(), [3, 4]);
    }
}
