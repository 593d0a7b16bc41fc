//! Threads that leave the processor and the disks to others.

use rustix::process::{getpriority_process, setpriority_process};
use std::io;

/// How nice such a thread is: under load it gets a tenth of what another one gets, and never nothing, because it may hold locks.
pub const NICENESS: i32 = 10;

/// Whose priority at the disks is meant: a thread's.
const OF_A_THREAD: libc::c_long = 1;
/// The calling one.
const THIS_ONE: libc::c_long = 0;
/// The last in turn of those that are not left waiting for ever: class 2, level 7.
const LAST_IN_TURN: libc::c_long = 2 << 13 | 7;

/// Makes the calling thread, and all that it starts from then on, leave the processor and the disks to others. One that is nicer already
/// stays so.
pub fn yield_to_others() -> io::Result<()> {
    let is_nice = getpriority_process(None).is_ok_and(|now| now >= NICENESS);
    let nice = if is_nice {
        Ok(())
    } else {
        setpriority_process(None, NICENESS)
    };
    // SAFETY: the call takes three numbers and touches no memory of ours.
    let asked = unsafe { libc::syscall(libc::SYS_ioprio_set, OF_A_THREAD, THIS_ONE, LAST_IN_TURN) };
    nice?;
    if asked == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The priority of the calling thread at the disks.
    fn at_the_disks() -> libc::c_long {
        // SAFETY: the call takes two numbers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_ioprio_get, OF_A_THREAD, THIS_ONE) }
    }

    #[test]
    fn a_thread_that_yields_is_nice_with_all_that_it_starts_and_no_other_one_is() {
        let before = (getpriority_process(None).unwrap(), at_the_disks());

        let (own, started) = std::thread::spawn(|| {
            yield_to_others().unwrap();
            let now = || (getpriority_process(None).unwrap(), at_the_disks());
            (now(), std::thread::spawn(now).join().unwrap())
        })
        .join()
        .unwrap();

        assert_eq!(own, (NICENESS.max(before.0), LAST_IN_TURN));
        assert_eq!(started, own);
        let after = (getpriority_process(None).unwrap(), at_the_disks());
        assert_eq!(after, before);
    }
}
