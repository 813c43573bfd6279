//! seccomp: the system calls that are left to the process that copies a standalone node's log.
//!
//! Room: `helper`. As in the list of the helper itself, `// rare:` says when an entry is needed that not every run needs, and
//! tests/tests/real_sandbox holds that all others are made.
use super::seccomp::INTRUDER;
use bcd_confine::seccomp::Filter;

/// Reading, writing, waiting for either a line or the node's end, the clock; the C library's memory and its end.
const CALLS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_ppoll,
    libc::SYS_brk,  // rare: the allocator, for more than it has
    libc::SYS_mmap, // rare: the allocator, for more than it has
    libc::SYS_munmap,
    libc::SYS_clock_gettime, // rare: the clock, where the kernel gives none without a call
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall, // rare: a wait goes on after a stop and continue
    libc::SYS_exit_group,
];

/// What it may call from its first line on.
pub(super) const FILTER: Filter<'static> = Filter {
    allowed: &[CALLS],
    only: &[],
    pretended: &[],
    intruder: INTRUDER,
    intruder_with: &[],
    otherwise: libc::EPERM,
};
