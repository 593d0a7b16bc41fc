//! What differs in the files of two trees, in lines or as one patch.
//!
//! *Always true:* a patch that leaves nothing out makes of one tree the other, as far as Git knows trees: files, whether they can be
//! executed, and links. What it cannot carry is named. What lies in a `.git` is in no patch.

use crate::error::{Error, OPEN_DIRECTORY, WorkspaceError};
use crate::git_patch::{self, FilePatch, GitMode, PatchFile};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::slots::{Manifest, ManifestEntry, ManifestKind, read_file};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_model::display_as_serialized;
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use std::collections::BTreeMap;
use std::path::Path;

/// Longer files are in no patch.
const LARGEST: u64 = 32 << 20;
/// A longer patch is refused: it would be held in memory.
const LONGEST_PATCH: usize = 1 << 30;

/// How much of the contents is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ComparedContent {
    /// Nothing: which entries differ.
    #[default]
    None,
    /// How many lines.
    Stat,
    /// All of it, as a patch.
    Patch,
}

/// Lines that differ in one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FileStat {
    /// Which.
    pub path: String,
    /// What it was called, if it only has another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// Lines that came.
    pub added: u64,
    /// Lines that went.
    pub removed: u64,
    /// Whether it is no text: then lines are not counted.
    pub is_binary: bool,
    /// How long it was.
    pub size_before: Option<u64>,
    /// How long it is.
    pub size_after: Option<u64>,
}

/// Lines that differ in all files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DiffStat {
    /// Each file.
    pub files: Vec<FileStat>,
    /// Lines that came.
    pub insertions: u64,
    /// Lines that went.
    pub deletions: u64,
}

/// Why something is in no patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchGapReason {
    /// The file is longer than 32 MiB.
    TooLarge,
    /// Git knows no directory without files.
    EmptyDirectory,
    /// It is the Git repository, or in it.
    GitRepository,
    /// Of permissions, Git knows only whether a file can be executed.
    Mode,
    /// Git knows no extended attributes.
    Attributes,
}

display_as_serialized!(PatchGapReason);

impl PatchGapReason {
    /// Whether an entry is missing in what the patch makes, and not only a property of one.
    pub fn is_entry(self) -> bool {
        matches!(self, Self::TooLarge | Self::EmptyDirectory)
    }
}

/// Something that differs and is in no patch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PatchGap {
    /// Which entry.
    pub path: String,
    /// Why it is not.
    pub why: PatchGapReason,
}

/// What was asked for of the contents in which two trees differ.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContentDiff {
    /// How many lines differ; only if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<DiffStat>,
    /// What `git apply` makes the newer tree of the older with; only if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// What differs and is not in the patch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_in_patch: Vec<PatchGap>,
}

/// Reads the first bytes of a file of a tree; nothing where it is none.
pub(crate) type ReadFile = Box<dyn Fn(&EntryPath, u64) -> Result<Option<Vec<u8>>, Error> + Send>;

/// One of two trees.
pub(crate) struct PatchTree {
    pub(crate) contents: Manifest,
    /// How its files are read, or why they cannot be.
    pub(crate) read: Result<ReadFile, Error>,
}

impl PatchTree {
    /// A tree that lies in a directory.
    pub(crate) fn live(contents: Manifest, directory: &Path) -> Result<Self, Error> {
        let root = RootDir::open(directory, Mounts::Stay).at(OPEN_DIRECTORY, directory)?;
        let read = move |path: &EntryPath, most: u64| {
            let read = read_file(&root, path, most);
            Ok(read.at("read", Path::new(&path.to_string()))?)
        };
        Ok(Self {
            contents,
            read: Ok(Box::new(read)),
        })
    }
}

/// The content of an entry: what a file holds, or where a link points.
fn content(read: &ReadFile, one: &ManifestEntry) -> Result<Vec<u8>, Error> {
    match &one.what {
        ManifestKind::Symlink { target } => Ok(target.to_vec()),
        // One that went since it was listed has none.
        _ => Ok(read(&one.path, LARGEST + 1)?.unwrap_or_default()),
    }
}

/// What is put together of two trees.
#[derive(Default)]
pub(crate) struct TreePatch {
    pub(crate) text: String,
    pub(crate) stat: DiffStat,
    pub(crate) gaps: Vec<PatchGap>,
    keeps_text: bool,
}

/// Everything that differs in files and links, in the order of paths.
pub(crate) fn made(
    changes: &[(EntryPath, ChangeKind)],
    before: PatchTree,
    after: PatchTree,
    wanted: ComparedContent,
) -> Result<TreePatch, Error> {
    let (read_old, read_new) = (before.read?, after.read?);
    let (before, after) = (before.contents, after.contents);
    let mut made = TreePatch {
        keeps_text: wanted == ComparedContent::Patch,
        ..TreePatch::default()
    };
    let renamed = renames(changes, &before, &after);
    for (path, _) in changes {
        if is_in_git(path) {
            made.gap_once(path, PatchGapReason::GitRepository);
            continue;
        }
        if renamed.values().any(|from| from == path) {
            continue;
        }
        let (was, is) = (before.find(path), after.find(path));
        made.note_properties(path, was, is, &after);
        if let Some(from) = renamed.get(path) {
            made.rename(from, before.find(from), path, is);
            continue;
        }
        let (was, is) = (
            was.filter(|one| is_file(one)),
            is.filter(|one| is_file(one)),
        );
        if [was, is].into_iter().flatten().any(is_too_large) {
            made.gap(path, PatchGapReason::TooLarge);
            continue;
        }
        let old = was.map(|was| content(&read_old, was)).transpose()?;
        let new = is.map(|is| content(&read_new, is)).transpose()?;
        made.change(path, was.zip(old.as_deref()), is.zip(new.as_deref()));
        if made.text.len() > LONGEST_PATCH {
            let why = "the patch would be longer than 1 GiB".to_owned();
            let path = path.to_string();
            return Err(WorkspaceError::BadPath { path, why }.into());
        }
    }
    Ok(made)
}

impl TreePatch {
    /// What of it was asked for.
    pub(crate) fn into_asked_for(self) -> ContentDiff {
        let (patch, not_in_patch) = if self.keeps_text {
            (Some(self.text), self.gaps)
        } else {
            (None, Vec::new())
        };
        ContentDiff {
            stat: Some(self.stat),
            patch,
            not_in_patch,
        }
    }

    fn gap(&mut self, path: &EntryPath, why: PatchGapReason) {
        let path = path.to_string();
        self.gaps.push(PatchGap { path, why });
    }

    /// Names the outermost repository, and nothing in it.
    fn gap_once(&mut self, path: &EntryPath, why: PatchGapReason) {
        let mut top = EntryPath::root();
        for name in path.components() {
            top = top.child(name).expect("it is part of a good path");
            if name.eq_ignore_ascii_case(b".git") {
                break;
            }
        }
        let shown = top.to_string();
        if self.gaps.last().is_none_or(|last| last.path != shown) {
            self.gap(&top, why);
        }
    }

    /// Names what Git does not know of an entry.
    fn note_properties(
        &mut self,
        path: &EntryPath,
        was: Option<&ManifestEntry>,
        is: Option<&ManifestEntry>,
        after: &Manifest,
    ) {
        let Some(is) = is else {
            return;
        };
        if is.what == ManifestKind::Directory {
            let is_empty = after.portion(path).len() == 1;
            if is_empty && was.is_none_or(|was| was.what != ManifestKind::Directory) {
                self.gap(path, PatchGapReason::EmptyDirectory);
            }
        }
        let made = match was {
            Some(was) => was.mode,
            None if is.what == ManifestKind::Directory || git_mode(is) == GitMode::Executable => {
                0o755
            }
            None => 0o644,
        };
        let is_link = matches!(is.what, ManifestKind::Symlink { .. });
        if !is_link && made != is.mode && made & 0o100 == is.mode & 0o100 {
            self.gap(path, PatchGapReason::Mode);
        }
        if was.and_then(|was| was.attributes) != is.attributes {
            self.gap(path, PatchGapReason::Attributes);
        }
    }

    fn rename(
        &mut self,
        from: &EntryPath,
        was: Option<&ManifestEntry>,
        to: &EntryPath,
        is: Option<&ManifestEntry>,
    ) {
        let (Some(was), Some(is)) = (was, is) else {
            return;
        };
        let (before, after) = (git_mode(was), git_mode(is));
        let file = git_patch::renamed(from.as_bytes(), to.as_bytes(), before, after);
        self.add(to, &file, Some(was), Some(is));
        if let Some(last) = self.stat.files.last_mut() {
            last.renamed_from = Some(from.to_string());
        }
    }

    fn change(
        &mut self,
        path: &EntryPath,
        was: Option<(&ManifestEntry, &[u8])>,
        is: Option<(&ManifestEntry, &[u8])>,
    ) {
        let file = |(one, content)| PatchFile {
            mode: git_mode(one),
            content,
        };
        let name = path.as_bytes();
        let changed = match (was.map(file), is.map(file)) {
            (None, None) => return,
            (None, Some(is)) => git_patch::created(name, is),
            (Some(was), None) => git_patch::deleted(name, was),
            (Some(was), Some(is)) if was.mode == is.mode && was.content == is.content => return,
            (Some(was), Some(is)) => git_patch::changed(name, was, is),
        };
        let (was, is) = (was.map(|(one, _)| one), is.map(|(one, _)| one));
        self.add(path, &changed, was, is);
    }

    fn add(
        &mut self,
        path: &EntryPath,
        file: &FilePatch,
        was: Option<&ManifestEntry>,
        is: Option<&ManifestEntry>,
    ) {
        self.stat.insertions += file.added;
        self.stat.deletions += file.removed;
        self.stat.files.push(FileStat {
            path: path.to_string(),
            renamed_from: None,
            added: file.added,
            removed: file.removed,
            is_binary: file.is_binary,
            size_before: was.and_then(size),
            size_after: is.and_then(size),
        });
        if self.keeps_text {
            self.text.push_str(&file.text);
        }
    }
}

/// Files that went and came under another name with the same content: the new name leads to the old one.
fn renames(
    changes: &[(EntryPath, ChangeKind)],
    before: &Manifest,
    after: &Manifest,
) -> BTreeMap<EntryPath, EntryPath> {
    let content = |tree: &Manifest, path: &EntryPath| match tree.find(path)?.what {
        ManifestKind::File { size, digest } if size > 0 => Some((size, *digest.as_bytes())),
        _ => None,
    };
    let mut gone: BTreeMap<(u64, [u8; 32]), Vec<&EntryPath>> = BTreeMap::new();
    for (path, change) in changes.iter().rev() {
        if *change == ChangeKind::Removed
            && !is_in_git(path)
            && let Some(content) = content(before, path)
        {
            gone.entry(content).or_default().push(path);
        }
    }
    let mut found = BTreeMap::new();
    for (path, change) in changes {
        if *change == ChangeKind::Added
            && !is_in_git(path)
            && let Some(content) = content(after, path)
            && let Some(from) = gone.get_mut(&content).and_then(Vec::pop)
        {
            found.insert(path.clone(), from.clone());
        }
    }
    found
}

/// Whether something is a repository, or lies in one: Git applies nothing to that.
fn is_in_git(path: &EntryPath) -> bool {
    let mut names = path.components();
    names.any(|name| name.eq_ignore_ascii_case(b".git"))
}

fn is_file(one: &ManifestEntry) -> bool {
    one.what != ManifestKind::Directory
}

fn is_too_large(one: &ManifestEntry) -> bool {
    size(one).unwrap_or_default() > LARGEST
}

fn git_mode(one: &ManifestEntry) -> GitMode {
    match one.what {
        ManifestKind::Symlink { .. } => GitMode::Link,
        _ if one.mode & 0o100 != 0 => GitMode::Executable,
        _ => GitMode::Plain,
    }
}

/// How long a file is.
fn size(listed: &ManifestEntry) -> Option<u64> {
    match listed.what {
        ManifestKind::File { size, .. } => Some(size),
        _ => None,
    }
}
