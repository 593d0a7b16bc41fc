//! A directory and its subject that do not lie together: what is said of a directory that this host never saved, and of a subject
//! that lies on another host.
//!
//! *Always true:* every command that a message names can be typed as it stands, but for a `DIR` that only the user can choose.

use super::known::{self, FormerSubject, KnownDirs, Tie};
use super::{Home, Project, SessionHome};
use crate::address::{SESSION_PREFIX, shell_word};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::near::{did_you_mean, near_directories, near_subjects};
use crate::open::Engine;
use crate::system::name_for_id;
use crate::warning::Warning;
use stasis_model::failure::Failure;
use stasis_model::id::{ProjectId, TenantId};
use stasis_store::documents::roots::{self, Root};
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many objects of directories whose names begin alike are listed to find those of one name. What a store holds beyond is not
/// looked at, so that a first save costs about the same beside a hundred subjects and a hundred thousand.
const MOST_OBJECTS: usize = 8000;
/// Of how many it is seen whether they have snapshots.
const MOST_READ: usize = 8;
/// How many of them are named.
const NAMED: usize = 3;

/// The directories that are called so: the one whose id this is, else those whose ids begin with it.
pub(crate) fn fitting<'a>(ids: &'a [ProjectId], name: &str) -> Vec<&'a ProjectId> {
    if let Some(exact) = ids.iter().find(|id| id.as_str() == name) {
        return vec![exact];
    }
    let is_called = |id: &&ProjectId| {
        // What was minted ends in digits of chance; a name that somebody chose is only itself.
        let parts = id.as_str().rsplit_once('-');
        let is_random = |digits: &str| {
            digits.len() == known::DIGITS && digits.bytes().all(|one| one.is_ascii_hexdigit())
        };
        parts.is_some_and(|(known_as, digits)| known_as == name && is_random(digits))
    };
    ids.iter().filter(is_called).collect()
}

impl Engine {
    /// Where this host has which subject.
    pub(crate) async fn places(&self) -> Result<BTreeMap<ProjectId, PathBuf>, Error> {
        let Some(state) = self.local_dirs.state.clone() else {
            return Ok(BTreeMap::new());
        };
        Ok(bridge::blocking(move || KnownDirs::new(&state).places()).await?)
    }
}

/// A directory of the store that bears the name of another one.
struct Namesake {
    id: ProjectId,
    /// Where it lies on this host.
    place: Option<PathBuf>,
}

impl Project {
    /// Refuses to look for snapshots of a directory that this host never saved: none would be found, whatever the store has.
    pub(super) async fn ensure_known(&self) -> Result<(), Error> {
        let host = self.engine.local_dirs.state.as_deref();
        let Some(host) = host.filter(|_| !self.home.is_known) else {
            return Ok(());
        };
        // It may have been saved since somebody looked.
        let (known, dir) = (KnownDirs::new(host), self.home.dir.clone());
        let (found, former) = bridge::blocking(move || {
            let found = known.recognise(&dir)?;
            Ok::<_, Failure>((found, known.former(&dir)?))
        })
        .await?;
        if found.as_ref() == Some(&self.home.id) {
            return Ok(());
        }
        let dir = Shown::of(&self.home.dir);
        if let Some(former) = former.filter(|_| self.home.dir.is_dir()) {
            return Err(former_error(&dir, former));
        }
        let (said, is_there) = if self.home.dir.is_dir() {
            (
                format!("{} was never saved from this host", dir.quoted),
                true,
            )
        } else {
            let said = format!(
                "there is no directory or subject {}: it is not there, and was never saved from this host",
                dir.quoted
            );
            (said, false)
        };
        // That the store cannot be listed is not what went wrong.
        let namesakes = self.namesakes(|_| true).await.unwrap_or_default();
        let mut hint = unknown_hint(&dir, is_there, &namesakes);
        if !is_there
            && namesakes.is_empty()
            && let Some(question) = self.near().await
        {
            hint = format!("{question} {hint}");
        }
        Err(not_found(said, hint))
    }

    /// Asks whether a directory beside, or a subject of the store, was meant.
    async fn near(&self) -> Option<String> {
        let dir = &self.home.dir;
        let mut near = near_directories(dir).await;
        let (bucket, root) = (&self.engine.bucket, &self.engine.chunk_root);
        let tenant = root.directory().map(|(tenant, _)| tenant);
        near.extend(near_subjects(bucket, tenant.as_ref(), dir).await);
        did_you_mean(&near)
    }

    /// What whoever saves this directory for the first time should know: that it was another subject, or that one of its name lies
    /// in the store and nowhere on this host.
    pub(super) async fn first_save_warning(&self) -> Option<Warning> {
        let host = self.engine.local_dirs.state.as_deref();
        let host = host.filter(|_| !self.home.is_known)?;
        let (known, dir) = (KnownDirs::new(host), self.home.dir.clone());
        let former = bridge::blocking(move || known.former(&dir)).await;
        let subject = format!("dir:{}", self.home.id);
        let dir = self.home.dir.display().to_string();
        if let Ok(Some(former)) = former {
            let was = format!("dir:{}", former.id);
            let now = former.now.map(|now| now.display().to_string());
            return Some(match former.tie {
                Tie::Was => Warning::WasAnotherSubject {
                    dir,
                    subject,
                    was,
                    now,
                },
                Tie::LiesThere => Warning::LiesWhereAnotherLay {
                    dir,
                    subject,
                    was,
                    now,
                },
            });
        }
        // A save does without that note, if the store cannot be listed.
        let is_elsewhere = |one: &Namesake| one.place.is_none();
        let others = self.namesakes(is_elsewhere).await.ok()?.into_iter();
        let others: Vec<String> = others.map(|one| format!("dir:{}", one.id)).collect();
        (!others.is_empty()).then_some(Warning::NameInStore {
            dir,
            subject,
            others,
        })
    }

    /// Directories of the store that bear the name of this one, those of them that are wanted.
    async fn namesakes(
        &self,
        is_wanted: impl Fn(&Namesake) -> bool,
    ) -> Result<Vec<Namesake>, Error> {
        let Some((tenant, own)) = self.engine.chunk_root.directory() else {
            return Ok(Vec::new());
        };
        let (bucket, name) = (&self.engine.bucket, name_for_id(&self.home.dir));
        let listed = roots::directories_called(bucket, &tenant, &name, MOST_OBJECTS).await?;
        let ids = listed.iter().filter_map(ChunkRoot::directory);
        // Once each, in whatever order the store has them.
        let ids: BTreeSet<ProjectId> = ids.map(|(_, id)| id).collect();
        let ids: Vec<ProjectId> = ids.into_iter().collect();
        let places = self.engine.places().await?;
        let others = fitting(&ids, &name).into_iter().filter(|id| **id != own);
        let others = others.map(|id| Namesake {
            id: id.clone(),
            place: places.get(id).cloned(),
        });
        let mut namesakes = Vec::new();
        for one in others.filter(is_wanted).take(MOST_READ) {
            if namesakes.len() < NAMED && self.has_snapshots(&tenant, &one.id).await {
                namesakes.push(one);
            }
        }
        Ok(namesakes)
    }

    /// Whether there is anything to go on with.
    async fn has_snapshots(&self, tenant: &TenantId, id: &ProjectId) -> bool {
        let root = ChunkRoot::project(tenant, id);
        let root = Root::new(self.engine.bucket.clone(), root);
        let index = self.engine.dirs().index(&root).await;
        index.is_ok_and(|index| index.deleted_at_ms.is_none() && !index.snapshots.is_empty())
    }

    /// Refuses to make a directory anew that only got another name: there would be two of it.
    pub(super) async fn ensure_not_renamed(&self) -> Result<(), Error> {
        let host = self.engine.local_dirs.state.as_deref();
        let is_plain = self.home.declared.is_none();
        let Some(host) = host.filter(|_| is_plain && !self.home.dir.exists()) else {
            return Ok(());
        };
        let (known, id) = (KnownDirs::new(host), self.home.id.clone());
        let renamed = bridge::blocking(move || known.renamed(&id)).await?;
        let Some(now) = renamed else {
            return Ok(());
        };
        let (dir, now) = (Shown::of(&self.home.dir), Shown::of(&now));
        let said = format!("{} was moved: it is {} now", dir.quoted, now.quoted);
        let hint = format!(
            "`stasis restore {}` restores it there; `stasis restore dir:{} --to {}` writes a copy to the old place",
            now.word, self.home.id, dir.word
        );
        Err(not_found(said, hint))
    }

    /// Notes that what a restore wrote to a directory is a copy, whatever lay there before; says whether the subject lies nowhere on
    /// this host.
    pub(super) async fn note_copy(&self, to: &Path) -> bool {
        let state = self.engine.local_dirs.state.as_deref();
        let Some(state) = state.filter(|_| !self.engine.chunk_root.is_alone()) else {
            return false;
        };
        let (known, to, id) = (KnownDirs::new(state), to.to_owned(), self.home.id.clone());
        let lies = bridge::blocking(move || {
            known.vacate(&to.canonicalize().unwrap_or(to))?;
            Ok::<_, Failure>(known.places()?.contains_key(&id))
        });
        match lies.await {
            Ok(lies) => !lies,
            // The copy is what it should be, whatever becomes of that.
            Err(error) => {
                tracing::warn!(%error, "could not note that a directory is a copy");
                false
            }
        }
    }
}

impl Home {
    /// Where it lies, for whoever reads or writes it there; one that is on another host only has no such place.
    pub fn place(&self) -> Result<&Path, Error> {
        if !self.dir.as_os_str().is_empty() {
            return Ok(&self.dir);
        }
        if let Some(of) = &self.session {
            return of.no_directory();
        }
        if let Some(of) = &self.container {
            let name = of.container();
            let said = format!("`container:{name}` is a container, and no directory");
            let hint = format!(
                "`stasis container restore latest {name}` makes a container of its snapshot; `stasis restore container:{name} --to DIR` writes its volumes to a new directory"
            );
            return Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into());
        }
        let id = &self.id;
        let said = format!("`dir:{id}` does not lie on this host");
        let hint = format!(
            "`stasis restore dir:{id} --to DIR` writes it to a new directory; `stasis link DIR dir:{id}` makes a directory of this host that subject, to go on with it here"
        );
        Err(not_found(said, hint))
    }

    /// What is there now, for whoever compares a snapshot with it.
    pub(crate) fn place_to_compare(&self) -> Result<PathBuf, Error> {
        match &self.session {
            Some(of) => of.workspace(),
            None => Ok(self.place()?.to_owned()),
        }
    }
}

impl SessionHome {
    /// Its workspace, if that lies on this host.
    fn workspace(&self) -> Result<PathBuf, Error> {
        let session = &self.session;
        if self.dir.is_empty() {
            let said = format!("`{SESSION_PREFIX}{session}` has no workspace yet");
            let hint = format!("`stasis session wake {session} --dir DIR` makes it");
            return Err(not_found(said, hint));
        }
        let (dir, host) = (Path::new(&self.dir), &self.host);
        if !self.is_here {
            let said = format!(
                "the workspace of `{SESSION_PREFIX}{session}` lies on {host}, in `{}`",
                self.dir
            );
            let hint = format!(
                "run it on {host}; `stasis restore {SESSION_PREFIX}{session} --to DIR` writes the snapshot to a new directory here"
            );
            return Err(not_found(said, hint));
        }
        if !dir.is_dir() {
            let said = format!(
                "the workspace of `{SESSION_PREFIX}{session}` is not there: `{}`",
                self.dir
            );
            let hint = format!("`stasis session wake {session}` brings it back");
            return Err(not_found(said, hint));
        }
        Ok(dir.to_owned())
    }

    /// Says to whoever needs a directory that a session is none.
    fn no_directory<T>(&self) -> Result<T, Error> {
        let session = &self.session;
        let said = format!("`{SESSION_PREFIX}{session}` is a session, and no directory");
        let hint = format!(
            "`stasis session wake {session} --dir DIR` goes on with it there; `stasis restore {SESSION_PREFIX}{session} --to DIR` writes its snapshot to a new directory"
        );
        Err(Failure::of(ErrorKind::Invalid, said).with_hint(hint).into())
    }
}

/// A directory as messages name it.
struct Shown {
    /// In a sentence.
    quoted: String,
    /// In a command.
    word: String,
}

impl Shown {
    fn of(dir: &Path) -> Self {
        let text = dir.display().to_string();
        Self {
            quoted: format!("`{text}`"),
            word: shell_word(&text).into_owned(),
        }
    }
}

fn not_found(said: String, hint: String) -> Error {
    let failure = Failure::of(ErrorKind::NotFound, said);
    failure.with_hint(hint).into()
}

/// What a directory has to do with a subject that it is not, and how it becomes that one.
fn former_error(dir: &Shown, former: FormerSubject) -> Error {
    let was = &former.id;
    let now = former.now.map(|now| format!("`{}`", now.display()));
    let said = match former.tie {
        Tie::Was => {
            let now = now.unwrap_or_else(|| "another directory".to_owned());
            format!("{} was `dir:{was}` until {now} took its place", dir.quoted)
        }
        Tie::LiesThere => {
            let now = now.map(|now| format!(", which is {now} now"));
            let now = now.unwrap_or_default();
            format!("{} is not `dir:{was}` that lay there{now}", dir.quoted)
        }
    };
    let hint = format!(
        "`stasis link {dir} dir:{was} --confirm` makes it that one; `stasis save {dir}` begins one of its own",
        dir = dir.word
    );
    not_found(said, hint)
}

/// How to go on from a directory that this host never saved.
fn unknown_hint(dir: &Shown, is_there: bool, namesakes: &[Namesake]) -> String {
    let dir = &dir.word;
    match namesakes {
        [Namesake { id, place: None }] if is_there => format!(
            "`dir:{id}` of that name is in the store: `stasis link {dir} dir:{id}` goes on with it here, `stasis restore dir:{id} --to DIR` writes it to a new directory; `stasis save {dir}` begins a subject of its own"
        ),
        [Namesake { id, place: None }] => format!(
            "`dir:{id}` of that name is in the store: `stasis restore dir:{id} --to {dir}` writes it there, and `stasis link {dir} dir:{id}` after that goes on with it here"
        ),
        [Namesake { id, place: Some(place) }] if is_there => format!(
            "`dir:{id}` of that name is `{}` on this host; `stasis save {dir}` begins a subject of its own",
            place.display()
        ),
        [] if is_there => format!(
            "`stasis save {dir}` makes its first snapshot; if it is a copy of what `stasis list` shows, `stasis link {dir} dir:NAME` joins it"
        ),
        [] => "`stasis list` shows what is in the store; `stasis restore dir:NAME --to DIR` writes it to a new directory".to_owned(),
        several => {
            let one = |one: &Namesake| match &one.place {
                Some(place) => format!("`dir:{}`, here `{}`", one.id, place.display()),
                None => format!("`dir:{}`", one.id),
            };
            let all: Vec<_> = several.iter().map(one).collect();
            format!(
                "the store has that name more than once ({}): `stasis restore dir:NAME --to DIR` writes one of them to a new directory, `stasis link DIR dir:NAME` goes on with it here",
                all.join("; ")
            )
        }
    }
}
