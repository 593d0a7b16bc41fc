//! The entries of a snapshot as a tree to walk: some eighty bytes for each, and its name. Content is not among them.

use stasis_model::invalid::Invalid;
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, FileTime, Metadata};
use std::cmp::Ordering;
use std::collections::HashMap;

/// What an entry is, whatever its name leads through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
}

/// One entry of a tree: its place in the order of paths, the root being the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

impl NodeId {
    /// The root of every tree.
    pub const ROOT: Self = Self(0);

    /// The number of a node, as it was told before.
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number, which is the same whenever the snapshot is read.
    pub fn number(self) -> u32 {
        self.0
    }

    fn at(self) -> usize {
        self.0 as usize
    }
}

/// What is known of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeFacts {
    /// The entry, by the first of its names.
    pub node: NodeId,
    /// What it is.
    pub kind: NodeKind,
    /// The length of a file, or of the target of a link.
    pub size: u64,
    /// Mode, owner and time.
    pub metadata: Metadata,
    /// How many names a file has; of a directory, how many directories name it.
    pub links: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    name_at: u32,
    name_len: u16,
    mode: u16,
    kind: NodeKind,
    parent: u32,
    uid: u32,
    gid: u32,
    nanos: u32,
    seconds: i64,
    size: u64,
    /// Where the children of a directory begin among all, and how many there are.
    first_child: u32,
    children: u32,
}

/// What few entries have.
#[derive(Clone, Debug, Default)]
struct Rare {
    target: Box<[u8]>,
    attributes: Vec<Attribute>,
    /// The file that this is another name of.
    same_as: Option<NodeId>,
    /// How many other names the file has.
    more_names: u32,
    /// How many directories are directly in it.
    directories: u32,
}

/// The tree of one snapshot.
#[derive(Debug)]
pub struct SnapshotTree {
    names: Vec<u8>,
    nodes: Vec<Node>,
    /// The children of all directories, those of one directory together and sorted by name.
    children: Vec<u32>,
    rare: HashMap<u32, Rare>,
}

impl SnapshotTree {
    /// How many entries it has, the root among them.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// How many bytes it takes in memory, about.
    pub fn weight(&self) -> u64 {
        let rare = self.rare.values().map(|rare| {
            let attributes = rare.attributes.iter();
            let attributes = attributes.map(|one| one.name.len() + one.value.len() + 64);
            rare.target.len() + attributes.sum::<usize>() + size_of::<Rare>() + 32
        });
        let nodes = self.nodes.len() * (size_of::<Node>() + size_of::<u32>());
        (nodes + self.names.len() + rare.sum::<usize>()) as u64
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.at())
    }

    fn name_of(&self, node: &Node) -> &[u8] {
        let from = node.name_at as usize;
        &self.names[from..from + usize::from(node.name_len)]
    }

    /// The file that a name is another name of, or the entry itself.
    fn first_name(&self, id: NodeId) -> NodeId {
        let rare = self.rare.get(&id.0);
        rare.and_then(|rare| rare.same_as).unwrap_or(id)
    }

    /// What is known of an entry; nothing if the tree has none of that number.
    pub fn facts(&self, id: NodeId) -> Option<NodeFacts> {
        let id = self.first_name(id);
        let node = self.node(id)?;
        let rare = self.rare.get(&id.0);
        let links = match node.kind {
            NodeKind::Directory => 2 + rare.map_or(0, |rare| rare.directories),
            _ => 1 + rare.map_or(0, |rare| rare.more_names),
        };
        Some(NodeFacts {
            node: id,
            kind: node.kind,
            size: node.size,
            metadata: Metadata {
                mode: node.mode.into(),
                uid: node.uid,
                gid: node.gid,
                modified: FileTime {
                    seconds: node.seconds,
                    nanos: node.nanos,
                },
            },
            links,
        })
    }

    /// The directory that an entry lies in; of the root, itself.
    pub fn parent(&self, id: NodeId) -> NodeId {
        NodeId(self.node(id).map_or(0, |node| node.parent))
    }

    /// How many entries a directory has.
    pub fn count(&self, directory: NodeId) -> usize {
        self.node(directory)
            .map_or(0, |node| node.children as usize)
    }

    fn children(&self, directory: NodeId) -> &[u32] {
        let Some(node) = self.node(directory) else {
            return &[];
        };
        let from = node.first_child as usize;
        &self.children[from..from + node.children as usize]
    }

    /// The entry at a place in a directory, with its name; they are sorted.
    pub fn child(&self, directory: NodeId, place: usize) -> Option<(&[u8], NodeId)> {
        let id = NodeId(*self.children(directory).get(place)?);
        Some((self.name_of(self.node(id)?), id))
    }

    /// The entry of a directory that is called so.
    pub fn find(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        let children = self.children(directory);
        let called = |id: &u32| self.name_of(&self.nodes[*id as usize]);
        let at = children.binary_search_by(|id| called(id).cmp(name)).ok()?;
        Some(NodeId(children[at]))
    }

    /// Where a symbolic link leads.
    pub fn target(&self, id: NodeId) -> Option<&[u8]> {
        let node = self.node(id)?;
        let rare = self
            .rare
            .get(&id.0)
            .filter(|_| node.kind == NodeKind::Symlink);
        rare.map(|rare| &*rare.target)
    }

    /// The extended attributes of an entry.
    pub fn attributes(&self, id: NodeId) -> &[Attribute] {
        let rare = self.rare.get(&self.first_name(id).0);
        rare.map_or(&[], |rare| &rare.attributes)
    }

    /// The path of an entry.
    pub fn path(&self, id: NodeId) -> EntryPath {
        let mut names = Vec::new();
        let mut at = id;
        while at != NodeId::ROOT
            && let Some(node) = self.node(at)
        {
            names.push(self.name_of(node));
            at = NodeId(node.parent);
        }
        names.reverse();
        EntryPath::parse(&names.join(&b'/')).expect("it is made of names of entries")
    }

    fn find_path(&self, path: &EntryPath) -> Option<NodeId> {
        let mut names = path.components();
        names.try_fold(NodeId::ROOT, |above, name| self.find(above, name))
    }
}

/// A tree in the making, from entries in the order of paths.
#[derive(Debug)]
pub(super) struct TreeBuilder {
    tree: SnapshotTree,
    /// The directories that the last entry lies in, and it itself if it is one.
    open: Vec<(EntryPath, u32)>,
    last: EntryPath,
    links: Vec<(NodeId, EntryPath)>,
}

impl TreeBuilder {
    /// Begins with the root.
    pub(super) fn new(root: Metadata, attributes: Vec<Attribute>) -> Self {
        let mut builder = Self {
            tree: SnapshotTree {
                names: Vec::new(),
                nodes: Vec::new(),
                children: Vec::new(),
                rare: HashMap::new(),
            },
            open: vec![(EntryPath::root(), 0)],
            last: EntryPath::root(),
            links: Vec::new(),
        };
        let root = builder.made(NodeKind::Directory, &root, 0);
        builder.tree.nodes.push(root);
        builder.set_root_attributes(attributes);
        builder
    }

    fn set_root_attributes(&mut self, attributes: Vec<Attribute>) {
        if !attributes.is_empty() {
            self.tree.rare.entry(0).or_default().attributes = attributes;
        }
    }

    fn made(&self, kind: NodeKind, metadata: &Metadata, parent: u32) -> Node {
        Node {
            name_at: u32::try_from(self.tree.names.len()).unwrap_or(u32::MAX),
            name_len: 0,
            mode: u16::try_from(metadata.mode & 0o7777).expect("twelve bits"),
            kind,
            parent,
            uid: metadata.uid,
            gid: metadata.gid,
            nanos: metadata.modified.nanos,
            seconds: metadata.modified.seconds,
            size: 0,
            first_child: 0,
            children: 0,
        }
    }

    /// Adds the next entry.
    pub(super) fn add(&mut self, entry: Entry) -> Result<(), Invalid> {
        let Some((above, name)) = entry.path.split_last() else {
            // An archive has the root among its entries.
            let root = self.made(NodeKind::Directory, &entry.metadata, 0);
            self.tree.nodes[0] = Node { name_at: 0, ..root };
            self.set_root_attributes(entry.attributes);
            return Ok(());
        };
        if entry.path.cmp(&self.last) != Ordering::Greater {
            return Err(Invalid::new("the entries of the snapshot are not in order"));
        }
        while self.open.last().is_some_and(|(open, _)| *open != above) {
            self.open.pop();
        }
        let Some(&(_, parent)) = self.open.last() else {
            return Err(Invalid::new("it lies in no directory of the snapshot"));
        };
        let number = u32::try_from(self.tree.nodes.len());
        let number = number.map_err(|_| Invalid::new("there are too many entries"))?;
        let node = self.described(&entry, number, parent);
        let name_len = u16::try_from(name.len()).expect("a name is short");
        if node.name_at == u32::MAX {
            return Err(Invalid::new("the names of the entries are too long"));
        }
        self.tree.names.extend_from_slice(name);
        self.tree.nodes.push(Node { name_len, ..node });
        self.tree.nodes[parent as usize].children += 1;
        if node.kind == NodeKind::Directory {
            self.tree.rare.entry(parent).or_default().directories += 1;
            self.open.push((entry.path.clone(), number));
        }
        if !entry.attributes.is_empty() {
            self.tree.rare.entry(number).or_default().attributes = entry.attributes;
        }
        self.last = entry.path;
        Ok(())
    }

    fn described(&mut self, entry: &Entry, number: u32, parent: u32) -> Node {
        let (kind, size) = match &entry.kind {
            EntryKind::File { size } => (NodeKind::File, *size),
            EntryKind::Directory => (NodeKind::Directory, 0),
            EntryKind::Symlink { target } => {
                let rare = self.tree.rare.entry(number).or_default();
                rare.target.clone_from(target);
                (NodeKind::Symlink, target.len() as u64)
            }
            EntryKind::HardLink { to } => {
                self.links.push((NodeId(number), to.clone()));
                (NodeKind::File, 0)
            }
            _ => (NodeKind::Fifo, 0),
        };
        let node = self.made(kind, &entry.metadata, parent);
        Node { size, ..node }
    }

    /// The whole tree.
    pub(super) fn finish(mut self) -> Result<SnapshotTree, Invalid> {
        let mut next = 0;
        for node in &mut self.tree.nodes {
            node.first_child = next;
            next += node.children;
        }
        let mut filled: Vec<u32> = self
            .tree
            .nodes
            .iter()
            .map(|node| node.first_child)
            .collect();
        self.tree.children = vec![0; next as usize];
        for (number, node) in (0_u32..).zip(&self.tree.nodes).skip(1) {
            let place = &mut filled[node.parent as usize];
            self.tree.children[*place as usize] = number;
            *place += 1;
        }
        for (link, to) in std::mem::take(&mut self.links) {
            let is_file = |id: &NodeId| {
                let is_link = self
                    .tree
                    .rare
                    .get(&id.0)
                    .is_some_and(|rare| rare.same_as.is_some());
                self.tree.nodes[id.at()].kind == NodeKind::File && !is_link && *id != link
            };
            let file = self.tree.find_path(&to).filter(is_file);
            let file = file.ok_or_else(|| Invalid::new("a hard link leads to no file"))?;
            self.tree.rare.entry(link.0).or_default().same_as = Some(file);
            self.tree.rare.entry(file.0).or_default().more_names += 1;
        }
        self.tree.names.shrink_to_fit();
        self.tree.nodes.shrink_to_fit();
        Ok(self.tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::parse(text.as_bytes()).unwrap()
    }

    fn entry(at: &str, kind: EntryKind) -> Entry {
        Entry {
            path: path(at),
            kind,
            metadata: Metadata {
                mode: 0o644,
                ..Metadata::default()
            },
            attributes: Vec::new(),
        }
    }

    fn file(at: &str, size: u64) -> Entry {
        entry(at, EntryKind::File { size })
    }

    fn built(entries: Vec<Entry>) -> Result<SnapshotTree, Invalid> {
        let mut builder = TreeBuilder::new(Metadata::default(), Vec::new());
        for entry in entries {
            builder.add(entry)?;
        }
        builder.finish()
    }

    #[test]
    fn entries_are_found_by_name_and_know_their_paths() {
        let tree = built(vec![
            entry("a", EntryKind::Directory),
            file("a/x", 1),
            entry("a/y", EntryKind::Directory),
            file("a/y/deep", 2),
            file("a.b", 3),
            file("b", 4),
        ])
        .unwrap();

        let names = |of: NodeId| {
            let places = 0..tree.count(of);
            let names = places.map(|at| String::from_utf8(tree.child(of, at).unwrap().0.to_vec()));
            names.map(Result::unwrap).collect::<Vec<_>>()
        };
        assert_eq!(names(NodeId::ROOT), ["a", "a.b", "b"]);
        let a = tree.find(NodeId::ROOT, b"a").unwrap();
        assert_eq!(names(a), ["x", "y"]);
        assert_eq!(tree.facts(a).unwrap().links, 3);
        let deep = tree.find(tree.find(a, b"y").unwrap(), b"deep").unwrap();
        assert_eq!(tree.path(deep), path("a/y/deep"));
        assert_eq!(tree.facts(deep).unwrap().size, 2);
        assert_eq!(tree.find(a, b"deep"), None);
        assert_eq!(tree.len(), 7);
    }

    #[test]
    fn names_of_one_file_are_one_entry() {
        let link = |at: &str, to: &str| entry(at, EntryKind::HardLink { to: path(to) });
        let tree = built(vec![file("a", 5), link("b", "a"), link("c", "a")]).unwrap();

        let facts = |name: &[u8]| tree.facts(tree.find(NodeId::ROOT, name).unwrap()).unwrap();
        assert_eq!(facts(b"b"), facts(b"a"));
        assert_eq!((facts(b"c").links, facts(b"c").size), (3, 5));
        assert!(built(vec![link("b", "a")]).is_err());
        assert!(built(vec![file("a", 5), link("b", "a"), link("c", "b")]).is_err());
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        assert!(built(vec![file("b", 1), file("a", 1)]).is_err());
        assert!(built(vec![file("a", 1), file("a", 1)]).is_err());
        assert!(built(vec![file("a/b", 1)]).is_err());
        assert!(built(vec![file("a", 1), file("a/b", 1)]).is_err());
    }
}
