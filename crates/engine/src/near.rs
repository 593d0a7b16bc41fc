//! What somebody may have meant who named a directory or a subject that is none.

use crate::address::DIR_PREFIX;
use crate::bridge;
use stasis_model::id::{ProjectId, TenantId};
use stasis_model::nearest::nearest;
use stasis_store::bucket::Bucket;
use stasis_store::documents::roots;
use stasis_store::layout::ChunkRoot;
use stasis_store::part::Part;
use std::path::Path;
use std::sync::Arc;

/// How many entries of a directory are looked at.
const MOST_BESIDE: usize = 10_000;

/// What a directory of the store is called, in full and without its digits, and what is typed to name it.
pub(crate) fn names_of(id: &ProjectId) -> [(String, String); 2] {
    let (whole, shown) = (id.as_str(), format!("{DIR_PREFIX}{id}"));
    let name = whole.rsplit_once('-').map_or(whole, |(name, _)| name);
    [(whole.to_owned(), shown.clone()), (name.to_owned(), shown)]
}

/// Directories of the store whose names are near to one that is none.
pub(crate) async fn near_subjects(
    bucket: &Arc<dyn Bucket>,
    tenant: Option<&TenantId>,
    typed: &Path,
) -> Vec<String> {
    // That the store cannot be listed is not what went wrong.
    let all = roots::directories(bucket, tenant, &Part::Whole)
        .await
        .unwrap_or_default();
    let names = all.iter().filter_map(ChunkRoot::directory);
    let names = names.flat_map(|(_, id)| names_of(&id));
    let typed = typed.file_name().unwrap_or(typed.as_os_str());
    nearest(&typed.to_string_lossy(), names)
}

/// Directories beside a path whose names are near to the one that it names.
pub async fn near_directories(typed: &Path) -> Vec<String> {
    let typed = typed.to_owned();
    bridge::blocking(move || {
        let Some(name) = typed.file_name() else {
            return Vec::new();
        };
        let above = typed.parent().unwrap_or(Path::new(""));
        let place = if above == Path::new("") {
            Path::new(".")
        } else {
            above
        };
        let beside = std::fs::read_dir(place).into_iter().flatten().flatten();
        let directories = beside.take(MOST_BESIDE).filter(|one| one.path().is_dir());
        let names = directories.map(|one| {
            let shown = above.join(one.file_name()).display().to_string();
            (one.file_name().to_string_lossy().into_owned(), shown)
        });
        nearest(&name.to_string_lossy(), names)
    })
    .await
}

/// A question for whoever named something that is not there, if there is anything to offer.
pub fn did_you_mean(near: &[String]) -> Option<String> {
    let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    match &*quoted {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [others @ .., last] => Some(format!("did you mean {} or {last}?", others.join(", "))),
    }
}
