//! What becomes of the Git repository in a workspace: told as one difference, with the commits that would leave its branch.
//!
//! What is in `.git` is part of the tree, and a restore takes commits away like anything else. Which commits those are is asked
//! of the `git` program, which runs without hooks, pagers, prompts or fetching; where there is none, or it refuses, only what
//! moves is said.

use super::Workspace;
use super::answers::{GitChange, GitCommit, GitPlan};
use stasis_disk::form::slots::{self, ManifestKind};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::restore::OpenBackup;
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::{CheckpointOrigin, SlotMetadata};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The directory of a repository.
const GIT: &[u8] = b".git";
/// How many commits are named.
const NAMED: usize = 5;
/// How many branches and tags are asked about: each is a word of a command.
const MOST_TIPS: usize = 2000;
/// A longer file says nothing about a branch.
const LARGEST: u64 = 4 << 20;
/// How long the program may take, in pauses.
const PAUSES: u32 = 150;
const PAUSE: Duration = Duration::from_millis(20);

/// Whether a path lies in the repository at the top of the workspace.
pub(super) fn is_inside(path: &EntryPath) -> bool {
    let mut names = path.components();
    names.next() == Some(GIT) && names.next().is_some()
}

/// What in a repository is told by the commits that its branches lead to, or by nobody who misses it.
const IN_COMMITS: [&[u8]; 9] = [
    b"objects",
    b"logs",
    b"refs",
    b"packed-refs",
    b"HEAD",
    b"ORIG_HEAD",
    b"FETCH_HEAD",
    b"COMMIT_EDITMSG",
    b"index",
];

/// Whether an entry is in the repository, and is no setting or hook of its user's.
pub(super) fn is_in_commits(path: &EntryPath) -> bool {
    let mut names = path.components();
    let is_git = names.next() == Some(GIT);
    is_git && names.next().is_some_and(|name| IN_COMMITS.contains(&name))
}

/// Makes one difference of all that are in the repository; says how many those were.
pub(super) fn collapsed(
    found: Vec<(EntryPath, ChangeKind)>,
) -> (Vec<(EntryPath, ChangeKind)>, u64) {
    let (inside, mut others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(path, _)| is_inside(path));
    let top = EntryPath::root().child(GIT).expect("it is a name");
    let is_reported = others.iter().any(|(path, _)| *path == top);
    if let Some((_, first)) = inside.first().filter(|_| !is_reported) {
        let is_all = inside.iter().all(|(_, change)| change == first);
        let change = if is_all { *first } else { ChangeKind::Content };
        others.push((top, change));
        others.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    (others, inside.len() as u64)
}

/// Where a repository stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct GitHead {
    branch: Option<String>,
    commit: Option<String>,
}

impl GitHead {
    /// Reads it from the first of some trees that has each file.
    pub(super) fn read(trees: &[&RootDir]) -> Self {
        Self::read_by(|path| {
            trees.iter().find_map(|tree| {
                let bytes = slots::read_file(tree, path, LARGEST);
                bytes.ok().flatten()
            })
        })
    }

    /// The same, with somebody who reads files.
    fn read_by(read: impl Fn(&EntryPath) -> Option<Vec<u8>>) -> Self {
        let file = |path: &str| -> Option<String> {
            let path = EntryPath::parse(format!(".git/{path}").as_bytes()).ok()?;
            String::from_utf8(read(&path)?).ok()
        };
        let Some(head) = file("HEAD") else {
            return Self::default();
        };
        let Some(name) = head.trim().strip_prefix("ref: ") else {
            return Self {
                branch: None,
                commit: commit(head.trim()),
            };
        };
        let packed = || {
            let packed = file("packed-refs")?;
            packed.lines().find_map(|line| {
                let (commit, of) = line.split_once(' ')?;
                (of == name).then(|| commit.to_owned())
            })
        };
        let found = file(name)
            .map(|text| text.trim().to_owned())
            .or_else(packed);
        Self {
            branch: Some(name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()),
            commit: found.as_deref().and_then(commit),
        }
    }
}

/// A commit's id, if it is one.
fn commit(text: &str) -> Option<String> {
    let is_id = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}

/// What moves in a repository when these entries change.
fn moves(changed: &[(EntryPath, ChangeKind)]) -> Vec<&'static str> {
    let starts = |name: &[u8]| {
        let is_it = |path: &EntryPath| path.components().nth(1) == Some(name) && is_inside(path);
        changed.iter().any(|(path, _)| is_it(path))
    };
    let all = [
        ("HEAD", starts(b"HEAD")),
        ("refs", starts(b"refs") || starts(b"packed-refs")),
        ("index", starts(b"index")),
    ];
    all.into_iter()
        .filter(|(_, is_moved)| *is_moved)
        .map(|(name, _)| name)
        .collect()
}

/// Where a repository says what its branches and tags, and `HEAD`, are.
fn tip_paths() -> [EntryPath; 3] {
    let paths = [".git/HEAD", ".git/packed-refs", ".git/refs"];
    paths.map(|text| EntryPath::parse(text.as_bytes()).expect("it is a path"))
}

/// What every branch and tag, and `HEAD`, are in a tree; nothing where not all of them can be read.
fn tips_in(tree: &RootDir) -> Option<Vec<String>> {
    let paths = tip_paths();
    let loose = slots::portion(tree, &paths[2], &WalkSettings::default()).ok()?;
    let loose = loose
        .iter()
        .filter(|one| one.what != ManifestKind::Directory);
    let mut tips = Vec::new();
    for path in loose.map(|one| &one.path).chain(&paths[..2]) {
        let Some(bytes) = slots::read_file(tree, path, LARGEST).ok()? else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        let words = text.lines().filter_map(|line| line.split(' ').next());
        let words = words.map(|word| word.trim_start_matches('^'));
        tips.extend(words.filter_map(commit));
    }
    tips.sort();
    tips.dedup();
    (tips.len() <= MOST_TIPS).then_some(tips)
}

/// Whether only such things of a repository differ that say nothing of anybody's work: `git status` writes its index anew.
pub(super) fn is_only_kept_up(changed: &[(EntryPath, ChangeKind)]) -> bool {
    let is_all_inside = changed.iter().all(|(path, _)| is_inside(path));
    is_all_inside && moves(changed).iter().all(|name| *name == "index")
}

impl Workspace {
    /// Where the repository stood at a checkpoint, or stands again when something is undone.
    pub(super) fn head_of(&self, of: &SlotMetadata) -> GitHead {
        if of.origin == CheckpointOrigin::Undo {
            let kept = self.pool().backup_of(of);
            let kept = kept.and_then(|path| OpenBackup::open(&path).ok());
            return match (kept, self.root()) {
                (Some(kept), Ok(live)) => GitHead::read(&[kept.tree(), &live]),
                _ => GitHead::default(),
            };
        }
        // Read file by file: nothing is written for it, not even where checkpoints are chunks.
        GitHead::read_by(|path| self.pool().file(of, path, LARGEST).ok().flatten())
    }

    /// What a plan does to the repository, if it does anything.
    pub(super) fn git_plan(
        &self,
        changed: &[(EntryPath, ChangeKind)],
        source: &SlotMetadata,
    ) -> Option<GitPlan> {
        let entries = changed.iter().filter(|(path, _)| is_inside(path)).count() as u64;
        if entries == 0 {
            return None;
        }
        let moves = moves(changed);
        let is = self.root().ok().map(|root| GitHead::read(&[&root]))?;
        let mut plan = GitPlan {
            path: ".git".to_owned(),
            branch: is.branch.clone(),
            branch_then: None,
            moves,
            commits: Vec::new(),
            commits_leaving: Some(0),
            entries,
        };
        if plan.moves.iter().all(|name| *name == "index") {
            plan.branch_then.clone_from(&plan.branch);
            return Some(plan);
        }
        let then = self.head_of(source);
        plan.branch_then = then.branch;
        if source.origin != CheckpointOrigin::Undo {
            // Commits of any branch may go, not only those of the one that is checked out.
            let Some(tips) = self.tips_of(source) else {
                plan.commits_leaving = None;
                return Some(plan);
            };
            let mut range = vec!["--branches", "--tags", "--glob=refs/stash"];
            range.extend(is.commit.is_some().then_some("HEAD"));
            range.push("--not");
            range.extend(tips.iter().map(String::as_str));
            (plan.commits_leaving, plan.commits) = self.listed_commits(&range, None);
        } else if is.commit != then.commit
            && let Some(from) = &is.commit
        {
            // What an undo brings back is not in the repository yet.
            let kept = self
                .pool()
                .backup_of(source)
                .filter(|_| source.origin == CheckpointOrigin::Undo);
            let kept = kept.map(|kept| kept.join("tree/.git/objects"));
            (plan.commits_leaving, plan.commits) =
                self.commits(from, then.commit.as_deref(), kept.as_deref());
        }
        Some(plan)
    }

    /// The same, where the repository becomes that of a fork.
    pub(super) fn git_plan_of_fork(
        &self,
        changed: &[(EntryPath, ChangeKind)],
        fork: &Path,
    ) -> Option<GitPlan> {
        let entries = changed.iter().filter(|(path, _)| is_inside(path)).count() as u64;
        if entries == 0 {
            return None;
        }
        let is = self.root().ok().map(|root| GitHead::read(&[&root]))?;
        let then = RootDir::open(fork, Mounts::Stay).ok()?;
        let mut plan = GitPlan {
            path: ".git".to_owned(),
            branch: is.branch.clone(),
            branch_then: GitHead::read(&[&then]).branch,
            moves: moves(changed),
            commits: Vec::new(),
            commits_leaving: None,
            entries,
        };
        if let Some(tips) = tips_in(&then) {
            let mut range = vec!["--branches", "--tags", "--glob=refs/stash"];
            range.extend(is.commit.is_some().then_some("HEAD"));
            range.push("--not");
            range.extend(tips.iter().map(String::as_str));
            let objects = fork.join(".git/objects");
            (plan.commits_leaving, plan.commits) = self.listed_commits(&range, Some(&objects));
        }
        Some(plan)
    }

    /// How many commits the repository of a fork has that no branch or tag of ours leads to; nothing where nobody can tell.
    pub(super) fn commits_only_in(&self, fork: &Path) -> Option<u64> {
        let root = RootDir::open(fork, Mounts::Stay).ok()?;
        if root.directory(GIT).is_err() {
            return Some(0);
        }
        let is = GitHead::read(&[&self.root().ok()?]);
        let tips = tips_in(&root)?;
        if tips.is_empty() {
            return Some(0);
        }
        let mut range: Vec<&str> = tips.iter().map(String::as_str).collect();
        range.extend(["--not", "--branches", "--tags", "--glob=refs/stash"]);
        range.extend(is.commit.is_some().then_some("HEAD"));
        let objects = fork.join(".git/objects");
        // Where an object is not found, nobody can tell.
        let count = self.git(
            &[&["rev-list", "--count"], &*range].concat(),
            Some(&objects),
        )?;
        count.trim().parse().ok()
    }

    /// What happened to the repository since a checkpoint.
    pub(super) fn git_change(&self, entries: u64, then: &GitHead) -> Option<GitChange> {
        let is = GitHead::read(&[&self.root().ok()?]);
        let mut commits = Some(0);
        if is.commit != then.commit
            && let Some(to) = &is.commit
        {
            commits = self.commits(to, then.commit.as_deref(), None).0;
        }
        Some(GitChange {
            path: ".git".to_owned(),
            branch: is.branch,
            commits,
            entries,
        })
    }

    /// What every branch and tag, and `HEAD`, were at a checkpoint; nothing where not all of them can be told: what is not known to be
    /// reachable then would count as leaving.
    fn tips_of(&self, of: &SlotMetadata) -> Option<Vec<String>> {
        let paths = tip_paths();
        let left_out = of.left_out.iter();
        let left_out = left_out.filter_map(|shown| shown.parse::<EntryPath>().ok());
        let is_ref = |one: &EntryPath| {
            paths
                .iter()
                .any(|path| one.is_within(path) || path.is_within(one))
        };
        let is_unknown = of.left_out_count > of.left_out.len() as u64;
        if is_unknown || left_out.into_iter().any(|one| is_ref(&one)) {
            return None;
        }
        let view = self.pool().view(of, &paths).ok()?;
        tips_in(view.tree())
    }

    /// How many commits lead to one and not to another, and the newest of them.
    fn commits(
        &self,
        to: &str,
        from: Option<&str>,
        more: Option<&Path>,
    ) -> (Option<u64>, Vec<GitCommit>) {
        let mut range = vec![to];
        if let Some(from) = from {
            range.extend(["--not", from]);
        }
        self.listed_commits(&range, more)
    }

    fn listed_commits(&self, range: &[&str], more: Option<&Path>) -> (Option<u64>, Vec<GitCommit>) {
        let count = ["rev-list", "--ignore-missing", "--count"];
        let count = self.git(&[&count, range].concat(), more);
        let count = count.and_then(|text| text.trim().parse().ok());
        let most = format!("--max-count={NAMED}");
        let list = [
            "rev-list",
            "--ignore-missing",
            &most,
            "--pretty=tformat:%h%x09%s",
        ];
        let named = self.git(&[&list, range].concat(), more).unwrap_or_default();
        let named = named.lines().filter_map(|line| {
            let (id, subject) = line.split_once('\t')?;
            Some(GitCommit {
                id: id.to_owned(),
                subject: subject.to_owned(),
            })
        });
        (count, named.collect())
    }

    /// What the program says, who also sees the objects in another directory; nothing when it is not there, refuses, or takes
    /// too long.
    fn git(&self, words: &[&str], more: Option<&Path>) -> Option<String> {
        let mut command = Command::new("git");
        command.args([
            "--no-pager",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
        ]);
        command.args(words).current_dir(self.directory());
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
        ] {
            command.env_remove(name);
        }
        command
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ALLOW_PROTOCOL", "none");
        if let Some(more) = more {
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", more);
        }
        let pipes = command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = pipes.stdout(Stdio::piped()).spawn().ok()?;
        for _ in 0..PAUSES {
            if let Ok(Some(status)) = child.try_wait() {
                let mut text = String::new();
                child.stdout.take()?.read_to_string(&mut text).ok()?;
                return status.success().then_some(text);
            }
            std::thread::sleep(PAUSE);
        }
        let _ = (child.kill(), child.wait());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_in_the_repository_is_one_difference() {
        let all = [".git/HEAD", ".git/objects/ab/c", ".gitignore", "src/.git/x"];
        let all = all.map(|text| (path(text), ChangeKind::Added)).to_vec();

        let moved = moves(&all);
        let (shown, inside) = collapsed(all);

        let shown: Vec<String> = shown.iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(shown, [".git", ".gitignore", "src/.git/x"]);
        assert_eq!((inside, moved), (2, vec!["HEAD"]));
    }
}
