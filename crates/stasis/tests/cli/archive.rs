//! `stasis archive`

use crate::session::{STASIS, Said, Session, said};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A small tree, and the way to an archive of it.
fn place(session: &Session) -> (PathBuf, PathBuf) {
    let tree = session.home().join("work/tree");
    fs::create_dir_all(tree.join("directory/cache")).unwrap();
    fs::write(tree.join("directory/file"), "ten bytes.").unwrap();
    fs::write(tree.join("directory/cache/large"), vec![7; 4_000_000]).unwrap();
    fs::write(tree.join("odd\nname"), "1").unwrap();
    fs::hard_link(tree.join("directory/file"), tree.join("twin")).unwrap();
    std::os::unix::fs::symlink("/nowhere", tree.join("link")).unwrap();
    (tree, session.home().join("work/tree.tar.zst"))
}

#[test]
fn an_archive_is_made_verified_listed_read_and_extracted() {
    let session = Session::new();
    let (tree, archive) = place(&session);
    let back = session.home().join("work/back");

    let made = session.json(0, &["archive", "create", text(&tree), text(&archive)]);
    let verified = session.json(0, &["archive", "verify", text(&archive)]);
    let listed = session.json(0, &["archive", "list", text(&archive)]);
    let words = session.data(0, &["archive", "list", text(&archive)]);
    let read = session.run(&["archive", "cat", text(&archive), "./twin"]);
    let extracted = session.json(0, &["archive", "extract", text(&archive), text(&back)]);

    assert_eq!(
        (&made["files"], &made["hard_links"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(made["bytes"], json!(4_000_011));
    assert_eq!(made["frames_reused"], json!(0));
    for key in [
        "archive_sha256",
        "tree_digest",
        "stored_bytes",
        "entries",
        "encoder_id",
    ] {
        assert_eq!(made[key], verified[key], "{key}");
    }
    assert!(made["peak_memory_bytes"].as_u64().unwrap() < 256 << 20);
    let paths: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    let expected = [
        ".",
        "directory",
        "directory/cache",
        "directory/cache/large",
        "directory/file",
        "link",
        "odd\\x0aname",
        "twin",
    ];
    assert_eq!(paths, expected);
    assert_eq!(words.lines().count(), expected.len());
    assert!(
        words.contains("twin = directory/file") && words.contains("link -> /nowhere"),
        "{words}"
    );
    assert_eq!((read.code, &*read.out), (0, "ten bytes."));
    assert_eq!(extracted["placed"], json!("new"));
    assert_eq!(fs::read(back.join("twin")).unwrap(), b"ten bytes.");
    assert_eq!(
        fs::read(back.join("directory/cache/large")).unwrap().len(),
        4_000_000
    );
    assert_eq!(
        names(session.home().join("work").as_path()),
        ["back", "tree", "tree.tar.zst"]
    );
}

#[test]
fn what_did_not_change_is_copied_from_the_base() {
    let session = Session::new();
    let (tree, archive) = place(&session);
    let newer = session.home().join("work/newer");
    session.json(0, &["archive", "create", text(&tree), text(&archive)]);
    fs::write(tree.join("directory/file"), "other byte").unwrap();

    let made = session.json(
        0,
        &[
            "archive",
            "create",
            text(&tree),
            text(&newer),
            "--base",
            text(&archive),
        ],
    );
    let refused = session.run(&[
        "archive",
        "create",
        text(&tree),
        text(&archive),
        "--base",
        text(&tree.join("twin")),
    ]);

    let (frames, copied) = (
        made["frames"].as_u64().unwrap(),
        made["frames_reused"].as_u64().unwrap(),
    );
    assert!(copied > 0 && copied < frames, "{made}");
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("hint: leave out --base"),
        "{}",
        refused.err
    );
}

#[test]
fn a_damaged_archive_is_corrupt_and_nothing_comes_of_it() {
    let session = Session::new();
    let (tree, archive) = place(&session);
    let back = session.home().join("work/back");
    session.json(0, &["archive", "create", text(&tree), text(&archive)]);
    let mut bytes = fs::read(&archive).unwrap();
    bytes[40] ^= 1;
    fs::write(&archive, bytes).unwrap();

    let verified = session.json(9, &["archive", "verify", text(&archive)]);
    let extracted = session.run(&["archive", "extract", text(&archive), text(&back)]);

    assert_eq!(verified["error"]["kind"], json!("corrupt"));
    let why = verified["error"]["causes"][0].as_str().unwrap();
    assert!(why.starts_with("frame 0 at byte 0"), "{why}");
    assert_eq!(extracted.code, 9, "{}", extracted.err);
    assert_eq!(
        names(session.home().join("work").as_path()),
        ["tree", "tree.tar.zst"]
    );
}

#[test]
fn a_directory_with_content_is_only_replaced_when_asked_and_kept() {
    let session = Session::new();
    let (tree, archive) = place(&session);
    let back = session.home().join("work/back");
    session.json(0, &["archive", "create", text(&tree), text(&archive)]);
    fs::create_dir(&back).unwrap();
    fs::write(back.join("mine"), "precious").unwrap();

    let refused = session.run(&["archive", "extract", text(&archive), text(&back)]);
    let replaced = session.json(
        0,
        &[
            "archive",
            "extract",
            text(&archive),
            text(&back),
            "--replace",
        ],
    );

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("--replace"), "{}", refused.err);
    assert_eq!(replaced["placed"], json!("replaced"));
    let kept = PathBuf::from(replaced["kept"].as_str().unwrap());
    assert_eq!(fs::read(kept.join("mine")).unwrap(), b"precious");
    assert_eq!(fs::read(back.join("twin")).unwrap(), b"ten bytes.");

    let in_place = session.json(
        0,
        &[
            "archive",
            "extract",
            text(&archive),
            text(&back),
            "--in-place",
        ],
    );
    assert_eq!(in_place["placed"], json!("in_place"));
}

#[test]
fn one_part_is_extracted_alone_and_one_that_is_not_there_is_not_found() {
    let session = Session::new();
    let (tree, archive) = place(&session);
    let back = session.home().join("work/back");
    session.json(0, &["archive", "create", text(&tree), text(&archive)]);

    let absent = session.run(&[
        "archive",
        "extract",
        text(&archive),
        text(&back),
        "--path",
        "no",
    ]);
    session.json(
        0,
        &[
            "archive",
            "extract",
            text(&archive),
            text(&back),
            "--path",
            "directory/cache/",
        ],
    );
    let no_file = session.run(&["archive", "cat", text(&archive), "no"]);
    let directory = session.run(&["archive", "cat", text(&archive), "directory"]);
    let nonsense = session.run(&["archive", "cat", text(&archive), "a/../b"]);

    assert_eq!((absent.code, no_file.code), (3, 3));
    assert_eq!((directory.code, nonsense.code), (2, 2));
    assert_eq!(names(&back), ["directory"]);
    assert_eq!(names(&back.join("directory")), ["cache"]);
    assert_eq!(names(&back.join("directory/cache")), ["large"]);
}

#[test]
fn a_tar_of_another_program_is_read_in_every_way() {
    let session = Session::new();
    let (tree, _) = place(&session);
    let (archive, back) = (
        session.home().join("work/a.tar.gz"),
        session.home().join("work/back"),
    );
    let made = Command::new("tar")
        .arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(&tree)
        .arg(".")
        .status();
    assert!(made.unwrap().success());

    let verified = session.json(0, &["archive", "verify", text(&archive)]);
    let listed = session.json(0, &["archive", "list", text(&archive)]);
    let read = session.run(&["archive", "cat", text(&archive), "directory/file"]);
    session.json(0, &["archive", "extract", text(&archive), text(&back)]);
    let limited = session.run(&["archive", "list", text(&archive), "--max-bytes", "1000"]);

    assert_eq!(verified["is_framed"], json!(false));
    assert_eq!(listed["items"].as_array().unwrap().len(), 8);
    assert_eq!(read.out, "ten bytes.");
    assert_eq!(names(&back), names(&tree));
    assert_eq!(limited.code, 11, "{}", limited.err);
}

#[test]
fn an_interrupted_archive_leaves_what_was_there() {
    let session = Session::new();
    let tree = session.home().join("work/tree");
    fs::create_dir_all(&tree).unwrap();
    let noise: Vec<u8> = (0..20_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(tree.join("noise"), &noise).unwrap();
    let archive = session.home().join("work/archive");
    fs::write(&archive, "an older one").unwrap();

    let child = session
        .command(&[
            "archive",
            "create",
            text(&tree),
            text(&archive),
            "--level",
            "19",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while names(archive.parent().unwrap()).len() < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let Said { code, err, .. } = said(child.wait_with_output().unwrap());

    assert_eq!(code, 130, "{err}");
    assert_eq!(fs::read(&archive).unwrap(), b"an older one");
    assert_eq!(names(archive.parent().unwrap()), ["archive", "tree"]);
}

#[test]
fn forged_archives_are_refused_to_nobody_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let session = Session::new();
    let home = session.home();
    let (program, archive) = (home.join("stasis"), home.join("archive"));
    fs::copy(STASIS, &program).unwrap();
    // A link out, and a file through it.
    let mut tar = Vec::new();
    for (kind, name, target) in [
        (b'2', "out", home.join("outside")),
        (b'0', "out/file", PathBuf::new()),
    ] {
        let mut block = [0_u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..107].copy_from_slice(b"0000644");
        block[124..135].copy_from_slice(b"00000000000");
        block[148..156].fill(b' ');
        block[156] = kind;
        let target = text(&target).as_bytes();
        block[157..157 + target.len()].copy_from_slice(target);
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        tar.extend_from_slice(&block);
    }
    tar.resize(tar.len() + 1024, 0);
    fs::write(&archive, tar).unwrap();
    fs::create_dir(home.join("outside")).unwrap();
    for name in ["", "outside", "archive", "stasis"] {
        std::os::unix::fs::chown(home.join(name), Some(65_534), Some(65_534)).unwrap();
    }

    let refused = Command::new(&program)
        .args(["archive", "extract"])
        .args([&archive, &home.join("back")])
        .env("HOME", home)
        .current_dir(home)
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();

    let refused = said(refused);
    assert_eq!(refused.code, 9, "{}", refused.err);
    assert!(names(&home.join("outside")).is_empty());
    assert!(!names(home).iter().any(|name| name.contains("back")));
}

/// A file that a process which is gone left: nobody holds it.
#[test]
fn what_killed_archives_and_saves_left_is_removed_by_the_next_one_and_what_lives_is_not() {
    let session = Session::new();
    let tree = session.home().join("tree");
    crate::repo_world::write(&tree, "file", b"content");
    let place = session.home().join("place");
    fs::create_dir(&place).unwrap();
    let left = place.join(".old.tar.zst.stasis-tmp-4000000-0");
    let living = place.join(".new.tar.zst.stasis-tmp-4000001-0");
    let precious = place.join(".notes.stasis-tmp-of-mine");
    for path in [&left, &living, &precious] {
        fs::write(path, "half an archive").unwrap();
    }
    let held = fs::File::open(&living).unwrap();
    held.lock().unwrap();
    session.data(0, &["repo", "init"]);
    session.json(0, &["repo", "save", text(&tree)]);
    let trees = session.home().join("cache/stasis/trees");
    let memory = fs::read_dir(&trees)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let torn = memory.with_extension("4000000");
    fs::write(&torn, "half a memory").unwrap();
    crate::repo_world::write(&tree, "file", b"changed");

    session.json(
        0,
        &[
            "archive",
            "create",
            text(&tree),
            text(&place.join("new.tar.zst")),
        ],
    );
    session.json(0, &["repo", "save", text(&tree)]);

    assert!(!left.exists() && living.exists() && precious.exists());
    assert!(!torn.exists() && memory.exists());
    assert_eq!(fs::read_dir(&trees).unwrap().count(), 1);
}
