//! seccomp: the system calls that are left.
//!
//! Room: `helper`. A call that is not listed fails with EPERM: a newer C library or libvirt that tries something else loses
//! that, and not the whole helper. What only an intruder would call ends the process.
use bcd_confine::seccomp::{Filter, Only};

#[cfg(test)]
mod tests;

/// Reading, writing, waiting.
const DESCRIPTORS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
];

/// The ledger, the console, the files that libvirt's client reads. Which files is Landlock's matter.
const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    // The lock on the ledger is given back at the end.
    libc::SYS_flock,
];

/// Peers and libvirt's socket. `socket` is restricted to unix sockets below.
const SOCKETS: &[i64] = &[
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_socketpair,
];

/// Memory, threads, signals, clocks, random numbers: what any program of this kind does.
const PROCESS: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // One capability at a time is raised for one call: see `Raised`.
    libc::SYS_capget,
    libc::SYS_capset,
];

/// Older spellings of the above that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLD_SPELLINGS: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_SPELLINGS: &[i64] = &[];

/// What nothing in the helper calls: whoever does has taken it over.
const INTRUDER: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
];

/// Calls that are left with some arguments only.
const ONLY: &[(i64, Only<'static>)] = &[
    // Peers come in by unix sockets, and libvirt is reached by one.
    (libc::SYS_socket, Only::OneOf(0, &[libc::AF_UNIX as u64])),
    // Threads, never processes.
    (libc::SYS_clone, Only::Bits { argument: 0, mask: THREAD, bits: THREAD }),
    // Names of threads and of the allocator's memory.
    (libc::SYS_prctl, Only::OneOf(0, &[libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64])),
    // Limits are read (by the C library, for a thread's stack), never set.
    (libc::SYS_prlimit64, Only::Null(2)),
    // Non-blocking mode, whether standard error is a terminal, whether a network interface exists.
    (libc::SYS_ioctl, Only::OneOf(1, &[libc::FIONBIO, libc::TCGETS, libc::SIOCGIFINDEX])),
];

/// What a new thread of the C library shares.
const THREAD: u64 = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;

/// What the helper may call from here on.
pub(super) const FILTER: Filter<'static> = Filter {
    allowed: &[DESCRIPTORS, FILES, SOCKETS, PROCESS, OLD_SPELLINGS],
    only: ONLY,
    pretended: &[],
    intruder: INTRUDER,
    intruder_with: &[],
    otherwise: libc::EPERM,
};
