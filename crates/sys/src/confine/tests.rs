#![expect(
    clippy::disallowed_methods,
    reason = "tests make the files that they open"
)]

use super::*;
use rustix::io::Errno;
use rustix::process::{self, Pid};
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Whether this kernel has rules about files, asked without the code that is tested.
fn has_rules() -> bool {
    use landlock::{CompatLevel, Compatible};
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let rules = rules.handle_access(AccessFs::from_all(ABI::V1));
    rules.and_then(Ruleset::create).is_ok()
}

/// Does something in a thread that has confined itself.
fn within<T: Send>(reach: Reach<'_>, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            let enforced = confine(reach);
            assert!(enforced.privileges && enforced.calls, "{enforced:?}");
            assert_eq!(enforced.files, has_rules());
            act()
        });
        confined.join().unwrap()
    })
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result
        .err()
        .map(|error| Errno::from_io_error(&error).unwrap())
}

#[test]
fn nothing_is_reached_outside_a_directory_and_everything_in_it() {
    if !has_rules() {
        println!("skipped: this kernel has no Landlock");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (inside, outside) = (home.path().join("in"), home.path().join("out"));
    for place in [&inside, &outside] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("db"), "old").unwrap();
    }
    let opened = File::open(&inside).unwrap();

    within(Reach::Directory(opened.as_fd()), || {
        let denied = Some(Errno::ACCESS);
        assert_eq!(errno(fs::read(outside.join("db"))), denied);
        assert_eq!(errno(fs::write(outside.join("db"), "new")), denied);
        assert_eq!(errno(fs::write(outside.join("more"), "new")), denied);
        assert_eq!(errno(fs::remove_file(outside.join("db"))), denied);
        assert_eq!(errno(fs::read_dir(&outside)), denied);
        assert_eq!(errno(fs::read("/proc/self/environ")), denied);
        let refused = Some(Errno::PERM);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        assert_eq!(
            errno(fs::set_permissions(outside.join("db"), mode)),
            refused
        );
        assert_eq!(
            errno(fs::rename(outside.join("db"), inside.join("x"))),
            refused
        );

        fs::write(inside.join("db"), "new").unwrap();
        fs::write(inside.join("db-wal"), "new").unwrap();
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 2);
        fs::remove_file(inside.join("db-wal")).unwrap();
        assert_eq!(fs::read(inside.join("db")).unwrap(), b"new");
    });

    assert_eq!(fs::read(outside.join("db")).unwrap(), b"old");
}

#[test]
fn a_single_file_is_read_and_nothing_else() {
    if !has_rules() {
        println!("skipped: this kernel has no Landlock");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (one, other) = (home.path().join("one"), home.path().join("other"));
    fs::write(&one, "1").unwrap();
    fs::write(&other, "2").unwrap();
    let opened = File::open(&one).unwrap();

    within(Reach::File(opened.as_fd()), || {
        assert_eq!(fs::read(&one).unwrap(), b"1");
        assert_eq!(fs::read(crate::descriptor::link_to(&opened)).unwrap(), b"1");
        let denied = Some(Errno::ACCESS);
        assert_eq!(errno(File::options().write(true).open(&one)), denied);
        assert_eq!(errno(File::options().append(true).open(&one)), denied);
        assert_eq!(errno(fs::read(&other)), denied);
        assert_eq!(errno(fs::write(home.path().join("new"), "")), denied);
    });
}

#[test]
fn there_is_no_network_not_even_on_this_machine() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let home = tempfile::tempdir().unwrap();

    within(Reach::Nothing, || {
        let refused = Some(Errno::PERM);
        assert_eq!(errno(TcpStream::connect(address)), refused);
        assert_eq!(errno(TcpListener::bind("127.0.0.1:0")), refused);
        assert_eq!(errno(UnixStream::pair()), refused);
        assert_eq!(errno(UnixDatagram::bind(home.path().join("s"))), refused);
    });
}

#[test]
fn there_are_no_other_programs_and_no_other_processes() {
    let parent = process::getppid().unwrap();
    process::test_kill_process(parent).unwrap();
    let file = tempfile::tempfile().unwrap();

    within(Reach::Nothing, || {
        let refused = Some(Errno::PERM);
        assert_eq!(errno(Command::new("/bin/true").spawn()), refused);
        let became = Command::new("/bin/false").exec();
        assert_eq!(Errno::from_io_error(&became), Some(Errno::PERM));
        assert_eq!(process::test_kill_process(parent), Err(Errno::PERM));
        assert_eq!(
            process::test_kill_process_group(Pid::INIT),
            Err(Errno::PERM)
        );
        assert_eq!(errno(rustix_mode(&file)), refused);
        // The process goes on, and what it starts of its own is bound to the same.
        let thread = std::thread::spawn(|| fs::read(Path::new("/proc/self/environ")).is_err());
        assert_eq!(thread.join().unwrap(), has_rules());
        process::test_kill_process(process::getpid()).unwrap();
        assert!(thread::no_new_privs().unwrap());
    });
}

/// A change to an open file that is no change of what is in it.
fn rustix_mode(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, rustix::fs::Mode::RUSR)?)
}

#[test]
fn a_trial_binds_nobody() {
    let tried = offered();

    assert!(tried.privileges && tried.calls);
    assert_eq!(tried.files, has_rules());
    assert!(!thread::no_new_privs().unwrap());
    assert!(TcpListener::bind("127.0.0.1:0").is_ok());
    assert!(Command::new("/bin/true").status().unwrap().success());
}

#[test]
fn of_the_rights_of_root_only_the_one_to_open_files_stays() {
    let before = thread::capabilities(None).unwrap();

    let after = std::thread::spawn(|| {
        drop_privileges();
        thread::capabilities(None).unwrap()
    });

    let after = after.join().unwrap();
    let may = CapabilitySet::DAC_OVERRIDE;
    assert_eq!(after.permitted, before.permitted & may);
    assert_eq!(after.effective, before.effective & may);
    assert!(after.inheritable.is_empty());
    assert_eq!(thread::capabilities(None).unwrap(), before);
}
