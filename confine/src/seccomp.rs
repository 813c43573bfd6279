//! seccomp: the system calls that are left to a process.
//!
//! Room: `confine`. A few filters, of which the kernel takes the strictest answer: what only an intruder calls ends the
//! process, `clone3` is not there, some calls are answered and not made, and what is not listed fails with an error of the
//! daemon's choice. Every filter also ends whoever makes a call of another architecture, whose numbers mean other calls (a
//! 32-bit program's, or the old entry from a 64-bit one's): `seccompiler` begins each so. Invariant: lists that leave more than they seem to (no argument where some are meant, a call in two
//! places) make no filter.
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Why a filter is not in force.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// It could not be made from the lists.
    #[error("a filter cannot be made")]
    Make(#[from] seccompiler::BackendError),
    /// The kernel did not take it.
    #[error("the kernel does not take a filter")]
    Set(#[from] seccompiler::Error),
    /// A call would be left whatever its arguments are: without a condition the kernel asks for none.
    #[error("call {0} is left with some arguments only, and none is listed")]
    NoArgument(i64),
    /// Two lines of the lists say something of the same call, of which one would be lost.
    #[error("call {0} is listed twice")]
    Twice(i64),
}

/// Which arguments of a call are meant.
#[derive(Debug, Clone, Copy)]
pub enum Only<'a> {
    /// The argument (the first is 0), of 32 bits, has one of these values.
    OneOf(u8, &'a [u64]),
    /// Of the argument's bits (32) those in `mask` are as in `bits`.
    Bits {
        /// Which argument.
        argument: u8,
        /// The bits that are looked at.
        mask: u64,
        /// What they must be.
        bits: u64,
    },
    /// The argument, a pointer, is null.
    Null(u8),
}

impl Only<'_> {
    /// As the kernel's conditions for `call`, of which any one is enough; never none.
    fn rules(self, call: i64) -> Result<Vec<SeccompRule>, SeccompError> {
        let rule = |argument, len, op, value| {
            let condition = SeccompCondition::new(argument, len, op, value)?;
            Ok(SeccompRule::new(vec![condition])?)
        };
        match self {
            Self::OneOf(_, []) => Err(SeccompError::NoArgument(call)),
            Self::OneOf(argument, values) => {
                values.iter().map(|value| rule(argument, Len::Dword, Op::Eq, *value)).collect()
            }
            Self::Bits { argument, mask, bits } => Ok(vec![rule(argument, Len::Dword, Op::MaskedEq(mask), bits)?]),
            Self::Null(argument) => Ok(vec![rule(argument, Len::Qword, Op::Eq, 0)?]),
        }
    }
}

/// What a process may still call.
#[derive(Debug)]
pub struct Filter<'a> {
    /// Calls that are left, whatever their arguments.
    pub allowed: &'a [&'a [i64]],
    /// Calls that are left with some arguments only; none of them is in `allowed`.
    pub only: &'a [(i64, Only<'a>)],
    /// Calls that are answered as if they had succeeded, and are not made: for programs that ask for what is so already. A
    /// filter that was set before, such as a service manager's, may refuse them all the same: of equally strict answers
    /// the kernel takes the newest filter's. None of them is in `allowed`.
    pub pretended: &'a [i64],
    /// Calls that end the process: nothing of ours makes them.
    pub intruder: &'a [i64],
    /// Calls that end the process with some arguments only; none of them is in `intruder`.
    pub intruder_with: &'a [(i64, Only<'a>)],
    /// What any other call fails with, a number of `errno`; one of another architecture ends the process.
    pub otherwise: i32,
}

impl Filter<'_> {
    /// Restricts every thread of the process and all that it makes. `no_new_privs` must be set.
    ///
    /// # Errors
    /// [`SeccompError`]: the lists make no filter or contradict each other, or the kernel has no seccomp.
    pub fn restrict(&self) -> Result<(), SeccompError> {
        // The one that allows least comes last: the others are set by calls that it does not list.
        for program in self.programs()? {
            seccompiler::apply_filter_all_threads(&program)?;
        }
        Ok(())
    }

    fn programs(&self) -> Result<[BpfProgram; 4], SeccompError> {
        // clone3 hides its flags in memory where no filter sees them: the C library falls back to clone.
        let hidden = Calls::default().and(&[libc::SYS_clone3])?;
        let pretended = Calls::default().and(self.pretended)?;
        let intruder = Calls::default().and(self.intruder)?.and_only(self.intruder_with)?;
        let mut allowed = Calls::default().and_only(self.only)?;
        for calls in self.allowed {
            allowed = allowed.and(calls)?;
        }
        // What ends the process with any argument, or is not there, is not left as well.
        allowed.clone().and(self.intruder)?;
        // The other two answer these, and of two answers the kernel takes the stricter.
        allowed = allowed.and(&[libc::SYS_clone3])?.and(self.pretended)?;
        Ok([
            compile(intruder, SeccompAction::Allow, SeccompAction::KillProcess)?,
            compile(hidden, SeccompAction::Allow, errno(libc::ENOSYS))?,
            compile(pretended, SeccompAction::Allow, errno(0))?,
            compile(allowed, errno(self.otherwise), SeccompAction::Allow)?,
        ])
    }
}

/// Ends whoever types into a terminal for somebody else, or makes a call of another architecture, and restricts nothing
/// beside that: for the time between a start by root's shell and the whole filter. It holds for every thread of the process
/// and for all that they start. `no_new_privs` must be set.
///
/// # Errors
/// [`SeccompError`]: the kernel has no seccomp.
pub fn forbid_typing() -> Result<(), SeccompError> {
    let typing = [(libc::SYS_ioctl, TYPING)];
    let mut calls = Calls::default().and_only(&typing)?;
    // The same call by the number that programs with 32-bit pointers make it by, where a kernel serves those.
    if cfg!(target_arch = "x86_64") {
        const X32: i64 = 0x4000_0000;
        const X32_IOCTL: i64 = X32 + 514;
        calls = calls.and_only(&[(X32_IOCTL, TYPING), (X32 + libc::SYS_ioctl, TYPING)])?;
    }
    Ok(seccompiler::apply_filter_all_threads(&compile(calls, SeccompAction::Allow, SeccompAction::KillProcess)?)?)
}

/// The requests of `ioctl` by which a process types into a terminal, or pastes into one, for whoever reads there.
pub const TYPING: Only<'static> = Only::OneOf(1, &[libc::TIOCSTI, libc::TIOCLINUX]);

/// Calls with the conditions of each, none for any argument. No call is in it twice.
#[derive(Debug, Clone, Default)]
struct Calls(BTreeMap<i64, Vec<SeccompRule>>);

impl Calls {
    fn and(mut self, calls: &[i64]) -> Result<Self, SeccompError> {
        for call in calls {
            self.add(*call, Vec::new())?;
        }
        Ok(self)
    }

    fn and_only(mut self, calls: &[(i64, Only<'_>)]) -> Result<Self, SeccompError> {
        for (call, only) in calls {
            self.add(*call, only.rules(*call)?)?;
        }
        Ok(self)
    }

    fn add(&mut self, call: i64, rules: Vec<SeccompRule>) -> Result<(), SeccompError> {
        match self.0.insert(call, rules) {
            None => Ok(()),
            Some(_) => Err(SeccompError::Twice(call)),
        }
    }
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn compile(calls: Calls, otherwise: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, SeccompError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(calls.0, otherwise, listed, arch).and_then(BpfProgram::try_from)?)
}
