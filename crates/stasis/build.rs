//! Tells the program which commit it is built from, so that `stasis --version` can say so.
//!
//! The same commit gives the same bytes: what is told is the date of the commit, never that of the build. Where the source is no
//! checkout of this repository, as in a tarball, `STASIS_COMMIT` and `STASIS_COMMIT_DATE` say it, or nobody does.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much of a commit's hash is told.
const SHORT: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=STASIS_COMMIT");
    println!("cargo::rerun-if-env-changed=STASIS_COMMIT_DATE");
    let said = env::var("STASIS_COMMIT").ok().map(|commit| {
        let date = env::var("STASIS_COMMIT_DATE").unwrap_or_default();
        (commit, date)
    });
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let built_from = match said.or_else(checked_out) {
        Some((commit, date)) => {
            let commit: String = commit.chars().take(SHORT).collect();
            format!("{version} ({})", [commit, date].join(" ").trim_end())
        }
        None => version,
    };
    println!("cargo::rustc-env=STASIS_VERSION={built_from}");
    println!("cargo::rustc-env=STASIS_FEATURES={}", features());
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=STASIS_TARGET={target}");
}

/// The commit that is checked out here, and its date.
fn checked_out() -> Option<(String, String)> {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    let root = root.canonicalize().ok()?;
    // A tarball may lie in somebody else's repository, whose commit says nothing about us.
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    for changes in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", changes])?);
        // Cargo would run this script every time for a file that is not there.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let commit = git(&root, &["rev-parse", "HEAD"])?;
    let date = git(&root, &["show", "-s", "--format=%cs", "HEAD"])?;
    Some((commit, date))
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The features that are compiled in, as Cargo names them to build scripts.
fn features() -> String {
    let names = env::vars().filter_map(|(name, _)| {
        let name = name.strip_prefix("CARGO_FEATURE_")?;
        Some(name.to_lowercase().replace('_', "-"))
    });
    let mut names: Vec<String> = names.filter(|name| name != "default").collect();
    names.sort();
    match &*names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
