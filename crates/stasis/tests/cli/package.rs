//! What `scripts/package` makes of the program under test: everything but the portable build, which takes minutes.

use crate::session::{STASIS, Session, said};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const EPOCH: &str = "1700000000";

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/package")
}

/// Whether the programs are there that the script calls; which one is missing is told.
fn has_tools() -> bool {
    let is_missing = |tool: &&str| Command::new(tool).arg("--version").output().is_err();
    let missing = ["ar", "gzip", "readelf", "tar"]
        .into_iter()
        .find(|tool| is_missing(tool));
    if let Some(tool) = missing {
        println!("skipped: {tool} is not installed");
    }
    missing.is_none()
}

fn packed(out: &Path) {
    let output = Command::new(script())
        .args(["--fast", "--binary", STASIS])
        .arg(out)
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .output();
    let said = said(output.unwrap());
    assert_eq!(said.code, 0, "{}", said.err);
}

fn done(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output();
    let said = said(output.unwrap());
    assert_eq!(said.code, 0, "{program} {arguments:?}: {}", said.err);
    said.out
}

/// The one file in a directory whose name ends so.
fn ending(directory: &Path, end: &str) -> String {
    let names = fs::read_dir(directory).unwrap();
    let mut names = names.map(|one| one.unwrap().file_name().into_string().unwrap());
    names.find(|name| name.ends_with(end)).unwrap()
}

#[test]
fn a_package_is_the_same_each_time_and_its_program_works_where_it_is_unpacked() {
    if !has_tools() {
        return;
    }
    let session = Session::new();
    let (one, other) = (session.home().join("one"), session.home().join("other"));
    packed(&one);
    packed(&other);

    let sums = fs::read_to_string(one.join("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 2);
    assert_eq!(sums, fs::read_to_string(other.join("SHA256SUMS")).unwrap());
    done("sha256sum", &["-c", "SHA256SUMS"], &one);
    let (tarball, deb) = (ending(&one, ".tar.gz"), ending(&one, ".deb"));
    let listed = done("tar", &["-tvzf", &tarball, "--numeric-owner"], &one);
    assert!(
        listed.lines().all(|line| line.contains(" 0/0 ")),
        "{listed}"
    );
    assert!(
        listed.lines().all(|line| line.contains(" 2023-11-14 ")),
        "{listed}"
    );
    done("tar", &["-xzf", &tarball], &one);
    let tree = one.join(tarball.strip_suffix(".tar.gz").unwrap());
    done("sha256sum", &["-c", "--quiet", "SHA256SUMS"], &tree);
    for path in [
        "share/bash-completion/completions/stasis",
        "share/zsh/site-functions/_stasis",
        "share/fish/vendor_completions.d/stasis.fish",
        "share/man/man1/stasis-rewind.1",
        "lib/systemd/user/stasis-workspace@.service",
        "lib/systemd/system/stasis.service",
        "share/doc/stasis/README.md",
        "share/doc/stasis/LICENSE-MIT",
        "share/doc/stasis/LICENSE-APACHE",
    ] {
        let file = fs::metadata(tree.join(path)).unwrap();
        assert!(file.len() > 100, "{path}");
        assert_eq!(file.permissions().mode() & 0o777, 0o644, "{path}");
    }
    works(&session, &tree.join("bin/stasis"));

    is_debian(&one, &deb, &tree);
}

/// The same program is in the other package, which is the three files that Debian wants.
fn is_debian(one: &Path, deb: &str, tree: &Path) {
    assert_eq!(
        done("ar", &["t", deb], one),
        "debian-binary\ncontrol.tar.gz\ndata.tar.gz\n"
    );
    done("ar", &["x", deb], one);
    done("tar", &["-xzf", "control.tar.gz"], one);
    let unpacked = one.join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    done("tar", &["-xzf", "../data.tar.gz"], &unpacked);
    done("md5sum", &["-c", "--quiet", "../md5sums"], &unpacked);
    let control = fs::read_to_string(one.join("control")).unwrap();
    assert!(
        control.contains("\nDepends: libc6, libgcc-s1\n"),
        "{control}"
    );
    let is_same = fs::read(unpacked.join("usr/bin/stasis")).unwrap()
        == fs::read(tree.join("bin/stasis")).unwrap();
    assert!(is_same);
    assert!(
        unpacked
            .join("usr/share/man/man1/stasis-rewind.1.gz")
            .exists()
    );
    if Command::new("dpkg-deb").arg("--version").output().is_ok() {
        let field = done("dpkg-deb", &["--field", deb, "Package"], one);
        assert_eq!(field, "stasis\n");
    }
}

/// A checkpoint, a change and the way back, with the program that was unpacked.
fn works(session: &Session, program: &Path) {
    let shop = session.home().join("shop");
    fs::create_dir(&shop).unwrap();
    fs::write(shop.join("a"), "one").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program);
        let plain = session.command(&[]);
        let variables = plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        command.env_clear().envs(variables);
        let said = said(command.args(arguments).current_dir(&shop).output().unwrap());
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
        said.out
    };
    assert!(run(&["--version"]).starts_with("stasis "));
    run(&["workspace", "init", "."]);
    fs::write(shop.join("a"), "two").unwrap();
    run(&["rewind", "--to", "cp-0", "--yes"]);
    assert_eq!(fs::read_to_string(shop.join("a")).unwrap(), "one");
    run(&["undo", "--yes"]);
    assert_eq!(fs::read_to_string(shop.join("a")).unwrap(), "two");
}

#[test]
fn a_package_of_nothing_is_refused() {
    let refused = |arguments: &[&str], code: i32, why: &str| {
        // As an ordinary user, Git does not speak of a checkout of root.
        let mut command = Command::new(script());
        command.args(arguments).env("SOURCE_DATE_EPOCH", "1");
        let output = command.output();
        let said = said(output.unwrap());
        assert_eq!(said.code, code, "{}", said.err);
        assert!(said.err.contains(why), "{}", said.err);
    };

    refused(
        &["--binary", "/nowhere/stasis", "/nowhere/out"],
        1,
        "is no program",
    );
    refused(&["--binary"], 2, "scripts/package [OUT]");
    refused(&["--what"], 2, "scripts/package [OUT]");
}
