//! How a browser ends, and what it has written by then.

use crate::browser::{Browser, Port, program};
use stasis_quiesce::browser::{self, BrowserExit, ProcessRole, StopSettings, users_of};
use std::fs;
use std::net::TcpListener;
use std::time::Duration;

#[tokio::test]
async fn a_cookie_set_just_before_survives_a_close() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("profile");
    let Some(browser) = Browser::start(&directory, Port::Open).await else {
        return;
    };
    browser.speak().await.set_cookie("late").await;

    let stopped = browser::stop(&directory, None, StopSettings::default());
    let stopped = stopped.await.unwrap();

    println!("{stopped:?}");
    assert_eq!(stopped.how, BrowserExit::Closed);
    assert!(stopped.is_clean() && browser.is_gone());
    assert_eq!(stopped.pid, Some(browser.pid()));
    drop(browser);
    let again = Browser::start(&directory, Port::Open).await.unwrap();
    assert_eq!(again.speak().await.cookies().await, ["late"]);
}

#[tokio::test]
async fn a_page_that_asks_before_it_is_left_does_not_hold_a_close_up() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("profile");
    let Some(browser) = Browser::start(&directory, Port::Open).await else {
        return;
    };
    browser.speak().await.confirm_leaving().await;

    let stopped = browser::stop(&directory, Some(browser.pid()), StopSettings::default());
    let stopped = stopped.await.unwrap();

    println!("{stopped:?}");
    assert_eq!(stopped.how, BrowserExit::Closed);
    assert!(browser.is_gone());
}

#[tokio::test]
async fn without_a_port_a_browser_is_interrupted() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("profile");
    let Some(browser) = Browser::start(&directory, Port::None).await else {
        return;
    };

    let stopped = browser::stop(&directory, None, StopSettings::default());
    let stopped = stopped.await.unwrap();

    println!("{stopped:?}");
    assert_eq!(stopped.how, BrowserExit::Interrupted);
    assert!(stopped.is_clean() && browser.is_gone());
}

#[tokio::test]
async fn a_page_that_asks_before_it_is_left_costs_the_timeout_where_there_is_no_port() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("profile");
    let Some(browser) = Browser::start(&directory, Port::Open).await else {
        return;
    };
    let mut speech = browser.speak().await;
    speech.confirm_leaving().await;
    // The port is another process's now, as far as the file says.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stranger.local_addr().unwrap().port();
    let file = directory.join("DevToolsActivePort");
    fs::write(file, format!("{port}\n/devtools/browser/1")).unwrap();
    stranger.set_nonblocking(true).unwrap();

    let settings = StopSettings {
        timeout: Duration::from_secs(6),
    };
    let stopped = browser::stop(&directory, None, settings).await.unwrap();

    println!("{stopped:?}");
    assert!(!stopped.is_clean() && browser.is_gone());
    assert!(stopped.took < settings.timeout);
    assert!(stranger.accept().is_err(), "nobody called there");
}

#[tokio::test]
async fn a_browser_in_another_directory_is_left_in_peace() {
    let home = tempfile::tempdir().unwrap();
    let [ours, other] = ["ada", "ada2"].map(|name| home.path().join(name));
    let Some(foreign) = Browser::start(&other, Port::Open).await else {
        return;
    };
    // Everything that an earlier run left here points at the other browser.
    fs::create_dir(&ours).unwrap();
    for name in ["SingletonLock", "DevToolsActivePort"] {
        let copied = std::process::Command::new("cp")
            .arg("-P")
            .arg(other.join(name))
            .arg(&ours)
            .status();
        assert!(copied.unwrap().success());
    }

    let stopped = browser::stop(&ours, None, StopSettings::default());
    let stopped = stopped.await.unwrap();
    let named = browser::stop(&ours, Some(foreign.pid()), StopSettings::default()).await;
    let flushed = browser::flush_cookies(&ours).await;

    assert_eq!(stopped.how, BrowserExit::NotRunning);
    let refused = format!(
        "process {} does not work in `{}`",
        foreign.pid(),
        ours.display()
    );
    assert_eq!(named.unwrap_err().to_string(), refused);
    assert!(matches!(flushed, Err(browser::BrowserError::NotRunning)));
    foreign.speak().await.set_cookie("still").await;
    let users = users_of(&other).unwrap();
    assert_eq!(users[0].process.pid(), foreign.pid());
    assert_eq!(users[0].role, ProcessRole::Browser);
    assert!(
        users[1..]
            .iter()
            .all(|user| user.role == ProcessRole::Child)
    );
}

#[tokio::test]
async fn a_browser_says_its_version() {
    let Some(program) = program().await else {
        return;
    };

    assert!(browser::version(&program).await.unwrap() > 100);
}
