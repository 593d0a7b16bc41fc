//! Exports of containers that nobody should trust, and what imports leave on an engine.

use crate::container_host::{Host, rows, text};
use crate::session::{Session, real_store};
use serde_json::{Value, json};
use stasis_testkit::docker::{Dockerd, IMAGE};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An export of `web` as files, with its image, and the id of its snapshot.
fn exported(host: &Host) -> (PathBuf, String) {
    host.start("web", "-v data:/data -v more:/more", "echo x > /data/x");
    let saved = host.json(0, "container create web");
    let file = host.session.home().join("web.tar.zst");
    let words = format!("container export latest {} --of web", file.display());
    host.json(0, &words);
    let to = host.session.home().join("unpacked");
    let words = format!("archive extract {} {}", file.display(), to.display());
    host.json(0, &words);
    (to, text(&saved, "snapshot_id").to_owned())
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// What an import says that must fail, and that it leaves nothing.
fn refused(host: &Host, from: &Path) -> String {
    let output = host.output(&["container", "import", from.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{said}");
    let listed = host.json(0, "container list");
    assert!(rows(&listed, "items").is_empty(), "{listed}");
    assert_eq!(host.images(), 0);
    said
}

fn tar(words: &[&str]) {
    let output = Command::new("tar").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
}

#[test]
fn an_export_that_leads_elsewhere_is_refused_and_leaves_nothing() {
    let (Some(host), Some(other)) = (Host::new(), Dockerd::start()) else {
        return;
    };
    let other = Host::with(Session::new(), other);
    let (from, id) = exported(&host);
    let path = from.join(format!("metadata/{id}.json"));
    let sound = read(&path);
    let attempt = |change: &dyn Fn(&mut Value)| {
        let mut changed = sound.clone();
        change(&mut changed);
        std::fs::write(&path, serde_json::to_vec(&changed).unwrap()).unwrap();
        refused(&other, &from)
    };
    let volume = sound["manifest"]["volumes"][0]["path"].clone();
    let file = sound["archives"][volume.as_str().unwrap()].clone();
    // A volume in another one, and above all of them.
    for place in [
        "volumes/data/inner",
        "volumes/../../up",
        "elsewhere/data",
        "volumes/",
    ] {
        let said = attempt(&|metadata| {
            metadata["manifest"]["volumes"][0]["path"] = place.into();
            metadata["archives"][place] = file.clone();
            let measured = metadata["volume_manifests"][volume.as_str().unwrap()].clone();
            metadata["volume_manifests"][place] = measured;
        });
        assert!(said.contains("where it is not"), "{place}: {said}");
    }
    for file in ["../metadata/x", "/etc/passwd", ".hidden"] {
        let said = attempt(&|metadata| {
            metadata["archives"][volume.as_str().unwrap()] = file.into();
        });
        assert!(said.contains("where it is not"), "{file}: {said}");
    }
    let said = attempt(&|metadata| {
        let again = metadata["manifest"]["volumes"][0]["path"].clone();
        metadata["manifest"]["volumes"][1]["path"] = again;
    });
    assert!(said.contains("two things of one volume"), "{said}");
    let said = attempt(&|metadata| metadata["manifest"]["image"]["name"] = IMAGE.into());
    assert!(said.contains("image of another one"), "{said}");
    // Files that are not what was exported.
    let archive = from.join(format!("volumes/{}", file.as_str().unwrap()));
    std::fs::write(&path, serde_json::to_vec(&sound).unwrap()).unwrap();
    let whole = std::fs::read(&archive).unwrap();
    let mut bent = whole.clone();
    let at = bent.windows(2).position(|two| two == b"x\n").unwrap();
    bent[at] = b'y';
    std::fs::write(&archive, &bent).unwrap();
    let said = refused(&other, &from);
    assert!(said.contains("not what it was"), "{said}");
    std::fs::write(&archive, &whole).unwrap();
    other.json(0, &format!("container import {}", from.display()));
    other.json(0, "container restore latest web --name web");
    assert_eq!(other.sh("web", "cat /data/x"), "x");
}

#[test]
fn an_image_of_an_export_gets_no_other_name_on_the_engine() {
    let (Some(host), Some(other)) = (Host::new(), Dockerd::start()) else {
        return;
    };
    let other = Host::with(Session::new(), other);
    let (from, id) = exported(&host);
    let image = from.join(format!("images/{id}.tar"));
    let image = image.to_str().unwrap();
    let sound = std::fs::read(image).unwrap();
    let known = other.inspect(IMAGE, "{{.Id}}");
    let name = format!("stasis-snapshot:{id}");

    // The name of an image that the other engine has.
    host.daemon.must(&["tag", &name, "taken:1"]);
    host.daemon.must(&["save", "-o", image, &name, "taken:1"]);
    assert!(refused(&other, &from).contains("other names"));
    host.daemon.must(&["tag", &name, IMAGE]);
    host.daemon.must(&["save", "-o", image, IMAGE]);
    assert!(refused(&other, &from).contains("other names"));
    // The last of two documents counts for an engine, and the first for a reader.
    std::fs::write(image, &sound).unwrap();
    let place = host.session.home().join("second");
    std::fs::create_dir_all(&place).unwrap();
    tar(&["-xf", image, "-C", place.to_str().unwrap(), "manifest.json"]);
    let mut manifest = read(&place.join("manifest.json"));
    manifest[0]["RepoTags"] = json!([IMAGE]);
    std::fs::write(place.join("manifest.json"), manifest.to_string()).unwrap();
    tar(&["-rf", image, "-C", place.to_str().unwrap(), "manifest.json"]);
    let said = refused(&other, &from);
    assert!(said.contains("twice"), "{said}");

    assert_eq!(other.inspect(IMAGE, "{{.Id}}"), known);
    assert!(
        !other
            .daemon
            .docker(&["inspect", "taken:1"])
            .status
            .success()
    );
}

#[test]
fn the_image_of_an_import_goes_once_nothing_uses_it() {
    let (Some(host), Some(other)) = (Host::new(), Dockerd::start()) else {
        return;
    };
    let other = Host::with(Session::new(), other);
    let (from, _) = exported(&host);
    other.json(0, &format!("container import {}", from.display()));
    other.json(0, "container restore latest web --name copy");

    let deleted = other.json(0, "container delete latest web --yes");

    assert_eq!(rows(&deleted, "images_kept").len(), 1, "{deleted}");
    let cleaned = other.json(0, "container cleanup");
    assert_eq!(rows(&cleaned, "images_in_use").len(), 1, "{cleaned}");
    other.daemon.must(&["rm", "-f", "copy"]);
    let cleaned = other.json(0, "container cleanup");
    assert_eq!(rows(&cleaned, "images").len(), 1, "{cleaned}");
    assert_eq!(other.images(), 0);
    let cleaned = other.json(0, "container cleanup");
    assert!(rows(&cleaned, "images").is_empty(), "{cleaned}");
}

#[test]
fn what_an_import_into_another_store_left_is_none_of_our_business() {
    let (Some(host), Some(other)) = (Host::new(), Dockerd::start()) else {
        return;
    };
    let other = Host::with(Session::new(), other);
    let (from, _) = exported(&host);
    let imported = other.json(0, &format!("container import {}", from.display()));
    let id = text(&imported, "snapshot_id");
    let place = other.session.home().join("state/stasis/containers");
    let names = std::fs::read_dir(&place).unwrap();
    let mut paths = names.map(|entry| entry.unwrap().path());
    let lock = paths.find(|path| path.extension().is_some_and(|ending| ending == "lock"));
    let subject = lock.unwrap();
    let subject = subject.file_stem().unwrap().to_str().unwrap();
    let (_, digits) = subject.rsplit_once('.').unwrap();
    // An import whose end nobody saw.
    let op_id = "11111111-1111-4111-8111-111111111111";
    let record = |store: &str| {
        let import =
            json!({"store": store, "tenant": "default", "subject": subject, "snapshot_id": id});
        let begun = json!({"op_id": op_id, "container_name": "web", "import": import});
        let path = place.join(format!("{op_id}.{digits}.restore.json"));
        std::fs::write(&path, begun.to_string()).unwrap();
        path
    };
    let second = other.session.home().join("second");
    let second = format!("--store {} container cleanup", second.display());
    let store = other.session.home().join("data/stasis/store");
    let path = record(&format!("file:{}", store.display()));
    let first = std::fs::read_to_string(&path).unwrap();

    other.json(0, &second);

    assert_eq!(other.images(), 1, "{first}");
    other.json(0, "container restore latest web --name web");
}

#[test]
fn a_directory_of_somebody_else_is_not_exported_into() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    host.json(0, "container create web");
    let to = host.session.home().join("compose");
    std::fs::create_dir_all(to.join("volumes")).unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(to.join("volumes"), open).unwrap();
    let words = format!(
        "container export latest {} --of web --layout seed",
        to.display()
    );

    host.json(2, &words);

    let mode = std::fs::metadata(to.join("volumes")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 1);
}

#[test]
fn exports_into_one_directory_at_once_are_all_in_its_index() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    let mut ids = Vec::new();
    for _ in 0..6 {
        let saved = host.json(0, "container create web");
        ids.push(text(&saved, "snapshot_id").to_owned());
    }
    let to = host.session.home().join("snapshots");
    let place = to.display().to_string();
    let began = |id: &String| -> Child {
        let export = ["container", "export", id, &place, "--layout", "seed"];
        let mut command = host.command(&export);
        command.stdout(Stdio::null()).spawn().unwrap()
    };

    for mut child in ids.iter().map(began).collect::<Vec<Child>>() {
        assert!(child.wait().unwrap().success());
    }

    let index = read(&to.join("index.json"));
    let mut listed: Vec<&str> = rows(&index, "snapshots")
        .iter()
        .map(|one| text(one, "snapshot_id"))
        .collect();
    listed.sort_unstable();
    ids.sort_unstable();
    assert_eq!(listed, ids);
    // Nothing else is left in it.
    let mut names: Vec<String> = std::fs::read_dir(&to)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["environment", "index.json", "metadata", "volumes"]);
}

#[test]
fn a_container_goes_through_a_bucket_from_one_engine_to_another() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let (Some(one), Some(two)) = (Dockerd::start(), Dockerd::start()) else {
        return;
    };
    let store = store.replace("/test?", &format!("/containers-{}?", std::process::id()));
    let one = Host::with(Session::on(&store), one);
    let two = Host::with(Session::on(&store), two);
    one.start("web", "-v data:/data -e TOKEN=s3cret", "echo x > /data/x");
    one.sh("web", "echo own > /own");

    one.json(0, "container create web --portable");
    let restored = two.json(0, "container restore latest web --name web");

    assert_eq!(text(&restored, "container_name"), "web");
    assert_eq!(
        two.sh("web", "cat /data/x /own; echo $TOKEN"),
        "x\nown\ns3cret"
    );
    one.json(0, "container delete latest web --yes");
    one.json(0, "container cleanup");
    let listed = two.json(0, "container list");
    assert!(rows(&listed, "items").is_empty(), "{listed}");
    assert_eq!(one.images(), 0);
}
