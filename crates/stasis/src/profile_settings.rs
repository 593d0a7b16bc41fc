//! What commands about browser profiles take where no flag says it: a variable, else the configuration file.

use serde::Deserialize;

/// Settings of profiles as somebody wrote them, in the table `[profile]` or in variables. They are read when they are needed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileDefaults {
    /// The region that this host is in.
    pub(crate) region: Option<String>,
    /// Where the world sees this host.
    pub(crate) egress_geo: Option<String>,
    /// Whether saves have what the browser makes again by itself.
    pub(crate) caches: Option<String>,
    /// The browser that is asked for its version.
    pub(crate) browser: Option<String>,
    /// What to do when a snapshot cannot be loaded.
    pub(crate) on_failure: Option<String>,
    /// How long to wait for another holder.
    pub(crate) wait: Option<String>,
}

/// One of the settings of profiles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProfileSetting {
    Region,
    EgressGeo,
    Caches,
    Browser,
    OnFailure,
    Wait,
}

impl ProfileSetting {
    /// Its names: of the variable, and in the file.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Region => ("STASIS_REGION", "region"),
            Self::EgressGeo => ("STASIS_EGRESS_GEO", "egress_geo"),
            Self::Caches => ("STASIS_CACHES", "caches"),
            Self::Browser => ("STASIS_BROWSER", "browser"),
            Self::OnFailure => ("STASIS_ON_FAILURE", "on_failure"),
            Self::Wait => ("STASIS_WAIT", "wait"),
        }
    }

    /// The name of its variable.
    pub(crate) fn variable(self) -> &'static str {
        self.names().0
    }

    fn of(self, settings: &ProfileDefaults) -> Option<&str> {
        let text = match self {
            Self::Region => &settings.region,
            Self::EgressGeo => &settings.egress_geo,
            Self::Caches => &settings.caches,
            Self::Browser => &settings.browser,
            Self::OnFailure => &settings.on_failure,
            Self::Wait => &settings.wait,
        };
        text.as_deref()
    }

    /// What a flag says, else the environment, else the configuration file.
    pub(crate) fn or<T>(
        self,
        flag: Option<T>,
        variables: &ProfileDefaults,
        file: &ProfileDefaults,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<Option<T>> {
        if flag.is_some() {
            return Ok(flag);
        }
        let (variable, key) = self.names();
        let read = |origin: String, text: &str| {
            parse(text).map_err(|why| anyhow::anyhow!("{origin}: {why}"))
        };
        if let Some(text) = self.of(variables) {
            return read(variable.to_owned(), text).map(Some);
        }
        let text = self.of(file);
        let origin = || format!("`profile.{key}` in the configuration file");
        text.map(|text| read(origin(), text)).transpose()
    }
}
