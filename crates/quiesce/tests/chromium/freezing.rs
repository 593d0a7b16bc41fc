//! A browser that is copied while it stands still.

use crate::browser::{Browser, Port};
use serde_json::json;
use stasis_quiesce::browser;
use stasis_quiesce::freeze::{FreezeSettings, Frozen};
use stasis_quiesce::process::{Process, ProcessInfo};
use stasis_quiesce::watchdog::HelperCommand;
use std::path::Path;
use std::process::Command;

/// The example of this crate; cargo builds it with the tests.
fn watchdog() -> HelperCommand {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    HelperCommand {
        program: built.join("examples/freezer"),
        arguments: vec!["watchdog".into()],
    }
}

/// Copies what travels: not the marks of the browser that runs.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
    let running = [
        "SingletonLock",
        "SingletonCookie",
        "SingletonSocket",
        "DevToolsActivePort",
    ];
    for name in running {
        let _ = std::fs::remove_file(to.join(name));
    }
}

#[tokio::test]
async fn a_browser_that_was_frozen_and_copied_goes_on_and_its_copy_starts() {
    let home = tempfile::tempdir().unwrap();
    let copied = home.path().join("copy");
    let Some(browser) = Browser::start(&home.path().join("profile"), Port::Open).await else {
        return;
    };
    let mut speech = browser.speak().await;
    speech.set_cookie("early").await;
    let _ = browser::flush_cookies(&browser.directory).await.unwrap();
    let users = browser::users_of(&browser.directory).unwrap();
    let users: Vec<Process> = users.into_iter().map(|user| user.process).collect();
    let settings = FreezeSettings::new(home.path().join("journals"), watchdog());

    let frozen = Frozen::freeze(&users, &settings).unwrap();
    let still = browser.family();
    assert!(
        still
            .iter()
            .all(|process| ProcessInfo::is_stopped(process.pid()))
    );
    copy(&browser.directory, &copied);
    let thawed = frozen.thaw().unwrap();

    println!("{} processes, {thawed:?}", still.len());
    assert!(still.len() > 4 && thawed.held());
    let page = speech.page().await;
    let sum = json!({"expression": "6 * 7"});
    let answer = speech.ask("Runtime.evaluate", sum, &page).await;
    assert_eq!(answer["result"]["value"], 42);
    let again = Browser::start(&copied, Port::Open).await.unwrap();
    assert_eq!(again.speak().await.cookies().await, ["early"]);
}
