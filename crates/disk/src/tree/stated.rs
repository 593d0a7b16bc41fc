//! What an entry is said to be, where the files of a tree cannot say it themselves.
//!
//! Whoever receives a tree without being allowed to give its owners away writes files of its own, and keeps what the tree
//! says of each entry beside them. A save takes that in the place of what the system says.

use stasis_model::tree::{Attribute, EntryKind, EntryPath, Metadata, acl};

/// What somebody says of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatedEntry {
    /// Permissions, owner, group and time.
    pub metadata: Metadata,
    /// Its attributes; those that are no part of a tree count as left out.
    pub attributes: Vec<Attribute>,
}

/// Says what an entry is, by its path in the tree that is read; nothing where the system is right.
///
/// All names of a file are the same entry: it is asked for by the first of them in the order of paths.
pub type StatedMetadata<'s> = dyn Fn(&EntryPath) -> Option<StatedEntry> + Send + Sync + 's;

impl StatedEntry {
    /// As much of it as an entry of a kind has in a tree, attributes sorted by name; and how many of those are left out.
    pub(crate) fn fit_for(self, kind: &EntryKind) -> (Self, u64) {
        let (mut metadata, mut attributes) = (self.metadata, self.attributes);
        let all = attributes.len();
        metadata.mode &= 0o7777;
        if let EntryKind::Symlink { .. } = kind {
            metadata.mode = 0o777;
        }
        let has_any = matches!(kind, EntryKind::File { .. } | EntryKind::Directory);
        attributes.retain(|one| has_any && acl::is_kept(&one.name));
        attributes.sort();
        attributes.dedup_by(|one, other| one.name == other.name);
        // What is said of another name of a file was said of the file.
        let left_out = match kind {
            EntryKind::HardLink { .. } => 0,
            _ => (all - attributes.len()) as u64,
        };
        let fit = Self {
            metadata,
            attributes,
        };
        (fit, left_out)
    }
}

/// The path of an entry in a directory that it lies in; nothing for what lies elsewhere.
pub(crate) fn relative(path: &EntryPath, directory: &EntryPath) -> Option<EntryPath> {
    let rest = path.as_bytes().strip_prefix(directory.as_bytes());
    let rest = rest.filter(|_| path.is_within(directory))?;
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    Some(EntryPath::parse(rest).expect("the end of a path is one"))
}
