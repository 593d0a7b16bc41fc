//! Which directories of this host are which subjects.
//!
//! A directory gets its id when it is first saved, by chance, so that two hosts never mean one subject without wanting to. This
//! host remembers where it lay and what the filesystem said it was ([`DirIdentity`]). Nothing is written into the directory.
//!
//! *Always true:* one directory of this host at most is a subject.
//!
//! 1. The directory that was saved is the subject wherever it was moved. The first command that meets it at a new path notes that.
//!    If another lies at its path, that one counts, and the one that was moved is told so.
//! 2. What lies at the path of a subject is that subject: made again, cloned again, or swapped for another one. A copy that a restore
//!    wrote there (`--to`) is not.
//! 3. `link` makes a directory a subject. What either of the two was before is noted, so that whoever asks there is told.
//!
//! A path that means one directory here and another one there, as with mounts of several namespaces, is one subject.
//!
//! One file for each id; whoever loses them finds the subjects in the store.

use crate::dir_identity::DirIdentity;
use crate::system::{SystemRng, name_for_id};
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{atomic_write, make_directory, read_bounded};
use stasis_disk::fs::lock_file::LockFile;
use stasis_model::base64;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::ProjectId;
use stasis_model::rng::Rng;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is being done when records are looked for.
const LOOK: &str = "look for known directories in";
/// No such record is longer.
const LONGEST: u64 = 64 << 10;
/// How many directories that were a subject before are remembered of it.
const MOST_REPLACED: usize = 8;
/// How many digits of chance tell directories of one name apart.
pub(crate) const DIGITS: usize = 8;

/// What this host remembers of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct KnownDir {
    version: u64,
    id: ProjectId,
    /// Its path, any bytes.
    path_b64: String,
    #[serde(flatten)]
    identity: Option<DirIdentity>,
    /// Whether what lies at the path is something else: a copy that a restore wrote there, or another subject.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    vacated: bool,
    /// Directories that were this subject until another one took their place, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replaced: Vec<DirIdentity>,
}

impl KnownDir {
    fn path(&self) -> Option<PathBuf> {
        let bytes = base64::decode(&self.path_b64)?;
        Some(OsStr::from_bytes(&bytes).into())
    }

    /// Whether it lies at that path, or would if it were there.
    fn is_at(&self, dir: &Path) -> bool {
        !self.vacated && self.path().as_deref() == Some(dir)
    }

    /// Where it lies if it only got another name.
    fn beside(&self) -> Option<PathBuf> {
        self.identity?.beside(&self.path()?)
    }

    /// Whether nothing lies at the path any more, or the directory with this identity lies there as well, as with a mount.
    fn has_left(&self, identity: Option<DirIdentity>) -> bool {
        let path = self.path();
        let there = path.as_deref().and_then(DirIdentity::of);
        let is_free = || path.is_none_or(|path| path.symlink_metadata().is_err());
        self.vacated || there == identity || is_free()
    }
}

/// What a directory that is no subject has to do with one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tie {
    /// It was that subject until another directory took its place.
    Was,
    /// It lies where that subject lay, and is another directory.
    LiesThere,
}

/// A subject that a directory has to do with and is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FormerSubject {
    pub(crate) id: ProjectId,
    pub(crate) tie: Tie,
    /// The directory that is that subject now, if there is one.
    pub(crate) now: Option<PathBuf>,
}

/// The directories that this host knows.
#[derive(Clone, Debug)]
pub(crate) struct KnownDirs {
    place: PathBuf,
}

impl KnownDirs {
    /// As they are remembered in the state directory of this host.
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            place: state.join("directories"),
        }
    }

    /// The id of a directory that was saved from this host before, wherever it lay then. One that was moved is noted where it is.
    pub(crate) fn recognise(&self, dir: &Path) -> Result<Option<ProjectId>, Failure> {
        let known = self.all()?;
        let Some(one) = recognised(&known, dir) else {
            return Ok(None);
        };
        let is_moved = || one.path().and_then(|path| DirIdentity::of(&path)) != one.identity;
        if !one.is_at(dir) && is_moved() {
            // Whoever only looks need not be able to write.
            if let Err(error) = self.remember(&one.id, dir) {
                tracing::debug!(%error, "could not note where a directory was moved");
            }
        }
        Ok(Some(one.id.clone()))
    }

    /// Says of directories whether they were saved from this host, as the records are now.
    pub(crate) fn recogniser(&self) -> Result<impl Fn(&Path) -> bool + use<>, Failure> {
        let known = self.all()?;
        Ok(move |dir: &Path| recognised(&known, dir).is_some())
    }

    /// The subject that a directory was, or that lay where it lies; for one that is none.
    pub(crate) fn former(&self, dir: &Path) -> Result<Option<FormerSubject>, Failure> {
        let (known, identity) = (self.all()?, DirIdentity::of(dir));
        let was = |one: &&KnownDir| {
            identity.is_some_and(|this| one.replaced.contains(&this) || one.identity == Some(this))
        };
        let lay_there = |one: &&KnownDir| one.path().as_deref() == Some(dir);
        let was = known.iter().find(was).map(|one| (one, Tie::Was));
        let former = was.or_else(|| Some((known.iter().find(lay_there)?, Tie::LiesThere)));
        let former = former.map(|(one, tie)| FormerSubject {
            id: one.id.clone(),
            tie,
            now: place_of(&known, one),
        });
        Ok(former)
    }

    /// Where each of them lies, as far as what is there now is what was remembered.
    pub(crate) fn places(&self) -> Result<BTreeMap<ProjectId, PathBuf>, Failure> {
        let known = self.all()?;
        let placed = known
            .iter()
            .filter_map(|one| Some((one.id.clone(), place_of(&known, one)?)));
        Ok(placed.collect())
    }

    /// Where a directory lies that has another name in the same place by now.
    pub(crate) fn renamed(&self, id: &ProjectId) -> Result<Option<PathBuf>, Failure> {
        let known = self.all()?;
        let one = known.iter().find(|one| one.id == *id);
        Ok(one.and_then(KnownDir::beside))
    }

    /// Remembers that a directory is this subject; the subject that it is already, if that is another one.
    pub(crate) fn remember(
        &self,
        id: &ProjectId,
        dir: &Path,
    ) -> Result<Option<ProjectId>, Failure> {
        let _one_at_a_time = self.lock()?;
        let known = self.all()?;
        if let Some(other) = recognised(&known, dir).filter(|other| other.id != *id) {
            return Ok(Some(other.id.clone()));
        }
        self.write(&known, id, dir)?;
        Ok(None)
    }

    /// Remembers what lies at the path of a subject by now, unless another directory has become that subject meanwhile.
    pub(crate) fn renew(&self, id: &ProjectId, dir: &Path) -> Result<(), Failure> {
        let _one_at_a_time = self.lock()?;
        let known = self.all()?;
        let is_there = |one: &KnownDir| one.id == *id && one.is_at(dir);
        if known.iter().any(is_there) {
            self.write(&known, id, dir)?;
        }
        Ok(())
    }

    /// Makes a directory this subject, whatever either of the two was before; the subject that the directory was.
    pub(crate) fn take_over(
        &self,
        id: &ProjectId,
        dir: &Path,
    ) -> Result<Option<ProjectId>, Failure> {
        let _one_at_a_time = self.lock()?;
        let known = self.all()?;
        let was = recognised(&known, dir).filter(|other| other.id != *id);
        let was = was.map(|other| other.id.clone());
        let identity = DirIdentity::of(dir);
        // First what it is from now on: whoever is interrupted between the two finds one of both, and can say it again.
        self.write(&known, id, dir)?;
        let claims = |one: &&KnownDir| identity.is_some() && one.identity == identity;
        for other in known.iter().filter(|one| one.id != *id).filter(claims) {
            self.put(&KnownDir {
                identity: None,
                vacated: true,
                ..other.clone()
            })?;
        }
        Ok(was)
    }

    /// Notes that what lies at a path from now on is none of the directories that lay there.
    pub(crate) fn vacate(&self, dir: &Path) -> Result<(), Failure> {
        if !self.all()?.iter().any(|one| one.is_at(dir)) {
            return Ok(());
        }
        let _one_at_a_time = self.lock()?;
        for one in self.all()?.into_iter().filter(|one| one.is_at(dir)) {
            let vacated = true;
            self.put(&KnownDir { vacated, ..one })?;
        }
        Ok(())
    }

    fn lock(&self) -> Result<LockFile, Failure> {
        make_directory(&self.place)?;
        LockFile::wait(&self.place.join("lock"))
    }

    /// Writes down that a directory is a subject, and which one it was before.
    fn write(&self, known: &[KnownDir], id: &ProjectId, dir: &Path) -> Result<(), Failure> {
        let identity = DirIdentity::of(dir);
        let before = known.iter().find(|one| one.id == *id);
        let mut replaced: Vec<DirIdentity> = before
            .map(|one| one.replaced.iter().copied().chain(one.identity).collect())
            .unwrap_or_default();
        replaced.retain(|one| Some(*one) != identity);
        replaced.drain(..replaced.len().saturating_sub(MOST_REPLACED));
        let now = KnownDir {
            version: 1,
            id: id.clone(),
            path_b64: base64::encode(dir.as_os_str().as_bytes()),
            identity,
            vacated: false,
            replaced,
        };
        if !known.contains(&now) {
            self.put(&now)?;
        }
        // Another one that lay here lies elsewhere, if it is anywhere.
        for other in known.iter().filter(|one| one.id != *id && one.is_at(dir)) {
            let vacated = true;
            self.put(&KnownDir {
                vacated,
                ..other.clone()
            })?;
        }
        Ok(())
    }

    fn put(&self, one: &KnownDir) -> Result<(), Failure> {
        let body = serde_json::to_vec(one).expect("numbers and text");
        atomic_write(&self.place.join(format!("{}.json", one.id)), &body)
    }

    /// In the order of ids. What cannot be read or understood is an error: a directory that is taken for a new one goes on
    /// without its snapshots.
    fn all(&self) -> Result<Vec<KnownDir>, Failure> {
        let entries = match std::fs::read_dir(&self.place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at(LOOK, &self.place)?,
        };
        let mut known = Vec::new();
        for entry in entries {
            let path = entry.at(LOOK, &self.place)?.path();
            if path.extension() != Some(OsStr::new("json")) {
                continue;
            }
            let bytes = read_bounded(&path, LONGEST).at("read", &path)?;
            let parsed = serde_json::from_slice::<KnownDir>(&bytes);
            let parsed = parsed.ok().filter(|one| one.version == 1);
            known.push(
                parsed
                    .ok_or(io::ErrorKind::InvalidData)
                    .map_err(io::Error::from)
                    .at("read", &path)?,
            );
        }
        known.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(known)
    }
}

/// The directory that `dir` is: one that lies there, or one that lay elsewhere and is not there any more, else what has its path.
fn recognised<'k>(known: &'k [KnownDir], dir: &Path) -> Option<&'k KnownDir> {
    let identity = DirIdentity::of(dir);
    let is_it = |one: &&KnownDir| identity.is_some() && one.identity == identity;
    let mut same = known.iter().filter(is_it);
    let found = same.clone().find(|one| one.is_at(dir));
    let found = found.or_else(|| same.find(|one| one.has_left(identity)));
    found.or_else(|| known.iter().find(|one| one.is_at(dir)))
}

/// Where a directory lies: where it is remembered, or beside that under another name.
fn place_of(known: &[KnownDir], one: &KnownDir) -> Option<PathBuf> {
    let path = one.path().filter(|path| path.is_absolute())?;
    let is_it = recognised(known, &path).is_some_and(|found| found.id == one.id);
    if is_it && path.symlink_metadata().is_ok() {
        return Some(path);
    }
    one.beside().or_else(|| is_it.then_some(path))
}

/// An id for a directory that was never saved from this host.
pub(crate) fn minted(dir: &Path) -> ProjectId {
    let random = SystemRng.op_id().to_string();
    let digits = random.chars().filter(char::is_ascii_hexdigit).rev();
    let digits: String = digits.take(DIGITS).collect();
    let id = format!("{}-{digits}", name_for_id(dir));
    id.parse().expect("letters, digits and a dash are a name")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make directories")]
mod tests {
    use super::*;
    use std::fs;

    struct Host {
        place: tempfile::TempDir,
        known: KnownDirs,
    }

    impl Host {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let known = KnownDirs::new(&place.path().join("state"));
            Self { place, known }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.place.path().join(name)
        }

        fn made(&self, name: &str) -> PathBuf {
            let dir = self.at(name);
            fs::create_dir_all(&dir).unwrap();
            dir
        }

        fn saved(&self, dir: &Path) -> ProjectId {
            let known = self.known.recognise(dir).unwrap();
            let id = known.unwrap_or_else(|| minted(dir));
            assert_eq!(self.known.remember(&id, dir).unwrap(), None);
            id
        }
    }

    #[test]
    fn two_directories_of_one_name_are_two_subjects_and_stay_so() {
        let host = Host::new();
        let (a, b) = (host.made("a/my app!"), host.made("b/my app!"));

        let (first, second) = (host.saved(&a), host.saved(&b));

        assert_ne!(first, second);
        assert_eq!(host.known.recognise(&a).unwrap(), Some(first.clone()));
        assert_eq!(host.known.recognise(&b).unwrap(), Some(second));
        assert!(first.as_str().starts_with("myapp-"), "{first}");
        assert_eq!(first.as_str().len(), "myapp-".len() + DIGITS);
    }

    #[test]
    fn a_directory_that_was_moved_is_what_it_was() {
        let host = Host::new();
        let was = host.made("notes");
        let id = host.saved(&was);
        fs::rename(&was, host.at("journal")).unwrap();

        assert_eq!(host.known.recognise(&host.at("journal")).unwrap(), Some(id));
    }

    #[test]
    fn what_takes_the_place_of_a_directory_that_was_moved_does_not_take_its_snapshots_once_that_is_known()
     {
        let host = Host::new();
        let was = host.made("notes");
        let id = host.saved(&was);
        fs::rename(&was, host.at("journal")).unwrap();
        assert_eq!(host.saved(&host.at("journal")), id);

        let other = host.saved(&host.made("notes"));

        assert_ne!(other, id);
        assert_eq!(host.known.recognise(&host.at("journal")).unwrap(), Some(id));
    }

    #[test]
    fn what_is_swapped_for_another_one_stays_one_subject_each_time() {
        let host = Host::new();
        let id = host.saved(&host.made("site"));
        for _ in 0..5 {
            let _ = fs::remove_dir(host.at("site.old"));
            host.made("site.new");
            fs::rename(host.at("site"), host.at("site.old")).unwrap();
            fs::rename(host.at("site.new"), host.at("site")).unwrap();

            assert_eq!(host.saved(&host.at("site")), id);

            assert_eq!(host.known.recognise(&host.at("site.old")).unwrap(), None);
            assert_eq!(host.known.places().unwrap()[&id], host.at("site"));
        }
        // The release before comes back.
        fs::rename(host.at("site"), host.at("site.bad")).unwrap();
        fs::rename(host.at("site.old"), host.at("site")).unwrap();
        assert_eq!(host.saved(&host.at("site")), id);
    }

    #[test]
    fn a_subject_that_is_moved_over_another_ones_place_is_what_it_was_and_alone_there() {
        let host = Host::new();
        let (a, b) = (host.made("a"), host.made("b"));
        let (first, second) = (host.saved(&a), host.saved(&b));
        fs::remove_dir(&a).unwrap();
        fs::rename(&b, &a).unwrap();

        assert_eq!(host.saved(&a), second);
        fs::remove_dir(&a).unwrap();
        host.made("between");
        host.made("a");

        // Of the two that ever lay there it is the last.
        assert_eq!(host.known.recognise(&a).unwrap(), Some(second));
        assert!(!host.known.places().unwrap().contains_key(&first));
    }

    #[test]
    fn one_that_only_got_another_name_is_found_beside() {
        let host = Host::new();
        let was = host.made("notes");
        let id = host.saved(&was);
        fs::rename(&was, host.at("journal")).unwrap();

        assert_eq!(host.known.renamed(&id).unwrap(), Some(host.at("journal")));
        assert_eq!(host.known.places().unwrap()[&id], host.at("journal"));
    }

    #[test]
    fn what_is_noted_after_a_restore_takes_a_link_back_in_no_case() {
        let host = Host::new();
        let (notes, other) = (host.made("notes"), host.made("other"));
        let id = host.saved(&notes);
        host.known.take_over(&id, &other).unwrap();

        host.known.renew(&id, &notes).unwrap();

        assert_eq!(host.known.places().unwrap()[&id], other);
        assert_eq!(host.known.recognise(&notes).unwrap(), None);
    }

    #[test]
    fn of_a_directory_that_was_moved_and_one_at_its_place_the_latter_is_the_subject() {
        let host = Host::new();
        let (was, far) = (host.made("notes"), host.made("far").join("notes"));
        let id = host.saved(&was);
        fs::rename(&was, &far).unwrap();
        host.made("notes");
        let (tie, now) = (Tie::Was, Some(was.clone()));
        let former = Some(FormerSubject {
            id: id.clone(),
            tie,
            now,
        });

        // Whoever looks first changes nothing.
        assert_eq!(host.known.recognise(&far).unwrap(), None);
        assert_eq!(host.known.former(&far).unwrap(), former);
        assert_eq!(host.saved(&was), id);

        assert_eq!(host.known.recognise(&far).unwrap(), None);
        assert_eq!(host.known.former(&far).unwrap(), former);
        assert_eq!(host.known.places().unwrap()[&id], was);
    }

    #[test]
    fn a_copy_at_the_place_of_a_directory_is_not_that_directory() {
        let host = Host::new();
        let dir = host.made("notes");
        let id = host.saved(&dir);
        fs::remove_dir(&dir).unwrap();
        // So that the number of its inode is not used again at once.
        host.made("between");
        host.made("notes");

        host.known.vacate(&dir).unwrap();

        assert_eq!(host.known.recognise(&dir).unwrap(), None);
        assert!(host.known.places().unwrap().is_empty());
        assert_eq!(host.known.remember(&id, &dir).unwrap(), None);
        assert_eq!(host.known.recognise(&dir).unwrap(), Some(id));
    }

    #[test]
    fn a_directory_that_becomes_another_subject_is_that_one_only() {
        let host = Host::new();
        let (notes, letters) = (host.made("notes"), host.made("letters"));
        let (first, second) = (host.saved(&notes), host.saved(&letters));

        let was = host.known.take_over(&first, &letters).unwrap();

        assert_eq!(was, Some(second));
        assert_eq!(host.known.recognise(&letters).unwrap(), Some(first.clone()));
        assert_eq!(host.known.recognise(&notes).unwrap(), None);
        let now = Some(letters.clone());
        let id = first.clone();
        let former = host.known.former(&notes).unwrap();
        let tie = Tie::Was;
        assert_eq!(former, Some(FormerSubject { id, tie, now }));
        let places = host.known.places().unwrap();
        assert_eq!(places.into_iter().collect::<Vec<_>>(), [(first, letters)]);
    }

    #[test]
    fn a_directory_that_is_gone_or_was_made_again_is_what_it_was() {
        let host = Host::new();
        let dir = host.made("notes");
        let id = host.saved(&dir);
        fs::remove_dir(&dir).unwrap();
        assert_eq!(host.known.recognise(&dir).unwrap(), Some(id.clone()));

        host.made("between");
        host.made("notes");

        assert_eq!(host.known.recognise(&dir).unwrap(), Some(id));
    }

    #[test]
    fn a_record_that_cannot_be_understood_is_an_error_and_no_new_subject() {
        let host = Host::new();
        let dir = host.made("notes");
        host.saved(&dir);
        for text in ["{", "{\"version\": 2}"] {
            fs::write(host.at("state/directories/odd.json"), text).unwrap();

            let error = host.known.recognise(&dir).unwrap_err();

            assert!(error.to_string().contains("odd.json"), "{error}");
        }
    }

    #[test]
    fn of_two_first_saves_at_once_the_second_learns_of_the_first() {
        let host = Host::new();
        let dir = host.made("notes");
        let (first, second) = (minted(&dir), minted(&dir));
        assert_eq!(host.known.remember(&first, &dir).unwrap(), None);

        assert_eq!(host.known.remember(&second, &dir).unwrap(), Some(first));
    }

    #[test]
    fn what_is_born_alike_elsewhere_is_another_one_while_the_first_is_there() {
        let host = Host::new();
        let (notes, other) = (host.made("notes"), host.made("other"));
        host.saved(&notes);
        // As after a restart: the number of the device went to a snapshot of the filesystem.
        let record = fs::read_dir(host.at("state/directories")).unwrap();
        let mut records = record.map(|entry| entry.unwrap().path());
        let record = records.find(|path| path.extension().is_some()).unwrap();
        let mut known: KnownDir = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        let (was, is) = (known.identity.unwrap(), DirIdentity::of(&other).unwrap());
        known.identity = Some(was.on_another_device());

        let shown = [known];

        assert_eq!(recognised(&shown, &notes), Some(&shown[0]));
        assert_ne!(is, was);
        assert_eq!(recognised(&shown, &other), None);
    }
}
