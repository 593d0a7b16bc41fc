//! Every document of a workspace's checkpoints, damaged in every way: the right files or an error, `check` sees it, the live tree stays what
//! it is, and the next checkpoint is whole. Every run tries one case in twelve; `STASIS_CRASH_POINTS=all` tries all of them. The settings of
//! a workspace and its database of events are left whole.

use crate::crash_points::is_tried;
use crate::encrypted::files;
use crate::repo_crash::copy as copy_aside;
use crate::session::Session;
use crate::workspace::{Tree, contents};
use stasis_testkit::mounted_image::MountedImage;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is done to a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    FlipFirst,
    FlipMiddle,
    FlipLast,
    Cut,
    Empty,
    Delete,
    /// What another document of its kind says.
    Exchange,
}

const DAMAGES: [Damage; 7] = [
    Damage::FlipFirst,
    Damage::FlipMiddle,
    Damage::FlipLast,
    Damage::Cut,
    Damage::Empty,
    Damage::Delete,
    Damage::Exchange,
];

impl Damage {
    /// Does it to a file; says whether there was anything to do.
    fn apply(self, path: &Path, other: Option<&PathBuf>) -> bool {
        let mut bytes = fs::read(path).unwrap();
        let last = bytes.len().saturating_sub(1);
        match self {
            Self::Delete => {
                fs::remove_file(path).unwrap();
                return true;
            }
            _ if bytes.is_empty() => return false,
            Self::FlipFirst => bytes[0] ^= 1,
            Self::FlipMiddle => bytes[last / 2] ^= 1,
            Self::FlipLast => bytes[last] ^= 1,
            Self::Cut => bytes.truncate(last / 2),
            Self::Empty => bytes.clear(),
            Self::Exchange => match other.map(|other| fs::read(other).unwrap()) {
                Some(other) if other != bytes => bytes = other,
                _ => return false,
            },
        }
        // Another file in its place: a version may be shared with the live tree, and must not be written through.
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
        true
    }
}

type Contents = BTreeMap<PathBuf, String>;

/// A workspace with three checkpoints, kept aside so that every case begins alike.
struct Scene {
    tree: Tree,
    session: PathBuf,
    checkpoints: Vec<(String, Contents)>,
    live: Contents,
}

const KEPT: [&str; 4] = ["data", "cache", "state", "work"];

impl Scene {
    fn new(session: Session) -> Self {
        let files = [("same", "same\n"), ("deep/file", "first\n"), ("empty", "")];
        let tree = Tree::of(session, &files, &[]);
        let mut checkpoints = vec![(tree.checkpoint("one"), tree.contents())];
        tree.write("deep/file", "second\n");
        tree.write("added", "added\n");
        checkpoints.push((tree.checkpoint("two"), tree.contents()));
        tree.write("deep/file", "third\n");
        let made = tree.json(0, &["create", "--auto"]);
        let name = made["checkpoint"].as_str().unwrap().to_owned();
        checkpoints.push((name, tree.contents()));
        tree.write("deep/file", "fourth\n");
        let scene = Self {
            session: tree.kept(),
            live: tree.contents(),
            checkpoints,
            tree,
        };
        copy_aside(scene.tree.session.home(), &KEPT, "", "kept-");
        scene
    }

    fn reset(&self) {
        copy_aside(self.tree.session.home(), &KEPT, "kept-", "");
    }

    /// Every document of a checkpoint. Not the settings of the workspace, without which nothing is done and which are named then, nor
    /// the database of events, which is checked by its own program.
    fn documents(&self) -> Vec<PathBuf> {
        let others = ["session.db", "session.json", "config.toml"];
        let is_ours = |path: &PathBuf| {
            let text = path.to_str().unwrap();
            !others.iter().any(|other| text.contains(other))
        };
        files(&self.session).into_iter().filter(is_ours).collect()
    }

    /// Whether each checkpoint comes out; what comes out is right.
    fn comes_out(&self, context: &str) -> Vec<bool> {
        let out = self.tree.session.home().join("out");
        let to = out.to_str().unwrap();
        let comes = |(name, wanted): &(String, Contents)| {
            let said = self.tree.run(&["materialize", name, "--to", to]);
            let is_out = said.code == 0;
            if is_out {
                assert_eq!(contents(&out), *wanted, "{name}: {context}");
            } else {
                assert!(matches!(said.code, 3 | 9), "{context}\n{}", said.err);
            }
            let _ = fs::remove_dir_all(&out);
            is_out
        };
        self.checkpoints.iter().map(comes).collect()
    }

    fn judge(&self, context: &str) {
        let before = self.comes_out(context);
        let checked = self.tree.run(&["check"]);
        let context = format!("{context}: {before:?}\n{}{}", checked.out, checked.err);
        assert!(matches!(checked.code, 0 | 9), "{context}");
        let after = self.comes_out(&context);
        // What a check says is whole, or made whole, is.
        if checked.code == 0 {
            assert!(!after.contains(&false), "{context}");
        }
        assert_eq!(self.tree.contents(), self.live, "{context}");

        let restored = self.tree.run(&["restore", "one"]);
        if restored.code == 0 {
            assert_eq!(self.tree.contents(), self.checkpoints[0].1, "{context}");
        } else {
            assert_eq!(self.tree.contents(), self.live, "{context}");
        }
        self.tree.write("deep/file", "fifth\n");
        let made = self.tree.run(&["create", "three"]);
        assert_eq!(made.code, 0, "{context}\n{}", made.err);
        let out = self.tree.session.home().join("out");
        let to = out.to_str().unwrap();
        let said = self.tree.run(&["materialize", "three", "--to", to]);
        assert_eq!(said.code, 0, "{context}\n{}", said.err);
        assert_eq!(contents(&out), self.tree.contents(), "{context}");
        fs::remove_dir_all(&out).unwrap();
    }
}

fn every_document_in_every_way(session: Session) {
    let scene = Scene::new(session);
    let documents = scene.documents();
    let (mut cases, mut number) = (0, 0);
    for path in &documents {
        let is_like = |other: &&PathBuf| *other != path && other.file_name() == path.file_name();
        let in_objects = |other: &&PathBuf| *other != path && other.parent() == path.parent();
        for damage in DAMAGES {
            number += 1;
            // A list that is whole and another checkpoint's gives a wrong tree unless somebody looks whose it is: tried in every run.
            let is_other_list = damage == Damage::Exchange && path.ends_with("workspace.json");
            if !is_other_list && !is_tried(number, 12) {
                continue;
            }
            scene.reset();
            let other = documents.iter().find(is_like);
            let other = other.or_else(|| documents.iter().find(in_objects));
            if !damage.apply(path, other) {
                continue;
            }
            cases += 1;
            let name = path.strip_prefix(&scene.session).unwrap().display();
            scene.judge(&format!("{name} {damage:?}"));
        }
    }
    println!("{cases} cases of {} documents", documents.len());
    assert!(cases > 5, "{cases}");
}

#[test]
fn every_document_of_checkpoints_is_damaged_in_every_way() {
    every_document_in_every_way(Session::new());
}

#[test]
fn every_document_of_checkpoints_on_xfs_is_damaged_in_every_way() {
    let Some(mounted) = MountedImage::new("xfs", 512 << 20) else {
        return;
    };
    every_document_in_every_way(Session::within(&mounted.root()));
}
