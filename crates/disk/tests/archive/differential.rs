//! The same trees through us, GNU tar and bsdtar, in both directions.

use crate::seed::{Seed, cases};
use crate::tree::{Taste, assert_restored, assert_same, assert_same_but_root_time, grow};
use stasis_disk::form::archive::{Archive, ArchiveError, CreateSettings, ReadSettings, create};
use stasis_disk::tree::write::{TreeWriter, WriteReport, WriteSettings};
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;

pub(crate) fn settings(workers: usize) -> CreateSettings {
    CreateSettings {
        level: 3,
        workers: NonZeroUsize::new(workers).unwrap(),
        ..CreateSettings::default()
    }
}

/// Extracts into a new directory.
pub(crate) fn extract(archive: &Path, into: &Path) -> Result<WriteReport, ArchiveError> {
    std::fs::create_dir(into).unwrap();
    let root = File::open(into).unwrap().into();
    let writer = TreeWriter::new(root, WriteSettings::default())?;
    let root = Archive::open(archive)?.extract(&writer, &ReadSettings::default())?;
    Ok(writer.finish(root.as_ref())?)
}

pub(crate) fn run(command: &mut Command) {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
}

fn tar(program: &str, arguments: &[&str], archive: &Path, directory: &Path) {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(archive)
        .arg("-C")
        .arg(directory);
    run(command.env("LC_ALL", "C.UTF-8"));
}

#[test]
fn what_we_archive_comes_back_from_us_gnu_tar_and_bsdtar() {
    for case in 0..cases(25) {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let taste = if case % 2 == 0 {
            Taste::All
        } else {
            Taste::Bsd
        };
        grow(&at("tree"), &mut Seed::new(case), taste);

        let _ = create(&at("tree"), &at("a.tar.zst"), &settings(2)).unwrap();

        let what = format!("case {case}");
        let _ = extract(&at("a.tar.zst"), &at("ours")).unwrap();
        assert_restored(&at("tree"), &at("ours"), &format!("{what}, ours"));
        let _ = Archive::open(&at("a.tar.zst"))
            .unwrap()
            .verify(&ReadSettings::default())
            .unwrap();
        std::fs::create_dir(at("gnu")).unwrap();
        let gnu = [
            "--zstd",
            "--xattrs",
            "--xattrs-include=user.*",
            "--numeric-owner",
            "-xpf",
        ];
        tar("tar", &gnu, &at("a.tar.zst"), &at("gnu"));
        assert_same(&at("tree"), &at("gnu"), &format!("{what}, GNU tar"));
        if taste == Taste::Bsd {
            std::fs::create_dir(at("bsd")).unwrap();
            tar(
                "bsdtar",
                &["--numeric-owner", "-xpf"],
                &at("a.tar.zst"),
                &at("bsd"),
            );
            assert_same_but_root_time(&at("tree"), &at("bsd"), &format!("{what}, bsdtar"));
        }
    }
}
