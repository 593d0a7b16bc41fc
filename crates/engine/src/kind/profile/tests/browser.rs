//! A browser that somebody starts again whenever it is closed.

use super::World;
use crate::error::ErrorKind;
use crate::hold::Signal;
use crate::kind::profile::load::{ProfileLoad, UpgradeWish};
use crate::kind::profile::run::ProfileRun;
use crate::kind::profile::save::{OnBrowser, ProfileSave};
use stasis_disk::tree::restore::Placement;
use stasis_model::format::lease::Lock;
use stasis_model::id::Label;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Works in `$PLACE`, which its command line names, until it is killed; and comes again then.
const BROWSER: &str = "exec 9>\"$PLACE/open\"; echo ready; while :; do sleep 0.01; done";
const KEEPER: &str = "while :; do sh -c \"$BROWSER\" sh \"$FLAG\"; done";

/// What is said of a browser that is there again, or still.
const STILL_THERE: [ErrorKind; 2] = [ErrorKind::Conflict, ErrorKind::Retry];

/// Ends with its whole group when it is dropped.
struct Undying(Child);

impl Undying {
    fn start(world: &World) -> Self {
        let place = world.dir();
        let mut keeper = Command::new("sh");
        keeper
            .args(["-c", KEEPER])
            .env("BROWSER", BROWSER)
            .env("FLAG", format!("--user-data-dir={}", place.display()))
            .env("PLACE", &place)
            .stdout(Stdio::piped())
            .process_group(0);
        let mut keeper = keeper.spawn().unwrap();
        let mut said = BufReader::new(keeper.stdout.as_mut().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        Self(keeper)
    }
}

impl Drop for Undying {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_browser_that_always_comes_back_is_not_captured_and_its_profile_is_not_kept_locked() {
    let world = World::new();
    let first = world.saved("first").await;
    let browser = Undying::start(&world);
    world.change("second");
    let stopping = ProfileSave {
        browser: OnBrowser::Stop,
        close_timeout: Duration::from_millis(1600),
        ..world.saving()
    };

    let refused = world.engine.profiles().save(stopping.clone()).await;

    let refused = refused.unwrap_err();
    assert!(STILL_THERE.contains(&refused.kind()), "{refused}");
    assert_eq!(world.pointer().await.active_archive(), Some(first));
    assert_eq!(world.nothing_dangles().await, 1, "nothing was stored");
    let lock = world.engine.lineages.lock(&world.lineage).await.unwrap();
    assert!(Lock::is_given_up(&lock.unwrap().value), "it was released");
    drop(browser);
    let saved = world.engine.profiles().save(stopping).await.unwrap();
    assert_eq!(saved.predecessor_sha256, Some(first));
}

#[tokio::test]
async fn a_run_whose_browser_always_comes_back_ends_with_the_second_signal_and_saves_nothing() {
    let world = World::new();
    let first = world.saved("first").await;
    let (signal, signals) = mpsc::unbounded_channel();
    let script = "setsid sh -c \"$1\" sh & echo $! > \"$0\"; while [ ! -e \"$PLACE/open\" ]; do sleep 0.01; done";
    let pid = world.home.path().join("pid");
    let env = format!(
        "export PLACE='{0}' FLAG='--user-data-dir={0}' BROWSER='{BROWSER}'; {script}",
        world.dir().display()
    );
    let words = ["sh", "-c", &env, pid.to_str().unwrap(), KEEPER, "{dir}"];
    let load = ProfileLoad {
        lineage: world.lineage.clone(),
        dir: world.dir(),
        placement: Placement::Replace,
        exactly: None,
        on_failure: None,
        upgrade: UpgradeWish::default(),
        cold_only: false,
        region: None,
        actor: Label::nobody(),
        spawn: World::spawn(),
        progress: Arc::default(),
        cancel: Arc::default(),
    };
    let command = words.map(Into::into).to_vec();
    let mut run = ProfileRun::new(load, world.capture(), command, signals);
    run.close_timeout = Duration::from_millis(1600);
    run.max_time = Duration::from_mins(5);
    let engine = world.engine.clone();
    let running = tokio::spawn(async move { Box::pin(engine.profiles().run(run)).await });
    while !world.dir().join("open").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    for _ in 0..2 {
        // It may have given up already.
        let _ = signal.send(Signal::INT);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let ended = tokio::time::timeout(Duration::from_secs(10), running).await;

    let keeper = std::fs::read_to_string(pid).unwrap();
    let group = format!("-{}", keeper.trim());
    let _ = Command::new("kill").args(["-9", "--", &group]).status();
    let ran = ended.expect("it does not wait for ever").unwrap();
    match ran {
        Ok(ran) => assert!(ran.save.is_none() && ran.snapshot_failed, "{ran:?}"),
        Err(error) => assert!(STILL_THERE.contains(&error.kind()), "{error}"),
    }
    assert_eq!(world.pointer().await.active_archive(), Some(first));
    assert_eq!(world.nothing_dangles().await, 1);
}
