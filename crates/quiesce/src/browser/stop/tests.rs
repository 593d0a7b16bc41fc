use super::super::fake_browser::{FakeBrowser, home};
use super::*;
use crate::process::{ProcessInfo, ProcessState};
use std::process::Command;
use tempfile::TempDir;

/// Works in `ada`; what it does when it is signalled comes first.
fn browser(home: &TempDir, habits: &str) -> FakeBrowser {
    let works = "exec 9>ada/open; echo ready; while :; do sleep 0.01; done";
    let script = format!("{habits} {works}");
    FakeBrowser::start(home, &script, "--user-data-dir=ada")
}

async fn stop_within(home: &TempDir, timeout: Duration) -> BrowserStopped {
    let settings = StopSettings { timeout };
    stop(&home.path().join("ada"), None, settings)
        .await
        .unwrap()
}

/// An eighth of it is long for a shell, also under load.
const SHORT: Duration = Duration::from_millis(3200);
const LONG: Duration = Duration::from_secs(20);

/// Stops a browser with such habits, and looks whether it ended by what it obeys.
async fn ends(habits: &str, timeout: Duration, how: BrowserExit) {
    let home = home();
    let mut browser = browser(&home, habits);

    let stopped = stop_within(&home, timeout).await;

    assert_eq!(stopped.how, how);
    assert_eq!(stopped.is_clean(), how == BrowserExit::Interrupted);
    assert_eq!(stopped.pid, Some(browser.pid()));
    assert!(stopped.took < timeout && browser.has_ended());
}

#[tokio::test]
async fn a_browser_that_obeys_an_interrupt_ends_by_it() {
    ends("trap 'exit' INT;", LONG, BrowserExit::Interrupted).await;
}

#[tokio::test]
async fn a_browser_that_ignores_an_interrupt_is_terminated() {
    ends(
        "trap '' INT; trap 'exit' TERM;",
        SHORT,
        BrowserExit::Terminated,
    )
    .await;
}

#[tokio::test]
async fn a_browser_that_ignores_everything_is_killed() {
    ends("trap '' INT TERM;", SHORT, BrowserExit::Killed).await;
}

#[tokio::test]
async fn the_children_of_a_browser_are_waited_for() {
    let home = home();
    let child = "(trap '' INT TERM; sleep 0.5; echo late > ada/late) &";
    let _browser = browser(&home, &format!("{child} trap 'exit' INT;"));

    let stopped = stop_within(&home, LONG).await;

    assert_eq!(stopped.how, BrowserExit::Interrupted);
    assert!(home.path().join("ada/late").exists());
}

#[tokio::test]
async fn children_that_do_not_end_are_killed_and_that_is_not_clean() {
    let home = home();
    let child = "(trap '' INT TERM; while echo beat > ada/beat; do sleep 0.01; done) &";
    let mut browser = browser(&home, &format!("{child} trap 'exit' INT;"));

    let stopped = stop_within(&home, SHORT).await;

    assert_eq!(stopped.how, BrowserExit::Killed);
    assert!(browser.has_ended());
    assert_eq!(users_of(&home.path().join("ada")).unwrap(), []);
}

#[tokio::test]
async fn a_browser_that_stands_still_is_woken_to_end() {
    let home = home();
    let browser = browser(&home, "trap 'exit' INT;");
    let process = Process::open(browser.pid()).unwrap().unwrap();
    process.signal(Signal::STOP).unwrap();
    while ProcessInfo::read(browser.pid()).unwrap().state != ProcessState::Stopped {}

    let stopped = stop_within(&home, LONG).await;

    assert_eq!(stopped.how, BrowserExit::Interrupted);
}

#[tokio::test]
async fn a_script_that_becomes_the_browser_is_stopped_and_one_that_does_not_is_left() {
    let home = home();
    let becomes =
        "trap 'exit' INT; echo ready; sleep 0.1; exec 9>ada/open; while :; do sleep 0.01; done";
    let mut becomes = FakeBrowser::start(&home, becomes, "--user-data-dir=ada");
    let stopped = stop_within(&home, LONG).await;
    assert_eq!(stopped.how, BrowserExit::Interrupted);
    assert!(becomes.has_ended());

    let mut script = FakeBrowser::start(&home, "echo ready; read never", "--user-data-dir=ada");
    let stopped = stop_within(&home, LONG).await;

    assert_eq!((stopped.how, stopped.pid), (BrowserExit::NotRunning, None));
    assert!(!stopped.is_clean(), "nothing is known of it");
    assert!(!script.has_ended());
}

#[tokio::test]
async fn who_only_reads_in_the_directory_is_left() {
    let home = home();
    let reads = "exec 9>ada/open; echo ready; read never";
    let mut reader = FakeBrowser::start(&home, reads, "--user-data-dir=ada2");
    let mut browser = browser(&home, "trap 'exit' INT;");

    let stopped = stop_within(&home, LONG).await;

    assert_eq!(stopped.how, BrowserExit::Interrupted);
    assert!(browser.has_ended() && !reader.has_ended());
}

#[tokio::test]
async fn helpers_that_outlive_their_browser_are_waited_for() {
    let home = home();
    let helper = "echo ready; sleep 0.3; :";
    let mut sh = Command::new("sh");
    let sh = sh.args(["-c", helper, "sh", "--type=utility", "--user-data-dir=ada"]);
    let mut helper = FakeBrowser(sh.current_dir(home.path()).spawn().unwrap());

    let stopped = stop_within(&home, LONG).await;

    assert_eq!((stopped.how, stopped.pid), (BrowserExit::NotRunning, None));
    assert!(helper.has_ended());
}

#[tokio::test]
async fn a_process_that_works_elsewhere_is_refused_and_its_launcher_is_not() {
    let home = home();
    let ada = home.path().join("ada");
    let mut stranger = FakeBrowser::start(&home, "echo ready; read never", "--user-data-dir=ada2");
    let mut browser = browser(&home, "trap 'exit' INT;");

    let refused = stop(&ada, Some(stranger.pid()), StopSettings::default()).await;
    assert!(matches!(refused, Err(BrowserError::NotItsBrowser { .. })));
    assert!(!stranger.has_ended() && !browser.has_ended());
    let ours = stop(&ada, Some(std::process::id()), StopSettings::default());

    assert_eq!(ours.await.unwrap().how, BrowserExit::Interrupted);
}
