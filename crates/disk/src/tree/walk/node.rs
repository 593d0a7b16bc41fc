//! Directories on their way from being met to being left, and names that wait for the others of the same file.

use crate::fs::metadata::Seen;
use stasis_model::tree::EntryPath;
use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// A directory that was met and not yet left.
#[derive(Debug)]
pub(super) struct WalkNode {
    pub(super) above: Option<Arc<WalkNode>>,
    pub(super) name: Box<CStr>,
    pub(super) depth: usize,
    pub(super) seen: Seen,
    /// What must be done before it can be left: itself, batches, subdirectories, names that were set aside.
    pub(super) open: AtomicUsize,
}

impl WalkNode {
    pub(super) fn new(above: Option<Arc<Self>>, name: &CStr, seen: Seen) -> Self {
        Self {
            depth: above.as_ref().map_or(0, |above| above.depth + 1),
            above,
            name: name.into(),
            seen,
            open: AtomicUsize::new(1),
        }
    }

    pub(super) fn path(&self) -> EntryPath {
        let (mut names, mut node) = (Vec::with_capacity(self.depth), self);
        while let Some(above) = &node.above {
            names.push(node.name.to_bytes());
            node = above;
        }
        names.reverse();
        EntryPath::parse(&names.join(&b'/')).expect("the kernel's names are names")
    }
}

/// A file with several names, under one of them, set aside until all are known.
#[derive(Debug)]
pub(super) struct SetAside {
    pub(super) node: Arc<WalkNode>,
    pub(super) name: CString,
    pub(super) seen: Seen,
}

/// The names by file, the first name of each file first.
pub(super) fn by_file(mut names: Vec<SetAside>) -> Vec<Vec<SetAside>> {
    names.sort_by(|one, other| {
        let identity = one.seen.identity().cmp(&other.seen.identity());
        identity.then_with(|| path_order(one, other))
    });
    let mut files: Vec<Vec<SetAside>> = Vec::new();
    for name in names {
        match files.last_mut() {
            Some(file) if file[0].seen.identity() == name.seen.identity() => file.push(name),
            _ => files.push(vec![name]),
        }
    }
    files
}

/// Which of two names comes first as a path.
fn path_order(one: &SetAside, other: &SetAside) -> Ordering {
    if Arc::ptr_eq(&one.node, &other.node) {
        return one.name.cmp(&other.name);
    }
    let path = |at: &SetAside| at.node.path().child(at.name.to_bytes());
    path(one).ok().cmp(&path(other).ok())
}
