//! What a directory is as a project.

use super::known::{KnownDirs, minted};
use crate::bridge;
use crate::error::{Error, OPEN_DIRECTORY, ProjectError, refused};
use crate::system::directory_id;
use stasis_model::failure::AtPath;
use stasis_model::id::{ContainerSubject, Label, ProjectId, SessionRef};
use stasis_model::project::{Layout, ProjectConfig};
use stasis_model::subject_ref::{CONTAINER_PREFIX, DIR_PREFIX, SESSION_PREFIX};
use std::io;
use std::path::{Path, PathBuf};

/// The file that makes a directory a declared project.
pub const FILE: &str = "stasis.toml";

/// More than this is no configuration.
const LARGEST: u64 = 1 << 20;

/// A directory, known as a project.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Home {
    /// Which project.
    pub id: ProjectId,
    /// The directory, without symbolic links in its path.
    pub dir: PathBuf,
    /// What its file says; none for a plain directory.
    pub declared: Option<Declared>,
    /// Whether its id is one that was there before: a plain directory that this host never saved has a new one.
    pub(super) is_known: bool,
    /// The session that this is, if it is no directory.
    pub(crate) session: Option<SessionHome>,
    /// The container that this is, if it is one.
    pub(crate) container: Option<ContainerSubject>,
}

/// A session whose snapshots are looked at like those of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionHome {
    /// Which.
    pub(crate) session: SessionRef,
    /// On which host its workspace lies, or lay.
    pub(crate) host: Label,
    /// The directory there; empty before it was ever awake.
    pub(crate) dir: String,
    /// Whether that is this host.
    pub(crate) is_here: bool,
}

/// What a project's file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Declared {
    /// The file.
    pub config: ProjectConfig,
    /// The state directory; of the layout `in-place`, a directory of ours on this host.
    pub state: PathBuf,
    /// The live data: what is saved and restored.
    root: PathBuf,
}

impl Declared {
    /// The live data: what is saved and restored.
    pub fn current(&self) -> PathBuf {
        self.root.clone()
    }

    /// The directory that programs of the project are told of.
    pub(super) fn state_for_programs(&self) -> PathBuf {
        if self.is_in_place() {
            return self.root.clone();
        }
        self.state.clone()
    }

    /// Whether the data lies where the application has it.
    pub(crate) fn is_in_place(&self) -> bool {
        self.config.layout() == Layout::InPlace
    }
}

impl Home {
    /// Looks at a directory. What this host remembers in its state directory says which subject a plain one is.
    pub async fn find(dir: &Path, state: Option<&Path>) -> Result<Self, Error> {
        let (dir, state) = (dir.to_owned(), state.map(Path::to_owned));
        bridge::blocking(move || Self::look(&dir, state.as_deref())).await
    }

    fn look(dir: &Path, host: Option<&Path>) -> Result<Self, Error> {
        let asked = dir;
        let dir = match dir.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::gone(dir, host),
            found => found.at(OPEN_DIRECTORY, asked)?,
        };
        if !dir.is_dir() {
            return Err(refused(OPEN_DIRECTORY, asked, io::ErrorKind::NotADirectory));
        }
        let Some(text) = read(&dir.join(FILE))? else {
            return Self::plain(dir, host);
        };
        let config = parse(&dir.join(FILE), &text)?;
        let id = config.subject.clone().unwrap_or_else(|| config.id.clone());
        let (state, root) = match config.layout() {
            Layout::State => {
                let state: PathBuf = dir.join(config.state()).components().collect();
                (state.clone(), state.join("current"))
            }
            Layout::InPlace => {
                let place = std::env::temp_dir().join("stasis-projects");
                (place.join(id.as_str()), dir.clone())
            }
        };
        Ok(Self {
            id,
            declared: Some(Declared {
                config,
                state,
                root,
            }),
            dir,
            is_known: true,
            session: None,
            container: None,
        })
    }

    /// A directory without a file: what it was saved as, else a new one. A host without a place for its state knows nothing but
    /// where it lies.
    fn plain(dir: PathBuf, host: Option<&Path>) -> Result<Self, Error> {
        let known = match host {
            Some(host) => KnownDirs::new(host).recognise(&dir)?,
            None => Some(directory_id(&dir)),
        };
        Ok(Self {
            is_known: known.is_some(),
            id: known.unwrap_or_else(|| minted(&dir)),
            dir,
            declared: None,
            session: None,
            container: None,
        })
    }

    /// Whether it is a subject already: one that this host never saved gets another id when it does.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// A directory that is known by its id, and lies at `place` on this host, if it does.
    pub(crate) async fn named(
        id: ProjectId,
        place: Option<PathBuf>,
        host: Option<&Path>,
    ) -> Result<Self, Error> {
        if let Some(place) = place {
            let home = Self::find(&place, host).await?;
            if home.id == id {
                return Ok(home);
            }
        }
        Ok(Self {
            id,
            dir: PathBuf::new(),
            declared: None,
            is_known: true,
            session: None,
            container: None,
        })
    }

    /// A session, which lies nowhere as a directory.
    pub(crate) fn of_session(session: SessionHome) -> Self {
        let id = session.session.session.as_str().parse();
        Self {
            id: id.expect("the names of sessions and of directories follow one rule"),
            dir: PathBuf::new(),
            declared: None,
            is_known: true,
            session: Some(session),
            container: None,
        }
    }

    /// A container, which lies nowhere as a directory.
    pub(crate) fn of_container(container: ContainerSubject) -> Self {
        let id = container.as_str().parse();
        Self {
            id: id.expect("the names of containers and of directories follow one rule"),
            dir: PathBuf::new(),
            declared: None,
            is_known: true,
            session: None,
            container: Some(container),
        }
    }

    /// Whether it is no directory, so that what is written elsewhere is always a copy of it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.session.is_some() || self.container.is_some()
    }

    /// The subject as it is typed: `dir:NAME`, `session:TENANT/SESSION` or `container:NAME`.
    pub fn subject(&self) -> String {
        match (&self.session, &self.container) {
            (Some(of), _) => format!("{SESSION_PREFIX}{}", of.session),
            (_, Some(of)) => format!("{CONTAINER_PREFIX}{}", of.container()),
            _ => format!("{DIR_PREFIX}{}", self.id),
        }
    }

    /// The same in a sentence, where a directory goes by its id alone.
    pub(super) fn called(&self) -> String {
        if self.is_elsewhere() {
            return self.subject();
        }
        self.id.to_string()
    }

    /// A directory that is not there any more has the id that it had.
    fn gone(dir: &Path, host: Option<&Path>) -> Result<Self, Error> {
        let absolute = std::path::absolute(dir).at(OPEN_DIRECTORY, dir)?;
        let (Some(above), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(refused(OPEN_DIRECTORY, dir, io::ErrorKind::NotFound));
        };
        Self::plain(
            above.canonicalize().at(OPEN_DIRECTORY, dir)?.join(name),
            host,
        )
    }

    /// The directory of the project that `dir` lies in: the nearest one above with a file, else `dir` itself.
    pub fn above(dir: &Path) -> PathBuf {
        let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let found = whole.ancestors().find(|one| one.join(FILE).is_file());
        found.map_or_else(|| dir.to_owned(), Path::to_owned)
    }

    /// Whether a path names a directory: one that is there, or one that was saved from this host and is gone.
    pub fn is_named(path: &Path, state: Option<&Path>) -> bool {
        let Ok(whole) = std::path::absolute(path) else {
            return false;
        };
        let known = state.and_then(|state| KnownDirs::new(state).recogniser().ok());
        path.is_dir() || known.is_some_and(|known| known(&whole))
    }

    /// Whether a directory has a file of ours, or was saved from this host.
    pub async fn is_subject(dir: &Path, state: Option<&Path>) -> Result<bool, Error> {
        let (dir, state) = (dir.to_owned(), state.map(Path::to_owned));
        bridge::blocking(move || {
            let whole = dir.canonicalize().unwrap_or_else(|_| dir.clone());
            let known = state.map(|state| KnownDirs::new(&state).recogniser());
            let is_known = known.transpose()?.is_some_and(|known| known(&whole));
            Ok(is_known || whole.join(FILE).is_file())
        })
        .await
    }

    /// The directory that is meant by whoever stands in `dir` and names none: the nearest one, from there up, that has a file or was saved from
    /// this host, else `dir` itself.
    pub async fn around(dir: &Path, state: Option<&Path>) -> Result<PathBuf, Error> {
        let (dir, state) = (dir.to_owned(), state.map(Path::to_owned));
        bridge::blocking(move || {
            let whole = dir.canonicalize().unwrap_or_else(|_| dir.clone());
            let known = state.map(|state| KnownDirs::new(&state).recogniser());
            let known = known.transpose()?;
            let is_known = |one: &Path| known.as_ref().is_some_and(|known| known(one));
            let mut around = whole.ancestors();
            let found = around.find(|one| one.join(FILE).is_file() || is_known(one));
            Ok(found.map_or(dir, Path::to_owned))
        })
        .await
    }

    /// Where its snapshots lie unless somebody says otherwise; none for a directory that keeps nothing of ours in itself.
    pub fn own_store(&self) -> Option<PathBuf> {
        let declared = self.declared.as_ref()?;
        (!declared.is_in_place()).then(|| declared.state.clone())
    }

    /// The same with a place on this host for what is not a snapshot, if it has none of its own.
    pub(super) fn hosted(mut self, place: Option<&Path>) -> Self {
        if let (Some(declared), Some(place)) = (&mut self.declared, place)
            && declared.is_in_place()
        {
            declared.state = place.join("projects").join(self.id.as_str());
        }
        self
    }

    /// What its file says, or why nothing can be done without.
    pub(crate) fn declared(&self) -> Result<&Declared, Error> {
        let plain = || ProjectError::Plain(self.dir.clone());
        Ok(self.declared.as_ref().ok_or_else(plain)?)
    }
}

/// The id of a directory without a file.
pub(super) fn plain_id(dir: &Path, host: Option<&Path>) -> Result<ProjectId, Error> {
    Ok(Home::plain(dir.to_owned(), host)?.id)
}

/// The text of the file; none when there is no such file.
fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::metadata(path) {
        Ok(seen) if seen.len() > LARGEST => {
            return Err(refused("read", path, io::ErrorKind::FileTooLarge));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        seen => seen.at("read", path)?,
    };
    Ok(Some(std::fs::read_to_string(path).at("read", path)?))
}

fn parse(path: &Path, text: &str) -> Result<ProjectConfig, Error> {
    let config: ProjectConfig = toml::from_str(text).map_err(|error| {
        // Never the line itself: it may hold a password.
        let before = error.span().map(|span| &text[..span.start.min(text.len())]);
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        ProjectError::NotToml {
            path: path.to_owned(),
            detail: format!("line {line}: {}", error.message()),
        }
    })?;
    config.check().map_err(|source| ProjectError::Config {
        path: path.to_owned(),
        source,
    })?;
    Ok(config)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_directories_of_one_name_are_two_projects_and_stay_so() {
        let place = tempfile::tempdir().unwrap();
        let [a, b] = ["a/my app!", "b/my app!"].map(|name| place.path().join(name));
        for dir in [&a, &b] {
            std::fs::create_dir_all(dir).unwrap();
        }

        let [first, again, second] = [
            Home::find(&a, None).await.unwrap(),
            Home::find(&a.join("."), None).await.unwrap(),
            Home::find(&b, None).await.unwrap(),
        ];

        assert_eq!(first.id, again.id);
        assert_ne!(first.id, second.id);
        assert!(first.id.as_str().starts_with("myapp-"), "{}", first.id);
        assert_eq!(first.id.as_str().len(), "myapp-".len() + 12);
        assert_eq!(first.own_store(), None);
    }

    #[tokio::test]
    async fn a_directory_that_is_gone_is_the_project_that_it_was() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("notes");
        std::fs::create_dir(&dir).unwrap();
        let was = Home::find(&dir, None).await.unwrap();
        std::fs::remove_dir(&dir).unwrap();

        let is = Home::find(&dir, None).await.unwrap();

        assert_eq!(is.id, was.id);
    }

    #[tokio::test]
    async fn a_file_makes_it_a_declared_one() {
        let place = tempfile::tempdir().unwrap();
        let text = "id = \"shop\"\nstate = \"./data/../state\"\n[volumes.main]\nconsistency = \"sqlite\"\n";
        std::fs::write(place.path().join(FILE), text).unwrap();

        let home = Home::find(place.path(), None).await.unwrap();

        assert_eq!(home.id.as_str(), "shop");
        let state = home.own_store().unwrap();
        assert!(state.ends_with("data/../state") || state.ends_with("state"));
    }

    #[tokio::test]
    async fn a_file_that_is_wrong_is_named_with_the_line() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(FILE), "id = \"shop\"\nstat = \"hush\"\n").unwrap();

        let error = Home::find(place.path(), None).await.unwrap_err();

        let words = crate::error::error_chain(&error);
        assert!(words.contains("stasis.toml"), "{words}");
        assert!(words.contains("line 2: unknown field `stat`"), "{words}");
        assert!(!words.contains("hush"), "{words}");
    }
}
