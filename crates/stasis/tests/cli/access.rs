//! Access lists and capabilities: kept by every form of a tree, or counted, and never widened.

use crate::repo_world::write;
use crate::session::Session;
use rustix::fs::XattrFlags;
use stasis_engine::model::tree::acl::{ACCESS, Acl, CAPABILITY, DEFAULT};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The group may nothing; one other user may write. The mode's group bits are the mask: `rw-`.
const LIST: &str = "user::rw-,user:12345:rw-,group::---,mask::rw-,other::---";
const FOR_NEW: &str = "user::rwx,user:12345:r-x,group::---,mask::r-x,other::---";

fn bytes(list: &str) -> Vec<u8> {
    Acl::from_text(list, |_| None).unwrap().to_bytes()
}

fn set(path: &Path, name: &[u8], value: &[u8]) -> bool {
    let name = std::ffi::OsStr::from_bytes(name);
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

fn get(path: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![0; 1024];
    let name = std::ffi::OsStr::from_bytes(name);
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

/// `cap_net_bind_service=ep`, as the kernel keeps it.
fn capability() -> Vec<u8> {
    let numbers: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    numbers.iter().flat_map(|one| one.to_le_bytes()).collect()
}

/// A tree with lists, if this filesystem keeps any; whether it has a capability too.
fn tree(session: &Session) -> Option<(PathBuf, bool)> {
    let tree = session.home().join("tree");
    write(&tree, "secret", b"secret");
    write(&tree, "shared/plain", b"plain");
    write(&tree, "program", b"program");
    for name in ["secret", "shared/plain"] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let is_kept = set(&tree.join("secret"), ACCESS, &bytes(LIST))
        && set(&tree.join("shared"), DEFAULT, &bytes(FOR_NEW));
    if !is_kept {
        println!("skipped: this filesystem keeps no access lists");
        return None;
    }
    assert_eq!(
        fs::metadata(tree.join("secret")).unwrap().mode() & 0o777,
        0o660
    );
    let has_capability = set(&tree.join("program"), CAPABILITY, &capability());
    Some((tree, has_capability))
}

fn assert_same(restored: &Path) {
    let secret = restored.join("secret");
    assert_eq!(
        get(&secret, ACCESS),
        Some(bytes(LIST)),
        "{}",
        restored.display()
    );
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o660);
    assert_eq!(get(&restored.join("shared"), DEFAULT), Some(bytes(FOR_NEW)));
    // What was made in it before it had its list did not inherit from that.
    let plain = restored.join("shared/plain");
    assert_eq!(get(&plain, ACCESS), None);
    assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn lists_and_capabilities_come_back_from_chunks_archives_and_clones() {
    let session = Session::new();
    let Some((tree, has_capability)) = tree(&session) else {
        return;
    };
    let at = |name: &str| session.home().join(name).display().to_string();
    let (tree, archive) = (tree.display().to_string(), at("tree.tar.zst"));

    session.data(0, &["repo", "init"]);
    let saved = session.json(0, &["repo", "save", &tree, "--strict"]);
    let chunks = session.json(0, &["repo", "restore", "latest", &at("chunks")]);
    session.json(0, &["repo", "restore", "latest", &at("owned"), "--owner"]);
    let again = session.json(0, &["repo", "save", &at("chunks"), "--name", "again"]);
    let archived = session.json(0, &["archive", "create", &tree, &archive, "--strict"]);
    session.json(0, &["archive", "verify", &archive]);
    session.json(0, &["archive", "extract", &archive, &at("archive")]);
    session.json(0, &["clone", &tree, &at("clone")]);

    for form in ["chunks", "owned", "archive", "clone"] {
        assert_same(&session.home().join(form));
    }
    assert_eq!(saved["attributes_left_out"], 0, "{saved}");
    assert_eq!(archived["attributes_left_out"], 0, "{archived}");
    let program = |form: &str| get(&session.home().join(form).join("program"), CAPABILITY);
    if has_capability {
        assert_eq!(program("chunks"), None, "it is given away like ownership");
        assert_eq!(chunks["attributes_not_kept"], 1, "{chunks}");
        assert_eq!(program("owned"), Some(capability()));
        assert_eq!(program("clone"), Some(capability()));
    } else {
        assert_eq!(chunks["attributes_not_kept"], 0, "{chunks}");
        assert_eq!(again["state_digest"], saved["state_digest"]);
    }
}

#[test]
fn a_workspace_gets_its_lists_back_by_restore_revert_and_undo() {
    let session = Session::new();
    let Some((tree, _)) = tree(&session) else {
        return;
    };
    let path = tree.display().to_string();
    let workspace = |words: &[&str]| {
        let said =
            crate::session::said(session.command(words).current_dir(&tree).output().unwrap());
        assert_eq!(said.code, 0, "{words:?}\n{}", said.err);
    };
    // Without its lists, and with another content and mode: lists alone are not looked at.
    let strip = |text: &str| {
        for (name, attribute) in [("secret", ACCESS), ("shared", DEFAULT)] {
            let attribute = std::ffi::OsStr::from_bytes(attribute);
            rustix::fs::removexattr(tree.join(name), attribute).unwrap();
        }
        fs::write(tree.join("secret"), text).unwrap();
        for (name, mode) in [("secret", 0o600), ("shared", 0o700)] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    workspace(&["workspace", "init", &path]);
    workspace(&["workspace", "create", "a"]);

    strip("another");
    workspace(&["workspace", "revert", "secret", "a"]);
    assert_eq!(get(&tree.join("secret"), ACCESS), Some(bytes(LIST)));
    workspace(&["workspace", "restore", "a", "--yes"]);
    assert_same(&tree);
    workspace(&["workspace", "undo", "--yes"]);
    assert_eq!(get(&tree.join("shared"), DEFAULT), None);
    // Taking that back again is one more.
    workspace(&["workspace", "undo", "--yes"]);
    assert_same(&tree);
}

#[test]
fn what_another_tar_says_of_access_is_kept_or_counted() {
    let session = Session::new();
    if tree(&session).is_none() {
        return;
    }
    let at = |name: &str| session.home().join(name).display().to_string();
    let script = format!(
        "import tarfile, io\n\
         t = tarfile.open({tar:?}, 'w', format=tarfile.PAX_FORMAT)\n\
         def add(name, headers):\n\
        \u{20}i = tarfile.TarInfo(name); i.mode = 0o660; i.pax_headers = headers; t.addfile(i, io.BytesIO())\n\
         add('listed', {{'SCHILY.acl.access': {list:?}}})\n\
         add('nobody', {{'SCHILY.acl.access': 'user::rw-,user:no-such-user:r--,group::---,mask::r--,other::---'}})\n\
         add('label', {{'SCHILY.xattr.security.selinux': 'label', 'SCHILY.xattr.user.note': 'mine'}})\n\
         t.close()\n",
        tar = at("foreign.tar"),
        list = LIST.replace(',', "\n"),
    );
    let made = std::process::Command::new("python3")
        .args(["-c", &script])
        .status();
    if !made.is_ok_and(|made| made.success()) {
        println!("skipped: no python3");
        return;
    }

    let extracted = session.json(0, &["archive", "extract", &at("foreign.tar"), &at("out")]);

    let out = session.home().join("out");
    assert_eq!(get(&out.join("listed"), ACCESS), Some(bytes(LIST)));
    assert_eq!(
        get(&out.join("label"), b"user.note"),
        Some(b"mine".to_vec())
    );
    assert_eq!(extracted["attributes_not_kept"], 2, "{extracted}");
}

/// GNU tar reads the lists that we write, and we those that it writes.
#[test]
fn gnu_tar_and_we_understand_each_other() {
    let session = Session::new();
    let Some((tree, _)) = tree(&session) else {
        return;
    };
    let at = |name: &str| session.home().join(name);
    let run = |words: &[&str]| {
        let ran = std::process::Command::new("tar").args(words).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let [theirs, ours, plain] =
        ["theirs.tar", "ours.tar.zst", "ours.tar"].map(|name| at(name).display().to_string());
    let source = tree.display().to_string();
    if !run(&[
        "--acls",
        "--format=posix",
        "-cf",
        &theirs,
        "-C",
        &source,
        ".",
    ]) {
        println!("skipped: tar cannot keep access lists");
        return;
    }
    session.json(0, &["archive", "create", &source, &ours]);
    let unpacked = std::process::Command::new("zstd")
        .args(["-qdf", &ours, "-o", &plain])
        .status();
    let target = at("by-tar");
    fs::create_dir(&target).unwrap();

    session.json(
        0,
        &["archive", "extract", &theirs, at("by-us").to_str().unwrap()],
    );
    assert_same(&at("by-us"));
    if unpacked.is_ok_and(|unpacked| unpacked.success()) {
        assert!(run(&[
            "--acls",
            "-xpf",
            &plain,
            "-C",
            target.to_str().unwrap()
        ]));
        let secret = target.join("secret");
        assert_eq!(get(&secret, ACCESS), Some(bytes(LIST)));
    }
}
