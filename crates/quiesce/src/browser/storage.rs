//! Gives a running browser cookies and Local Storage, as if pages had set them.

use super::cdp::Cdp;
use super::error::BrowserError;
use super::flush::{connect, open_blank, text};
use serde_json::{Value, json};
use stasis_model::storage_state::{StateCookie, StateOrigin, StorageState};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// How long it may take: a page is opened for each origin.
const LIMIT: Duration = Duration::from_mins(2);

/// Sets all of it in the browser that works in this directory. Pages of the origins are opened for that, and answered here:
/// nothing is asked of the sites themselves.
///
/// Returns the cookies that the browser does not have afterwards: it drops some without a word, such as those that have
/// expired, or those with `SameSite=None` and without `Secure`.
pub async fn set_storage<'a>(
    directory: &Path,
    state: &'a StorageState,
) -> Result<Vec<&'a StateCookie>, BrowserError> {
    let setting = async {
        let mut browser = connect(directory).await?;
        let cookies: Vec<Value> = state.cookies.iter().map(cookie).collect();
        let all = json!({"cookies": cookies});
        browser.ask("Storage.setCookies", all, None).await?;
        let method = "Storage.getCookies";
        let answer = browser.ask(method, json!({}), None).await?;
        let taken = answer["cookies"].as_array();
        let untaken = untaken(
            &state.cookies,
            taken.ok_or(BrowserError::NotUnderstood { method })?,
        );
        if !state.origins.is_empty() {
            set_local_storage(&mut browser, &state.origins).await?;
        }
        Ok(untaken)
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

/// The cookies that are not among those which a browser says it has.
fn untaken<'a>(wanted: &'a [StateCookie], taken: &[Value]) -> Vec<&'a StateCookie> {
    let taken: BTreeSet<[String; 3]> = taken
        .iter()
        .map(|one| ["name", "domain", "path"].map(|part| one[part].as_str().unwrap_or_default()))
        .map(|[name, domain, path]| key(name, domain, path))
        .collect();
    wanted
        .iter()
        .filter(|one| !taken.contains(&key(&one.name, &one.domain, &one.path)))
        .collect()
}

/// What tells cookies apart, however their domain and path are written.
fn key(name: &str, domain: &str, path: &str) -> [String; 3] {
    let domain = domain.trim_start_matches('.').to_ascii_lowercase();
    let path = if path.is_empty() { "/" } else { path };
    [name.to_owned(), domain, path.to_owned()]
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

    #[test]
    fn a_cookie_that_the_browser_does_not_have_was_not_taken() {
        let state: StorageState = serde_json::from_value(json!({"cookies": [
            {"name": "a", "value": "1", "domain": "One.example", "path": ""},
            {"name": "a", "value": "1", "domain": "one.example", "path": "/x"},
            {"name": "b", "value": "2", "domain": ".all.example"},
        ]}))
        .unwrap();
        let has = [
            json!({"name": "a", "value": "1", "domain": "one.example", "path": "/"}),
            json!({"name": "b", "value": "2", "domain": ".all.example", "path": "/"}),
        ];

        assert_eq!(untaken(&state.cookies, &has), [&state.cookies[1]]);
        assert_eq!(untaken(&state.cookies, &[]).len(), 3);
    }
}
