//! The parameters of a request: what stands in the path, and behind the question mark. All of them are text until a route reads them.

use super::problem::Problem;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stasis_engine::model::id::{ChromeMajor, Lineage, ProfileId, TenantId};
use stasis_engine::model::snapshot_ref::SnapshotRef;

/// One part of a path as it is meant; nothing if it is not text, or has what a name never has.
pub(super) fn decoded(part: &str) -> Option<String> {
    let text = percent_decode_str(part).decode_utf8().ok()?;
    let is_name = !text.is_empty() && !text.contains(['/', '\0']);
    is_name.then(|| text.into_owned())
}

/// Adds those of a query; one that stands there twice, or in the path, is refused.
pub(super) fn add_query(all: &mut Map<String, Value>, query: &str) -> Result<(), Problem> {
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let before = all.insert(name.clone().into_owned(), Value::String(value.into_owned()));
        if before.is_some() {
            let said = format!("the parameter `{}` stands twice", name.escape_debug());
            return Err(Problem::parameters(&said));
        }
    }
    Ok(())
}

/// How many rows a page has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct PageSize(u16);

impl PageSize {
    const LARGEST: u16 = 1000;

    pub(super) fn rows(self) -> usize {
        self.0.into()
    }
}

impl Default for PageSize {
    fn default() -> Self {
        Self(100)
    }
}

impl TryFrom<String> for PageSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=Self::LARGEST).contains(number));
        let bad = || format!("a page has 1 to {} rows", Self::LARGEST);
        Ok(Self(number.ok_or_else(bad)?))
    }
}

impl schemars::JsonSchema for PageSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PageSize".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "integer", "minimum": 1, "maximum": Self::LARGEST, "default": Self::default().0,
        })
    }
}

/// A profile with its major version of Chrome, without the tenant, which is the token's: `alice@131`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ProfileName {
    profile: ProfileId,
    major: ChromeMajor,
}

impl ProfileName {
    /// The same of a tenant.
    pub(super) fn of(self, tenant: &TenantId) -> Lineage {
        Lineage {
            tenant: tenant.clone(),
            profile: self.profile,
            major: self.major,
        }
    }
}

impl TryFrom<String> for ProfileName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.rsplit_once('@');
        let (profile, major) = parts.ok_or("it is of the form <profile>@<chrome-major>")?;
        let profile = profile.parse::<ProfileId>();
        let major = major.parse::<ChromeMajor>();
        Ok(Self {
            profile: profile.map_err(|why| why.to_string())?,
            major: major.map_err(|why| why.to_string())?,
        })
    }
}

impl schemars::JsonSchema for ProfileName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ProfileName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[^@/]+@[0-9]{1,4}$" })
    }
}

/// The name of a subject without its prefix and its tenant: `notes`, `alice@131`, `42`.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub(super) struct SubjectName(String);

impl SubjectName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A snapshot as it is named: `latest`, `latest~2`, a time, an id or the beginning of one, a label.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct SnapshotName(pub(super) SnapshotRef);

impl TryFrom<String> for SnapshotName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.parse::<SnapshotRef>();
        let parsed = parsed.map_err(|why| why.to_string())?;
        if matches!(parsed, SnapshotRef::Checkpoint(_)) {
            return Err("checkpoints are on the host of their directory only".to_owned());
        }
        Ok(Self(parsed))
    }
}

impl schemars::JsonSchema for SnapshotName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SnapshotName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1, "examples": ["latest", "latest~2", "@-2h"] })
    }
}

/// The same of a directory of this host, which has checkpoints besides: `cp-3`.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct MomentName(pub(super) SnapshotRef);

impl TryFrom<String> for MomentName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.parse::<SnapshotRef>();
        parsed.map(Self).map_err(|why| why.to_string())
    }
}

impl schemars::JsonSchema for MomentName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MomentName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1, "examples": ["cp-3", "latest", "@-2h"] })
    }
}

/// Yes or no, as a query says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Flag(pub(super) bool);

impl TryFrom<String> for Flag {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = |_| "it is `true` or `false`".to_owned();
        Ok(Self(text.parse().map_err(bad)?))
    }
}

impl schemars::JsonSchema for Flag {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Flag".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "boolean" })
    }
}

/// One page of rows that are sorted by what tells them apart, and what that is of the last one, if there are more.
pub(super) fn page<T>(
    mut rows: Vec<T>,
    after: Option<&str>,
    limit: PageSize,
    name: impl Fn(&T) -> &str,
) -> (Vec<T>, Option<String>) {
    if let Some(last) = after {
        // What comes or goes meanwhile moves no other row.
        rows.retain(|row| name(row) > last);
    }
    let has_more = rows.len() > limit.rows();
    rows.truncate(limit.rows());
    let last = rows.last().map(|row| name(row).to_owned());
    (rows, last.filter(|_| has_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_is_one_name() {
        assert_eq!(decoded("a%20b").as_deref(), Some("a b"));
        for none in ["", "a%2Fb", "%00", "%ff"] {
            assert_eq!(decoded(none), None, "{none}");
        }
    }

    #[test]
    fn a_parameter_stands_once() {
        let mut all = Map::new();
        all.insert("tenant_id".to_owned(), "acme".into());

        assert!(add_query(&mut all, "limit=5&cursor=a%26b").is_ok());
        assert_eq!(all["cursor"], "a&b");
        assert!(add_query(&mut all.clone(), "limit=6").is_err());
        assert!(add_query(&mut all, "tenant_id=other").is_err());
    }

    #[test]
    fn a_page_has_a_bounded_number_of_rows() {
        let read = |text: &str| PageSize::try_from(text.to_owned()).map(PageSize::rows);
        assert_eq!((read("1"), read("1000")), (Ok(1), Ok(1000)));
        for bad in ["0", "1001", "-1", "x", "", "1.0"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
