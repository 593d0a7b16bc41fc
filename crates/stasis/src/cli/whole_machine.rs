//! Directories that nobody means to save as a whole: `/` and the home directory.

use super::CliContext;
use std::path::Path;

/// Refuses to save `/` or the home directory unless that is forced.
pub(super) fn refuse(context: &CliContext, dir: &Path, force: bool) -> anyhow::Result<()> {
    if force {
        return Ok(());
    }
    let Ok(whole) = dir.canonicalize() else {
        // It is refused for another reason soon.
        return Ok(());
    };
    let home = context.environment.home.as_ref();
    let is_home = home
        .and_then(|home| home.canonicalize().ok())
        .is_some_and(|home| home == whole);
    let what = match whole.parent() {
        None => "the root of this machine",
        Some(_) if is_home => "your home directory",
        Some(_) => return Ok(()),
    };
    anyhow::bail!(
        "`{}` is {what}: nearly everything on this machine would be saved. Name the directory that you mean, or say --force",
        whole.display()
    )
}
