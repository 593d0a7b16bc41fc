//! What differs in one entry.

use super::Workspace;
use super::answers::{DiffKind, DiffSide, PathChange, PathDiff, PathStatus};
use super::show::{BeforeAfter, differences, kind, size};
use crate::error::{Error, WorkspaceError};
use crate::result::EntryType;
use similar::TextDiff;
use stasis_disk::form::slots::{Manifest, ManifestEntry, ManifestKind, read_file};
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{CheckpointRef, SlotMetadata};
use std::time::Duration;

/// Files that are longer are told by their sizes.
const LARGEST_TEXT: u64 = 1 << 20;
/// A diff that is longer is cut.
const LONGEST: usize = 256 << 10;
/// How long two texts are compared before the result need not be the shortest any more.
const DIFF_TIMEOUT: Duration = Duration::from_secs(2);

impl Workspace {
    pub(super) fn diff_now(
        &self,
        path: &EntryPath,
        checkpoint: Option<&CheckpointRef>,
    ) -> Result<PathDiff, Error> {
        let live = self.now(path)?;
        let of = match checkpoint {
            Some(which) => self.resolve(which)?,
            None => self.usual_base(path, &live)?,
        };
        let then = self.then(&of, path)?;
        let (was, is) = (then.first(), live.first());
        let status = match (was, is) {
            (None, None) => {
                return Err(WorkspaceError::NotInCheckpoint {
                    path: path.clone(),
                    checkpoint: super::show::called(&of),
                }
                .into());
            }
            (None, Some(_)) => PathStatus::Created,
            (Some(_), None) => PathStatus::Deleted,
            (Some(_), Some(_)) if then == live => PathStatus::Unchanged,
            (Some(_), Some(_)) => PathStatus::Modified,
        };
        let mut diff = PathDiff {
            path: path.to_string(),
            checkpoint: of.slot.to_string(),
            status,
            kind: DiffKind::Mixed,
            unified: None,
            truncated: false,
            before: was.map(side),
            after: is.map(side),
            inside: Vec::new(),
        };
        match common_type(was, is) {
            Some(EntryType::Directory) => {
                diff.kind = DiffKind::Directory;
                diff.inside = self.inside(&of, &then, &live);
            }
            Some(EntryType::Symlink) => {
                diff.kind = DiffKind::Symlink;
                diff.unified = Some(unified(&target(was), &target(is), path, &of));
            }
            Some(_) => self.compare_text(&mut diff, path, &of)?,
            None => {}
        }
        if let Some(text) = diff.unified.as_mut().filter(|text| text.len() > LONGEST) {
            let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
            diff.truncated = true;
        }
        Ok(diff)
    }

    /// The newest checkpoint that holds an entry and differs; else the newest that holds it; else the newest.
    fn usual_base(&self, path: &EntryPath, live: &[ManifestEntry]) -> Result<SlotMetadata, Error> {
        let checkpoints = self.newest_first()?;
        let mut holding = None;
        for one in &checkpoints {
            let then = self.then(one, path)?;
            if !then.is_empty() && then != live {
                return Ok(one.clone());
            }
            if !then.is_empty() && holding.is_none() {
                holding = Some(one.clone());
            }
        }
        let newest = holding.or_else(|| checkpoints.into_iter().next());
        Ok(newest.ok_or(WorkspaceError::NoCheckpoints)?)
    }

    fn inside(
        &self,
        of: &SlotMetadata,
        then: &[ManifestEntry],
        live: &[ManifestEntry],
    ) -> Vec<PathChange> {
        let (was, is) = (Manifest::of(then.to_vec()), Manifest::of(live.to_vec()));
        let changes = differences(&was, &is);
        let both = BeforeAfter {
            before: &was,
            after: &is,
        };
        let changes = changes.iter();
        changes
            .map(|(path, change)| self.change(path, *change, both, of))
            .collect()
    }

    /// Compares two files as text, if they are.
    fn compare_text(
        &self,
        diff: &mut PathDiff,
        path: &EntryPath,
        of: &SlotMetadata,
    ) -> Result<(), Error> {
        let was = self.pool().file(of, path, LARGEST_TEXT + 1);
        let was = was?.unwrap_or_default();
        let is = read_file(&self.root()?, path, LARGEST_TEXT + 1);
        let is = is.at("read", self.directory().join(path.to_string()))?;
        let is = is.unwrap_or_default();
        let (Some(was), Some(is)) = (text(&was), text(&is)) else {
            diff.kind = DiffKind::Binary;
            return Ok(());
        };
        diff.kind = DiffKind::Text;
        diff.unified = Some(unified(was, is, path, of));
        Ok(())
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    let is_short = bytes.len() as u64 <= LARGEST_TEXT;
    let text = std::str::from_utf8(bytes).ok();
    text.filter(|text| is_short && !text.contains('\0'))
}

/// What both sides are; one that is missing is what the other is.
fn common_type(was: Option<&ManifestEntry>, is: Option<&ManifestEntry>) -> Option<EntryType> {
    let was_type = was.or(is).map(kind)?;
    let is_type = is.or(was).map(kind)?;
    (was_type == is_type).then_some(was_type)
}

fn side(listed: &ManifestEntry) -> DiffSide {
    let digest = match &listed.what {
        ManifestKind::File { digest, .. } => Some(digest.to_string()),
        _ => None,
    };
    let is_link = matches!(listed.what, ManifestKind::Symlink { .. });
    DiffSide {
        kind: kind(listed),
        size: size(listed),
        mode: (!is_link).then(|| format!("{:04o}", listed.mode)),
        digest,
        attributes: listed.attributes.map(|digest| digest.to_string()),
    }
}

/// Where a link points, as a line.
fn target(listed: Option<&ManifestEntry>) -> String {
    match listed.map(|listed| &listed.what) {
        Some(ManifestKind::Symlink { target }) => format!("{}\n", target.escape_ascii()),
        _ => String::new(),
    }
}

fn unified(was: &str, is: &str, path: &EntryPath, of: &SlotMetadata) -> String {
    let mut config = TextDiff::configure();
    let diff = config.timeout(DIFF_TIMEOUT).diff_lines(was, is);
    let mut unified = diff.unified_diff();
    let unified = unified
        .context_radius(3)
        .header(&format!("{path} ({})", of.slot), &path.to_string());
    unified.to_string()
}
