//! Gives a running browser cookies and Local Storage, as if pages had set them.

use super::cdp::Cdp;
use super::error::BrowserError;
use super::flush::{open_blank, text};
use super::pipe::PipedBrowser;
use serde_json::{Value, json};
use stasis_model::storage_state::{StateCookie, StateOrigin, StorageState};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long it may take: a page is opened for each origin.
const LIMIT: Duration = Duration::from_mins(2);

impl PipedBrowser {
    /// Sets all of it. Pages of the origins are opened for that, and answered here: nothing is asked of the sites themselves.
    ///
    /// Returns the cookies that the browser does not have afterwards: it drops some without a word, such as those that have
    /// expired, or those with `SameSite=None` and without `Secure`.
    pub async fn set_storage<'a>(
        &mut self,
        state: &'a StorageState,
    ) -> Result<Vec<&'a StateCookie>, BrowserError> {
        let set = tokio::time::timeout(LIMIT, set_all(&mut self.cdp, state)).await;
        set.unwrap_or(Err(BrowserError::Silent { limit: LIMIT }))
    }
}

async fn set_all<'a>(
    browser: &mut Cdp,
    state: &'a StorageState,
) -> Result<Vec<&'a StateCookie>, BrowserError> {
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
        set_local_storage(browser, &state.origins).await?;
    }
    Ok(untaken)
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
    if let Some((site, has_ancestor)) = cookie.partition() {
        value["partitionKey"] = json!({"topLevelSite": site, "hasCrossSiteAncestor": has_ancestor});
    }
    value
}

/// The cookies that are not among those which a browser says it has.
fn untaken<'a>(wanted: &'a [StateCookie], taken: &[Value]) -> Vec<&'a StateCookie> {
    let taken: BTreeSet<CookieKey> = taken.iter().map(CookieKey::of_answer).collect();
    let is_taken = |one: &&StateCookie| taken.contains(&CookieKey::of(one));
    wanted.iter().filter(|one| !is_taken(one)).collect()
}

/// What tells cookies apart, however their domain and path are written.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CookieKey {
    name: String,
    domain: String,
    path: String,
    partition: Option<(String, bool)>,
}

impl CookieKey {
    fn new(name: &str, domain: &str, path: &str, partition: Option<(&str, bool)>) -> Self {
        let plain = |(site, has_ancestor): (&str, bool)| {
            let site = site.trim_end_matches('/').to_ascii_lowercase();
            (site, has_ancestor)
        };
        Self {
            name: name.to_owned(),
            domain: domain.trim_start_matches('.').to_ascii_lowercase(),
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            partition: partition.map(plain),
        }
    }

    fn of(cookie: &StateCookie) -> Self {
        Self::new(
            &cookie.name,
            &cookie.domain,
            &cookie.path,
            cookie.partition(),
        )
    }

    fn of_answer(cookie: &Value) -> Self {
        let [name, domain, path] =
            ["name", "domain", "path"].map(|part| cookie[part].as_str().unwrap_or_default());
        let partition = &cookie["partitionKey"];
        let has_ancestor = partition["hasCrossSiteAncestor"].as_bool();
        let partition = partition["topLevelSite"].as_str();
        let partition = partition.map(|site| (site, has_ancestor.unwrap_or(true)));
        Self::new(name, domain, path, partition)
    }
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

    #[test]
    fn cookies_of_two_partitions_are_two_cookies() {
        let top = "https://top.example";
        let state: StorageState = serde_json::from_value(json!({"cookies": [
            {"name": "a", "value": "1", "domain": "a.b", "partitionKey": top, "_crHasCrossSiteAncestor": true},
            {"name": "a", "value": "1", "domain": "a.b", "partitionKey": top, "_crHasCrossSiteAncestor": false},
            {"name": "a", "value": "1", "domain": "a.b"},
        ]}))
        .unwrap();
        let partition = json!({"topLevelSite": top, "hasCrossSiteAncestor": true});
        let has = json!({"name": "a", "value": "1", "domain": "a.b", "path": "/", "partitionKey": partition});

        assert_eq!(cookie(&state.cookies[0])["partitionKey"], partition);
        assert_eq!(
            untaken(&state.cookies, &[has]),
            [&state.cookies[1], &state.cookies[2]]
        );
    }
}
