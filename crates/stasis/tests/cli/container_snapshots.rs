//! Snapshots of containers, with a real Docker engine: what is saved comes back, and what is there is left alone.

use crate::container_host::{Host, ODD, REPLACE, rows, text};
use crate::session::Session;
use serde_json::Value;
use stasis_testkit::docker::{Dockerd, IMAGE};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

#[test]
fn a_container_comes_back_with_its_volumes_and_its_own_files() {
    let Some(host) = Host::new() else {
        return;
    };
    let id = host.start("web", "-v data:/data -v more:/more", ODD);
    host.sh("web", "echo own > /own");
    let before = (host.tree("web", "/data"), host.tree("web", "/more"));

    let saved = host.json(0, &format!("container create {} --label k=v", &id[..12]));
    assert_eq!(rows(&saved, "volumes").len(), 2);
    assert_eq!(host.status("web"), "running");
    // What happens afterwards is in no snapshot.
    host.sh("web", "rm -rf /data/a; echo later > /more/file; rm /own");
    let live = host.tree("web", "/data");
    let restored = host.json(0, "container restore k=v");

    let name = text(&restored, "container_name");
    assert!(name.starts_with("web_restored_"), "{name}");
    assert_eq!((host.tree(name, "/data"), host.tree(name, "/more")), before);
    assert_eq!(
        host.tree("web", "/data"),
        live,
        "the live one is not touched"
    );
    assert_eq!(host.sh(name, "cat /own"), "own");
    let shown = host.json(0, "show container:web");
    assert_eq!(shown["restorations"][0]["container_name"], name);
    // Its volumes are files like any others.
    let listed = host.json(0, "ls container:web --path volumes/more");
    assert!(listed.to_string().contains("volumes/more/file"), "{listed}");
    let changed = host.json(0, "diff container:web");
    let own = changed["image"].to_string();
    assert!(own.contains("\"/own\"") && own.contains("deleted"), "{own}");
    assert_eq!(rows(&changed, "image").len(), 1, "{own}");
    let paths: Vec<&str> = rows(&changed, "volumes")
        .iter()
        .map(|one| text(one, "path"))
        .collect();
    assert!(
        paths.contains(&"a/b/f") && paths.contains(&"file"),
        "{paths:?}"
    );
    host.json(0, "check container:web");
}

#[test]
fn settings_and_the_environment_come_back_and_values_are_not_shown() {
    let Some(host) = Host::new() else {
        return;
    };
    let options = "-e TOKEN=s3cret -e EMPTY= -u 0:0 -w /bin -p 127.0.0.1:18080:80 --restart on-failure:3 \
                   --memory 64m --cap-drop NET_RAW -l app=shop --stop-signal SIGINT";
    let options = options.split_whitespace().collect::<Vec<_>>().join(" ");
    host.start("web", &options, "true");
    let saved = host.json(0, "container create web --trigger run_start --run-id r-7");
    let snapshot = text(&saved, "snapshot_id").to_owned();

    // Its port is taken by the one that runs.
    let taken = host.json(4, "container restore latest web");
    assert!(
        text(&taken["error"], "message").contains("18080"),
        "{taken}"
    );
    let restored = host.json(0, "container restore latest web --port auto --env MORE=1");

    let name = text(&restored, "container_name");
    assert_eq!(host.sh(name, "echo $TOKEN $MORE"), "s3cret 1");
    for what in [
        "{{json .Config.Cmd}} {{.Config.User}} {{.Config.WorkingDir}} {{.Config.StopSignal}}",
        "{{json .HostConfig.RestartPolicy}} {{.HostConfig.Memory}} {{json .HostConfig.CapDrop}}",
        "{{index .Config.Labels \"app\"}}",
    ] {
        assert_eq!(host.inspect(name, what), host.inspect("web", what));
    }
    let label = "{{index .Config.Labels \"stasis.restored-from\"}}";
    assert_eq!(host.inspect(name, label), snapshot);
    let shown = host.json(0, "container show latest web");
    assert_eq!(
        (text(&shown, "trigger"), text(&shown, "run_id")),
        ("run_start", "r-7")
    );
    assert!(!shown.to_string().contains("s3cret"), "values are masked");
    assert!(shown["config"]["Env"].to_string().contains("TOKEN=****"));
}

#[test]
fn a_replaced_container_is_what_it_was_and_an_undo_takes_it_back() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start(
        "web",
        "-v data:/data",
        "echo one > /data/n; echo one > /own",
    );
    host.json(0, "container create web");
    host.sh(
        "web",
        "echo two > /data/n; echo extra > /data/extra; echo two > /own",
    );

    let restored = host.json(0, &format!("container restore latest web {REPLACE}"));

    assert_eq!(host.sh("web", "cat /data/* /own"), "one\none");
    assert_eq!(restored["volumes"][0]["name"], "data");
    assert_eq!(host.lines("ps -aq").len(), 1, "the other one is gone");
    // The obvious next command takes it back, and runs it.
    let undone = host.json(0, "undo container:web --yes");
    assert_eq!(undone["snapshot_id"], restored["safety_snapshot_id"]);
    assert_eq!(
        host.sh("web", "cat /data/extra /data/n /own"),
        "extra\ntwo\ntwo"
    );
    assert_eq!(host.status("web"), "running");
}

#[test]
fn a_container_whose_replacement_does_not_work_is_back() {
    let Some(host) = Host::new() else {
        return;
    };
    let script = "test -e /data/good || exit 3; sleep 1000";
    let run = [
        "run",
        "-d",
        "--network",
        "none",
        "--name",
        "web",
        "-v",
        "data:/data",
    ];
    host.daemon
        .must(&[&run[..], &[IMAGE, "/bin/sh", "-c", script]].concat());
    host.daemon.must(&["wait", "web"]);
    host.json(0, "container create web");
    host.daemon.must(&["rm", "web"]);
    let id = host.start(
        "web",
        "-v data:/data",
        "echo yes > /data/good; echo own > /own",
    );
    // It was saved when it had ended: it is started to see that.
    let exited = host.json(0, &format!("container restore latest web {REPLACE}"));
    assert_eq!(exited["started"], false);
    host.json(0, "undo container:web --yes");
    assert_eq!(host.sh("web", "cat /data/good /own"), "yes\nown");
    let back = host.inspect("web", "{{.Id}}");
    assert_ne!(back, id.trim(), "it was made anew of the safety snapshot");
}

#[test]
fn a_volume_that_the_container_has_no_more_is_not_overwritten() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v old:/data", "echo saved > /data/x");
    host.json(0, "container create web");
    host.sh("web", "echo precious > /data/x");
    host.daemon.must(&["rm", "-f", "web"]);
    host.start("web", "-v new:/data", "true");

    let refused = host.json(4, &format!("container restore latest web {REPLACE}"));

    assert!(
        text(&refused["error"], "message").contains("`old`"),
        "{refused}"
    );
    assert_eq!(host.status("web"), "running");
    host.start("look", "-v old:/data", "true");
    assert_eq!(host.sh("look", "cat /data/x"), "precious");
}

#[test]
fn a_container_whose_replacement_ends_at_once_is_back_as_it_was() {
    let Some(host) = Host::new() else {
        return;
    };
    let script = "test -e /data/once && exit 3; echo > /data/once; echo > /ready; sleep 1000";
    let run = [
        "run",
        "-d",
        "--network",
        "none",
        "--name",
        "once",
        "-v",
        "o:/data",
    ];
    host.daemon
        .must(&[&run[..], &[IMAGE, "/bin/sh", "-c", script]].concat());
    while !host
        .daemon
        .docker(&["exec", "once", "/bin/test", "-e", "/ready"])
        .status
        .success()
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    host.json(0, "container create once");
    let before = host.inspect("once", "{{.Id}}");
    let refused = host.json(1, &format!("container restore latest once {REPLACE}"));

    let said = text(&refused["error"], "message");
    assert!(said.contains("is what it was"), "{said}");
    assert_eq!(host.inspect("once", "{{.Id}}"), before);
    assert_eq!(host.lines("ps -aq").len(), 1, "nothing is left of it");
    let listed = host.json(0, "container list once");
    assert_eq!(
        rows(&listed, "items").len(),
        1,
        "undo finds nothing that was replaced"
    );
}

#[test]
fn one_works_on_a_container_at_a_time_and_paused_ones_stay_paused() {
    let Some(host) = Host::new() else {
        return;
    };
    for number in 0..4 {
        let volume = format!("-v v{number}:/data");
        host.start(&format!("c{number}"), &volume, "echo x > /data/x");
    }
    host.daemon.must(&["pause", "c3"]);
    let children: Vec<_> = (0..8)
        .map(|number| {
            let name = format!("c{}", number % 4);
            let mut command = host.command(&["--json", "container", "create", &name]);
            let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let outputs = children.into_iter().map(Child::wait_with_output);
    let outputs: Vec<Output> = outputs.collect::<Result<_, _>>().unwrap();

    let made = outputs.iter().filter(|one| one.status.success()).count();
    let refused = outputs.iter().filter(|one| one.status.code() == Some(4));
    let refused: Vec<String> = refused
        .map(|one| String::from_utf8_lossy(&one.stdout).into_owned())
        .collect();
    assert_eq!(made + refused.len(), 8, "{outputs:?}");
    assert!(made >= 4);
    for said in &refused {
        assert!(said.contains("saved by process"), "{said}");
    }
    assert_eq!(
        (host.status("c0"), host.status("c3")),
        ("running".to_owned(), "paused".to_owned())
    );
    assert_eq!(rows(&host.json(0, "container list"), "items").len(), made);
    assert_eq!(host.images(), made);
}

#[test]
fn limits_are_kept_by_name_and_by_id() {
    let Some(host) = Host::new() else {
        return;
    };
    let id = host.start("web", "-v data:/data", "echo x > /data/x");
    for number in 0..4 {
        host.sh("web", &format!("echo {number} > /data/x"));
        let by = if number % 2 == 0 { "web" } else { id.trim() };
        host.json(0, &format!("container create {by} --max-per-container 3"));
    }
    let listed = host.json(0, "container list web");
    assert_eq!((rows(&listed, "items").len(), host.images()), (3, 3));
    let gone = host.json(0, "container cleanup --dry-run --max-snapshots 1");
    assert_eq!(rows(&gone, "snapshots").len(), 2);
    assert_eq!(rows(&host.json(0, "container list"), "items").len(), 3);
    let kept = host.json(0, "container cleanup --max-bytes 1");
    assert_eq!(
        rows(&kept, "snapshots").len(),
        2,
        "the newest stays: {kept}"
    );
    host.json(0, "container delete latest web --yes");
    let stats = host.json(0, "container stats");
    assert_eq!((&stats["snapshots"], host.images()), (&Value::from(0), 0));
}

#[test]
fn what_somebody_else_made_is_never_removed() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    let first = host.json(0, "container create web");
    let first = text(&first, "snapshot_id").to_owned();
    let second = host.json(0, "container create web");
    let second = text(&second, "snapshot_id").to_owned();
    let restored = host.json(0, &format!("container restore {second}"));
    let copy = text(&restored, "container_name");
    // Somebody's own image of a container of ours, and a snapshot whose image somebody removed.
    host.daemon.must(&["commit", copy, "mine:1"]);
    host.daemon
        .must(&["rmi", &format!("stasis-snapshot:{first}")]);
    let listed = host.json(0, "container list");
    assert_eq!(listed["items"][1]["status"], "broken");
    let refused = host.json(3, &format!("container restore {first}"));
    assert!(text(&refused["error"], "message").contains("gone"));
    let kept = host.json(0, "container cleanup");
    assert!(rows(&kept, "snapshots").is_empty(), "{kept}");
    let orphans = host.json(0, "container cleanup --orphans");
    assert_eq!(orphans["snapshots"][0]["snapshot_id"], first.as_str());

    // The image of a container that runs stays until that is gone.
    let deleted = host.json(0, &format!("container delete {second} --yes"));
    assert_eq!(rows(&deleted, "images_kept").len(), 1);
    host.output(&["container", "cleanup", "--orphans"]);
    assert_eq!(host.lines("images -q mine").len(), 1);
    assert_eq!(
        (
            host.status(copy).as_str(),
            host.sh(copy, "cat /data/x").as_str()
        ),
        ("running", "x")
    );
}

/// Kills a command again and again, each time a little later.
fn kill_at_every_step(host: &Host, words: &str, pause: u64) {
    let words: Vec<&str> = words.split(' ').collect();
    for step in 1..=8 {
        let mut command = host.command(&words);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause * step));
        let _ = child.kill();
        child.wait().unwrap();
    }
    // Whatever stood still runs again by itself.
    for _ in 0..200 {
        if host.lines("ps -q --filter status=paused").is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    host.json(0, "container cleanup");
    assert_eq!(host.status("web"), "running", "{words:?}");
    let listed = host.json(0, "container list");
    let items = rows(&listed, "items");
    assert!(
        items.iter().all(|one| one["status"] == "complete"),
        "{listed}"
    );
    assert_eq!(host.images(), items.len(), "{words:?}");
}

#[test]
fn whenever_it_is_killed_nothing_half_is_listed_and_nothing_is_left() {
    let Some(host) = Host::new() else {
        return;
    };
    let script = "dd if=/dev/urandom of=/data/big bs=1024 count=4000 2>/dev/null";
    host.start("web", "-v data:/data", script);
    let before = host.tree("web", "/data");
    let first = host.json(0, "container create web");
    let first = text(&first, "snapshot_id").to_owned();
    kill_at_every_step(&host, "container create web", 25);
    kill_at_every_step(&host, &format!("container restore {first}"), 40);
    let replace = format!("container restore {first} {REPLACE}");
    kill_at_every_step(&host, &replace, 180);

    assert_eq!(host.tree("web", "/data"), before);
    // Of restores only those are there that came to run.
    assert!(host.lines("ps -aq --filter status=created").is_empty());
    let (running, volumes) = (host.lines("ps -q").len(), host.lines("volume ls -q"));
    assert_eq!(volumes.len(), running, "{volumes:?}");
    host.json(0, "container create web");
    host.json(0, &format!("container restore {first}"));
}

#[test]
fn through_an_engine_that_is_elsewhere_volumes_come_and_go_as_well() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let address = format!("tcp://127.0.0.1:{port}");
    let Some(daemon) = Dockerd::start_with(&["--host", &address]) else {
        return;
    };
    let mut host = Host::with(Session::new(), daemon);
    host.address = address;
    host.start("web", "-v data:/data -v more:/more", ODD);
    let before = (host.tree("web", "/data"), host.tree("web", "/more"));

    host.json(0, "container create web");
    host.sh(
        "web",
        "rm -rf /data/a; echo later > /more/file; echo > /more/extra",
    );
    let restored = host.json(0, "container restore latest web");

    let name = text(&restored, "container_name");
    assert_eq!((host.tree(name, "/data"), host.tree(name, "/more")), before);
    // A volume that only the engine can write is another one: nothing of the old one is lost.
    let replaced = host.json(0, &format!("container restore latest web {REPLACE}"));
    assert_ne!(replaced["volumes"][0]["name"], "data");
    assert_eq!(
        (host.tree("web", "/data"), host.tree("web", "/more")),
        before
    );
    assert!(host.lines("volume ls -q").contains(&"more".to_owned()));
    assert!(host.lines("ps -aq --filter status=created").is_empty());
}

#[test]
fn a_portable_snapshot_is_restored_on_an_engine_that_never_saw_it() {
    let (Some(host), Some(other)) = (Host::new(), Dockerd::start()) else {
        return;
    };
    let script = "echo x > /data/x; dd if=/dev/urandom of=/own bs=1024 count=12000 2>/dev/null";
    host.start("web", "-v data:/data -e TOKEN=s3cret", script);
    let (before, own) = (
        host.tree("web", "/data"),
        host.sh("web", "sha256sum < /own"),
    );
    let first = host.json(0, "container create web --portable");
    assert_eq!(first["portable"], true);
    let size = || {
        let mut du = Command::new("du");
        let output = du.arg("-sb").arg(host.session.home()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let bytes = text.split_whitespace().next().unwrap();
        bytes.parse::<u64>().unwrap()
    };
    let one = size();
    host.json(0, "container create web --portable");
    let more = size() - one;
    assert!(
        more < one / 4,
        "layers are stored once: {one}, and {more} bytes more"
    );

    let Host {
        session, daemon, ..
    } = host;
    drop(daemon);
    let host = Host::with(session, other);
    let restored = host.json(0, "container restore latest web");

    let name = text(&restored, "container_name");
    assert_eq!(host.tree(name, "/data"), before);
    assert_eq!(
        host.sh(name, "sha256sum < /own; echo $TOKEN"),
        format!("{own}\ns3cret")
    );
}

#[test]
fn an_exported_snapshot_runs_on_a_host_that_shares_nothing() {
    let (Some(host), Some(other)) = (Host::new(), Dockerd::start()) else {
        return;
    };
    let other = Host::with(Session::new(), other);
    host.start("web", "-v data:/data -v more:/more -e TOKEN=s3cret", ODD);
    host.sh("web", "echo own > /own");
    let before = (host.tree("web", "/data"), host.tree("web", "/more"));
    let saved = host.json(0, "container create web --label k=v --description before");
    let snapshot = text(&saved, "snapshot_id").to_owned();
    let file = host.session.home().join("web.tar.zst");
    let export = format!("container export latest {} --of web", file.display());

    let exported = host.json(0, &export);

    assert_eq!(
        (&exported["has_image"], &exported["volumes"]),
        (&true.into(), &2.into())
    );
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has secrets");
    host.json(2, &export);
    // Half of it is refused, and leaves nothing.
    let half = host.session.home().join("half.tar.zst");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
    let words = ["container", "import", half.to_str().unwrap()];
    assert!(!other.output(&words).status.success());
    assert_eq!(other.images(), 0);

    let import = format!("container import {} --restore --name web", file.display());
    let restored = other.json(0, &import);

    assert_eq!(text(&restored, "container_name"), "web");
    assert_eq!(
        (other.tree("web", "/data"), other.tree("web", "/more")),
        before
    );
    assert_eq!(other.sh("web", "cat /own; echo $TOKEN"), "own\ns3cret");
    let listed = other.json(0, "container list");
    let item = &listed["items"][0];
    assert_eq!(
        (text(item, "status"), text(item, "description")),
        ("complete", "before")
    );
    assert_eq!(item["labels"]["imported-from"], snapshot.as_str());
    assert_eq!(item["labels"]["k"], "v");
    assert_eq!(other.images(), 1);
    // It is a snapshot like any other.
    other.sh("web", "rm -rf /data/a");
    other.json(0, &format!("container restore latest web {REPLACE}"));
    assert_eq!(other.tree("web", "/data"), before.0);
}

#[test]
fn an_export_as_files_is_what_any_tool_reads() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data -e TOKEN=s3cret", "echo x > /data/x");
    let mut ids = Vec::new();
    let to = host.session.home().join("snapshots");
    for _ in 0..2 {
        let saved = host.json(0, "container create web");
        ids.push(text(&saved, "snapshot_id").to_owned());
        let words = format!(
            "container export latest {} --of web --layout seed",
            to.display()
        );
        host.json(0, &words);
    }
    let read = |path: String| -> Value {
        serde_json::from_slice(&std::fs::read(to.join(path)).unwrap()).unwrap()
    };
    let index = read("index.json".to_owned());
    let listed: Vec<&str> = rows(&index, "snapshots")
        .iter()
        .map(|one| text(one, "snapshot_id"))
        .collect();
    assert_eq!(listed, ids);
    let metadata = read(format!("metadata/{}.json", ids[0]));
    for name in [
        "container_id",
        "original_image",
        "trigger",
        "created_at",
        "mounts",
        "not_captured",
    ] {
        assert!(!metadata[name].is_null(), "{name}");
    }
    assert!(!metadata.to_string().contains("s3cret"));
    let tar = to.join(format!("volumes/{}_data.tar", ids[0]));
    let mut command = Command::new("tar");
    let output = command.arg("-xOf").arg(tar).arg("x").output().unwrap();
    assert_eq!(output.stdout, b"x\n");
    // Its image is on this engine: it can be imported here.
    let words = format!("container import {} --snapshot {}", to.display(), ids[0]);
    let imported = host.json(0, &words);
    assert_eq!(imported["imported_from"], ids[0].as_str());
    host.json(0, "container restore latest web");
}

#[test]
fn a_snapshot_that_nobody_waits_for_is_made_all_the_same() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    let begun = host.json(0, "container create web --detach --label k=v");
    let id = text(&begun, "snapshot_id");
    let absent = host.json(0, "container create nobody --detach");
    let absent = text(&absent, "snapshot_id");

    let wait = |id: &str, until: &dyn Fn(&str) -> bool| {
        for _ in 0..400 {
            let output = host.output(&["container", "show", id]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if until(&said) {
                return said;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{id}");
    };
    wait(id, &|said| said.contains("\"complete\""));
    assert_eq!(rows(&host.json(0, "container list"), "items").len(), 1);
    let said = wait(absent, &|said| said.contains("was not made"));
    assert!(said.contains("no container `nobody`"), "{said}");
    host.json(0, "container restore k=v");
}

#[test]
fn what_would_be_done_is_said_and_not_done() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo x > /data/x");
    host.json(0, "container create web");
    let id = host.inspect("web", "{{.Id}}");

    let new = host.json(0, "container restore latest web --dry-run");
    let replaced = host.json(0, "container restore latest web --mode replace --dry-run");

    assert!(text(&new, "container_name").starts_with("web_restored_"));
    assert_eq!(
        (&new["dry_run"], text(&new, "container_id")),
        (&true.into(), "")
    );
    assert_eq!(replaced["volumes"][0]["name"], "data");
    assert_eq!(host.inspect("web", "{{.Id}}"), id);
    assert_eq!(
        (host.lines("ps -aq").len(), host.lines("volume ls -q").len()),
        (1, 1)
    );
    assert_eq!(rows(&host.json(0, "container list"), "items").len(), 1);
}

#[test]
fn a_copy_beside_shares_nothing_that_only_one_can_have() {
    let Some(host) = Host::new() else {
        return;
    };
    let options = "-v /cache -l com.docker.compose.project=shop -l app=shop";
    host.start("web", options, "echo old > /cache/x");
    host.json(0, "container create web");
    // One that was replaced names the volume that nobody named.
    host.json(0, &format!("container restore latest web {REPLACE}"));
    assert_eq!(host.sh("web", "cat /cache/x"), "old");
    host.json(0, "container create web");

    let restored = host.json(0, "container restore latest web");

    let name = text(&restored, "container_name");
    let volume = "{{range .Mounts}}{{.Name}}{{end}}";
    assert_ne!(host.inspect(name, volume), host.inspect("web", volume));
    assert_eq!(host.sh(name, "ls /cache"), "");
    let group = "{{index .Config.Labels \"com.docker.compose.project\"}}";
    assert_eq!(
        (
            host.inspect("web", group).as_str(),
            host.inspect(name, group).as_str()
        ),
        ("shop", "")
    );
    let app = "{{index .Config.Labels \"app\"}}";
    assert_eq!(host.inspect(name, app), "shop");
    assert_eq!(restored["not_restored"][0], "/cache");
}

#[test]
fn a_command_says_whether_the_new_container_works_and_a_paused_one_is_back_paused() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start(
        "web",
        "-v data:/data --restart always",
        "echo one > /data/n",
    );
    host.json(0, "container create web");
    host.sh("web", "echo two > /data/n");
    host.daemon.must(&["pause", "web"]);
    let replace =
        format!("container restore latest web {REPLACE} --health-timeout 1s --health-cmd");
    let words: Vec<&str> = replace.split(' ').chain(["grep -q two /data/n"]).collect();

    let output = host.output(&words);

    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("grep -q two") && said.contains("is what it was"),
        "{said}"
    );
    assert_eq!(host.status("web"), "paused");
    assert_eq!(
        host.inspect("web", "{{.HostConfig.RestartPolicy.Name}}"),
        "always"
    );
    host.daemon.must(&["unpause", "web"]);
    assert_eq!(host.sh("web", "cat /data/n"), "two");
    let words: Vec<&str> = replace.split(' ').chain(["grep -q one /data/n"]).collect();
    assert!(host.output(&words).status.success());
    assert_eq!(host.sh("web", "cat /data/n"), "one");
    assert_eq!(
        host.inspect("web", "{{.HostConfig.RestartPolicy.Name}}"),
        "always"
    );
    host.json(0, "undo container:web --yes");
    assert_eq!(
        host.inspect("web", "{{.HostConfig.RestartPolicy.Name}}"),
        "always"
    );
}

#[test]
fn a_container_that_is_removed_while_it_is_replaced_can_be_made_again() {
    let Some(host) = Host::new() else {
        return;
    };
    host.start("web", "-v data:/data", "echo one > /data/n");
    host.json(0, "container create web");
    host.sh("web", "echo two > /data/n; echo two > /own");
    let replace =
        format!("container restore latest web {REPLACE} --health-timeout 2s --health-cmd");
    let words: Vec<&str> = replace.split(' ').chain(["false"]).collect();
    let mut command = host.command(&words);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while host.lines("ps -aq --filter name=web").len() < 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let aside = host.lines("ps -aq --filter name=web_replaced_");
    host.daemon.must(&["rm", "-f", &aside[0]]);
    // What it was must not go by mistake.
    let listed = host.json(0, "container list web");
    let safety = text(&listed["items"][0], "snapshot_id").to_owned();
    host.json(4, &format!("container delete {safety} --yes"));

    let cleaned = host.json(13, "container cleanup");

    let left = cleaned["left"].to_string();
    assert!(left.contains(&safety), "{left}");
    assert!(host.lines("ps -aq").is_empty());
    // Nothing blocks what comes next.
    host.json(0, "container cleanup");
    host.json(0, &format!("container restore {safety} --name web"));
    assert_eq!(host.sh("web", "cat /data/n /own"), "two\ntwo");
}

#[test]
fn a_session_in_a_container_sleeps_and_wakes_with_it() {
    let Some(host) = Host::new() else {
        return;
    };
    let dir = host.session.home().join("work");
    std::fs::create_dir_all(dir.join("outputs")).unwrap();
    let bound = format!("-v {}:/bound", dir.display());
    let script = "echo one > /bound/outputs/n; echo own > /own";
    host.start("box", &bound, script);
    let register = format!(
        "session register acme/s1 --dir {} --container box --sandbox pod --host here",
        dir.display()
    );
    host.json(0, &register);
    // What happens while it stands still is in no snapshot, and it runs again.
    let saved = host.json(0, "session snapshot acme/s1 --freeze --host here");
    assert!(
        saved["frozen_ms"].as_u64().is_some_and(|time| time > 0),
        "{saved}"
    );
    assert_eq!(host.status("box"), "running");

    host.json(0, "session sleep acme/s1 --host here");

    assert_eq!(host.status("box"), "exited", "it is really stopped");
    std::fs::remove_dir_all(&dir).unwrap();
    let woken = host.json(0, "session wake acme/s1 --host here");
    assert_eq!(text(&woken, "outcome"), "restored");
    assert_eq!(host.status("box"), "running");
    assert_eq!(host.sh("box", "cat /own"), "own");
    let shown = host.json(0, "session show acme/s1 --host here");
    assert!(shown.to_string().contains("\"docker\""), "{shown}");
    // Two sessions of one container are put to sleep together: it is stopped once.
    let other = host.session.home().join("other");
    std::fs::create_dir_all(other.join("outputs")).unwrap();
    std::fs::write(other.join("outputs/x"), "x").unwrap();
    host.json(
        0,
        &format!(
            "session register acme/s2 --dir {} --container box --sandbox pod --host here",
            other.display()
        ),
    );
    host.json(4, "session sleep acme/s1 --host here");
    assert_eq!(host.status("box"), "running");
    host.json(0, "session sleep acme/s1 --with-others --host here");
    assert_eq!(host.status("box"), "exited");
    // A container that is gone cannot be woken, and that is said.
    host.daemon.must(&["rm", "box"]);
    let refused = host.json(3, "session wake acme/s1 --host here");
    assert!(
        text(&refused["error"], "message").contains("is gone"),
        "{refused}"
    );
}
