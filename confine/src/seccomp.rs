//! seccomp: the system calls that are left to a process.
//!
//! Room: `confine`. A few filters, of which the kernel takes the strictest answer: what only an intruder calls ends the
//! process, `clone3` is not there, some calls are answered and not made, and what is not listed fails with an error of the
//! daemon's choice.
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
    fn rules(self) -> Result<Vec<SeccompRule>, SeccompError> {
        let rule = |argument, len, op, value| {
            let condition = SeccompCondition::new(argument, len, op, value)?;
            Ok(SeccompRule::new(vec![condition])?)
        };
        match self {
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
    /// What any other call fails with, a number of `errno`.
    pub otherwise: i32,
}

impl Filter<'_> {
    /// Restricts every thread of the process and all that it makes. `no_new_privs` must be set.
    ///
    /// # Errors
    /// [`SeccompError`]: the lists make no filter, or the kernel has no seccomp.
    pub fn restrict(&self) -> Result<(), SeccompError> {
        // The one that allows least comes last: the others are set by calls that it does not list.
        for program in self.programs()? {
            seccompiler::apply_filter_all_threads(&program)?;
        }
        Ok(())
    }

    fn programs(&self) -> Result<[BpfProgram; 4], SeccompError> {
        let mut allowed: BTreeMap<_, _> =
            self.allowed.iter().flat_map(|calls| calls.iter()).map(|call| (*call, Vec::new())).collect();
        for (call, only) in self.only {
            allowed.insert(*call, only.rules()?);
        }
        let mut intruder: BTreeMap<_, _> = self.intruder.iter().map(|call| (*call, Vec::new())).collect();
        for (call, only) in self.intruder_with {
            intruder.insert(*call, only.rules()?);
        }
        // clone3 hides its flags in memory where no filter sees them: the C library falls back to clone.
        let clone3 = [(libc::SYS_clone3, Vec::new())].into();
        allowed.insert(libc::SYS_clone3, Vec::new());
        let pretended: BTreeMap<_, _> = self.pretended.iter().map(|call| (*call, Vec::new())).collect();
        allowed.extend(pretended.clone());
        Ok([
            compile(intruder, SeccompAction::Allow, SeccompAction::KillProcess)?,
            compile(clone3, SeccompAction::Allow, errno(libc::ENOSYS))?,
            compile(pretended, SeccompAction::Allow, errno(0))?,
            compile(allowed, errno(self.otherwise), SeccompAction::Allow)?,
        ])
    }
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, SeccompError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, otherwise, listed, arch).and_then(BpfProgram::try_from)?)
}
