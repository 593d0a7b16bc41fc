use super::*;
use rustix::time::{ClockId, clock_gettime};
use stasis_model::time::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::thread::sleep;
use tempfile::TempDir;

mod announced;
mod endings;
mod gaps;
mod races;

const SOON: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(20);

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

/// A directory in memory where there is one: the tests are about events, not about disks.
fn a_place() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// A tree, its monitor, and what replaying everything that was reported makes of the first state.
struct Watched {
    place: TempDir,
    monitor: Monitor,
    replayed: BTreeMap<EntryPath, u64>,
}

impl Watched {
    fn new() -> Self {
        Self::with(|_| {}, MonitorSettings::default())
    }

    fn with(prepare: impl FnOnce(&Path), settings: MonitorSettings) -> Self {
        let place = a_place();
        let root = place.path().join("root");
        fs::create_dir(&root).unwrap();
        prepare(&root);
        let monitor = Monitor::start(&root, Arc::new(Ticking), settings).unwrap();
        let replayed = files(&root);
        Self {
            place,
            monitor,
            replayed,
        }
    }

    /// How many directories are watched, and how many are not.
    fn reach(&self) -> (usize, usize) {
        let coverage = self.monitor.coverage();
        (coverage.watched, coverage.unwatched)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.place.path().join("root").join(path)
    }

    fn write(&self, path: &str, content: &str) {
        fs::write(self.at(path), content).unwrap();
    }

    fn flush(&mut self) -> Vec<String> {
        let batch = self.monitor.flush().unwrap();
        assert_eq!(batch.gap, None);
        self.replay(&batch);
        words(&batch)
    }

    /// Every event must make sense where it stands.
    fn replay(&mut self, batch: &EventBatch) {
        for event in &batch.events {
            let path = event.path.clone();
            let before = match event.size {
                Some(size) => self.replayed.insert(path, size),
                None => self.replayed.remove(&path),
            };
            let is_new = before.is_none();
            assert_eq!(is_new, event.action == Action::Created, "{event:?}");
            let is_gone = event.size.is_none();
            assert_eq!(is_gone, event.action == Action::Deleted, "{event:?}");
        }
    }

    /// What was reported explains the tree.
    fn must_be_explained(&self) {
        assert_eq!(self.replayed, files(&self.at("")));
    }
}

fn words(batch: &EventBatch) -> Vec<String> {
    let word = |event: &FileEvent| match event.size {
        Some(size) => format!("{} {} {size}", event.action.word(), event.path),
        None => format!("{} {}", event.action.word(), event.path),
    };
    batch.events.iter().map(word).collect()
}

fn path(path: &str) -> EntryPath {
    EntryPath::parse(path.as_bytes()).unwrap()
}

/// All files and symbolic links with their lengths, by path; ignored directories are left out.
fn files(root: &Path) -> BTreeMap<EntryPath, u64> {
    let (mut found, mut open) = (BTreeMap::new(), vec![(root.to_owned(), EntryPath::root())]);
    while let Some((directory, way)) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let child = way.child(entry.file_name().as_encoded_bytes()).unwrap();
            let seen = entry.metadata().unwrap();
            if entry.file_name() == "node_modules" {
            } else if seen.is_dir() {
                open.push((entry.path(), child));
            } else if seen.is_file() || seen.is_symlink() {
                found.insert(child, seen.len());
            }
        }
    }
    found
}

#[test]
fn files_are_told_as_they_come_change_and_go() {
    let mut tree = Watched::with(
        |root| fs::write(root.join("old"), "old").unwrap(),
        MonitorSettings::default(),
    );
    assert_eq!(tree.flush(), [""; 0], "what was there is not reported");

    tree.write("b", "12");
    tree.write("a", "1");
    symlink("/nowhere", tree.at("link")).unwrap();
    assert_eq!(
        tree.flush(),
        ["created b 2", "created a 1", "created link 8"]
    );
    tree.write("old", "now longer");
    fs::remove_file(tree.at("b")).unwrap();
    assert_eq!(tree.flush(), ["modified old 10", "deleted b"]);
    assert_eq!(tree.flush(), [""; 0]);
    tree.must_be_explained();
}

#[test]
fn an_edit_of_the_same_length_at_once_is_told() {
    let mut tree = Watched::new();
    for round in 0..50 {
        tree.write("same", &format!("{round:03}"));
        let action = if round == 0 { "created" } else { "modified" };
        assert_eq!(tree.flush(), [format!("{action} same 3")], "round {round}");
    }
}

#[test]
fn an_edit_that_keeps_length_and_time_is_told() {
    let mut tree = Watched::new();
    tree.write("file", "before");
    tree.flush();
    let seen = fs::metadata(tree.at("file")).unwrap();
    sleep(Duration::from_millis(30));

    tree.write("file", "after.");
    let times = fs::FileTimes::new().set_accessed(seen.accessed().unwrap());
    let times = times.set_modified(seen.modified().unwrap());
    let file = fs::File::open(tree.at("file")).unwrap();
    file.set_times(times).unwrap();

    assert_eq!(tree.flush(), ["modified file 6"]);
}

#[test]
fn a_watch_that_the_kernel_ends_is_put_up_again() {
    let mut tree = Watched::new();
    fs::create_dir(tree.at("d")).unwrap();
    tree.flush();

    tree.monitor.state.watches.lose(&path("d"));
    tree.flush();
    tree.write("d/file", "1");

    assert_eq!(tree.flush(), ["created d/file 1"]);
    assert_eq!(tree.reach(), (2, 0));
}

#[test]
fn what_happens_to_one_path_in_a_window_is_one_event() {
    let mut tree = Watched::with(
        |root| fs::write(root.join("replaced"), "was").unwrap(),
        MonitorSettings::default(),
    );

    tree.write("grown", "1");
    tree.write("brief", "1");
    tree.write("grown", "12");
    fs::remove_file(tree.at("brief")).unwrap();
    fs::remove_file(tree.at("replaced")).unwrap();
    tree.write("replaced", "now");

    assert_eq!(tree.flush(), ["created grown 2", "modified replaced 3"]);
}

#[test]
fn a_batch_comes_when_its_window_is_over_and_not_before() {
    let mut tree = Watched::new();
    let began = read_clock(ClockId::Monotonic);
    tree.write("first", "1");
    let early = tree.monitor.next(SOON).unwrap();
    tree.write("second", "2");

    let batch = tree.monitor.next(LONG).unwrap();

    let took = read_clock(ClockId::Monotonic).checked_sub(began).unwrap();
    assert_eq!(early, EventBatch::default());
    assert_eq!(words(&batch), ["created first 1", "created second 1"]);
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert!(took < LONG, "{took:?}");
    assert!(batch.events[0].at <= batch.events[1].at);
}

#[test]
fn other_permissions_times_or_names_are_no_modification() {
    let mut tree = Watched::new();
    tree.write("file", "1");
    tree.flush();

    let file = fs::File::open(tree.at("file")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    file.set_permissions(mode).unwrap();
    // Setting the time of the content alone is what the kernel calls a modification.
    let long_ago = std::time::UNIX_EPOCH;
    let times = fs::FileTimes::new().set_accessed(long_ago);
    file.set_times(times.set_modified(long_ago)).unwrap();
    fs::hard_link(tree.at("file"), tree.place.path().join("outside")).unwrap();
    fs::read(tree.at("file")).unwrap();

    assert_eq!(tree.flush(), [""; 0]);
}

#[test]
fn an_atomic_save_is_one_modification() {
    let mut tree = Watched::new();
    tree.write("doc", "first");
    tree.flush();

    tree.write(".doc.tmp", "second");
    fs::rename(tree.at(".doc.tmp"), tree.at("doc")).unwrap();

    assert_eq!(tree.flush(), ["modified doc 6"]);
    tree.must_be_explained();
}

#[test]
fn a_renamed_directory_is_told_as_its_files_and_watched_under_its_new_name() {
    let mut tree = Watched::new();
    fs::create_dir_all(tree.at("a/deep/er")).unwrap();
    tree.write("a/deep/er/file", "1");
    tree.write("a/top", "1");
    tree.flush();

    fs::rename(tree.at("a"), tree.at("b")).unwrap();
    tree.write("b/top", "22");
    let moved = tree.flush();
    tree.write("b/deep/er/file", "333");
    tree.write("b/deep/er/new", "1");
    let after = tree.flush();

    let mut sorted = moved.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "created b/deep/er/file 1",
            "created b/top 2",
            "deleted a/deep/er/file",
            "deleted a/top"
        ]
    );
    assert_eq!(
        after,
        ["modified b/deep/er/file 3", "created b/deep/er/new 1"]
    );
    tree.must_be_explained();
    assert_eq!(tree.reach(), (4, 0));
}

#[test]
fn what_is_moved_out_is_deleted_and_no_longer_watched() {
    let mut tree = Watched::new();
    let outside = tree.place.path().join("outside");
    fs::create_dir_all(tree.at("d/e")).unwrap();
    tree.write("d/e/file", "1");
    tree.flush();

    fs::rename(tree.at("d"), &outside).unwrap();
    let out = tree.flush();
    fs::write(outside.join("e/private"), "1").unwrap();
    let silent = tree.flush();
    fs::rename(&outside, tree.at("back")).unwrap();
    let back = tree.flush();

    assert_eq!(out, ["deleted d/e/file"]);
    assert_eq!(silent, [""; 0]);
    assert_eq!(back, ["created back/e/file 1", "created back/e/private 1"]);
    tree.must_be_explained();
}

#[test]
fn directories_that_trade_places_are_told_as_their_files() {
    let mut tree = Watched::new();
    for (name, content) in [("x/sub", "1"), ("y/sub", "22")] {
        fs::create_dir_all(tree.at(name)).unwrap();
        tree.write(&format!("{name}/file"), content);
    }
    tree.write("x/sub/only", "1");
    tree.flush();

    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(CWD, tree.at("x"), CWD, tree.at("y"), flags).unwrap();
    tree.flush();
    tree.must_be_explained();
    tree.write("x/sub/file", "4444");
    tree.write("y/sub/file", "55555");

    assert_eq!(
        tree.flush(),
        ["modified x/sub/file 4", "modified y/sub/file 5"]
    );
    tree.must_be_explained();
}

#[test]
fn a_file_and_a_directory_take_each_others_place() {
    let mut tree = Watched::new();
    tree.write("x", "1");
    fs::create_dir(tree.at("y")).unwrap();
    tree.write("y/in", "1");
    tree.flush();

    fs::remove_file(tree.at("x")).unwrap();
    fs::create_dir(tree.at("x")).unwrap();
    tree.write("x/in", "22");
    fs::remove_dir_all(tree.at("y")).unwrap();
    tree.write("y", "333");

    let mut outgoing = tree.flush();
    tree.must_be_explained();
    outgoing.sort();
    let expected = ["created x/in 2", "created y 3", "deleted x", "deleted y/in"];
    assert_eq!(outgoing, expected);
}

#[test]
fn a_write_through_one_name_is_told_of_the_others_too() {
    let mut tree = Watched::new();
    fs::create_dir(tree.at("d")).unwrap();
    tree.write("one", "1");
    tree.flush();
    fs::hard_link(tree.at("one"), tree.at("d/two")).unwrap();
    assert_eq!(tree.flush(), ["created d/two 1"]);

    tree.write("d/two", "22");

    assert_eq!(tree.flush(), ["modified d/two 2", "modified one 2"]);
    tree.write("one", "333");
    fs::remove_file(tree.at("one")).unwrap();
    assert_eq!(tree.flush(), ["deleted one", "modified d/two 3"]);
    tree.must_be_explained();
}

#[test]
fn links_are_told_and_never_followed() {
    let mut tree = Watched::new();
    let outside = tree.place.path().join("outside");
    fs::create_dir(&outside).unwrap();

    symlink("loop", tree.at("loop")).unwrap();
    fs::create_dir(tree.at("d")).unwrap();
    symlink("..", tree.at("d/up")).unwrap();
    symlink(&outside, tree.at("out")).unwrap();
    let outgoing = tree.flush();
    fs::write(outside.join("secret"), "1").unwrap();

    assert_eq!(outgoing.len(), 3, "{outgoing:?}");
    assert_eq!(tree.flush(), [""; 0]);
    assert_eq!(tree.reach(), (2, 0));
    tree.must_be_explained();
}

#[test]
fn ignored_paths_are_neither_told_nor_watched() {
    let mut tree = Watched::with(
        |_| {},
        MonitorSettings {
            ignore: ["node_modules", "*.log", "!keep.log", "/build/"]
                .map(str::to_owned)
                .to_vec(),
            ..MonitorSettings::default()
        },
    );

    for directory in ["node_modules/deep", "p/node_modules", "build", "p/build"] {
        fs::create_dir_all(tree.at(directory)).unwrap();
        tree.write(&format!("{directory}/file"), "1");
    }
    tree.write("x.log", "1");
    tree.write("keep.log", "1");

    assert_eq!(
        tree.flush(),
        ["created p/build/file 1", "created keep.log 1"]
    );
    assert_eq!(tree.reach(), (3, 0));
}

#[test]
fn a_directory_that_stops_being_ignored_is_told_and_the_reverse() {
    let mut tree = Watched::new();
    fs::create_dir_all(tree.at("node_modules/a")).unwrap();
    tree.write("node_modules/a/file", "1");
    assert_eq!(tree.flush(), [""; 0]);

    fs::rename(tree.at("node_modules"), tree.at("mine")).unwrap();
    assert_eq!(tree.flush(), ["created mine/a/file 1"]);
    fs::rename(tree.at("mine"), tree.at("node_modules")).unwrap();

    assert_eq!(tree.flush(), ["deleted mine/a/file"]);
    assert_eq!(tree.reach(), (1, 0));
}

#[test]
fn names_that_are_no_text_and_pipes_do_not_disturb() {
    let mut tree = Watched::new();
    let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\n ");
    fs::write(tree.at("").join::<&std::ffi::OsStr>(odd), "1").unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
    rustix::fs::mknodat(CWD, tree.at("pipe"), kind, mode, 0).unwrap();

    assert_eq!(tree.flush(), ["created \\xff\\x0a  1"]);
    tree.must_be_explained();
}
