use super::*;

const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ABSENT: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

#[cfg(target_arch = "x86_64")]
const HERE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const HERE: u32 = 0xC000_00B7;

/// What the kernel would answer to a call: runs the program on the structure that the kernel makes of it.
fn answer(number: u32, architecture: u32, arguments: [u64; 3]) -> u32 {
    let mut words = vec![number, architecture, 0, 0];
    for argument in arguments {
        words.extend(
            [argument & 0xFFFF_FFFF, argument >> 32].map(|word| u32::try_from(word).unwrap()),
        );
    }
    let program = program().unwrap();
    let (mut at, mut seen) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at].clone();
        at += 1;
        let mut jump = |is_so: bool| at += usize::from(if is_so { jt } else { jf });
        match u32::from(code) {
            0x20 => seen = words[k as usize / 4],
            0x54 => seen &= k,
            0x05 => at += k as usize,
            0x15 => jump(seen == k),
            0x25 => jump(seen > k),
            0x35 => jump(seen >= k),
            0x06 => return k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn asked(call: i64, arguments: [u64; 3]) -> u32 {
    answer(u32::try_from(call).unwrap(), HERE, arguments)
}

#[test]
fn what_nobody_needs_who_reads_is_refused() {
    for call in [
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_mount,
        libc::SYS_open_by_handle_at,
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_open,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_fchmodat,
        libc::SYS_ioctl,
    ] {
        assert_eq!(asked(call, [0; 3]), REFUSED, "{call}");
    }
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_fork, libc::SYS_vfork, libc::SYS_chmod] {
        assert_eq!(asked(call, [0; 3]), REFUSED, "{call}");
    }
}

#[test]
fn what_sqlite_and_a_libc_need_is_not() {
    for call in [
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_write,
        libc::SYS_pwrite64,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_close,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_readlinkat,
        libc::SYS_unlinkat,
        libc::SYS_ftruncate,
        libc::SYS_fallocate,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_lseek,
        libc::SYS_mmap,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_clock_gettime,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rseq,
        libc::SYS_exit_group,
    ] {
        assert_eq!(asked(call, [0; 3]), ALLOWED, "{call}");
    }
}

#[test]
fn arguments_decide_where_a_call_has_two_uses() {
    let own = u64::from(std::process::id());
    let thread = libc::CLONE_THREAD as u64;

    for (call, arguments, expected) in [
        (libc::SYS_kill, [own, 6, 0], ALLOWED),
        (libc::SYS_kill, [own + 1, 0, 0], REFUSED),
        (libc::SYS_kill, [0, 9, 0], REFUSED),
        (libc::SYS_kill, [u64::MAX, 9, 0], REFUSED),
        // The upper half is no part of the number that the kernel takes.
        (libc::SYS_kill, [(1 << 32) | own, 6, 0], ALLOWED),
        (libc::SYS_tgkill, [own, own, 6], ALLOWED),
        (libc::SYS_tgkill, [own + 1, own + 1, 6], REFUSED),
        (libc::SYS_prlimit64, [0, 7, 0], ALLOWED),
        (libc::SYS_prlimit64, [own, 7, 0], ALLOWED),
        (libc::SYS_prlimit64, [own + 1, 7, 0], REFUSED),
        (libc::SYS_clone, [thread | 0x3d_0f00, 0, 0], ALLOWED),
        (libc::SYS_clone, [17, 0, 0], REFUSED),
        (libc::SYS_clone, [0x4111, 0, 0], REFUSED),
        (libc::SYS_fcntl, [0, 6, 0], ALLOWED),
        (libc::SYS_fcntl, [0, F_SETOWN, own], REFUSED),
        (libc::SYS_fcntl, [0, F_SETSIG, 9], REFUSED),
    ] {
        assert_eq!(asked(call, arguments), expected, "{call} {arguments:?}");
    }
}

#[test]
fn calls_that_are_newer_or_of_another_convention_do_not_exist() {
    for number in [CLONE3, UNKNOWN, UNKNOWN + 1, 600, 0x4000_0000, 0x4000_0208] {
        assert_eq!(answer(number, HERE, [0; 3]), ABSENT, "{number}");
    }
    let i386 = 0x4000_0003;
    assert_eq!(
        answer(11, i386, [0; 3]),
        libc::SECCOMP_RET_KILL_PROCESS,
        "another architecture"
    );
}
