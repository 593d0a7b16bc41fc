//! The monitor on real filesystems: ext4, xfs and btrfs on loop devices.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use rustix::time::{ClockId, clock_gettime};
use stasis_disk::watch::{EventBatch, Monitor, MonitorError, MonitorSettings, RootGone};
use stasis_model::time::{Clock, Timestamp};
use stasis_testkit::mounted_image::MountedImage;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
struct Ticking;

fn read_clock(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let (seconds, nanos) = (now.tv_sec.try_into(), now.tv_nsec.try_into());
    Duration::new(seconds.unwrap(), nanos.unwrap())
}

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        let millis = read_clock(ClockId::Realtime).as_millis();
        Timestamp::from_millis(millis.try_into().unwrap())
    }

    fn uptime(&self) -> Duration {
        read_clock(ClockId::Boottime)
    }
}

fn start(root: &Path) -> Monitor {
    Monitor::start(root, Arc::new(Ticking), MonitorSettings::default()).unwrap()
}

fn words(batch: &EventBatch) -> Vec<String> {
    assert_eq!(batch.gap, None);
    let word =
        |event: &stasis_disk::watch::FileEvent| format!("{} {}", event.action.word(), event.path);
    let mut words: Vec<String> = batch.events.iter().map(word).collect();
    words.sort();
    words
}

#[test]
fn a_tree_is_watched_on_every_filesystem() {
    for filesystem in ["ext4", "xfs", "btrfs"] {
        let Some(mounted) = MountedImage::new(filesystem, 512 << 20) else {
            continue;
        };
        let root = mounted.root().join("tree");
        fs::create_dir_all(root.join("a/b")).unwrap();
        let mut monitor = start(&root);

        fs::write(root.join("a/b/file"), "1").unwrap();
        fs::create_dir_all(root.join("x/y/z")).unwrap();
        fs::write(root.join("x/y/z/file"), "1").unwrap();
        fs::write(mounted.root().join("elsewhere"), "1").unwrap();
        let made = monitor.flush().unwrap();
        // A directory in the place of one that is gone may have its inode.
        fs::remove_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("a/b")).unwrap();
        fs::rename(root.join("x/y"), root.join("y")).unwrap();
        let moved = monitor.flush().unwrap();
        fs::write(root.join("a/b/again"), "1").unwrap();
        fs::write(root.join("y/z/file"), "22").unwrap();
        let after = monitor.flush().unwrap();

        assert_eq!(words(&made), ["created a/b/file", "created x/y/z/file"]);
        let expected = ["created y/z/file", "deleted a/b/file", "deleted x/y/z/file"];
        assert_eq!(words(&moved), expected, "{filesystem}");
        let expected = ["created a/b/again", "modified y/z/file"];
        assert_eq!(words(&after), expected, "{filesystem}");
        assert_eq!(monitor.coverage().watched, 6, "{filesystem}");
        must_end_when_unmounted(&mounted, monitor);
    }
}

/// What is open is only unmounted lazily: the path leads elsewhere then.
fn must_end_when_unmounted(mounted: &MountedImage, mut monitor: Monitor) {
    let mut unmount = Command::new("umount");
    let done = unmount.arg("-l").arg(mounted.root()).status().unwrap();
    assert!(done.success());
    let ended = monitor.next(Duration::from_secs(20)).unwrap_err();
    let why = RootGone::Moved;
    assert!(matches!(ended, MonitorError::RootGone { why: found } if found == why));
}

#[test]
fn subvolumes_of_btrfs_are_told_apart() {
    let Some(mounted) = MountedImage::new("btrfs", 512 << 20) else {
        return;
    };
    let root = mounted.root().join("tree");
    fs::create_dir(&root).unwrap();
    for name in ["one", "two"] {
        let mut btrfs = Command::new("btrfs");
        let btrfs = btrfs.args(["subvolume", "create"]).arg(root.join(name));
        assert!(btrfs.output().unwrap().status.success());
        // In each it has the same inode.
        fs::create_dir(root.join(name).join("d")).unwrap();
    }
    let mut monitor = start(&root);
    let coverage = monitor.coverage();

    fs::write(root.join("two/d/file"), "1").unwrap();
    let two = monitor.flush().unwrap();
    fs::write(root.join("one/d/file"), "1").unwrap();
    fs::write(root.join("one/top"), "1").unwrap();
    let one = monitor.flush().unwrap();

    assert_eq!((coverage.watched, coverage.unwatched), (5, 0));
    assert_eq!(words(&two), ["created two/d/file"]);
    assert_eq!(words(&one), ["created one/d/file", "created one/top"]);
}
