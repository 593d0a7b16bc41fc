//! Which directories of this host are which subjects.
//!
//! A directory gets its id when it is first saved, by chance, so that two hosts never mean one subject without wanting to. This
//! host remembers where it lay and what the filesystem said it was (device, inode, moment of birth): a directory that was
//! moved is still itself, and so is one that was removed and made again at its place. Nothing is written into the directory.
//!
//! One file for each id; whoever loses them finds the subjects in the store.

use crate::system::{SystemRng, name_for_id};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
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
}

/// What a filesystem says a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DirIdentity {
    device: u64,
    inode: u64,
    /// When it was made. Numbers of inodes are used again, moments are not; where nobody knows it, only the path counts.
    born_s: i64,
    born_ns: u32,
}

impl DirIdentity {
    fn of(dir: &Path) -> Option<Self> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let seen = statx(CWD, dir, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        let has_birth = seen.stx_mask & StatxFlags::BTIME.bits() != 0;
        has_birth.then(|| Self {
            device: rustix::fs::makedev(seen.stx_dev_major, seen.stx_dev_minor),
            inode: seen.stx_ino,
            born_s: seen.stx_btime.tv_sec,
            born_ns: seen.stx_btime.tv_nsec,
        })
    }
}

impl KnownDir {
    fn path(&self) -> Option<PathBuf> {
        let bytes = base64::decode(&self.path_b64)?;
        Some(OsStr::from_bytes(&bytes).into())
    }
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

    /// The id of a directory that was saved from this host before, wherever it lay then.
    pub(crate) fn recognise(&self, dir: &Path) -> Result<Option<ProjectId>, Failure> {
        Ok(recognised(&self.all()?, dir).map(|one| one.id.clone()))
    }

    /// Where each of them lies, as far as what is there now is what was remembered.
    pub(crate) fn places(&self) -> Result<BTreeMap<ProjectId, PathBuf>, Failure> {
        let known = self.all()?;
        let placed = known.iter().filter_map(|one| {
            let path = one.path().filter(|path| path.is_absolute())?;
            let is_it = recognised(&known, &path).is_some_and(|found| found.id == one.id);
            is_it.then(|| (one.id.clone(), path))
        });
        Ok(placed.collect())
    }

    /// Remembers that a directory is this subject; the subject that it is already, if that is another one.
    pub(crate) fn remember(
        &self,
        id: &ProjectId,
        dir: &Path,
    ) -> Result<Option<ProjectId>, Failure> {
        make_directory(&self.place)?;
        let _one_at_a_time = LockFile::wait(&self.place.join("lock"))?;
        let known = self.all()?;
        if let Some(other) = recognised(&known, dir).filter(|other| other.id != *id) {
            return Ok(Some(other.id.clone()));
        }
        let now = KnownDir {
            version: 1,
            id: id.clone(),
            path_b64: base64::encode(dir.as_os_str().as_bytes()),
            identity: DirIdentity::of(dir),
        };
        if !known.contains(&now) {
            let body = serde_json::to_vec(&now).expect("numbers and text");
            atomic_write(&self.place.join(format!("{id}.json")), &body)?;
        }
        Ok(None)
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

/// The directory that `dir` is: one that lies there, or one that lay elsewhere and is not there any more.
fn recognised<'k>(known: &'k [KnownDir], dir: &Path) -> Option<&'k KnownDir> {
    let identity = DirIdentity::of(dir);
    let is_there = |one: &&KnownDir| one.path().as_deref() == Some(dir);
    let is_it = |one: &&KnownDir| identity.is_some() && one.identity == identity;
    let has_left = |one: &&KnownDir| {
        let there = one.path().and_then(|path| DirIdentity::of(&path));
        match (there, one.identity) {
            // Another name of the same directory, such as a mount.
            (there, _) if there == identity => true,
            // Numbers of devices may change, and what a snapshot of a filesystem shows is born when its original was.
            (Some(there), Some(was)) => {
                (there.inode, there.born_s, there.born_ns) != (was.inode, was.born_s, was.born_ns)
            }
            _ => true,
        }
    };
    let mut same = known.iter().filter(is_it);
    let found = same.clone().find(is_there);
    let found = found.or_else(|| same.find(has_left));
    // What was made again at its place is what it was: when that went elsewhere, its record did too.
    found.or_else(|| known.iter().find(is_there))
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
        known.identity = Some(DirIdentity {
            device: was.device + 1,
            ..was
        });

        let shown = [known];

        assert_eq!(recognised(&shown, &notes), Some(&shown[0]));
        assert_ne!(is, was);
        assert_eq!(recognised(&shown, &other), None);
    }
}
