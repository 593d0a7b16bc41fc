//! Keys to a store, and how they are found in the text of AWS profile files.
//!
//! Pure: whoever calls reads the files and the environment, and hands over their text.

use std::collections::BTreeMap;
use std::fmt;

/// A text that must not be shown: no `Display`, and a `Debug` that keeps it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret into custody.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for signing only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

/// What a request to a store is signed with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Names the key; not a secret.
    pub access_key: String,
    /// Signs.
    pub secret: Secret,
    /// Goes along with short-lived keys.
    pub session_token: Option<Secret>,
}

/// What the profile files say under one name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AwsProfile {
    /// Present when both halves of the key are.
    pub credentials: Option<Credentials>,
    /// Which region to sign for.
    pub region: Option<String>,
    /// Where the store listens.
    pub endpoint_url: Option<String>,
}

/// Finds a profile in the text of a credentials file and of a config file; `None` when neither has it.
///
/// What the credentials file says wins. In the config file every profile but `default` is headed `[profile name]`.
pub fn profile(credentials_text: &str, config_text: &str, name: &str) -> Option<AwsProfile> {
    let in_credentials = section(credentials_text, |header| header == name);
    let in_config = section(config_text, |header| {
        let named = header
            .strip_prefix("profile")
            .filter(|rest| rest.starts_with([' ', '\t']))
            .map(str::trim);
        named == Some(name) || (name == "default" && header == "default")
    });
    if in_credentials.is_none() && in_config.is_none() {
        return None;
    }
    let mut settings = in_config.unwrap_or_default();
    let own = in_credentials.unwrap_or_default();
    if own.contains_key("aws_access_key_id") {
        // A token belongs to the key beside it, never to a key from the other file.
        settings.retain(|key, _| !key.starts_with("aws_"));
    }
    settings.extend(own);
    Some(from_settings(&settings))
}

type ProfileSettings<'a> = BTreeMap<&'a str, &'a str>;

fn from_settings(settings: &ProfileSettings<'_>) -> AwsProfile {
    let setting = |key| {
        settings
            .get(key)
            .filter(|value| !value.is_empty())
            .map(|value| (*value).to_owned())
    };
    let key = setting("aws_access_key_id").zip(setting("aws_secret_access_key"));
    AwsProfile {
        credentials: key.map(|(access_key, secret)| Credentials {
            access_key,
            secret: Secret(secret),
            session_token: setting("aws_session_token").map(Secret),
        }),
        region: setting("region"),
        endpoint_url: setting("endpoint_url"),
    }
}

/// The settings under the headers that are wanted, or `None` when there is no such header.
fn section(text: &str, wanted: impl Fn(&str) -> bool) -> Option<ProfileSettings<'_>> {
    let mut found: Option<ProfileSettings<'_>> = None;
    let mut inside = false;
    for line in text.lines() {
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            inside = wanted(header.0.trim());
            if inside {
                found.get_or_insert_default();
            }
        } else if inside && !nested {
            let settings = found.get_or_insert_default();
            if let Some((key, value)) = line.split_once('=') {
                settings.insert(key.trim(), without_comment(value.trim()));
            }
        }
    }
    found
}

/// A comment after a value begins with a space and a mark; a mark inside a secret is part of the secret.
fn without_comment(value: &str) -> &str {
    let end = [" #", " ;", "\t#", "\t;"]
        .iter()
        .filter_map(|mark| value.find(mark))
        .min();
    value[..end.unwrap_or(value.len())].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "\
[default]
aws_access_key_id = AKIDEFAULT
aws_secret_access_key=se/cr+et#1

[ci]
aws_access_key_id=AKICI
aws_secret_access_key=other ; a remark
aws_session_token = token==
";
    const CONFIG: &str = "\
# where things are
[default]
region = eu-central-1
[profile ci]
region=us-west-2
s3 =
  endpoint_url = http://nested.example
endpoint_url = https://s3.example.com
[profile empty]
[ci]
region = never
";

    #[test]
    fn a_profile_is_put_together_from_both_files() {
        let ci = profile(CREDENTIALS, CONFIG, "ci").unwrap();

        let credentials = ci.credentials.unwrap();
        assert_eq!(credentials.access_key, "AKICI");
        assert_eq!(credentials.secret.reveal(), "other");
        assert_eq!(credentials.session_token.unwrap().reveal(), "token==");
        assert_eq!(ci.region.as_deref(), Some("us-west-2"));
        assert_eq!(ci.endpoint_url.as_deref(), Some("https://s3.example.com"));
    }

    #[test]
    fn the_default_profile_needs_no_prefix_and_keeps_marks_inside_a_secret() {
        let default = profile(CREDENTIALS, CONFIG, "default").unwrap();

        let credentials = default.credentials.unwrap();
        assert_eq!(credentials.secret.reveal(), "se/cr+et#1");
        assert_eq!(credentials.session_token, None);
        assert_eq!(default.region.as_deref(), Some("eu-central-1"));
    }

    #[test]
    fn a_profile_without_a_key_is_not_a_missing_profile() {
        assert_eq!(
            profile(CREDENTIALS, CONFIG, "empty"),
            Some(AwsProfile::default())
        );
        assert_eq!(profile(CREDENTIALS, CONFIG, "nobody"), None);
        assert_eq!(profile("", "", "default"), None);
    }

    #[test]
    fn a_key_never_travels_with_the_token_of_another() {
        let config = "[profile ci]\naws_access_key_id=OLD\naws_session_token=OLD-TOKEN\n";
        let credentials = "[ci]\naws_access_key_id=NEW\naws_secret_access_key=s\n";

        let found = profile(credentials, config, "ci")
            .unwrap()
            .credentials
            .unwrap();

        assert_eq!(found.access_key, "NEW");
        assert_eq!(found.session_token, None);
    }

    #[test]
    fn a_secret_is_not_shown_by_debug() {
        let shown = format!("{:?}", profile(CREDENTIALS, CONFIG, "ci"));

        assert!(!shown.contains("other") && !shown.contains("token=="));
        assert!(shown.contains("AKICI"));
    }
}
