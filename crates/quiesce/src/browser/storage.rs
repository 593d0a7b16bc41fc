//! Gives a running browser cookies and Local Storage, as if pages had set them.

use super::cdp::Cdp;
use super::error::BrowserError;
use super::flush::{connect, open_blank, text};
use serde_json::{Value, json};
use stasis_model::storage_state::{StateCookie, StateOrigin, StorageState};
use std::path::Path;
use std::time::Duration;

/// How long it may take: a page is opened for each origin.
const LIMIT: Duration = Duration::from_mins(2);

/// Sets all of it in the browser that works in this directory. Pages of the origins are opened for that, and answered here:
/// nothing is asked of the sites themselves.
pub async fn set_storage(directory: &Path, state: &StorageState) -> Result<(), BrowserError> {
    let setting = async {
        let mut browser = connect(directory).await?;
        let cookies: Vec<Value> = state.cookies.iter().map(cookie).collect();
        let all = json!({"cookies": cookies});
        browser.ask("Storage.setCookies", all, None).await?;
        if !state.origins.is_empty() {
            set_local_storage(&mut browser, &state.origins).await?;
        }
        Ok(())
    };
    let set = tokio::time::timeout(LIMIT, setting).await;
    set.unwrap_or(Err(BrowserError::Silent { limit: LIMIT }))
}

/// A cookie as the protocol takes it. One without a dot before its domain belongs to that host alone, which only an address
/// can say.
fn cookie(cookie: &StateCookie) -> Value {
    let mut value = json!({
        "name": cookie.name,
        "value": cookie.value.expose(),
        "path": cookie.path,
        "httpOnly": cookie.http_only,
        "secure": cookie.secure,
        "sameSite": cookie.same_site,
    });
    if cookie.domain.starts_with('.') {
        value["domain"] = json!(cookie.domain);
    } else {
        let scheme = if cookie.secure { "https" } else { "http" };
        value["url"] = json!(format!("{scheme}://{}{}", cookie.domain, cookie.path));
    }
    if !cookie.is_session() {
        value["expires"] = json!(cookie.expires);
    }
    if let Some(site) = &cookie.partition_key {
        value["partitionKey"] = json!({"topLevelSite": site, "hasCrossSiteAncestor": false});
    }
    value
}

async fn set_local_storage(browser: &mut Cdp, origins: &[StateOrigin]) -> Result<(), BrowserError> {
    let page = open_blank(browser).await?;
    let method = "Target.attachToTarget";
    let attach = json!({"targetId": page, "flatten": true});
    let answer = browser.ask(method, attach, None).await?;
    let session = text(&answer, "sessionId").ok_or(BrowserError::NotUnderstood { method })?;
    for origin in origins {
        browser
            .open_emptied(&format!("{}/", origin.origin), &session)
            .await?;
        set_items(browser, origin, &session).await?;
    }
    let closed = browser.ask("Target.closeTarget", json!({"targetId": page}), None);
    // A page that stays open is untidy, and closed with the browser.
    let _ = closed.await;
    Ok(())
}

/// Sets the items of the origin whose page is open.
async fn set_items(
    browser: &mut Cdp,
    origin: &StateOrigin,
    session: &str,
) -> Result<(), BrowserError> {
    let method = "Runtime.evaluate";
    let items = origin.local_storage.iter();
    let items: Vec<[&str; 2]> = items
        .map(|item| [&*item.name, item.value.expose()])
        .collect();
    // JSON is an expression of the language.
    let script = format!(
        "if (location.origin !== {}) throw new Error('another origin was opened'); \
         for (const [name, value] of {}) localStorage.setItem(name, value)",
        json!(origin.origin),
        json!(items),
    );
    let script = json!({"expression": script});
    let answer = browser.ask(method, script, Some(session)).await?;
    if answer.get("exceptionDetails").is_none() {
        return Ok(());
    }
    // What went wrong may repeat a value; where is enough.
    let message = format!("the Local Storage of {} could not be set", origin.origin);
    Err(BrowserError::Refused { method, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_of_one_host_is_set_by_its_address() {
        let state: StorageState = serde_json::from_value(json!({"cookies": [
            {"name": "a", "value": "1", "domain": "one.example", "path": "/x", "expires": 5, "secure": true},
            {"name": "b", "value": "2", "domain": ".all.example"},
        ]}))
        .unwrap();

        let own = cookie(&state.cookies[0]);
        let shared = cookie(&state.cookies[1]);

        assert_eq!(own["url"], "https://one.example/x");
        assert_eq!((own.get("domain"), &own["expires"]), (None, &json!(5.0)));
        assert_eq!(shared["domain"], ".all.example");
        assert_eq!((shared.get("url"), shared.get("expires")), (None, None));
    }
}
