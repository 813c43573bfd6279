//! seccomp: the system calls that are left.
//!
//! Room: `helper`. A call that is not listed fails with EPERM: a newer C library or libvirt that tries something else loses
//! that, and not the whole helper. What only an intruder would call ends the process.
//!
//! `// rare:` says when an entry is needed that the life of a guest does not need every time; tests/tests/real_sandbox
//! holds that all others are made, and that none is made that is not here.
use bcd_confine::seccomp::{Filter, Only};

// refused: clone3: its flags lie where no filter sees them, so the C library is made to fall back to clone

#[cfg(test)]
mod tests;

/// Reading and writing the records, peers, libvirt and the log; waiting for them (tokio, and libvirt's event loop).
const DESCRIPTORS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, // rare: 64-bit ARM has no epoll_wait
    libc::SYS_ppoll,       // rare: 64-bit ARM has no poll
    libc::SYS_fstat,       // rare: C libraries before 2.33 and after 2.38 look so at a descriptor
];

/// The ledger (written, synced, renamed, removed), looking at an instance's files, the console's pty, and the settings that
/// libvirt's client reads. Which files is Landlock's matter.
const FILES: &[i64] = &[
    libc::SYS_openat,
    // Instances' files: one part of the path after another, no link followed.
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    // The console: that the pty lies on devpts.
    libc::SYS_fstatfs,
    libc::SYS_faccessat, // rare: 64-bit ARM has no access
    libc::SYS_renameat,
    libc::SYS_unlinkat,
    libc::SYS_fsync,
    // The lock on the ledger is given back at the end.
    libc::SYS_flock,
];

/// Peers, libvirt's socket, the service manager's. `socket` is restricted to unix sockets below.
const SOCKETS: &[i64] = &[
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    // How tokio hears of signals.
    libc::SYS_socketpair,
];

/// Memory, threads, signals, clocks, random numbers: the C library, the runtime and the allocator.
const PROCESS: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap, // rare: the allocator, for a block of 128 KiB and more that grows
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield, // rare: a lock that is held for a moment only
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall, // rare: a wait goes on after a stop and continue
    libc::SYS_tgkill,          // rare: abort, as when memory runs out
    libc::SYS_getpid,          // rare: abort, as when memory runs out
    libc::SYS_gettid,
    libc::SYS_geteuid,
    libc::SYS_clock_gettime,   // rare: the clock, where the kernel gives none without a call
    libc::SYS_gettimeofday,    // rare: the clock, where the kernel gives none without a call
    libc::SYS_clock_nanosleep, // rare: libvirt's client, between two tries to connect
    libc::SYS_getrandom,
    // One capability at a time is raised for one call: see `Raised`.
    libc::SYS_capget,
    libc::SYS_capset,
];

/// Older spellings of the above that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLD_SPELLINGS: &[i64] = &[
    libc::SYS_access,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_time, // rare: the clock, where the kernel gives none without a call
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_SPELLINGS: &[i64] = &[];

/// What nothing in the helper calls: whoever does has taken it over.
pub(super) const INTRUDER: &[i64] = &[
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
    // The same by their old names.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
];

/// Calls that are left with some arguments only.
const ONLY: &[(i64, Only<'static>)] = &[
    // Peers come in by unix sockets, and libvirt is reached by one.
    (libc::SYS_socket, Only::OneOf(0, &[libc::AF_UNIX as u64])),
    // Threads, never processes.
    (libc::SYS_clone, Only::Bits { argument: 0, mask: THREAD, bits: THREAD }),
    // Names of threads.
    (libc::SYS_prctl, Only::OneOf(0, &[libc::PR_SET_NAME as u64])),
    // Limits are read (by the C library, for a thread's stack), never set.
    (libc::SYS_prlimit64, Only::Null(2)),
    // Whether a network interface exists: a tap's name must be free at a start.
    (libc::SYS_ioctl, Only::OneOf(1, &[libc::SIOCGIFINDEX])),
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
