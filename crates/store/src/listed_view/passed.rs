//! Which directories a listing went through from one end to the other.

use crate::bucket::ListedPage;
use crate::layout::{Key, Prefix};
use std::collections::{HashMap, HashSet};

/// Directories of which everything was listed. A store lists what lies in one directory together, whatever its order is.
#[derive(Debug, Default)]
pub(super) struct PassedDirectories {
    whole: HashSet<String>,
    walks: HashMap<Prefix, Walk>,
}

/// How far the pages of one listing have come.
#[derive(Debug)]
struct Walk {
    last: Option<Key>,
    /// The directories that it is in and entered from outside.
    inside: Vec<String>,
    /// The directories in the middle of which it began.
    begun_in: Vec<String>,
}

impl PassedDirectories {
    /// Whether a listing went through a directory that this would lie in.
    pub(super) fn has(&self, key: &Key) -> bool {
        directories(key, "").any(|directory| self.whole.contains(directory))
    }

    /// A page of a listing that began after a key.
    pub(super) fn note(&mut self, prefix: &Prefix, after: Option<&Key>, page: &ListedPage) {
        let begun = self.walks.remove(prefix);
        let begun = begun.filter(|walk| walk.last.is_some() && walk.last.as_ref() == after);
        let mut walk = begun.unwrap_or_else(|| Walk {
            last: None,
            inside: Vec::new(),
            begun_in: after.map_or_else(Vec::new, |key| owned(key, prefix.as_str())),
        });
        for row in &page.rows {
            let around = owned(&row.key, prefix.as_str());
            self.leave(&mut walk, |directory| around.contains(directory));
            for directory in around {
                if !walk.inside.contains(&directory) && !walk.begun_in.contains(&directory) {
                    walk.inside.push(directory);
                }
            }
            walk.last = Some(row.key.clone());
        }
        if page.next.is_none() {
            self.leave(&mut walk, |_| false);
        } else {
            self.walks.insert(prefix.clone(), walk);
        }
    }

    fn leave(&mut self, walk: &mut Walk, is_around: impl Fn(&String) -> bool) {
        let left = walk
            .inside
            .extract_if(.., |directory| !is_around(directory));
        self.whole.extend(left);
    }
}

/// The directories that a key lies in, beneath a prefix.
fn directories<'a>(key: &'a Key, prefix: &str) -> impl Iterator<Item = &'a str> {
    let (path, own) = (key.as_str(), prefix.len());
    let ends = path.match_indices('/').map(|(at, _)| at + 1);
    ends.filter(move |end| *end > own).map(|end| &path[..end])
}

fn owned(key: &Key, prefix: &str) -> Vec<String> {
    directories(key, prefix).map(str::to_owned).collect()
}
