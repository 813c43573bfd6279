//! seccomp: the system calls that are left to the node and to the tools it runs.
//!
//! Room: `node`. A call that is not listed fails with ENOSYS, as on an older kernel, so that libraries fall back to what is
//! listed. What only an intruder would call ends the process.
//!
//! `// rare:` says when an entry is needed that the life of a guest does not need every time; tests/tests/real_sandbox
//! holds that all others are made, and that none is made that is not here.
use bcd_confine::seccomp::{Filter, Only, TYPING};

// refused: clone3: its flags lie where no filter sees them, so the C library is made to fall back to clone

/// Images, disks and seeds; the API's callers; the document's directory, which is watched; waiting for all of them (tokio).
const DESCRIPTORS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_dup,  // rare: xorriso, where there is no genisoimage
    libc::SYS_dup3, // rare: 64-bit ARM has no dup2, which the start of a tool needs
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch, // rare: the watching thread sees the end of the node before it is gone
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, // rare: 64-bit ARM has no epoll_wait
    libc::SYS_ppoll,       // rare: 64-bit ARM has no poll; modules of the user database use it as well
    libc::SYS_ioctl,
];

/// Images, disks, seeds, shares by ACL; directories are made, listed and removed. Which files is Landlock's matter.
const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstat,  // rare: C libraries before 2.33 and after 2.38 look so at a descriptor
    libc::SYS_statfs, // rare: xorriso, where there is no genisoimage
    libc::SYS_fstatfs,
    libc::SYS_faccessat, // rare: 64-bit ARM has no access
    libc::SYS_getdents64,
    libc::SYS_getcwd, // rare: xorriso, where there is no genisoimage
    libc::SYS_chdir,
    libc::SYS_mkdirat, // rare: 64-bit ARM has no mkdir
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat, // rare: an image is published on a filesystem that cannot rename without replacing
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_flock,
    libc::SYS_fchmod,
    libc::SYS_fchmodat, // rare: 64-bit ARM has no chmod
    libc::SYS_getxattr,
    libc::SYS_setxattr,
];

/// The helper, libvirt, the API's callers, image servers, the service manager. Which families is decided below.
const SOCKETS: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmmsg, // rare: a name is asked for by DNS, both kinds of address at once
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_socketpair,
];

/// Memory, threads, signals, clocks, random numbers: the C library, the runtime and the allocator. Children: the tool that
/// makes seeds is executed, waited for and, when it takes too long, killed.
const PROCESS: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap, // rare: the allocator, for a block of 128 KiB and more that grows
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_execve,
    libc::SYS_wait4,
    libc::SYS_pidfd_open,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
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
    libc::SYS_kill,            // rare: a tool that takes too long is killed
    libc::SYS_tgkill,          // rare: abort, as when memory runs out
    libc::SYS_gettid,
    libc::SYS_getpid, // rare: abort, as when memory runs out; and xorriso
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid, // rare: xorriso, where there is no genisoimage
    libc::SYS_getegid,
    libc::SYS_prlimit64,
    libc::SYS_prctl,
    libc::SYS_uname,
    libc::SYS_clock_gettime,   // rare: the clock, where the kernel gives none without a call
    libc::SYS_gettimeofday,    // rare: the clock, where the kernel gives none without a call
    libc::SYS_clock_nanosleep, // rare: a standalone node waits for its helper's end, libvirt's client to connect
    libc::SYS_getrandom,
];

/// Older spellings of the above that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLD_SPELLINGS: &[i64] = &[
    libc::SYS_stat,  // rare: xorriso, where there is no genisoimage
    libc::SYS_lstat, // rare: xorriso, where there is no genisoimage
    libc::SYS_access,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_chmod,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_time, // rare: the clock, where the kernel gives none without a call
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_SPELLINGS: &[i64] = &[];

/// genisoimage sets its ids to what they are, and fails without. Whoever changes ids for good, as a node that was started as
/// root does, has to have done it before this is in force, and to check that it is so.
const PRETENDED: &[i64] = &[libc::SYS_setreuid];

/// What nothing in the node or its tools calls: whoever does has taken it over.
const INTRUDER: &[i64] = &[
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
    libc::SYS_mknodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod, // the same by its old name
    libc::SYS_setgroups,
    libc::SYS_capset,
];

/// Calls that are left with some arguments only.
const ONLY: &[(i64, Only<'static>)] = &[
    // The helper and libvirt, image servers; the unit has the same families. The C library asks for this host's addresses by
    // a netlink socket when it puts a name's addresses in order: it takes every family for reachable where it gets none.
    (
        libc::SYS_socket,
        Only::OneOf(
            0,
            &[
                libc::AF_UNIX as u64,
                libc::AF_INET as u64,
                libc::AF_INET6 as u64, // rare: an image server whose name has such an address
            ],
        ),
    ),
    // Threads and children, never namespaces.
    (libc::SYS_clone, Only::Bits { argument: 0, mask: NAMESPACES, bits: 0 }),
];

const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Whoever starts the node from a shell, and not as a standalone node, leaves it that shell's terminal.
const INTRUDER_WITH: &[(i64, Only<'static>)] = &[(libc::SYS_ioctl, TYPING)];

/// What the node and its children may call from here on.
pub(super) const FILTER: Filter<'static> = Filter {
    allowed: &[DESCRIPTORS, FILES, SOCKETS, PROCESS, OLD_SPELLINGS],
    only: ONLY,
    pretended: PRETENDED,
    intruder: INTRUDER,
    intruder_with: INTRUDER_WITH,
    otherwise: libc::ENOSYS,
};
