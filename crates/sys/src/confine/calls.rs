//! The calls that a confined process may not make.
//!
//! A list of what is refused, not of what is allowed: which calls a reader makes is decided by the libc, its version and the
//! architecture, and one that is missing from a list of allowed ones would make a sound database look unreadable. What speaks against
//! such lists is that they do not know what comes later, so calls that are newer than the list do not exist here, as on an older
//! kernel: every libc can live with that. Numbers of another calling convention do not exist either, or end the process.

use rustix::process;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter, sock_filter,
};
use std::collections::BTreeMap;

/// Who is on the network, or on this machine.
const NETWORK: [i64; 13] = [
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];

/// Other programs and other processes.
const PROCESSES: [i64; 29] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_kcmp,
    libc::SYS_setpriority,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_ioprio_set,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_personality,
];

/// Filesystems, and what of a file the rules about files do not speak of: its owner, mode, times and attributes.
const FILES: [i64; 42] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_ioctl,
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    RENAMEAT,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
];

/// The kernel itself: where its holes were, and what only root may.
const KERNEL: [i64; 25] = [
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_lookup_dcookie,
];

/// The same under names that only this architecture still has.
#[cfg(target_arch = "x86_64")]
const OLD: [i64; 18] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_inotify_init,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
#[cfg(target_arch = "aarch64")]
const OLD: [i64; 0] = [];

// Numbers that `libc` does not have for every libc.
const FCHMODAT2: i64 = 452;
#[cfg(target_arch = "x86_64")]
const RENAMEAT: i64 = 264;
#[cfg(target_arch = "aarch64")]
const RENAMEAT: i64 = 38;
#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: i64 = 320;
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: i64 = 294;

/// Starts threads and processes by a structure that a filter cannot read; whoever is told that it does not exist uses `clone`.
const CLONE3: u32 = 435;
/// From here on calls are newer than this list, or of another calling convention, whose numbers have a high bit.
const UNKNOWN: u32 = 463;

/// Refuses them from now on, in this thread and in what it starts.
pub(super) fn refuse() -> seccompiler::Result<()> {
    apply_filter(&program()?)
}

fn program() -> Result<BpfProgram, BackendError> {
    let filter = SeccompFilter::new(
        refused()?,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    let mut program = absent().to_vec();
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// Answers that a call does not exist. The rest of the program, which also looks at the architecture, follows.
fn absent() -> [sock_filter; 4] {
    let instruction = |code: u32, jt, jf, k| sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
        jt,
        jf,
        k,
    };
    let jump = libc::BPF_JMP | libc::BPF_K;
    [
        // The number of the call is the first thing that a filter is given.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(jump | libc::BPF_JEQ, 1, 0, CLONE3),
        instruction(jump | libc::BPF_JGE, 0, 1, UNKNOWN),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
    ]
}

type Conditions = BTreeMap<i64, Vec<SeccompRule>>;

/// Which calls are refused, always or with some arguments.
fn refused() -> Result<Conditions, BackendError> {
    let always = [&NETWORK[..], &PROCESSES, &FILES, &KERNEL, &OLD].concat();
    let mut all: Conditions = always.into_iter().map(|call| (call, Vec::new())).collect();

    let own = u64::from(process::getpid().as_raw_nonzero().get().unsigned_abs());
    let other = |argument| condition(argument, SeccompCmpOp::Ne, own);
    // A signal to oneself is how a program gives up.
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_tkill] {
        all.insert(call, vec![SeccompRule::new(vec![other(0)?])?]);
    }
    let not_zero = condition(0, SeccompCmpOp::Ne, 0)?;
    let of_others = SeccompRule::new(vec![other(0)?, not_zero])?;
    all.insert(libc::SYS_prlimit64, vec![of_others]);
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let process = condition(0, SeccompCmpOp::MaskedEq(thread), 0)?;
    all.insert(libc::SYS_clone, vec![SeccompRule::new(vec![process])?]);
    // Who is told of a file by a signal.
    let owners = [F_SETOWN, F_SETOWN_EX, F_SETSIG].into_iter();
    let owners = owners.map(|what| SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, what)?]));
    all.insert(libc::SYS_fcntl, owners.collect::<Result<_, _>>()?);
    Ok(all)
}

const F_SETOWN: u64 = 8;
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// A condition on an argument that is an `int` for the kernel.
fn condition(
    argument: u8,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
}

#[cfg(test)]
mod tests;
