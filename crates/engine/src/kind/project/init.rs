//! Writes a project's file from what is found in its directory.
//!
//! The usual layout leaves every file where it is: the whole directory stays saved, under the name that its history has, and
//! databases become volumes by their paths. The layout `state` has a directory for everything.

mod found;

use super::FILE;
use super::home::plain_id;
use crate::bridge;
use crate::error::{Error, OPEN_DIRECTORY, ProjectError};
use found::FoundState;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::atomic_write;
use stasis_model::failure::AtPath;
use stasis_model::id::ProjectId;
use stasis_model::project::Layout;
use std::path::{Path, PathBuf};

pub use found::{FindingKind, ProjectFinding};

/// What is to be written.
#[derive(Clone, Debug)]
pub struct ProjectInit {
    /// What the project is called; without it, in place, as its directory was called in the store before.
    pub id: Option<ProjectId>,
    /// Where its data lies.
    pub layout: Layout,
    /// Whether only to say what would be written.
    pub dry_run: bool,
    /// Where this host remembers which directory is which subject.
    pub state: Option<PathBuf>,
}

impl Default for ProjectInit {
    fn default() -> Self {
        Self {
            id: None,
            layout: Layout::InPlace,
            dry_run: false,
            state: None,
        }
    }
}

/// A project's file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectMade {
    /// What the project is called.
    pub project: ProjectId,
    /// The file.
    pub file: String,
    /// What is in it.
    pub text: String,
    /// What was found in the directory, and what becomes of it.
    pub found: Vec<ProjectFinding>,
}

/// Writes the file; or only says what would be written.
pub async fn init(dir: &Path, command: ProjectInit) -> Result<ProjectMade, Error> {
    let dir = dir.to_owned();
    bridge::blocking(move || {
        let dir = dir.canonicalize().at(OPEN_DIRECTORY, &dir)?;
        let file = dir.join(FILE);
        if file.exists() && !command.dry_run {
            return Err(ProjectError::Exists(file).into());
        }
        let found = FoundState::look(&dir);
        let known = plain_id(&dir, command.state.as_deref())?;
        let (id, text) = match command.layout {
            Layout::InPlace => {
                let id = command.id.unwrap_or_else(|| known.clone());
                let text = found.in_place(&id, &known);
                (id, text)
            }
            Layout::State => {
                let id = command.id.unwrap_or_else(|| usual_id(&dir));
                let text = found.state(&id);
                (id, text)
            }
        };
        if !command.dry_run {
            if command.layout == Layout::State {
                let current = dir.join("state/current");
                atomic_write::make_directory(&current.join("files"))?;
                for volume in found.state_volumes() {
                    atomic_write::make_directory(&current.join("volumes").join(volume))?;
                }
            }
            atomic_write::replace_public(&file, text.as_bytes())?;
        }
        Ok(ProjectMade {
            project: id,
            file: file.display().to_string(),
            text,
            found: found.findings(command.layout),
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use crate::kind::project::Home;
    use stasis_model::id::VolumeName;

    fn application(place: &Path) {
        let at = |name: &str| place.join(name);
        std::fs::create_dir_all(at("data")).unwrap();
        let database = [&b"SQLite format 3\0"[..], &[0; 84]].concat();
        std::fs::write(at("data/shop.db"), database).unwrap();
        let variables = "SECRET=1\nDATABASE_URL=postgres://me:hush@localhost/shop\n";
        std::fs::write(at(".env"), variables).unwrap();
        let compose = "services:\n  web:\n    image: x\n  db:\n    image: mysql:8\n";
        std::fs::write(at("compose.yaml"), compose).unwrap();
    }

    #[tokio::test]
    async fn what_is_found_is_declared_where_it_is_and_can_be_read_again() {
        let place = tempfile::tempdir().unwrap();
        application(place.path());

        let was = Home::find(place.path(), None).await.unwrap();
        let made = init(place.path(), ProjectInit::default()).await.unwrap();
        let home = Home::find(place.path(), None).await.unwrap();
        let again = init(place.path(), ProjectInit::default()).await;

        assert!(!made.text.contains("hush"), "{}", made.text);
        assert_eq!(home.id, was.id, "the history keeps its name");
        assert_eq!(home.own_store(), None);
        let declared = home.declared.as_ref().unwrap();
        assert_eq!(declared.current(), home.dir);
        let config = &declared.config;
        let volumes: Vec<&str> = config.volumes.keys().map(VolumeName::as_str).collect();
        assert_eq!(volumes, ["postgres", "shop"]);
        let place_of = |name: &str| config.place_of(&name.parse().unwrap()).to_string();
        assert_eq!(place_of("shop"), "data/shop.db");
        assert!(!place.path().join("state").exists());
        let words: Vec<&str> = made.found.iter().map(|one| one.words.as_str()).collect();
        assert!(
            words.contains(&"data/shop.db (SQLite): captured where it is"),
            "{words:?}"
        );
        assert!(again.is_err());
    }

    #[tokio::test]
    async fn an_id_of_the_users_does_not_hide_what_was_saved_before() {
        let place = tempfile::tempdir().unwrap();
        let was = Home::find(place.path(), None).await.unwrap();
        let command = ProjectInit {
            id: Some("shop".parse().unwrap()),
            ..ProjectInit::default()
        };

        init(place.path(), command).await.unwrap();

        let home = Home::find(place.path(), None).await.unwrap();
        assert_eq!(home.id, was.id);
        let config = &home.declared.as_ref().unwrap().config;
        assert_eq!(config.id.as_str(), "shop");
    }

    #[tokio::test]
    async fn the_layout_of_the_state_directory_is_a_choice() {
        let place = tempfile::tempdir().unwrap();
        application(place.path());
        let command = ProjectInit {
            id: Some("shop".parse().unwrap()),
            layout: Layout::State,
            ..ProjectInit::default()
        };

        init(place.path(), command).await.unwrap();

        let home = Home::find(place.path(), None).await.unwrap();
        assert_eq!(home.id.as_str(), "shop");
        assert_eq!(home.own_store(), Some(home.dir.join("state")));
        assert!(place.path().join("state/current/volumes/shop").is_dir());
    }
}
