//! Cookies that a running browser was made to write.

use crate::browser::{Browser, Port};
use rustix::process::Signal;
use serde_json::json;
use stasis_quiesce::browser::{self, BrowserError};
use std::time::Duration;

/// A browser writes its cookies by itself a moment after its last window was closed.
const SETTLED: Duration = Duration::from_millis(1500);

/// Ends the browser so that it cannot write anything more, and tells which cookies the next one finds.
async fn cookies_after_a_crash(browser: Browser) -> Vec<String> {
    let directory = browser.directory.clone();
    for process in browser.family() {
        process.signal(Signal::KILL).unwrap();
    }
    drop(browser);
    let again = Browser::start(&directory, Port::Open).await.unwrap();
    again.speak().await.cookies().await
}

#[tokio::test]
async fn flushed_cookies_survive_a_crash_and_later_ones_do_not() {
    let home = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(&home.path().join("profile"), Port::Open).await else {
        return;
    };
    let mut speech = browser.speak().await;
    speech.set_cookie("early").await;
    let pages = speech.pages().await;

    let flushed = browser::flush_cookies(&browser.directory).await.unwrap();

    println!("{flushed:?}");
    assert_eq!(speech.pages().await, pages, "none opened, none closed");
    speech.set_cookie("late").await;
    assert_eq!(cookies_after_a_crash(browser).await, ["early"]);
}

#[tokio::test]
async fn a_browser_without_a_page_is_flushed_through_one_of_our_own() {
    let home = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(&home.path().join("profile"), Port::Open).await else {
        return;
    };
    let mut speech = browser.speak().await;
    for page in speech.pages().await {
        let page = json!({"targetId": page});
        speech.ask("Target.closeTarget", page, "").await;
    }
    while !speech.pages().await.is_empty() {}
    tokio::time::sleep(SETTLED).await;
    speech.set_cookie("early").await;

    let flushed = browser::flush_cookies(&browser.directory).await.unwrap();

    println!("{flushed:?}");
    while !speech.pages().await.is_empty() {}
    assert_eq!(cookies_after_a_crash(browser).await, ["early"]);
}

#[tokio::test]
async fn a_private_window_is_not_mistaken_for_a_page_of_the_profile() {
    let home = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(&home.path().join("profile"), Port::Open).await else {
        return;
    };
    let mut speech = browser.speak().await;
    let before = speech.pages().await;
    let private = speech
        .ask("Target.createBrowserContext", json!({}), "")
        .await;
    let blank = json!({"url": "about:blank", "browserContextId": private["browserContextId"]});
    speech.ask("Target.createTarget", blank, "").await;
    for page in before {
        let page = json!({"targetId": page});
        speech.ask("Target.closeTarget", page, "").await;
    }
    while speech.pages().await.len() != 1 {}
    tokio::time::sleep(SETTLED).await;
    speech.set_cookie("early").await;

    let flushed = browser::flush_cookies(&browser.directory).await.unwrap();

    println!("{flushed:?}");
    assert_eq!(cookies_after_a_crash(browser).await, ["early"]);
}

#[tokio::test]
async fn a_browser_without_a_port_says_so() {
    let home = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(&home.path().join("profile"), Port::None).await else {
        return;
    };

    let refused = browser::flush_cookies(&browser.directory)
        .await
        .unwrap_err();

    assert!(matches!(refused, BrowserError::NoPort), "{refused}");
}
