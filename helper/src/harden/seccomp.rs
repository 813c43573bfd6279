//! seccomp: the system calls that are left.
//!
//! Room: `helper`. Three filters, of which the strictest answer counts. A call that is not listed fails with EPERM: a
//! newer C library or libvirt that tries something else loses that, and not the whole helper. What only an intruder
//! would call ends the process.
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

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
    libc::SYS_clone3, // answered ENOSYS by the second filter
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

/// Restricts every thread of the process.
///
/// # Errors
/// Why a filter could not be made or set, in words.
pub(super) fn restrict() -> Result<(), String> {
    let eperm = errno(libc::EPERM);
    let enosys = errno(libc::ENOSYS);
    let allowed = compile(allowed()?, eperm, SeccompAction::Allow)?;
    // clone3 hides its flags in memory where no filter sees them: the C library falls back to clone.
    let clone3 = compile(always(&[libc::SYS_clone3]), SeccompAction::Allow, enosys)?;
    let intruder = compile(always(INTRUDER), SeccompAction::Allow, SeccompAction::KillProcess)?;
    // The one that allows least comes last: the others are set by calls that it does not list.
    for program in [&intruder, &clone3, &allowed] {
        seccompiler::apply_filter_all_threads(program).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn always(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn allowed() -> Result<Rules, String> {
    let mut rules = always(DESCRIPTORS);
    for calls in [FILES, SOCKETS, PROCESS, OLD_SPELLINGS] {
        rules.extend(always(calls));
    }
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    rules.insert(libc::SYS_socket, vec![when(0, Op::Eq, unix)?]);
    // Threads, never processes.
    let thread = u64::from((libc::CLONE_THREAD | libc::CLONE_VM).unsigned_abs());
    rules.insert(libc::SYS_clone, vec![when(0, Op::MaskedEq(thread), thread)?]);
    // Names of threads and of the allocator's memory.
    let names = [libc::PR_SET_NAME, libc::PR_SET_VMA];
    let names = names.iter().map(|option| when(0, Op::Eq, u64::from(option.unsigned_abs())));
    rules.insert(libc::SYS_prctl, names.collect::<Result<_, _>>()?);
    // Limits are read (by the C library, for a thread's stack), never set.
    rules.insert(libc::SYS_prlimit64, vec![when_pointer(2, 0)?]);
    // Non-blocking mode, whether standard error is a terminal, whether a network interface exists.
    let requests = [libc::FIONBIO, libc::TCGETS, libc::SIOCGIFINDEX];
    let requests = requests.iter().map(|request| when(1, Op::Eq, *request));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    Ok(rules)
}

fn when(argument: u8, op: Op, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, Len::Dword, op, value).map_err(|e| e.to_string())?;
    SeccompRule::new(vec![condition]).map_err(|e| e.to_string())
}

fn when_pointer(argument: u8, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, Len::Qword, Op::Eq, value).map_err(|e| e.to_string())?;
    SeccompRule::new(vec![condition]).map_err(|e| e.to_string())
}

fn compile(rules: Rules, otherwise: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| e.to_string())?;
    SeccompFilter::new(rules, otherwise, listed, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|e| format!("a filter cannot be made: {e}"))
}
