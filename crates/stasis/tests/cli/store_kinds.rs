//! Every kind of store that keeps trees as chunks, used in the same words: a repository, the store of everyday saves, and a
//! project's own state directory.

use crate::repo_world::{Shown, id, names, show, write};
use crate::session::{Said, Session};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Which kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Repository,
    Everyday,
    Project,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Repository, Kind::Everyday, Kind::Project];

/// A home with a tree and a store of one kind.
pub(crate) struct Stored {
    pub(crate) kind: Kind,
    pub(crate) session: Session,
}

impl Stored {
    pub(crate) fn new(kind: Kind) -> Self {
        Self::with(kind, Session::new())
    }

    pub(crate) fn with(kind: Kind, session: Session) -> Self {
        let stored = Self { kind, session };
        fs::create_dir_all(stored.tree()).unwrap();
        match kind {
            Kind::Repository => drop(stored.session.data(0, &["repo", "init"])),
            Kind::Everyday => {}
            Kind::Project => fs::write(stored.at("shop/stasis.toml"), "id = \"shop\"\n").unwrap(),
        }
        stored
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.session.home().join(path)
    }

    /// The files that are saved.
    pub(crate) fn tree(&self) -> PathBuf {
        self.at(match self.kind {
            Kind::Repository => "tree",
            Kind::Everyday => "notes",
            Kind::Project => "shop/state/current/files",
        })
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        write(&self.tree(), path, bytes);
    }

    /// Where the index and the metadata of its snapshots lie.
    pub(crate) fn root(&self) -> PathBuf {
        match self.kind {
            Kind::Project => self.at("shop/state"),
            Kind::Repository | Kind::Everyday => {
                let all = self.session.object("subjects/default/dir");
                let mut roots = names(&all).into_iter().map(|name| all.join(name));
                roots.next().expect("something was saved")
            }
        }
    }

    /// Where the chunks lie, and what says how they are cut and swept.
    pub(crate) fn pool(&self) -> PathBuf {
        match self.kind {
            Kind::Project => self.root(),
            Kind::Repository | Kind::Everyday => self.session.object("pools/default"),
        }
    }

    fn words(&self, words: &[&str], more: &[&str]) -> Vec<String> {
        let dir = self.at("shop").display().to_string();
        let mut all: Vec<String> = words.iter().chain(more).map(|&word| word.into()).collect();
        if self.kind == Kind::Project {
            all.insert(0, "project".to_owned());
            all.extend(["--project".to_owned(), dir]);
        }
        all
    }

    fn said(&self, words: &[String]) -> Said {
        let mut all = vec!["--json"];
        all.extend(words.iter().map(String::as_str));
        self.session.run(&all)
    }

    pub(crate) fn try_save(&self, more: &[&str]) -> Said {
        let tree = self.tree().display().to_string();
        let words = match self.kind {
            Kind::Repository => self.words(&["repo", "save", &tree], more),
            Kind::Everyday => self.words(&["save", &tree], more),
            Kind::Project => self.words(&["save"], more),
        };
        self.said(&words)
    }

    pub(crate) fn save(&self) -> Value {
        let said = self.try_save(&[]);
        assert_eq!(said.code, 0, "{:?}\n{}\n{}", self.kind, said.out, said.err);
        serde_json::from_str(&said.out).unwrap()
    }

    pub(crate) fn saved(&self) -> String {
        id(&self.save())
    }

    /// Restores a snapshot to a place where nothing is.
    pub(crate) fn try_restore(&self, snapshot: &str) -> (Said, Option<Shown>) {
        let target = self.at("restored");
        let to = target.display().to_string();
        let tree = self.tree().display().to_string();
        let words = match self.kind {
            Kind::Repository => self.words(&["repo", "restore", snapshot, &to], &[]),
            Kind::Everyday => self.words(&["restore", &tree, snapshot, "--to", &to], &[]),
            Kind::Project => self.words(&["restore", snapshot, "--to", &to], &[]),
        };
        let said = self.said(&words);
        let shown = (said.code == 0).then(|| show(&self.files_in(&target)));
        if target.exists() {
            fs::remove_dir_all(&target).unwrap();
        }
        (said, shown)
    }

    fn files_in(&self, restored: &Path) -> PathBuf {
        match self.kind {
            Kind::Project => restored.join("files"),
            _ => restored.to_owned(),
        }
    }

    pub(crate) fn restored(&self, snapshot: &str) -> Shown {
        let (said, shown) = self.try_restore(snapshot);
        shown.unwrap_or_else(|| panic!("{:?}: {}\n{}", self.kind, said.out, said.err))
    }

    /// Checks the store, reading everything.
    pub(crate) fn check(&self) -> Said {
        let root = self.at("shop/state").display().to_string();
        let mut words = vec!["--json", "repo", "check", "--read-data"];
        if self.kind == Kind::Project {
            words.extend(["--repo", &root]);
        }
        self.session.run(&words)
    }

    /// All stored chunks.
    pub(crate) fn chunks(&self) -> Vec<PathBuf> {
        let all = self.pool().join("chunks");
        let directories = names(&all).into_iter().map(|name| all.join(name));
        let inner = |directory: PathBuf| {
            let names = names(&directory).into_iter();
            names.map(move |name| directory.join(name))
        };
        directories.flat_map(inner).collect()
    }

    /// Gives every file a new time, so that the next save reads all of them again.
    pub(crate) fn touch(&self) {
        for name in names(&self.tree()) {
            let file = fs::File::open(self.tree().join(name)).unwrap();
            let earlier = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
            file.set_modified(earlier).unwrap();
        }
    }
}

/// Damages the last byte of a file.
pub(crate) fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}
