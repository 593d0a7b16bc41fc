//! The directory that something is mounted on.

use rustix::io::Errno;
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::model::failure::Failure;
use stasis_sys::mounts::{self, Mount, mounted_on};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the table of mounts has as the source of ours.
pub(super) const NAME: &str = "stasis";
/// Mounts for whoever is not root, and unmounts.
const HELPER: &str = "fusermount3";

/// A directory that something can be mounted on: it is there, and nothing is in it.
#[derive(Clone, Debug)]
pub(crate) struct MountPoint {
    path: PathBuf,
    /// Whether something of ours lay there whose process is gone.
    pub(crate) was_dead: bool,
}

/// Whether `stasis mount` has mounted it: root names only the source, fusermount3 the type as well.
fn is_ours(mount: &Mount) -> bool {
    let kinds = ["fuse".to_owned(), format!("fuse.{NAME}")];
    kinds.contains(&mount.kind) && mount.source == NAME
}

/// Whether whoever runs this may unmount it.
fn is_of_this_user(mount: &Mount) -> bool {
    let user = rustix::process::geteuid();
    let owner = mount.options.split(',').find_map(|option| {
        let owner = option.strip_prefix("user_id=")?;
        owner.parse::<u32>().ok()
    });
    user.is_root() || owner == Some(user.as_raw())
}

fn refused(said: String, hint: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    let failure = Failure::of(ErrorKind::Invalid, said);
    failure.with_hint(hint).into()
}

impl MountPoint {
    /// Looks at a directory; what a process of ours that is dead has left mounted on it is unmounted. Refused is what lies in one of
    /// `outside`, each with what it is.
    pub(crate) fn prepare(
        typed: &Path,
        outside: &[(PathBuf, &'static str)],
    ) -> Result<Self, Error> {
        let path = whole(typed).map_err(|error| {
            let hint = format!("make it: mkdir -p {}", typed.display());
            Failure::from_io(error, "mount on", typed.display()).with_hint(hint)
        })?;
        let shown = path.display().to_string();
        for (place, what) in outside {
            if path.starts_with(place) {
                let said = format!("{shown} lies in {what}, {}", place.display());
                return Err(refused(
                    said,
                    "mount somewhere else, such as in /mnt or /tmp",
                ));
            }
        }
        let mounted = mounted_on(&path);
        let ours = mounted.filter(is_ours);
        let mut was_dead = false;
        if let Some(row) = ours {
            if !is_dead(&path) {
                let said = format!("{shown} shows snapshots already, mounted by another process");
                let hint = format!("end that one first: {HELPER} -u {shown}");
                return Err(refused(said, hint));
            }
            if !is_of_this_user(&row) {
                let said = format!("{shown} has a dead mount of another user");
                return Err(refused(said, format!("as root: umount {shown}")));
            }
            detach(&path).map_err(|error| {
                let hint = format!("try: {HELPER} -u -z {shown}");
                Failure::from_io(error, "clear the dead mount on", &shown).with_hint(hint)
            })?;
            was_dead = true;
        }
        let is_empty = std::fs::read_dir(&path).map(|mut entries| entries.next().is_none());
        match is_empty {
            Ok(true) => Ok(Self { path, was_dead }),
            Ok(false) => Err(refused(
                format!("{shown} is not empty"),
                "what is in it could not be seen while something is mounted on it; use an empty directory",
            )),
            Err(error) => {
                let failure = Failure::from_io(error, "mount on", &shown);
                Err(failure.with_hint("use an empty directory of yours").into())
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts what is mounted on it, at once; whoever still reads may go on until its process ends.
    pub(super) fn detach(&self) -> io::Result<()> {
        detach(&self.path)
    }
}

/// The whole path. What is mounted on the directory itself is not touched: it may be dead, and answer nothing.
fn whole(typed: &Path) -> io::Result<PathBuf> {
    let typed = std::path::absolute(typed)?;
    let (Some(above), Some(name)) = (typed.parent(), typed.file_name()) else {
        return typed.canonicalize();
    };
    let path = above.canonicalize()?.join(name);
    match path.symlink_metadata() {
        Ok(seen) if seen.is_symlink() => path.canonicalize(),
        Ok(_) => Ok(path),
        Err(_) if mounted_on(&path).is_some() => Ok(path),
        Err(error) => Err(error),
    }
}

/// Whether nobody answers any more. The kernel may still know what the directory is, but not how full its filesystem is.
fn is_dead(path: &Path) -> bool {
    let asked = rustix::fs::statfs(path);
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

fn detach(path: &Path) -> io::Result<()> {
    match mounts::detach(path) {
        Err(Errno::PERM) => {}
        // Somebody else was faster.
        Err(Errno::INVAL) => return Ok(()),
        unmounted => return Ok(unmounted?),
    }
    let mut helper = Command::new(HELPER);
    helper.args(["-u", "-z", "--"]).arg(path);
    let ended = helper.stdin(Stdio::null()).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    Err(io::Error::other(said))
}

/// Says what to do about a mount that was refused.
pub(super) fn explained(error: io::Error) -> Error {
    let is_root = rustix::process::geteuid().is_root();
    let is_there = |path: &str| Path::new(path).exists();
    let (kind, hint) = if !is_there("/dev/fuse") {
        let hint = "there is no /dev/fuse: load the kernel's module (modprobe fuse), or give the container the device (--device /dev/fuse --cap-add SYS_ADMIN)";
        (ErrorKind::Invalid, hint)
    } else if error.kind() == io::ErrorKind::NotFound && !is_root {
        let hint = "whoever is not root mounts through fusermount3: install Debian's package fuse3";
        (ErrorKind::Invalid, hint)
    } else if error.to_string().contains("user_allow_other") {
        let hint = "--allow-other needs the line `user_allow_other` in /etc/fuse.conf";
        (ErrorKind::Denied, hint)
    } else {
        let hint = "whoever is not root needs fusermount3 (Debian's package fuse3) and a directory of its own; in a container, the device /dev/fuse and the right to mount";
        (ErrorKind::Denied, hint)
    };
    let failure = Failure::new(kind, "use", "/dev/fuse");
    failure.because(error).with_hint(hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_ours_is_known_by_its_source() {
        let by_user = Mount {
            point: PathBuf::from("/tmp/a b"),
            kind: "fuse.stasis".to_owned(),
            source: "stasis".to_owned(),
            options: "ro,user_id=1000,group_id=1000".to_owned(),
        };

        assert!(is_ours(&by_user));
        let by_root = Mount {
            kind: "fuse".to_owned(),
            ..by_user
        };
        assert!(is_ours(&by_root));
        let another = Mount {
            source: "sshfs".to_owned(),
            ..by_root
        };
        assert!(!is_ours(&another));
    }

    #[test]
    fn a_mount_point_is_an_empty_directory_outside() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let empty = top.join("empty");
        std::fs::create_dir_all(top.join("store/in")).unwrap();
        std::fs::create_dir(&empty).unwrap();
        let outside = [(top.join("store"), "the store")];
        let refused = |path: &Path| MountPoint::prepare(path, &outside).unwrap_err().to_string();

        assert_eq!(MountPoint::prepare(&empty, &outside).unwrap().path(), empty);
        assert!(refused(&top).contains("is not empty"));
        assert!(refused(&top.join("store/in")).contains("lies in the store"));
        assert!(refused(&top.join("none")).contains("could not mount on"));
        // A link is what it leads to.
        std::os::unix::fs::symlink(top.join("store/in"), top.join("link")).unwrap();
        assert!(refused(&top.join("link")).contains("lies in the store"));
    }
}
