//! Where a database is, and how to get in.

use stasis_model::invalid::Invalid;
use std::fmt;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where a database is, and how to get in. What is not said here is left to the programs: the local socket, port 5432,
/// the name of the user, and the user's own password file.
///
/// Never shows its password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    database: String,
    password: Option<Password>,
    /// Variables of libpq, by name, in the order they were said.
    variables: Vec<(&'static str, String)>,
}

/// Parameters of a URL, and the variables that say the same.
const PARAMETERS: [(&str, &str); 9] = [
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
];

impl Connection {
    /// A database on the local socket.
    pub fn new(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            password: None,
            variables: Vec::new(),
        }
    }

    /// On this host, or in this directory of sockets.
    #[must_use]
    pub fn host(self, host: &str) -> Self {
        self.with("PGHOST", host)
    }

    /// On this port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.with("PGPORT", &port.to_string())
    }

    /// As this user.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        self.with("PGUSER", user)
    }

    /// With this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(Password(password.to_owned()));
        self
    }

    /// Reads `postgres://user:password@host:port/database?host=/socket/directory`.
    pub fn parse(url: &str) -> Result<Self, Invalid> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(not_a_url)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut connection = Self::new(&decoded(path, "database")?).reached_by(host)?;
        let (user, password) = user
            .split_once(':')
            .map_or((user, None), |(user, password)| (user, Some(password)));
        if !user.is_empty() {
            connection = connection.user(&decoded(user, "user")?);
        }
        if let Some(password) = password {
            connection = connection.password(&decoded(password, "password")?);
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(not_a_url)?;
            connection = connection.parameter(name, &decoded(value, "parameter")?)?;
        }
        if connection.database.is_empty() {
            return Err(Invalid::new("the URL names no database"));
        }
        Ok(connection)
    }

    fn reached_by(self, host: &str) -> Result<Self, Invalid> {
        let (name, port) = match host.rsplit_once(':') {
            // The colons of an address in brackets are not the port's.
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (host, None),
        };
        let mut connection = self;
        let name = name.trim_start_matches('[').trim_end_matches(']');
        if !name.is_empty() {
            connection = connection.host(&decoded(name, "host")?);
        }
        if let Some(port) = port {
            let port = port.parse().ok();
            connection = connection.port(port.ok_or_else(|| unreadable("port"))?);
        }
        Ok(connection)
    }

    fn parameter(mut self, name: &str, value: &str) -> Result<Self, Invalid> {
        match name {
            "password" => return Ok(self.password(value)),
            "dbname" => value.clone_into(&mut self.database),
            _ => {
                let known = PARAMETERS.iter().find(|(known, _)| *known == name);
                let (_, variable) = known.ok_or_else(|| {
                    let plain = name.chars().filter(|c| !c.is_control());
                    let name: String = plain.take(40).collect();
                    Invalid::new(format!("the URL has an unknown parameter `{name}`"))
                })?;
                return Ok(self.with(variable, value));
            }
        }
        Ok(self)
    }

    fn with(mut self, variable: &'static str, value: &str) -> Self {
        self.variables.retain(|(known, _)| *known != variable);
        self.variables.push((variable, value.to_owned()));
        self
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// What a program must know to reach the server; the password is among it.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let password = self.password.as_ref();
        let password = password.map(|password| ("PGPASSWORD", password.0.as_str()));
        let others = self.variables.iter();
        others
            .map(|(name, value)| (*name, value.as_str()))
            .chain(password)
    }

    /// The text without the password, should a program have repeated it.
    pub(super) fn censored(&self, text: &str) -> String {
        match &self.password {
            Some(Password(password)) if !password.is_empty() => text.replace(password, "***"),
            _ => text.to_owned(),
        }
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let find = |name| self.variables.iter().find(|(known, _)| *known == name);
        let host = find("PGHOST").map_or("", |(_, host)| host);
        write!(f, "{} at {host}", self.database)?;
        match find("PGPORT") {
            Some((_, port)) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn not_a_url() -> Invalid {
    Invalid::new("this is not a URL like postgres://user@host:port/database")
}

/// The refusal of a part that is not text: a wrong percent sign, not UTF-8, or a NUL.
fn unreadable(part: &str) -> Invalid {
    Invalid::new(format!("the URL has a {part} that cannot be read"))
}

fn decoded(text: &str, part: &str) -> Result<String, Invalid> {
    let mut bytes = Vec::new();
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (Some(high), Some(low)) = (digit(left.next()), digit(left.next())) else {
            return Err(unreadable(part));
        };
        bytes.push(u8::try_from(high * 16 + low).expect("two hex digits are a byte"));
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(unreadable(part)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(url: &str) -> Vec<(&'static str, String)> {
        let connection = Connection::parse(url).unwrap();
        let variables = connection.variables();
        variables.map(|(n, v)| (n, v.to_owned())).collect()
    }

    #[test]
    fn a_url_is_taken_apart() {
        let url = "postgresql://ada:p%40ss:w@[::1]:5433/my%20db?sslmode=require&host=/run/pg";

        let variables = variables(url);

        assert_eq!(Connection::parse(url).unwrap().database(), "my db");
        let expected = [
            ("PGPORT", "5433"),
            ("PGUSER", "ada"),
            ("PGSSLMODE", "require"),
            ("PGHOST", "/run/pg"),
            ("PGPASSWORD", "p@ss:w"),
        ];
        assert_eq!(variables, expected.map(|(n, v)| (n, v.to_owned())));
    }

    #[test]
    fn little_is_enough() {
        assert_eq!(variables("postgres:///db"), []);
        assert_eq!(variables("postgres://h/db"), [("PGHOST", "h".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_told_without_the_text() {
        let wrong = |url| Connection::parse(url).unwrap_err();

        assert_eq!(wrong("mysql://h/db"), not_a_url());
        assert_eq!(
            wrong("postgres://h"),
            Invalid::new("the URL names no database")
        );
        assert_eq!(
            wrong("postgres://u:%zz@h/db").to_string(),
            "the URL has a password that cannot be read"
        );
        assert_eq!(
            wrong("postgres://h:no/db").to_string(),
            "the URL has a port that cannot be read"
        );
        let options = wrong("postgres://h/db?options=-c");
        assert!(options.to_string().contains("`options`"));
    }

    #[test]
    fn the_password_is_never_shown() {
        let connection = Connection::parse("postgres://ada:hidden@h:1/db").unwrap();

        let shown = format!("{connection} {connection:?}");

        assert!(!shown.contains("hidden"), "{shown}");
        assert_eq!(connection.to_string(), "db at h:1");
        assert_eq!(connection.censored("said hidden"), "said ***");
    }
}
