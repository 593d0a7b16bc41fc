//! Writes a project's file from what is found in its directory.

use super::{FILE, ProjectError};
use crate::bridge;
use crate::error::Error;
use serde::Serialize;
use stasis_disk::atomic_write;
use stasis_model::id::ProjectId;
use stasis_quiesce::sqlite;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Names under which a compose file is known.
const COMPOSE: [&str; 4] = [
    "compose.yaml",
    "compose.yml",
    "docker-compose.yaml",
    "docker-compose.yml",
];
/// Where variables are usually written down.
const VARIABLES: [&str; 2] = [".env", ".env.local"];

/// A project's file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProjectMade {
    /// What the project is called.
    pub project: ProjectId,
    /// The file.
    pub file: String,
    /// What is in it.
    pub text: String,
    /// Databases that were found, and are not in the state directory yet.
    pub databases: Vec<String>,
}

/// Writes the file, and makes the directories of the state; or only says what would be written.
pub async fn init(dir: &Path, id: Option<ProjectId>, dry_run: bool) -> Result<ProjectMade, Error> {
    let dir = dir.to_owned();
    bridge::blocking(move || {
        let no_directory = |source| Error::NoDirectory {
            path: dir.clone(),
            source,
        };
        let dir = dir.canonicalize().map_err(no_directory)?;
        let file = dir.join(FILE);
        if file.exists() && !dry_run {
            return Err(ProjectError::Exists(file).into());
        }
        let found = Found::look(&dir);
        let id = id.unwrap_or_else(|| usual_id(&dir));
        let text = found.text(&id);
        if !dry_run {
            let current = dir.join("state/current");
            atomic_write::make_directory(&current.join("files"))?;
            for volume in found.volumes() {
                atomic_write::make_directory(&current.join("volumes").join(volume))?;
            }
            atomic_write::replace_public(&file, text.as_bytes())?;
        }
        Ok(ProjectMade {
            project: id,
            file: file.display().to_string(),
            text,
            databases: found
                .databases
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
        })
    })
    .await
}

fn usual_id(dir: &Path) -> ProjectId {
    let name = dir
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let fits = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let name: String = name
        .unwrap_or_default()
        .chars()
        .filter(fits)
        .take(63)
        .collect();
    let name = name.trim_start_matches(['-', '_']);
    name.parse()
        .unwrap_or_else(|_| "project".parse().expect("it is a name"))
}

/// What is in a directory that a project may be made of.
#[derive(Debug, Default)]
struct Found {
    databases: Vec<PathBuf>,
    services: Vec<String>,
    postgres: Option<String>,
}

impl Found {
    fn look(dir: &Path) -> Self {
        let databases = sqlite::find_databases(dir).unwrap_or_default();
        let within = databases
            .iter()
            .filter_map(|path| path.strip_prefix(dir).ok());
        let is_hidden = |path: &Path| {
            let mut parts = path.components();
            parts.any(|part| part.as_os_str().to_string_lossy().starts_with('.'))
        };
        let read = |names: &[&str]| {
            let mut texts = names
                .iter()
                .map(|name| std::fs::read_to_string(dir.join(name)));
            texts.find_map(Result::ok).unwrap_or_default()
        };
        Self {
            databases: within
                .filter(|path| !is_hidden(path) && !path.starts_with("state"))
                .map(Path::to_owned)
                .collect(),
            services: compose_services(&read(&COMPOSE)),
            postgres: postgres_variable(&read(&VARIABLES)),
        }
    }

    fn volumes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.sqlite_volumes().into_iter().collect();
        names.extend(self.postgres.as_ref().map(|_| "postgres".to_owned()));
        if names.is_empty() {
            names.push("data".to_owned());
        }
        names
    }

    /// One volume for each database, called as it is.
    fn sqlite_volumes(&self) -> BTreeSet<String> {
        let stem = |path: &PathBuf| {
            let stem = path.file_stem()?.to_str()?;
            let fits =
                |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
            let name: String = stem.chars().filter(fits).take(40).collect();
            let name = name.trim_start_matches(['-', '_']).to_owned();
            (!name.is_empty()).then_some(name)
        };
        self.databases.iter().filter_map(stem).collect()
    }

    fn text(&self, id: &ProjectId) -> String {
        let mut text = format!(
            "# What Stasis keeps of this application. `stasis project save` saves it, `stasis project restore latest` brings it\n\
             # back. Everything in state/current/ is saved: files/ as they are, volumes/NAME as the volume says.\n\
             id = \"{id}\"\n# app_version = \"1.0.0\"\nstate = \"./state\"\n\
             # store = \"s3://bucket/prefix\"   # snapshots in a bucket, instead of beside the state\n"
        );
        for name in self.sqlite_volumes() {
            let _ = write!(
                text,
                "\n# SQLite databases: copied within one read transaction, while others write.\n[volumes.{name}]\nconsistency = \"sqlite\"\n"
            );
        }
        for path in &self.databases {
            let _ = writeln!(
                text,
                "# found {}: move it to state/current/volumes/, and tell your application",
                path.display()
            );
        }
        if let Some(variable) = &self.postgres {
            let _ = write!(
                text,
                "\n# A Postgres server: asked for a dump.\n[volumes.postgres]\nconsistency = \"postgres\"\nurl_env = \"{variable}\"\n"
            );
        }
        if self.databases.is_empty() && self.postgres.is_none() {
            text.push_str(
                "\n# Anything else: whoever writes it is paused while it is cloned.\n[volumes.data]\nconsistency = \"generic\"\n# services = [\"web\"]\n",
            );
        }
        if self.services.is_empty() {
            text.push_str(
                "\n# The programs that belong to it: a command, a process id file, or a container.\n# [services.web]\n# start = [\"./run-web\"]\n",
            );
        }
        for service in &self.services {
            let _ = write!(
                text,
                "\n# from the compose file; `docker ps` shows what the container is called\n# [services.{service}]\n# container = \"{service}\"\n"
            );
        }
        text.push_str(
            "# health = { tcp = \"127.0.0.1:8080\", timeout_s = 30 }\n# [services.web.hooks]\n# pre_save = [\"./flush\"]\n\
             \n[autosave]\ndebounce_s = 30\n\n[retention]\nmax_snapshots = 100\n",
        );
        text
    }
}

/// The names beneath `services:` of a compose file, as far as they are written in the usual way.
fn compose_services(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .skip_while(|line| line.trim_end() != "services:");
    let block = lines
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with([' ', '#']));
    let mut depth = None;
    let mut names = Vec::new();
    for line in block {
        let name = line.trim();
        let indent = line.len() - line.trim_start().len();
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        let depth = *depth.get_or_insert(indent);
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if let Some(name) = name.strip_suffix(':').filter(|_| indent == depth)
            && name.chars().all(fits)
        {
            names.push(name.to_owned());
        }
    }
    names
}

/// The variable that holds the URL of a Postgres server; never the URL itself, which may hold a password.
fn postgres_variable(text: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    let is_url = |value: &str| {
        let value = value.trim_matches(['"', '\'']);
        value.starts_with("postgres://") || value.starts_with("postgresql://")
    };
    let (key, _) = pairs.find(|(_, value)| is_url(value.trim()))?;
    let key = key.trim().trim_start_matches("export ").trim();
    Some(key.to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use crate::project::Home;
    use stasis_model::id::VolumeName;

    #[tokio::test]
    async fn what_is_found_is_written_down_and_can_be_read_again() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(
            at("shop.db"),
            [&b"SQLite format 3\0"[..], &[0; 84]].concat(),
        )
        .unwrap();
        std::fs::write(
            at(".env"),
            "SECRET=1\nDATABASE_URL=postgres://me:hush@localhost/shop\n",
        )
        .unwrap();
        std::fs::write(
            at("compose.yaml"),
            "services:\n  web:\n    image: x\n  db:\n    image: y\n",
        )
        .unwrap();

        let made = init(place.path(), Some("shop".parse().unwrap()), false)
            .await
            .unwrap();
        let home = Home::find(place.path()).await.unwrap();
        let again = init(place.path(), None, false).await;

        assert!(!made.text.contains("hush"), "{}", made.text);
        assert!(made.text.contains("# [services.web]"), "{}", made.text);
        let config = &home.declared.as_ref().unwrap().config;
        let volumes: Vec<&str> = config.volumes.keys().map(VolumeName::as_str).collect();
        assert_eq!(volumes, ["postgres", "shop"]);
        assert!(at("state/current/volumes/shop").is_dir());
        assert!(again.is_err());
    }

    #[test]
    fn only_the_names_of_services_are_taken_from_a_compose_file() {
        let text = "version: '3'\nservices:\n    # all of them\n    web:\n        ports:\n            - 80\n\n    db:\n        image: y\nvolumes:\n    data:\n";

        assert_eq!(compose_services(text), ["web", "db"]);
        assert!(compose_services("").is_empty());
    }
}
