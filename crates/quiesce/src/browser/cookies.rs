//! How many cookies a running browser has, by site; never what they say.

use super::error::BrowserError;
use super::flush::connect;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Counts the cookies that the browser in this directory can read, by their domain.
pub async fn count_cookies(directory: &Path) -> Result<BTreeMap<String, u64>, BrowserError> {
    let counting = async {
        let mut browser = connect(directory).await?;
        let method = "Storage.getCookies";
        let answer = browser.ask(method, json!({}), None).await?;
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
    };
    let counted = tokio::time::timeout(LIMIT, counting).await;
    counted.unwrap_or(Err(BrowserError::Silent { limit: LIMIT }))
}

/// Whether the browser in this directory can be spoken to by now.
pub async fn is_ready(directory: &Path) -> bool {
    let asking = async {
        let mut browser = connect(directory).await?;
        browser.ask("Browser.getVersion", json!({}), None).await
    };
    let answered: Result<Result<Value, BrowserError>, _> =
        tokio::time::timeout(Duration::from_secs(2), asking).await;
    matches!(answered, Ok(Ok(_)))
}
