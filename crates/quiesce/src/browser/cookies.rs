//! How many cookies a running browser has, by site; never what they say.

use super::error::BrowserError;
use super::pipe::PipedBrowser;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(10);

impl PipedBrowser {
    /// Counts the cookies that the browser can read, by their domain.
    pub async fn count_cookies(&mut self) -> Result<BTreeMap<String, u64>, BrowserError> {
        let method = "Storage.getCookies";
        let asking = self.cdp.ask(method, json!({}), None);
        let answer = tokio::time::timeout(LIMIT, asking).await;
        let answer = answer.unwrap_or(Err(BrowserError::Silent { limit: LIMIT }))?;
        let cookies = answer["cookies"].as_array();
        let cookies = cookies.ok_or(BrowserError::NotUnderstood { method })?;
        let mut sites = BTreeMap::new();
        for domain in cookies
            .iter()
            .filter_map(|cookie| cookie["domain"].as_str())
        {
            *sites.entry(domain.to_owned()).or_default() += 1;
        }
        Ok(sites)
    }
}
