//! Makes a running browser write the cookies it holds back.
//!
//! Chromium keeps new cookies in memory for up to 30 seconds. Clearing the cookies of an origin that never had any makes
//! its network service write all of them first. It works only in the name of a page, and only for the storage of that page:
//! those of private windows do not count. Where there is no other, a blank one is opened in the background and closed
//! again.

use super::cdp::Cdp;
use super::endpoint::DebugEndpoint;
use super::error::BrowserError;
use super::evidence::Directory;
use super::users::{ProcessRole, users_of};
use crate::process::Process;
use serde_json::{Value, json};
use stasis_model::failure::AtPath;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// A browser under load answers within 0.1 s; one that takes longer than this is not waited for.
const LIMIT: Duration = Duration::from_secs(3);

/// A name that RFC 2606 keeps from ever existing.
const UNUSED_ORIGIN: &str = "http://flush.invalid";

/// Cookies were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flushed {
    /// How long it took.
    pub took: Duration,
}

/// Makes the browser in this directory write its cookies now; waits three seconds at most.
///
/// A cookie that was set before this call is in the database when it returns. Nothing else is promised: what pages keep
/// in local storage may still be held back.
pub async fn flush_cookies(directory: &Path) -> Result<Flushed, BrowserError> {
    let began = Instant::now();
    let flushing = async {
        let mut browser = connect(directory).await?;
        flush(&mut browser).await
    };
    let flushed = tokio::time::timeout(LIMIT, flushing).await;
    flushed.unwrap_or(Err(BrowserError::Silent { limit: LIMIT }))?;
    let took = began.elapsed();
    tracing::debug!(
        took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "cookies flushed"
    );
    Ok(Flushed { took })
}

/// Speaks to the browser that works in the directory.
async fn connect(directory: &Path) -> Result<Cdp, BrowserError> {
    let users = users_of(directory)?;
    if users
        .first()
        .is_none_or(|user| user.role != ProcessRole::Browser)
    {
        return Err(BrowserError::NotRunning);
    }
    let family = users
        .into_iter()
        .filter(|user| user.role <= ProcessRole::Child);
    let family: Vec<Process> = family.map(|user| user.process).collect();
    let opened = Directory::open(directory).at("open the directory", directory)?;
    Cdp::connect(&DebugEndpoint::find(&opened, &family)?).await
}

async fn flush(browser: &mut Cdp) -> Result<(), BrowserError> {
    if let Some(page) = any_page(browser).await? {
        match flush_as(browser, &page).await {
            // It may be closed by now, or be one that accepts no connection.
            Err(BrowserError::Refused { .. }) => {}
            settled => return settled,
        }
    }
    let page = open_blank(browser).await?;
    let flushed = flush_as(browser, &page).await;
    // A page that stays open is untidy; what counts is whether the cookies were written.
    let closed = browser.ask("Target.closeTarget", json!({"targetId": page}), None);
    let _ = closed.await;
    flushed
}

/// A page that keeps its cookies where the user data directory does.
async fn any_page(browser: &mut Cdp) -> Result<Option<String>, BrowserError> {
    let private = list(browser, "Target.getBrowserContexts", "browserContextIds").await?;
    let targets = list(browser, "Target.getTargets", "targetInfos").await?;
    let mut pages = targets.iter().filter(|target| {
        target["type"] == "page" && !private.contains(&target["browserContextId"])
    });
    Ok(pages.find_map(|page| text(page, "targetId")))
}

async fn list(
    browser: &mut Cdp,
    method: &'static str,
    name: &str,
) -> Result<Vec<Value>, BrowserError> {
    let answer = browser.ask(method, json!({}), None).await?;
    let list = answer[name].as_array();
    list.cloned().ok_or(BrowserError::NotUnderstood { method })
}

pub(super) async fn open_blank(browser: &mut Cdp) -> Result<String, BrowserError> {
    let blank = json!({"url": "about:blank", "background": true});
    let method = "Target.createTarget";
    let answer = browser.ask(method, blank, None).await?;
    text(&answer, "targetId").ok_or(BrowserError::NotUnderstood { method })
}

async fn flush_as(browser: &mut Cdp, page: &str) -> Result<(), BrowserError> {
    let method = "Target.attachToTarget";
    let attach = json!({"targetId": page, "flatten": true});
    let answer = browser.ask(method, attach, None).await?;
    let session = text(&answer, "sessionId").ok_or(BrowserError::NotUnderstood { method })?;
    let cookies = json!({"origin": UNUSED_ORIGIN, "storageTypes": "cookies"});
    let method = "Storage.clearDataForOrigin";
    let flushed = browser.ask(method, cookies, Some(&session)).await;
    let detach = json!({"sessionId": session});
    let _ = browser.ask("Target.detachFromTarget", detach, None).await;
    flushed.map(|_| ())
}

pub(super) fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}
