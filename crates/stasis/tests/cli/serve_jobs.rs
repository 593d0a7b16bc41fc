//! The jobs of `stasis serve`, as an operator meets them: a real server, and what it does without being asked.

use crate::project::{eventually, start_twins, stop, with_twins};
use crate::serve::{Served, token};
use crate::session::{Session, real_store};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const ALICE: &str = "acme/alice@131";
/// How often a test looks, a tenth of a second apart.
const LOOKS: usize = 600;

fn row<'a>(list: &'a Value, name: &str) -> &'a Value {
    let items = list["items"].as_array().unwrap();
    let found = items.iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn an_expired_lock_is_reaped_by_a_server_and_everybody_sees_that_it_was() {
    let session = Session::new();
    session.data(0, &["tenant", "policy", "set", "acme", "grace_s=0"]);
    let words = [
        "lease", "acquire", ALICE, "--run-id", "run-7", "--ttl", "1s",
    ];
    session.data(0, &words);
    let config = session.home().join("jobs.toml");
    let text = "[serve.jobs.lock_reap]\nevery = \"1s\"\n[serve.jobs.gc]\noff = true\n";
    std::fs::write(&config, text).unwrap();
    let admin = token(&session, "acme", "admin");
    let reader = token(&session, "acme", "read");
    let never = session.json(0, &["jobs"]);
    assert!(row(&never, "lock_reap")["outcome"].is_null(), "{never}");

    let served = Served::with_jobs(&session, &["--config", config.to_str().unwrap()]);
    let mut looks = 0;
    let reaped = loop {
        let events = session.json(0, &["events", "--tenant", "acme"]);
        let all = events["items"].as_array().unwrap();
        if let Some(event) = all.iter().find(|event| event["kind"] == "lock_reaped") {
            break event.clone();
        }
        looks += 1;
        assert!(looks < LOOKS, "nobody reaped the lock: {events}");
        std::thread::sleep(Duration::from_millis(100));
    };

    assert_eq!(reaped["details"]["holder_run_id"], "run-7");
    let shown = session.json(0, &["lease", "show", ALICE]);
    assert_eq!(shown["state"], "free", "{shown}");
    assert_eq!(served.get(&reader, "/v1/jobs").status, 403);
    let list = served.get(&admin, "/v1/jobs");
    assert_eq!(list.status, 200, "{}", list.body);
    let reap = row(&list.body, "lock_reap");
    assert_eq!(
        (&reap["every_ms"], &reap["stuck"]),
        (&1_000.into(), &false.into())
    );
    assert!(row(&list.body, "gc")["outcome"].is_null(), "{}", list.body);
    eventually(Duration::from_mins(1), "the eviction is counted", || {
        let scraped = served.get(&reader, "/metrics").text;
        let line = "stasis_profile_lock_evict_total{reason=\"ttl_expired\"} 1";
        scraped.lines().any(|one| one == line)
    });
    // It ends in time, and holds nothing any more.
    assert_eq!(served.stop(), 0);
    let after = session.json(0, &["jobs"]);
    assert_eq!(row(&after, "lock_reap")["outcome"], "done");
    let rows = after["items"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["running"].is_null()), "{after}");
}

#[test]
fn a_server_without_jobs_does_nothing_unasked_and_a_wrong_interval_is_refused() {
    let session = Session::new();
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    std::thread::sleep(Duration::from_millis(500));
    let list = served.get(&admin, "/v1/jobs");
    let items = list.body["items"].as_array().unwrap();
    assert!(
        items
            .iter()
            .all(|row| row["outcome"].is_null() && row["running"].is_null())
    );
    assert_eq!(served.stop(), 0);

    let config = session.home().join("jobs.toml");
    std::fs::write(&config, "[serve.jobs.gc]\nevery = \"often\"\n").unwrap();
    let words = ["--config", config.to_str().unwrap(), "serve"];
    let refused = session.run(&words);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("[serve.jobs.gc]"), "{}", refused.err);
    std::fs::write(&config, "[serve.jobs.reap]\noff = true\n").unwrap();
    assert_ne!(session.run(&words).code, 0);
}

/// How often each run was thrown out, by its id.
fn evictions(session: &Session) -> BTreeMap<String, usize> {
    let log = session.json(0, &["events", "--tenant", "acme", "--last", "1000"]);
    let mut counted = BTreeMap::new();
    for event in log["items"].as_array().unwrap() {
        if event["kind"] == "lock_reaped" {
            let run = event["details"]["holder_run_id"].as_str().unwrap();
            *counted.entry(run.to_owned()).or_default() += 1;
        }
    }
    counted
}

/// Runs that die while they hold a lease, one for each number.
fn dead_holders(session: &Session, numbers: std::ops::Range<usize>) -> Vec<String> {
    let dead = numbers.map(|number| {
        let (subject, run) = (format!("acme/bot-{number}@131"), format!("run-{number}"));
        let words = [
            "lease", "acquire", &subject, "--run-id", &run, "--ttl", "1s",
        ];
        session.data(0, &words);
        run
    });
    dead.collect()
}

#[test]
fn three_servers_on_one_bucket_do_the_work_once_and_one_that_is_killed_is_not_missed() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let store = store.replace("/test?", &format!("/jobs-{}?", std::process::id()));
    let hosts = [(); 3].map(|()| Session::on(&store));
    hosts[0].data(0, &["tenant", "policy", "set", "acme", "grace_s=0"]);
    let mut runs = dead_holders(&hosts[0], 0..8);
    let mut servers: Vec<Served> = hosts
        .iter()
        .map(|host| {
            let config = host.home().join("jobs.toml");
            std::fs::write(&config, "[serve.jobs.lock_reap]\nevery = \"1s\"\n").unwrap();
            Served::with_jobs(host, &["--config", config.to_str().unwrap()])
        })
        .collect();
    let until_reaped = |runs: &[String]| {
        for _ in 0..3 * LOOKS {
            let counted = evictions(&hosts[0]);
            if runs.iter().all(|run| counted.contains_key(run)) {
                return counted;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("not every lock was reaped: {:?}", evictions(&hosts[0]));
    };

    until_reaped(&runs);
    // Nothing is handed back by one that is killed; the others take over when its lease is over, if it held one.
    drop(servers.remove(0));
    runs.extend(dead_holders(&hosts[1], 8..12));
    let counted = until_reaped(&runs);

    assert!(counted.values().all(|count| *count == 1), "{counted:?}");
    assert_eq!(counted.len(), runs.len());
    let list = hosts[1].json(0, &["jobs"]);
    let reaps = list["items"].as_array().unwrap().iter();
    let reaps = reaps.filter(|row| row["name"] == "lock_reap");
    assert_eq!(reaps.count(), 1, "{list}");
    for server in servers {
        assert_eq!(server.stop(), 0);
    }
}

/// How nice each thread of a server is, by its name; of the threads of jobs only those that have one.
fn niceness(served: &Served) -> Vec<(String, i32)> {
    let threads = format!("/proc/{}/task", served.id());
    let stats = std::fs::read_dir(threads).unwrap().filter_map(|thread| {
        // Threads end at any time.
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        // The nineteenth value, counted from the number of the thread.
        let nice = rest.split_whitespace().nth(16)?;
        Some((name.to_owned(), nice.parse().unwrap()))
    });
    stats.collect()
}

#[test]
fn a_workspace_and_a_project_that_change_are_kept_by_threads_that_leave_the_host_to_others() {
    let session = Session::new();
    let (shop, notes) = (session.home().join("shop"), session.home().join("notes"));
    for dir in [&shop, &notes] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("plan"), "one").unwrap();
    }
    let (dir, notes) = (shop.to_str().unwrap(), notes.to_str().unwrap());
    session.data(0, &["workspace", "init", "--no-checkpoint", dir]);
    let config = session.home().join("jobs.toml");
    let text = format!(
        "[serve]\nbackground_bandwidth = \"20MiB/s\"\n[serve.jobs.workspace_checkpoint]\nevery = \"1s\"\n\
         [serve.jobs.project_autosave]\nevery = \"1s\"\n[serve.projects.notes]\ndir = \"{notes}\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let served = Served::with_jobs(&session, &["--config", config.to_str().unwrap()]);
    let checkpoints = || {
        let all = session.json(0, &["workspace", "list", "--workspace", dir]);
        let rows = all["items"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["made_by"] == "serve"), "{all}");
        rows.len()
    };
    let wait = Duration::from_mins(1);

    eventually(wait, "there is a first checkpoint", || checkpoints() == 1);
    std::fs::write(shop.join("plan"), "two and more").unwrap();
    eventually(wait, "there is a second checkpoint", || checkpoints() == 2);
    eventually(wait, "the project is saved", || {
        let said = session.run(&["--json", "project", "--project", notes, "list"]);
        said.code == 0 && said.out.contains("\"autosave\"")
    });

    let threads = niceness(&served);
    let (jobs, others): (Vec<_>, Vec<_>) = threads.iter().partition(|one| one.0 == "stasis-job");
    assert!(!jobs.is_empty(), "{threads:?}");
    assert!(jobs.iter().all(|(_, nice)| *nice >= 10), "{threads:?}");
    // What serves requests is as it was started.
    assert!(others.iter().any(|(_, nice)| *nice < 10), "{threads:?}");
    assert_eq!(served.stop(), 0);
    let list = session.json(0, &["jobs"]);
    for name in ["workspace_checkpoint", "project_autosave"] {
        let row = row(&list, name);
        assert_eq!(row["outcome"], "done", "{list}");
        assert!(row["place"].is_string(), "{list}");
    }
    assert_eq!(checkpoints(), 2);
}

#[test]
fn what_the_configuration_says_wrongly_of_background_work_is_said_at_the_start() {
    let session = Session::new();
    let config = session.home().join("jobs.toml");
    for (text, said) in [
        ("[serve]\nbackground_bandwidth = \"20MiB\"\n", "20MiB/s"),
        (
            "[serve.projects.all]\ndir = \"/\"\n",
            "[serve.projects.all]",
        ),
        (
            "[serve.projects.shop]\ndir = \"shop\"\n",
            "no absolute path",
        ),
        (
            "[serve.projects.shop]\ndir = \"/nowhere\"\n",
            "no directory",
        ),
        ("[serve.projects.shop]\nholds = true\n", "unknown field"),
        (
            "[serve.containers.web]\nevery = \"often\"\n",
            "[serve.containers.web]",
        ),
        (
            "[serve.containers.web]\nmax_freeze = \"0s\"\n",
            "`max_freeze`",
        ),
        ("[serve.containers.web]\ncontainer = \"\"\n", "its id"),
        ("[serve.containers.web]\nimage = \"x\"\n", "unknown field"),
    ] {
        std::fs::write(&config, text).unwrap();
        let words = ["--config", config.to_str().unwrap(), "serve"];
        let refused = session.run(&[&words[..], &["--listen", "127.0.0.1:0"]].concat());
        assert_ne!(refused.code, 0, "{text}");
        assert!(refused.err.contains(said), "{text}: {}", refused.err);
    }
}

#[test]
fn how_long_a_project_stood_still_for_a_server_is_counted() {
    let shop = with_twins();
    start_twins(&shop);
    let reader = token(&shop.session, "default", "read");
    let config = shop.session.home().join("jobs.toml");
    let dir = shop.at("");
    let text = format!(
        "[serve.jobs.project_autosave]\nevery = \"1s\"\n[serve.projects.shop]\ndir = \"{}\"\nhold_services = true\n",
        dir.display()
    );
    std::fs::write(&config, text).unwrap();
    let served = Served::with_jobs(&shop.session, &["--config", config.to_str().unwrap()]);

    eventually(Duration::from_mins(1), "the pause is counted", || {
        let scraped = served.get(&reader, "/metrics").text;
        scraped.contains("stasis_freeze_seconds_count{kind=\"dir\"} ")
    });

    assert_eq!(served.stop(), 0);
    stop(&shop);
}
