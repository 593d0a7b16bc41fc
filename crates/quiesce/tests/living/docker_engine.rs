//! Every operation of the Docker arm, with a real engine.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use stasis_model::failure::{ErrorKind, Failure, Kinded};
use stasis_quiesce::docker::{
    ApiVersion, ContainerCommit, ContainerCreation, ContainerFileChangeKind, ContainerHealth,
    ContainerMountKind, ContainerStatus, Docker, DockerLimits, DockerStream, FlattenScratch,
    VolumeCreation, VolumeRemoval,
};
use stasis_testkit::docker::{Dockerd, IMAGE};
use stasis_testkit::fake_docker::{FakeDocker, FakePause};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

const LABEL: &str = "stasis.test";

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([(LABEL.to_owned(), "a \"b\" $c\\".to_owned())])
}

fn commit(tag: &str) -> ContainerCommit {
    ContainerCommit {
        repository: "stasis-snapshot".to_owned(),
        tag: tag.to_owned(),
        labels: labels(),
        comment: "a test".to_owned(),
    }
}

fn scratch() -> FlattenScratch {
    FlattenScratch {
        tag: "files".to_owned(),
        helper_labels: labels(),
    }
}

/// A container that sleeps, with some options of `docker run`.
fn run(daemon: &Dockerd, name: &str, options: &[&str]) {
    let how = ["run", "-d", "--network", "none", "--name", name];
    daemon.must(&[&how, options, &[IMAGE, "/bin/sleep", "1000"]].concat());
}

async fn gather(stream: DockerStream) -> Vec<u8> {
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    pieces.concat()
}

/// A tar archive of one file, by the program.
fn tar_of(name: &str, content: &str) -> Vec<u8> {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(name), content).unwrap();
    let mut tar = std::process::Command::new("tar");
    let tar = tar.arg("-C").arg(home.path()).args(["-c", name]);
    tar.output().unwrap().stdout
}

/// In small pieces.
fn pieces(bytes: &[u8]) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + use<> {
    let pieces: Vec<_> = bytes.chunks(700).map(Bytes::copy_from_slice).collect();
    stream::iter(pieces.into_iter().map(Ok))
}

#[tokio::test]
async fn an_engine_is_described() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());

    let engine = docker.engine().await.unwrap();

    assert_eq!(engine.root, daemon.home().join("data"));
    assert!(engine.local && !engine.id.is_empty() && !engine.storage_driver.is_empty());
    assert!(engine.version.starts_with(char::is_numeric) && engine.api.starts_with("1."));
    assert_eq!(docker.api().await.unwrap().to_string(), engine.api);
}

#[tokio::test]
async fn a_container_is_described_with_its_mounts() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    let bind = format!("{}:/host:ro", daemon.home().display());
    let options = "-e SECRET=x=y -v vol:/data -v /anon --tmpfs /mem:ro --label stasis.test=1 --memory 64m \
                   --cap-add NET_ADMIN -w /data --restart on-failure:3 --stop-signal SIGINT -v";
    let options: Vec<&str> = options.split_whitespace().chain([bind.as_str()]).collect();
    run(&daemon, "web", &options);
    daemon.must(&["create", "--name", "fresh", IMAGE, "/bin/sh"]);

    let web = docker.container("web").await.unwrap().unwrap();
    let by_id = docker.container(&web.id[..12]).await.unwrap().unwrap();
    let fresh = docker.container("fresh").await.unwrap().unwrap();
    let listed = docker.containers_labelled("stasis.test=1").await.unwrap();

    assert_eq!(
        (web.name.as_str(), &web.status),
        ("web", &ContainerStatus::Running)
    );
    assert!(web.pid.is_some() && web.image == IMAGE && web.image_id.starts_with("sha256:"));
    assert_eq!(by_id, web);
    assert_eq!(web.config["Env"], json!(["SECRET=x=y"]));
    assert_eq!(web.config["StopSignal"], "SIGINT");
    assert_eq!(web.host_config["Memory"], 64 << 20);
    assert_eq!(web.host_config["RestartPolicy"]["MaximumRetryCount"], 3);
    assert!(web.networks.get("none").is_some());
    let mounts: Vec<_> = web
        .mounts
        .iter()
        .map(|mount| (mount.destination.as_str(), mount.kind, mount.writable))
        .collect();
    let expected = [
        ("/anon", ContainerMountKind::AnonymousVolume, true),
        ("/data", ContainerMountKind::NamedVolume, true),
        ("/host", ContainerMountKind::Bind, false),
        ("/mem", ContainerMountKind::Tmpfs, false),
    ];
    assert_eq!(mounts, expected);
    assert_eq!(fresh.status, ContainerStatus::Created);
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].id.as_str(), listed[0].name.as_str()),
        (web.id.as_str(), "web")
    );
    assert_eq!(docker.container("nobody").await.unwrap(), None);
    let written = serde_json::to_string(&web).unwrap();
    assert_eq!(
        serde_json::from_str::<stasis_quiesce::docker::ContainerFacts>(&written).unwrap(),
        web
    );
}

#[tokio::test]
async fn a_container_is_committed_while_it_is_paused_and_made_again_with_the_lowest_api() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host()).with_api(ApiVersion::LOWEST);
    run(
        &daemon,
        "web",
        &["-e", "A=1", "-v", "vol:/data", "--stop-signal", "SIGINT"],
    );
    daemon.must(&[
        "exec",
        "web",
        "/bin/sh",
        "-c",
        "echo kept > /file; echo v > /data/v",
    ]);
    daemon.must(&["pause", "web"]);

    let changes = docker.changes("web").await.unwrap();
    let image = docker.commit("web", &commit("one")).await.unwrap();
    daemon.must(&["unpause", "web"]);
    let web = docker.container("web").await.unwrap().unwrap();
    let mut again = ContainerCreation::like(&web, "web-2");
    again.overrides.image = Some(image.clone());
    again.overrides.environment.insert("A".into(), "2".into());
    again
        .overrides
        .volumes
        .insert("/data".into(), "vol-2".into());
    let id = docker.create_container(&again).await.unwrap();
    docker.start_container(&id).await.unwrap();
    docker.start_container(&id).await.unwrap();
    let made = docker.container(&id).await.unwrap().unwrap();
    let conflict = docker.create_container(&again).await.unwrap_err();

    assert!(
        changes
            .iter()
            .any(|change| change.path == "/file" && change.kind == ContainerFileChangeKind::Added)
    );
    let described = docker.image("stasis-snapshot:one").await.unwrap().unwrap();
    assert_eq!(described.id, image);
    assert_eq!(described.labels, labels());
    assert_eq!(described.config["StopSignal"], "SIGINT");
    assert_eq!(described.layers.len(), 2);
    assert!(described.size_bytes > 1_000_000 && described.platform.starts_with("linux/"));
    assert_eq!(daemon.must(&["exec", "web-2", "/bin/cat", "/file"]), "kept");
    assert_eq!(
        daemon.must(&["exec", "web-2", "/bin/sh", "-c", "echo $A"]),
        "2"
    );
    assert!(
        !daemon
            .docker(&["exec", "web-2", "/bin/cat", "/data/v"])
            .status
            .success()
    );
    assert_eq!(made.config["Hostname"].as_str(), Some(&made.id[..12]));
    assert_eq!(conflict.kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn containers_are_stopped_renamed_and_removed_and_their_volumes_stay() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    run(&daemon, "web", &["-v", "vol:/data", "-v", "/anon"]);
    run(&daemon, "other", &["-v", "/anon"]);

    let runs = docker
        .remove_container("web", VolumeRemoval::Keep)
        .await
        .unwrap_err();
    docker
        .stop_container("web", Duration::from_secs(1))
        .await
        .unwrap();
    docker
        .stop_container("web", Duration::from_secs(1))
        .await
        .unwrap();
    docker
        .stop_container("other", Duration::from_secs(1))
        .await
        .unwrap();
    let taken = docker.rename_container("web", "other").await.unwrap_err();
    docker.rename_container("web", "web-old").await.unwrap();
    let stopped = docker.container("web-old").await.unwrap().unwrap();
    let removed = docker
        .remove_container("web-old", VolumeRemoval::Keep)
        .await
        .unwrap();
    let again = docker
        .remove_container("web-old", VolumeRemoval::Keep)
        .await
        .unwrap();
    let before = daemon.must(&["volume", "ls", "-q"]).lines().count();
    docker
        .remove_container("other", VolumeRemoval::Anonymous)
        .await
        .unwrap();
    let after = daemon.must(&["volume", "ls", "-q"]).lines().count();

    assert_eq!(runs.kind(), ErrorKind::Conflict);
    assert_eq!(taken.kind(), ErrorKind::Conflict);
    assert_eq!(stopped.status, ContainerStatus::Exited);
    assert!(stopped.exit_code.is_some() && stopped.pid.is_none());
    assert!(removed && !again);
    assert_eq!((before, after), (3, 2));
    let gone = docker.start_container("web-old").await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_container_is_healthy_by_its_own_check_or_when_it_keeps_running() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    let check = ["--health-interval", "0.2s", "--health-retries", "1"];
    let with = |command| [&check[..], &["--health-cmd", command]].concat();
    run(&daemon, "good", &with("true"));
    run(&daemon, "bad", &with("echo broken; false"));
    run(&daemon, "plain", &[]);
    daemon.must(&[
        "run",
        "-d",
        "--network",
        "none",
        "--name",
        "short",
        IMAGE,
        "/bin/sh",
        "-c",
        "exit 3",
    ]);
    let health = ContainerHealth {
        running_for: Duration::from_millis(500),
        ..ContainerHealth::default()
    };

    docker.wait_healthy("good", &health).await.unwrap();
    docker.wait_healthy("plain", &health).await.unwrap();
    let bad = docker.wait_healthy("bad", &health).await.unwrap_err();
    let short = docker.wait_healthy("short", &health).await.unwrap_err();

    let why = |failure: &Failure| stasis_model::failure::error_chain(failure);
    assert!(why(&bad).contains("broken"), "{}", why(&bad));
    assert!(why(&short).contains("exit code 3"), "{}", why(&short));
    assert_eq!(bad.kind(), ErrorKind::Failed);
}

#[tokio::test]
async fn a_volume_is_made_filled_and_read_through_a_container_that_is_never_started() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    let mut wanted = VolumeCreation::new("vol");
    wanted.labels = labels();
    let made = docker.create_volume(&wanted).await.unwrap();
    let mut helper = ContainerCreation::from_image("helper", IMAGE);
    helper.config["Cmd"] = json!(["none"]);
    helper.overrides.volumes.insert("/vol".into(), "vol".into());
    let helper = docker.create_container(&helper).await.unwrap();
    let content = "x".repeat(3 << 20);

    docker
        .write_archive(&helper, "/vol", pieces(&tar_of("notes", &content)))
        .await
        .unwrap();
    let read = gather(docker.read_archive(&helper, "/vol/.").await.unwrap()).await;
    let absent = docker
        .read_archive(&helper, "/nowhere")
        .await
        .err()
        .unwrap();
    let nowhere = docker
        .write_archive(&helper, "/nowhere", pieces(&tar_of("n", "")))
        .await
        .unwrap_err();
    let broken = stream::iter([
        Ok(Bytes::from_static(b"half")),
        Err(io::Error::from_raw_os_error(5)),
    ]);
    let broken = docker
        .write_archive(&helper, "/vol", broken)
        .await
        .unwrap_err();

    assert_eq!(
        std::fs::read_to_string(made.mountpoint.join("notes")).unwrap(),
        content
    );
    assert!(read.len() > content.len() && read.windows(7).any(|part| part == b"./notes"));
    assert_eq!(absent.kind(), ErrorKind::NotFound);
    assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    assert!(
        stasis_model::failure::error_chain(&broken).contains("os error 5"),
        "{broken:?}"
    );
    assert_eq!(
        (made.driver.as_str(), &made.labels),
        ("local", &wanted.labels)
    );
    assert_eq!(docker.volume("vol").await.unwrap().unwrap(), made);
    assert_eq!(docker.volumes_labelled(LABEL).await.unwrap(), [made]);
    assert_eq!(docker.volume("none").await.unwrap(), None);
    let used = docker.remove_volume("vol").await.unwrap_err();
    assert_eq!(used.kind(), ErrorKind::Conflict);
    docker
        .remove_container(&helper, VolumeRemoval::Keep)
        .await
        .unwrap();
    assert!(docker.remove_volume("vol").await.unwrap());
    assert!(!docker.remove_volume("vol").await.unwrap());
}

#[tokio::test]
async fn an_image_is_saved_removed_and_loaded() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    let options = [
        "-e",
        "A=b c",
        "-w",
        "/tmp",
        "--label",
        "x=1",
        "--health-cmd",
        "true",
        "--expose",
        "80",
    ];
    run(&daemon, "web", &options);
    daemon.must(&[
        "exec",
        "web",
        "/bin/sh",
        "-c",
        "echo kept > /file; ln -s /file /link",
    ]);
    let image = docker.commit("web", &commit("one")).await.unwrap();
    docker.tag_image(&image, "second", "name").await.unwrap();

    let several = docker.remove_image(&image).await.unwrap_err();
    let saved = gather(docker.save_image("stasis-snapshot:one").await.unwrap()).await;
    assert!(docker.remove_image("second:name").await.unwrap());
    assert!(docker.remove_image("stasis-snapshot:one").await.unwrap());
    assert!(!docker.remove_image("stasis-snapshot:one").await.unwrap());
    let absent = docker
        .save_image("stasis-snapshot:one")
        .await
        .err()
        .unwrap();
    let loaded = docker.load_image(pieces(&saved)).await.unwrap();
    let damaged = docker.load_image(pieces(&b"no archive".repeat(200))).await;

    assert_eq!(several.kind(), ErrorKind::Conflict);
    assert_eq!(absent.kind(), ErrorKind::NotFound);
    assert_eq!(loaded, ["stasis-snapshot:one"]);
    assert!(damaged.is_err());
    let layered = docker.image("stasis-snapshot:one").await.unwrap().unwrap();
    assert_eq!(layered.id, image);
    assert_eq!(layered.layers.len(), 2);
}

#[tokio::test]
async fn an_image_is_flattened_with_its_configuration() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    let options = "-e A=b_c -w /tmp --label x=1 --health-cmd true --expose 80 -v /anon";
    let options: Vec<&str> = options.split_whitespace().collect();
    run(&daemon, "web", &options);
    let script = "echo kept > /file; ln -s /file /link";
    daemon.must(&["exec", "web", "/bin/sh", "-c", script]);
    docker.commit("web", &commit("one")).await.unwrap();
    let volumes = daemon.must(&["volume", "ls", "-q"]);

    daemon.must(&["pause", "web"]);
    let flat = docker
        .flatten("web", None, &commit("flat"), &scratch())
        .await
        .unwrap();
    daemon.must(&["unpause", "web"]);

    let layered = docker.image("stasis-snapshot:one").await.unwrap().unwrap();
    let flat = docker.image(&flat).await.unwrap().unwrap();
    assert_eq!(daemon.must(&["volume", "ls", "-q"]), volumes);
    assert_eq!((layered.layers.len(), flat.layers.len()), (2, 1));
    assert_ne!(layered.layers[0], flat.layers[0]);
    assert_eq!(flat.config, layered.config);
    assert_eq!(flat.tags, ["stasis-snapshot:flat"]);
    let run = ["run", "--rm", "--network", "none", "stasis-snapshot:flat"];
    let shown = daemon.must(&[&run[..], &["/bin/sh", "-c", "cat /link; echo $A"]].concat());
    assert_eq!(shown, "kept\nb_c");
    let listed = docker.images_labelled(LABEL).await.unwrap();
    assert!(
        listed
            .iter()
            .any(|listed| listed.tags == ["stasis-snapshot:flat"])
    );
    assert_eq!(
        docker.containers_labelled(LABEL).await.unwrap(),
        [],
        "no litter"
    );
}

#[tokio::test]
async fn networks_are_found_and_made_and_a_container_is_in_all_of_its_own() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    docker.create_network("front", &labels()).await.unwrap();
    docker.create_network("back", &labels()).await.unwrap();
    let mut wanted = ContainerCreation::from_image("web", IMAGE);
    wanted.config["Cmd"] = json!(["/bin/sleep", "1000"]);
    wanted.host_config["NetworkMode"] = json!("front");
    wanted.networks = json!({"front": {"Aliases": ["shop"]}, "back": {}});

    let id = docker.create_container(&wanted).await.unwrap();
    let made = docker.container(&id).await.unwrap().unwrap();
    wanted.name = "lost".to_owned();
    wanted.networks["nowhere"] = json!({});
    let lost = docker.create_container(&wanted).await.unwrap_err();

    assert!(docker.has_network("front").await.unwrap());
    assert!(!docker.has_network("nowhere").await.unwrap());
    let networks = made.networks.as_object().unwrap();
    assert_eq!(
        networks.keys().map(String::as_str).collect::<Vec<_>>(),
        ["back", "front"]
    );
    assert_eq!(networks["front"]["Aliases"][0], "shop");
    assert_eq!(lost.kind(), ErrorKind::NotFound);
    assert_eq!(
        docker.container("lost").await.unwrap(),
        None,
        "nothing is made"
    );
}

#[tokio::test]
async fn a_daemon_is_reached_over_tcp() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let host = format!("tcp://{address}");
    let options = ["--host", &host, "--tls=false"];
    let Some(_daemon) = Dockerd::start_with(&options) else {
        return;
    };

    let engine = Docker::at(host).engine().await.unwrap();

    assert!(!engine.local, "what is at a port may be anywhere");
}

#[tokio::test]
async fn an_absent_daemon_and_one_that_hangs_are_unreachable_in_time() {
    let home = tempfile::tempdir().unwrap();
    let limits = DockerLimits {
        reply: Duration::from_millis(300),
        work: Duration::from_mins(1),
    };
    let absent = Docker::at(format!("unix://{}/none", home.path().display()));
    let refusing = Docker::at("tcp://127.0.0.1:1");
    let hung = FakeDocker::hung();
    let hung = Docker::at(hung.host()).with_limits(limits);
    let began = Instant::now();

    let failures = [
        absent.container("web").await.unwrap_err(),
        absent.commit("web", &commit("x")).await.unwrap_err(),
        refusing.ping().await.unwrap_err(),
        hung.container("web").await.unwrap_err(),
        hung.commit("web", &commit("x")).await.unwrap_err(),
        hung.read_archive("web", "/").await.err().unwrap(),
        hung.clone()
            .with_api(ApiVersion::LOWEST)
            .commit("web", &commit("x"))
            .await
            .unwrap_err(),
    ];

    for failure in &failures {
        assert_eq!(failure.kind(), ErrorKind::Unreachable, "{failure:?}");
        assert!(failure.hint().is_some(), "{failure:?}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_daemon_that_begins_to_hang_in_the_middle_of_a_stream_is_given_up() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let limits = DockerLimits {
        reply: Duration::from_millis(500),
        work: Duration::from_mins(1),
    };
    let docker = Docker::at(daemon.host());
    run(&daemon, "web", &[]);
    daemon.must(&[
        "exec",
        "web",
        "/bin/dd",
        "if=/dev/zero",
        "of=/big",
        "bs=1M",
        "count=64",
    ]);
    docker.ping().await.unwrap();
    let docker = docker.with_limits(limits);
    let mut files = docker.read_archive("web", "/big").await.unwrap();

    daemon.hang(true);
    let began = Instant::now();
    let mut last = Ok(Bytes::new());
    while let Some(piece) = files.next().await {
        last = piece;
    }
    daemon.hang(false);
    drop(files);
    // The connection is closed by the runtime, not by us: the daemon holds the container until then.
    tokio::time::sleep(Duration::from_millis(50)).await;

    assert_eq!(Kinded::kind(&last.unwrap_err()), ErrorKind::Unreachable);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn the_version_of_the_api_is_part_of_every_request() {
    let daemon = FakeDocker::start(FakePause::Refused(500, ""));
    let docker = Docker::at(daemon.host());

    let forced = docker.clone().with_api(ApiVersion::LOWEST);
    forced.container("box").await.unwrap();
    let strange = docker.container("box").await.unwrap_err();

    assert_eq!(
        daemon.asked(),
        ["GET /v1.41/containers/box/json", "GET /version"]
    );
    // It names no version, as no Docker daemon does.
    assert_eq!(strange.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_daemon_that_is_killed_in_the_middle_of_a_commit_leaves_a_whole_image_or_none() {
    // The next daemon would wait for the end of the container otherwise.
    let Some(mut daemon) = Dockerd::start_with(&["--live-restore"]) else {
        return;
    };
    let docker = Docker::at(daemon.host());
    run(&daemon, "web", &[]);
    let big = ["if=/dev/urandom", "of=/big", "bs=1M", "count=192"];
    daemon.must(&[&["exec", "web", "/bin/dd"], &big[..]].concat());
    let committing = docker.clone();
    let committing = tokio::spawn(async move { committing.commit("web", &commit("one")).await });

    tokio::time::sleep(Duration::from_millis(200)).await;
    daemon.kill();
    let committed = committing.await.unwrap();
    daemon.run().unwrap();

    let image = docker.image("stasis-snapshot:one").await.unwrap();
    match committed {
        Ok(id) => assert_eq!(image.unwrap().id, id),
        Err(failure) => {
            assert_eq!(failure.kind(), ErrorKind::Unreachable, "{failure:?}");
            assert_eq!(image, None);
        }
    }
}

/// The most memory that this process ever had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1);
    number.unwrap().parse().unwrap()
}

#[tokio::test]
async fn files_go_from_one_container_into_another_without_being_held_in_memory() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let docker = Docker::at(daemon.host());
    run(&daemon, "web", &[]);
    daemon.must(&["create", "--name", "copy", IMAGE, "/bin/sh"]);
    let script = "dd if=/dev/zero of=/big bs=1M count=192; echo end >> /big; sha256sum /big";
    let wanted = daemon.must(&["exec", "web", "/bin/sh", "-c", script]);
    let before = peak();

    let files = docker.read_archive("web", "/big").await.unwrap();
    docker.write_archive("copy", "/", files).await.unwrap();

    let grown = peak() - before;
    assert!(grown < 48 << 10, "{grown} KiB");
    docker.commit("copy", &commit("copy")).await.unwrap();
    let run = ["run", "--rm", "--network", "none", "stasis-snapshot:copy"];
    let found = daemon.must(&[&run[..], &["/bin/sha256sum", "/big"]].concat());
    assert_eq!(found, wanted);
}

#[test]
fn calls_may_be_made_from_any_thread() {
    fn sent<T: Send>(future: T) {
        drop(future);
    }
    let docker = Docker::default();
    sent(docker.container("web"));
    sent(docker.commit("web", &commit("x")));
    sent(docker.read_archive("web", "/"));
    sent(docker.write_archive("web", "/", pieces(b"")));
    sent(docker.flatten("web", None, &commit("x"), &scratch()));
    sent(docker.create_container(&ContainerCreation::from_image("", "x")));
    sent(docker.wait_healthy("web", &ContainerHealth::default()));
}
