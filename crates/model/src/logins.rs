//! Where a profile seems to be signed in, judged by what cookies say of themselves: never by a value.

use crate::chrome::CookieLife;
use crate::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a cookie says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CookieFacts {
    /// The host, with a dot before it if subdomains get it too.
    pub domain: String,
    /// What it is called.
    pub name: String,
    /// How long it lasts.
    pub life: CookieLife,
    /// Whether pages cannot read it.
    pub http_only: bool,
    /// Whether it is sent over TLS only.
    pub secure: bool,
}

/// Parts of names that servers give to the cookies of their sessions.
const SESSION_NAMES: [&str; 7] = ["sess", "sid", "auth", "token", "login", "remember", "jwt"];

impl CookieFacts {
    /// Whether it looks like one by which a server knows its user: closed to pages, and over TLS only or called so.
    fn is_session_like(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        let is_called_so = SESSION_NAMES.iter().any(|part| name.contains(part));
        self.http_only && (self.secure || is_called_so)
    }
}

/// What the cookies of a site look like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoginState {
    /// One that has not expired looks like the cookie of a session.
    SignedIn,
    /// Those that looked like it have expired.
    Expired,
    /// None looks like it.
    CookiesOnly,
}

crate::display_as_serialized!(LoginState);

/// The cookies of one site that outlast the browser.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteLogin {
    /// The host that set them.
    pub site: String,
    /// What they look like: a guess, because only the site knows.
    pub state: LoginState,
    /// Names of those that look like a session's.
    pub session_cookies: Vec<String>,
    /// How many there are that have not expired.
    pub cookies: u64,
    /// How many have expired.
    pub expired: u64,
    /// When the last one of a session expires or expired; of all cookies, where none looks like a session's.
    pub expires_at_ms: Option<Timestamp>,
}

/// Judges the cookies of each site at a moment: where the profile seems to be signed in first, then by name.
pub fn judge(cookies: impl IntoIterator<Item = CookieFacts>, now: Timestamp) -> Vec<SiteLogin> {
    let mut sites: BTreeMap<String, Vec<CookieFacts>> = BTreeMap::new();
    for cookie in cookies {
        if cookie.life != CookieLife::Session {
            let site = cookie.domain.trim_start_matches('.').to_owned();
            sites.entry(site).or_default().push(cookie);
        }
    }
    let judged = sites
        .into_iter()
        .map(|(site, all)| of_site(site, &all, now));
    let mut judged: Vec<SiteLogin> = judged.collect();
    judged.sort_by_key(|one| one.state);
    judged
}

fn of_site(site: String, all: &[CookieFacts], now: Timestamp) -> SiteLogin {
    let lasts = |cookie: &&CookieFacts| cookie.life.outlives(now);
    let of_session: Vec<&CookieFacts> = all.iter().filter(|one| one.is_session_like()).collect();
    let state = match (of_session.is_empty(), of_session.iter().any(lasts)) {
        (true, _) => LoginState::CookiesOnly,
        (false, true) => LoginState::SignedIn,
        (false, false) => LoginState::Expired,
    };
    let ends = |cookie: &CookieFacts| match cookie.life {
        CookieLife::Until(moment) => Some(moment),
        CookieLife::Session | CookieLife::Unknown => None,
    };
    let last = if of_session.is_empty() {
        all.iter().filter_map(ends).max()
    } else {
        of_session.iter().filter_map(|one| ends(one)).max()
    };
    let lasting = all.iter().filter(lasts).count();
    let mut names: Vec<String> = of_session.iter().map(|one| one.name.clone()).collect();
    names.sort();
    names.dedup();
    SiteLogin {
        site,
        state,
        session_cookies: names,
        cookies: lasting as u64,
        expired: (all.len() - lasting) as u64,
        expires_at_ms: last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(domain: &str, name: &str, until: u64, flags: (bool, bool)) -> CookieFacts {
        CookieFacts {
            domain: domain.to_owned(),
            name: name.to_owned(),
            life: CookieLife::Until(Timestamp::from_millis(until)),
            http_only: flags.0,
            secure: flags.1,
        }
    }

    #[test]
    fn a_site_is_signed_in_while_one_cookie_of_a_session_lasts() {
        let now = Timestamp::from_millis(100);
        let cookies = [
            cookie(".shop.example", "theme", 900, (false, false)),
            cookie(".mail.example", "x", 200, (true, true)),
            cookie("mail.example", "consent", 900, (false, true)),
            cookie("old.example", "session_id", 50, (true, false)),
            cookie("old.example", "consent", 900, (false, false)),
            cookie("plain.example", "opaque", 900, (true, false)),
        ];

        let sites = judge(cookies, now);

        let found: Vec<_> = sites.iter().map(|one| (&*one.site, one.state)).collect();
        let wanted = [
            ("mail.example", LoginState::SignedIn),
            ("old.example", LoginState::Expired),
            ("plain.example", LoginState::CookiesOnly),
            ("shop.example", LoginState::CookiesOnly),
        ];
        assert_eq!(found, wanted);
        assert_eq!(sites[0].expires_at_ms, Some(Timestamp::from_millis(200)));
        assert_eq!((sites[1].cookies, sites[1].expired), (1, 1));
        assert_eq!(sites[1].expires_at_ms, Some(Timestamp::from_millis(50)));
    }

    #[test]
    fn what_ends_with_the_browser_is_no_login() {
        let session = CookieFacts {
            life: CookieLife::Session,
            ..cookie("a.example", "sid", 0, (true, true))
        };
        assert_eq!(judge([session], Timestamp::from_millis(1)), []);
    }
}
