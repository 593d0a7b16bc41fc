//! Makes a running browser write the cookies it holds back.
//!
//! Chromium keeps new cookies in memory for up to 30 seconds. Clearing the cookies of an origin that never had any makes
//! its network service write all of them first. It works only in the name of a page: where there is none, a blank one is
//! opened in the background and closed again.

use super::cdp::{Cdp, CdpError};
use super::endpoint::Endpoint;
use super::evidence::Directory;
use super::users::{Role, UsersError, users_of};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// A browser under load answers within 0.1 s; one that takes longer than this is not waited for.
const LIMIT: Duration = Duration::from_secs(3);

/// A name that RFC 2606 keeps from ever existing.
const NOBODY: &str = "http://flush.invalid";

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
pub async fn flush_cookies(directory: &Path) -> Result<Flushed, CdpError> {
    let began = Instant::now();
    let flushing = async {
        let mut browser = connect(directory).await?;
        flush(&mut browser).await
    };
    let silent = |_| CdpError::Silent { limit: LIMIT };
    tokio::time::timeout(LIMIT, flushing)
        .await
        .map_err(silent)??;
    let took = began.elapsed();
    tracing::debug!(
        took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "cookies flushed"
    );
    Ok(Flushed { took })
}

/// Speaks to the browser that works in the directory.
pub(super) async fn connect(directory: &Path) -> Result<Cdp, CdpError> {
    let users = users_of(directory)?;
    let family = users
        .into_iter()
        .filter(|user| user.role <= Role::Child)
        .map(|user| user.process)
        .collect::<Vec<_>>();
    if family.is_empty() {
        return Err(CdpError::NotRunning);
    }
    let opened = Directory::open(directory).map_err(|source| UsersError::Open {
        path: directory.to_owned(),
        source,
    })?;
    Cdp::connect(&Endpoint::find(&opened, &family)?).await
}

async fn flush(browser: &mut Cdp) -> Result<(), CdpError> {
    let (page, is_ours) = match any_page(browser).await? {
        Some(page) => (page, false),
        None => (open_blank(browser).await?, true),
    };
    let flushed = flush_as(browser, &page).await;
    if is_ours {
        // A page that stays open is untidy; what counts is whether the cookies were written.
        let closed = browser.ask("Target.closeTarget", json!({"targetId": page}), None);
        let _ = closed.await;
    }
    flushed
}

async fn any_page(browser: &mut Cdp) -> Result<Option<String>, CdpError> {
    let answer = browser.ask("Target.getTargets", json!({}), None).await?;
    let targets = answer["targetInfos"].as_array();
    let targets = targets.ok_or(CdpError::NotUnderstood {
        method: "Target.getTargets",
    })?;
    let mut pages = targets.iter().filter(|target| target["type"] == "page");
    Ok(pages.find_map(|page| text(page, "targetId")))
}

async fn open_blank(browser: &mut Cdp) -> Result<String, CdpError> {
    let blank = json!({"url": "about:blank", "background": true});
    let method = "Target.createTarget";
    let answer = browser.ask(method, blank, None).await?;
    text(&answer, "targetId").ok_or(CdpError::NotUnderstood { method })
}

async fn flush_as(browser: &mut Cdp, page: &str) -> Result<(), CdpError> {
    let method = "Target.attachToTarget";
    let attach = json!({"targetId": page, "flatten": true});
    let answer = browser.ask(method, attach, None).await?;
    let session = text(&answer, "sessionId").ok_or(CdpError::NotUnderstood { method })?;
    let cookies = json!({"origin": NOBODY, "storageTypes": "cookies"});
    let method = "Storage.clearDataForOrigin";
    let flushed = browser.ask(method, cookies, Some(&session)).await;
    let detach = json!({"sessionId": session});
    let _ = browser.ask("Target.detachFromTarget", detach, None).await;
    flushed.map(|_| ())
}

fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}
