//! The directories of a tree that is being written, packed: a name, the one above, and what it will get in the end.

use stasis_model::tree::{EntryPath, FileTime, Metadata};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The place of a directory in the table.
pub(super) type Index = u32;

/// The root is always the first.
pub(super) const ROOT: Index = 0;

/// What is known of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DirectoryState {
    /// It was made because something lies in it; nobody announced it so far.
    Unannounced,
    /// It was made before it was announced, closed to others.
    AnnouncedLate(Metadata),
    /// It was announced, then made with its own permissions.
    Announced(Metadata),
}

impl DirectoryState {
    /// What was announced for it; of one that nobody announced, nothing.
    pub(super) fn wanted(&self) -> Metadata {
        match self {
            Self::Unannounced => Metadata::default(),
            Self::AnnouncedLate(wanted) | Self::Announced(wanted) => *wanted,
        }
    }
}

#[derive(Debug)]
struct WriteNode {
    above: Index,
    depth: u32,
    name: usize,
    name_length: u16,
    state: DirectoryState,
}

/// All directories that were made. A path is found by 128 bits of its digest, so that long paths cost nothing.
#[derive(Debug)]
pub(super) struct Directories {
    nodes: Vec<WriteNode>,
    names: Vec<u8>,
    by_path: HashMap<[u8; 16], Index>,
}

impl Directories {
    pub(super) fn new() -> Self {
        let root = WriteNode {
            above: ROOT,
            depth: 0,
            name: 0,
            name_length: 0,
            state: DirectoryState::Unannounced,
        };
        Self {
            nodes: vec![root],
            names: Vec::new(),
            by_path: HashMap::from([(key(b""), ROOT)]),
        }
    }

    pub(super) fn find(&self, way: &[u8]) -> Option<Index> {
        self.by_path.get(&key(way)).copied()
    }

    pub(super) fn state(&self, at: Index) -> DirectoryState {
        self.nodes[at as usize].state
    }

    /// Adds the directory `way`, whose name begins at `name_at`. There are fewer of them than fit into an [`Index`].
    pub(super) fn add(
        &mut self,
        above: Index,
        way: &[u8],
        name_at: usize,
        state: DirectoryState,
    ) -> Index {
        let index = Index::try_from(self.nodes.len()).expect("the limit of entries is smaller");
        let name = &way[name_at..];
        self.nodes.push(WriteNode {
            above,
            depth: self.nodes[above as usize].depth + 1,
            name: self.names.len(),
            name_length: u16::try_from(name.len()).expect("names have at most 255 bytes"),
            state,
        });
        self.names.extend_from_slice(name);
        self.by_path.insert(key(way), index);
        index
    }

    /// Notes what a directory that exists will get; `false` when that is known already.
    pub(super) fn announce(&mut self, at: Index, metadata: &Metadata) -> bool {
        let state = &mut self.nodes[at as usize].state;
        let is_first = *state == DirectoryState::Unannounced;
        if is_first {
            *state = DirectoryState::AnnouncedLate(*metadata);
        }
        is_first
    }

    /// The directory in which it lies.
    pub(super) fn above(&self, at: Index) -> Index {
        self.nodes[at as usize].above
    }

    pub(super) fn name(&self, at: Index) -> &[u8] {
        let node = &self.nodes[at as usize];
        &self.names[node.name..node.name + usize::from(node.name_length)]
    }

    /// The way from the root to a directory.
    pub(super) fn path(&self, mut at: Index) -> EntryPath {
        let mut names = Vec::new();
        while at != ROOT {
            names.push(self.name(at));
            at = self.above(at);
        }
        names.reverse();
        EntryPath::parse(&names.join(&b'/')).expect("it was made of names")
    }

    /// All of them without the root, each before the one it lies in.
    pub(super) fn deepest_first(&self) -> Vec<Index> {
        let all = 1..self.nodes.len();
        let mut order: Vec<Index> = all.filter_map(|at| Index::try_from(at).ok()).collect();
        order.sort_by_key(|at| Reverse(self.nodes[*at as usize].depth));
        order
    }
}

fn key(way: &[u8]) -> [u8; 16] {
    let digest = blake3::hash(way);
    let (first, _) = digest.as_bytes().split_at(16);
    first.try_into().expect("it was split there")
}

/// Entries that are made when everything else is, packed one behind the other.
#[derive(Debug, Default)]
pub(super) struct Later {
    packed: Vec<u8>,
    pub(super) count: u64,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiting<'a> {
    pub(super) above: Index,
    pub(super) name: &'a [u8],
    /// Where it leads, for a link.
    pub(super) leads_to: &'a [u8],
    pub(super) metadata: Metadata,
}

impl Later {
    pub(super) fn add(&mut self, waiting: Waiting<'_>) {
        let Metadata {
            mode,
            uid,
            gid,
            modified: FileTime { seconds, nanos },
        } = waiting.metadata;
        for number in [waiting.above, mode, uid, gid, nanos] {
            self.packed.extend_from_slice(&number.to_le_bytes());
        }
        self.packed.extend_from_slice(&seconds.to_le_bytes());
        for bytes in [waiting.name, waiting.leads_to] {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            self.packed.extend_from_slice(&length.to_le_bytes());
            self.packed.extend_from_slice(&bytes[..length as usize]);
        }
        self.count += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Waiting<'_>> {
        let mut rest = &*self.packed;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                let [above, mode, uid, gid, nanos] = std::array::from_fn(|_| number(&mut rest));
                let (seconds, after) = rest.split_first_chunk().expect(WHOLE);
                rest = after;
                let seconds = i64::from_le_bytes(*seconds);
                let [name, leads_to] = std::array::from_fn(|_| {
                    let length = number(&mut rest) as usize;
                    let (bytes, after) = rest.split_at(length);
                    rest = after;
                    bytes
                });
                let modified = FileTime { seconds, nanos };
                let metadata = Metadata {
                    mode,
                    uid,
                    gid,
                    modified,
                };
                Waiting {
                    above,
                    name,
                    leads_to,
                    metadata,
                }
            })
        })
    }
}

const WHOLE: &str = "records are packed whole";

fn number(rest: &mut &[u8]) -> u32 {
    let (number, after) = rest.split_first_chunk().expect(WHOLE);
    *rest = after;
    u32::from_le_bytes(*number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_comes_back_as_it_was() {
        let waiting = |above, name, leads_to| Waiting {
            above,
            name,
            leads_to,
            metadata: Metadata {
                mode: 0o7777,
                uid: u32::MAX,
                gid: 3,
                modified: FileTime {
                    seconds: -5,
                    nanos: 999_999_999,
                },
            },
        };
        let all = [
            waiting(0, b"a".as_slice(), b"".as_slice()),
            waiting(7, b"\xff", b"../x"),
        ];
        let mut later = Later::default();

        for one in all {
            later.add(one);
        }

        assert_eq!(later.iter().collect::<Vec<_>>(), all);
        assert_eq!(later.count, 2);
    }

    #[test]
    fn directories_are_left_before_the_ones_they_lie_in() {
        let mut directories = Directories::new();
        let a = directories.add(ROOT, b"a", 0, DirectoryState::Unannounced);
        let b = directories.add(a, b"a/b", 2, DirectoryState::Unannounced);
        let z = directories.add(ROOT, b"z", 0, DirectoryState::Unannounced);

        assert_eq!(directories.deepest_first(), [b, a, z]);
        assert_eq!(directories.path(b).as_bytes(), b"a/b");
        assert_eq!(directories.find(b"a/b"), Some(b));
        assert!(directories.announce(b, &Metadata::default()));
        assert!(!directories.announce(b, &Metadata::default()));
    }
}
