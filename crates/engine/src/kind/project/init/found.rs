//! What is in a directory that a project may be made of, and the file that follows from it.
//!
//! Only what is certain becomes a volume: a database that is there, a server whose URL is in `.env`. Everything else is
//! proposed as a comment that can be used as it is. Values of variables never leave this module.

use crate::kind::project::dotenv;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::ProjectId;
use stasis_model::project::Layout;
use stasis_quiesce::sqlite;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Names under which a compose file is known.
const COMPOSE: [&str; 4] = [
    "compose.yaml",
    "compose.yml",
    "docker-compose.yaml",
    "docker-compose.yml",
];

/// Directories in which other people's files lie.
const FOREIGN: [&str; 6] = [
    "node_modules",
    "site-packages",
    "target",
    "vendor",
    "venv",
    "__pycache__",
];

/// So many directories are looked at, at most: a project is smaller, and a home directory is not waited for.
const DIRECTORIES: usize = 20_000;

/// More than this is no settings file.
const LARGEST: u64 = 1 << 20;

/// What something is that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A SQLite database, by its header.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
    /// A `MySQL` or `MariaDB` server.
    Mysql,
    /// A Redis server.
    Redis,
}

impl FindingKind {
    fn word(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
            Self::Redis => "Redis",
        }
    }
}

/// Something that was found, and what becomes of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectFinding {
    /// The file that it was found in, or that it is.
    pub path: String,
    /// What it is.
    pub kind: FindingKind,
    /// Whether it is saved from now on, or only proposed in the file as a comment.
    pub is_declared: bool,
    /// All of it in a line, for people.
    pub words: String,
}

/// A server that some file speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FoundServer {
    /// The file.
    file: String,
    /// What it is called there.
    name: String,
    kind: FindingKind,
    /// The variable that holds its URL, if one is named.
    variable: Option<String>,
}

/// What is in a directory that a project may be made of.
#[derive(Debug, Default)]
pub(super) struct FoundState {
    /// SQLite databases, by the names of their volumes.
    databases: BTreeMap<String, PathBuf>,
    /// The variable in `.env` that holds the URL of a Postgres server.
    postgres: Option<String>,
    servers: Vec<FoundServer>,
    /// Other programs in a compose file.
    services: Vec<String>,
}

impl FoundState {
    pub(super) fn look(dir: &Path) -> Self {
        let mut found = Self::default();
        for path in databases(dir) {
            let name = found.name_for(&path);
            found.databases.insert(name, path);
        }
        let is_postgres =
            |url: &str| url.starts_with("postgres://") || url.starts_with("postgresql://");
        found.postgres = dotenv::names(dir, is_postgres).into_iter().next();
        for (prefix, kind) in [
            ("mysql", FindingKind::Mysql),
            ("mariadb", FindingKind::Mysql),
            ("redis", FindingKind::Redis),
        ] {
            for variable in dotenv::names(dir, |url| url.starts_with(&format!("{prefix}://"))) {
                found.servers.push(FoundServer {
                    file: ".env".to_owned(),
                    name: prefix.to_owned(),
                    kind,
                    variable: Some(variable),
                });
            }
        }
        found.compose(dir);
        found.settings(dir);
        found
    }

    /// The name of a volume for a database: that of its file, and of its directory if that is taken.
    fn name_for(&self, path: &Path) -> String {
        let parts: Vec<String> = path
            .with_extension("")
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        let named = |from: usize| {
            let joined = parts[from..].join("-");
            let fits =
                |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
            let name: String = joined.chars().filter(fits).take(50).collect();
            name.trim_start_matches(['-', '_']).to_owned()
        };
        let mut candidates = (0..parts.len()).rev().map(named);
        let is_free = |name: &String| !name.is_empty() && !self.databases.contains_key(name);
        let free = candidates.find(is_free);
        free.unwrap_or_else(|| format!("database-{}", self.databases.len() + 1))
    }

    /// Programs and servers of a compose file.
    fn compose(&mut self, dir: &Path) {
        let texts = COMPOSE
            .iter()
            .filter_map(|name| Some((*name, read(&dir.join(name))?)));
        let Some((file, text)) = texts.into_iter().next() else {
            return;
        };
        for (name, image) in compose_services(&text) {
            let image = image.rsplit('/').next().unwrap_or_default().to_owned();
            let image = image.split(':').next().unwrap_or_default();
            let kind = match image {
                "postgres" | "postgis" | "pgvector" | "timescaledb" => FindingKind::Postgres,
                "mysql" | "mariadb" | "percona" => FindingKind::Mysql,
                "redis" | "valkey" | "redis-stack" => FindingKind::Redis,
                _ => {
                    self.services.push(name);
                    continue;
                }
            };
            self.servers.push(FoundServer {
                file: file.to_owned(),
                name,
                kind,
                variable: None,
            });
        }
    }

    /// Servers that the settings of Django, Prisma and Rails speak of.
    fn settings(&mut self, dir: &Path) {
        for (file, text) in settings_files(dir) {
            let kind = if text.contains("django.db.backends.postgresql")
                || is_prisma(&file, &text, "postgresql")
                || is_rails(&file, &text, "postgresql")
            {
                FindingKind::Postgres
            } else if text.contains("django.db.backends.mysql")
                || is_prisma(&file, &text, "mysql")
                || is_rails(&file, &text, "mysql2")
            {
                FindingKind::Mysql
            } else {
                continue;
            };
            self.servers.push(FoundServer {
                name: kind.word().to_lowercase(),
                variable: variable_in(&text),
                file,
                kind,
            });
        }
    }

    /// The volumes of the layout `state`, by name.
    pub(super) fn state_volumes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.databases.keys().cloned().collect();
        names.extend(self.postgres.as_ref().map(|_| "postgres".to_owned()));
        if names.is_empty() {
            names.push("data".to_owned());
        }
        names
    }

    /// What was found, for people and programs.
    pub(super) fn findings(&self, layout: Layout) -> Vec<ProjectFinding> {
        let mut all: Vec<ProjectFinding> = Vec::new();
        for path in self.databases.values() {
            let path = path.display().to_string();
            let words = match layout {
                Layout::InPlace => format!("{path} (SQLite): captured where it is"),
                Layout::State => format!(
                    "{path} (SQLite): move it into its volume in state/current/volumes/, and tell your application"
                ),
            };
            all.push(ProjectFinding {
                path,
                kind: FindingKind::Sqlite,
                is_declared: layout == Layout::InPlace,
                words,
            });
        }
        if let Some(variable) = &self.postgres {
            all.push(ProjectFinding {
                path: ".env".to_owned(),
                kind: FindingKind::Postgres,
                is_declared: true,
                words: format!(".env {variable} (PostgreSQL): dumped by every save"),
            });
        }
        for server in self.proposed() {
            let (file, name, kind) = (&server.file, &server.name, server.kind.word());
            all.push(ProjectFinding {
                path: file.clone(),
                kind: server.kind,
                is_declared: false,
                words: format!(
                    "{file} {name} ({kind}): proposed as a comment in stasis.toml; not saved until you enable it"
                ),
            });
        }
        all
    }

    /// Servers that are not declared already.
    fn proposed(&self) -> impl Iterator<Item = &FoundServer> {
        let is_declared =
            |server: &&FoundServer| server.kind == FindingKind::Postgres && self.postgres.is_some();
        self.servers
            .iter()
            .filter(move |server| !is_declared(server))
    }

    /// The file of a project whose data lies where the application has it.
    pub(super) fn in_place(&self, id: &ProjectId, known: &ProjectId) -> String {
        let mut text = format!(
            "# What Stasis keeps of this application: the whole directory, saved by `stasis save` or `stasis project save`, brought\n\
             # back by `stasis restore`. Every SQLite database in it is copied consistently; volumes are named here so that a\n\
             # save notices when one is gone.\n\
             id = \"{id}\"\n"
        );
        if id != known {
            let _ = writeln!(
                text,
                "subject = \"{known}\"   # the name that its history has in the store"
            );
        }
        text.push_str(
            "layout = \"in-place\"\n# app_version = \"1.0.0\"\n# store = \"s3://bucket/prefix\"   # snapshots in a bucket\n",
        );
        for (name, path) in &self.databases {
            let path = path.display();
            let _ = write!(
                text,
                "\n[volumes.{name}]\nconsistency = \"sqlite\"\npath = {}\n",
                toml::Value::String(path.to_string())
            );
        }
        self.servers_text(&mut text);
        text.push_str(
            "\n# A directory whose writers are paused while it is cloned:\n# [volumes.media]\n# consistency = \"generic\"\n# path = \"media\"\n# services = [\"web\"]\n",
        );
        self.rest(&mut text);
        text
    }

    /// The file of a project whose data lies in a state directory.
    pub(super) fn state(&self, id: &ProjectId) -> String {
        let mut text = format!(
            "# What Stasis keeps of this application. `stasis project save` saves it, `stasis project restore latest` brings it\n\
             # back. Everything in state/current/ is saved: files/ as they are, volumes/NAME as the volume says.\n\
             id = \"{id}\"\nlayout = \"state\"\n# app_version = \"1.0.0\"\nstate = \"./state\"\n\
             # store = \"s3://bucket/prefix\"   # snapshots in a bucket, instead of beside the state\n"
        );
        for (name, path) in &self.databases {
            let _ = write!(
                text,
                "\n# SQLite databases: copied within one read transaction, while others write.\n# found {}: move it to state/current/volumes/{name}/, and tell your application\n[volumes.{name}]\nconsistency = \"sqlite\"\n",
                path.display()
            );
        }
        self.servers_text(&mut text);
        if self.databases.is_empty() && self.postgres.is_none() {
            text.push_str(
                "\n# Anything else: whoever writes it is paused while it is cloned.\n[volumes.data]\nconsistency = \"generic\"\n# services = [\"web\"]\n",
            );
        }
        self.rest(&mut text);
        text
    }

    fn servers_text(&self, text: &mut String) {
        if let Some(variable) = &self.postgres {
            let _ = write!(
                text,
                "\n# A Postgres server: asked for a dump. The variable is read from the environment, else from .env.\n[volumes.postgres]\nconsistency = \"postgres\"\nurl_env = \"{variable}\"\n"
            );
        }
        let mut proposed: Vec<String> = self.proposed().map(proposal).collect();
        proposed.dedup();
        text.extend(proposed);
    }

    fn rest(&self, text: &mut String) {
        if self.services.is_empty() {
            text.push_str(
                "\n# The programs that belong to it: a command, a process id file, or a container.\n# [services.web]\n# start = [\"./run-web\"]\n# health = { tcp = \"127.0.0.1:8080\", timeout_s = 30 }\n",
            );
        }
        for service in &self.services {
            let _ = write!(
                text,
                "\n# from the compose file; `docker ps` shows what the container is called\n# [services.{service}]\n# container = \"{service}\"\n"
            );
        }
        text.push_str("\n[autosave]\ndebounce_s = 30\n\n[retention]\nmax_snapshots = 100\n");
    }
}

/// A volume for a server that is not declared, as a comment.
fn proposal(server: &FoundServer) -> String {
    let FoundServer { file, name, .. } = server;
    let variable = server.variable.as_deref().unwrap_or("DATABASE_URL");
    let lines = match server.kind {
        FindingKind::Postgres => {
            format!("[volumes.{name}]\nconsistency = \"postgres\"\nurl_env = \"{variable}\"")
        }
        FindingKind::Mysql => dump_hook(
            name,
            &format!(
                "docker compose exec -T {name} sh -c 'mysqldump --single-transaction --all-databases -uroot -p\\\"$MYSQL_ROOT_PASSWORD\\\"' > stasis-dumps/{name}/dump.sql.new && mv stasis-dumps/{name}/dump.sql.new stasis-dumps/{name}/dump.sql"
            ),
        ),
        FindingKind::Redis => dump_hook(
            name,
            &format!(
                "docker compose exec -T {name} redis-cli --rdb - > stasis-dumps/{name}/dump.rdb.new && mv stasis-dumps/{name}/dump.rdb.new stasis-dumps/{name}/dump.rdb"
            ),
        ),
        FindingKind::Sqlite => String::new(),
    };
    let lines: Vec<String> = lines.lines().map(|line| format!("# {line}")).collect();
    let kind = server.kind.word();
    format!(
        "\n# found in {file}: {name} ({kind}). Remove the `# ` to save it:\n{}\n",
        lines.join("\n")
    )
}

/// A directory of dumps that a hook writes before each save.
fn dump_hook(name: &str, command: &str) -> String {
    format!(
        "[volumes.{name}]\nconsistency = \"generic\"\npath = \"stasis-dumps/{name}\"\nservices = []\n[services.{name}]\ncontainer = \"{name}\"\nhooks = {{ pre_save = \"mkdir -p stasis-dumps/{name} && {command}\" }}"
    )
}

/// SQLite databases of the application itself, from the directory, sorted. What may not be read is passed over.
fn databases(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut left, mut seen) = (Vec::new(), vec![dir.to_owned()], 0);
    while let Some(here) = left.pop() {
        seen += 1;
        if seen > DIRECTORIES {
            break;
        }
        let entries = std::fs::read_dir(&here).into_iter().flatten().flatten();
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy().into_owned();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let is_state = here == dir && name == "state";
            let is_foreign = name.starts_with('.') || FOREIGN.contains(&&*name) || is_state;
            if kind.is_dir() && !is_foreign && !path.join("pyvenv.cfg").exists() {
                left.push(path);
            } else if kind.is_file()
                && sqlite::is_database(&path).unwrap_or(false)
                && !sqlite::is_companion(&path)
                && path.to_str().is_some()
            {
                found.extend(path.strip_prefix(dir).ok().map(Path::to_owned));
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Option<String> {
    let seen = std::fs::metadata(path).ok()?;
    let is_fit = seen.is_file() && seen.len() <= LARGEST;
    is_fit.then(|| std::fs::read_to_string(path).ok())?
}

/// The settings of frameworks, where they usually are, with their names.
fn settings_files(dir: &Path) -> Vec<(String, String)> {
    let mut names: Vec<String> = [
        "config/database.yml",
        "prisma/schema.prisma",
        "schema.prisma",
        "settings.py",
    ]
    .map(str::to_owned)
    .to_vec();
    if dir.join("manage.py").is_file() {
        let packages = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for package in packages {
            let name = package.file_name().to_string_lossy().into_owned();
            for inner in ["settings.py", "settings/base.py", "settings/production.py"] {
                names.push(format!("{name}/{inner}"));
            }
        }
    }
    names.sort();
    names
        .into_iter()
        .filter_map(|name| read(&dir.join(&name)).map(|text| (name, text)))
        .collect()
}

fn is_prisma(file: &str, text: &str, provider: &str) -> bool {
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    file.ends_with(".prisma") && words.contains(&format!("provider = \"{provider}\""))
}

fn is_rails(file: &str, text: &str, adapter: &str) -> bool {
    let is_line = |line: &str| line.trim() == format!("adapter: {adapter}");
    file.ends_with("database.yml") && text.lines().any(is_line)
}

/// The variable with a URL that settings name: `env("X")`, `ENV["X"]`, `os.environ["X"]`.
fn variable_in(text: &str) -> Option<String> {
    for before in [
        "env(\"",
        "ENV[\"",
        "environ[\"",
        "environ['",
        "environ.get(\"",
        "environ.get('",
        "getenv(\"",
    ] {
        for (at, _) in text.match_indices(before) {
            let rest = &text[at + before.len()..];
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let end = rest
                .find(|letter: char| !is_name(letter))
                .unwrap_or_default();
            if rest[..end].ends_with("URL") {
                return Some(rest[..end].to_owned());
            }
        }
    }
    None
}

/// The names beneath `services:` of a compose file with their images, as far as they are written in the usual way.
fn compose_services(text: &str) -> Vec<(String, String)> {
    let lines = text
        .lines()
        .skip_while(|line| line.trim_end() != "services:");
    let block = lines
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with([' ', '#']));
    let mut depth = None;
    let mut all: Vec<(String, String)> = Vec::new();
    for line in block {
        let words = line.trim();
        let indent = line.len() - line.trim_start().len();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        let depth = *depth.get_or_insert(indent);
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if let Some(name) = words.strip_suffix(':').filter(|_| indent == depth)
            && name.chars().all(fits)
        {
            all.push((name.to_owned(), String::new()));
        } else if let Some(image) = words.strip_prefix("image:")
            && let Some((_, last)) = all.last_mut()
        {
            image.trim().trim_matches(['"', '\'']).clone_into(last);
        }
    }
    all
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use stasis_model::project::ProjectConfig;

    fn write(place: &Path, name: &str, text: &[u8]) {
        let path = place.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    const DATABASE: &[u8] = b"SQLite format 3\0 and so on";

    #[test]
    fn services_of_a_compose_file_come_with_their_images() {
        let text = "version: '3'\nservices:\n    # all of them\n    web:\n        ports:\n            - 80\n\n    db:\n        image: \"postgres:16\"\nvolumes:\n    data:\n";
        let all = compose_services(text);

        assert_eq!(all.len(), 2);
        assert_eq!(all[0], ("web".to_owned(), String::new()));
        assert_eq!(all[1], ("db".to_owned(), "postgres:16".to_owned()));
        assert!(compose_services("").is_empty());
    }

    #[test]
    fn every_database_gets_a_name_of_its_own_and_foreign_ones_are_left_alone() {
        let place = tempfile::tempdir().unwrap();
        for name in [
            "a/app.db",
            "b/app.db",
            "app.sqlite3",
            "node_modules/x/y.db",
            ".cache/z.db",
            "mine/lib/w.db",
        ] {
            write(place.path(), name, DATABASE);
        }
        write(place.path(), "mine/pyvenv.cfg", b"");
        write(place.path(), "notes.db", b"not one");

        let found = FoundState::look(place.path());

        let all: Vec<(&str, &str)> = found
            .databases
            .iter()
            .map(|(name, path)| (name.as_str(), path.to_str().unwrap()))
            .collect();
        assert_eq!(
            all,
            [
                ("app", "a/app.db"),
                ("b-app", "b/app.db"),
                ("database-2", "app.sqlite3")
            ]
        );
    }

    #[test]
    fn servers_of_compose_django_prisma_and_rails_are_proposed_and_the_proposals_can_be_used() {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), "compose.yaml", b"services:\n  cache:\n    image: redis:7\n  sql:\n    image: mysql\n  web:\n    build: .\n");
        write(
            place.path(),
            "prisma/schema.prisma",
            b"datasource db {\n  provider = \"postgresql\"\n  url      = env(\"PRISMA_URL\")\n}\n",
        );
        write(
            place.path(),
            "config/database.yml",
            b"production:\n  adapter: mysql2\n",
        );
        write(place.path(), "manage.py", b"");
        write(
            place.path(),
            "site/settings.py",
            b"DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql'}}",
        );

        let found = FoundState::look(place.path());
        let text = found.in_place(&"shop".parse().unwrap(), &"shop".parse().unwrap());
        let findings = found.findings(Layout::InPlace);

        assert!(findings.iter().all(|one| !one.is_declared), "{findings:?}");
        let named: Vec<&str> = findings.iter().map(|one| one.path.as_str()).collect();
        for file in [
            "compose.yaml",
            "prisma/schema.prisma",
            "config/database.yml",
            "site/settings.py",
        ] {
            assert!(named.contains(&file), "{named:?}");
        }
        let read = |text: &str| -> ProjectConfig { toml::from_str(text).unwrap() };
        assert_eq!(read(&text).check(), Ok(()));
        // Each proposal works when it is taken out of its comment.
        let blocks = text.split("Remove the `# ` to save it:\n").skip(1);
        for block in blocks {
            let lines = block.lines().take_while(|line| !line.is_empty());
            let used: Vec<&str> = lines.map(|line| line.trim_start_matches("# ")).collect();
            let whole = format!("{text}\n\n{}\n", used.join("\n"));
            assert_eq!(read(&whole).check(), Ok(()), "{whole}");
        }
        assert!(text.contains("PRISMA_URL"), "{text}");
    }
}
