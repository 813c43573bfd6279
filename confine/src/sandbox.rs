//! The parts together, and what is said of those that the kernel did not give.
//!
//! Room: `confine`. Invariant: a part that is missing is never passed over in silence: it stands in [`Sandbox::missing`],
//! and where the whole is required the daemon does not start.
use crate::landlock::{Got, Rules, RulesetError};
use crate::log::chain;
use crate::seccomp::{Filter, SeccompError};

/// What a process ended up with.
#[derive(Debug)]
pub struct Sandbox {
    landlock: Result<Got, RulesetError>,
    seccomp: Result<(), SeccompError>,
}

/// The kernel gave less than all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the sandbox is incomplete ({missing}) and helper.require_sandbox is true")]
pub struct Incomplete {
    missing: String,
}

/// Enters Landlock, then seccomp, whose filter need not list what Landlock is set with. `no_new_privs` must be set, and
/// Landlock covers the threads alone that are made later.
#[must_use]
pub fn enter(rules: Rules, filter: &Filter<'_>) -> Sandbox {
    Sandbox { landlock: rules.restrict(), seccomp: filter.restrict() }
}

impl Sandbox {
    /// What Landlock gave.
    #[must_use]
    pub fn landlock(&self) -> Got {
        *self.landlock.as_ref().unwrap_or(&Got::None)
    }

    /// Whether the filter is in force.
    #[must_use]
    pub fn seccomp(&self) -> bool {
        self.seccomp.is_ok()
    }

    /// What is not there at all, as words for the log. Kernels before 6.12 know less of Landlock than the whole: that
    /// alone is no reason for a warning at every start.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.parts(false)
    }

    /// The sandbox, if it is whole: also in what only newer kernels know.
    ///
    /// # Errors
    /// [`Incomplete`] with the parts that are missing.
    pub fn whole(&self) -> Result<(), Incomplete> {
        self.parts(true).map_or(Ok(()), |missing| Err(Incomplete { missing }))
    }

    fn parts(&self, whole: bool) -> Option<String> {
        let landlock = match &self.landlock {
            Ok(Got::Full) => None,
            Ok(Got::Partial) => whole.then(|| "this kernel knows a part of Landlock only".to_owned()),
            Ok(Got::None) => Some("this kernel has no Landlock, or boots without lsm=landlock,…".to_owned()),
            Err(cause) => Some(format!("Landlock cannot be set: {}", chain(cause))),
        };
        let seccomp = self.seccomp.as_ref().err().map(|cause| format!("seccomp cannot be set: {}", chain(cause)));
        let parts: Vec<_> = landlock.into_iter().chain(seccomp).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(landlock: Got, seccomp: bool) -> Sandbox {
        let refused = || SeccompError::Set(seccompiler::Error::ThreadSync(7));
        Sandbox { landlock: Ok(landlock), seccomp: if seccomp { Ok(()) } else { Err(refused()) } }
    }

    #[test]
    fn a_whole_sandbox_misses_nothing() {
        assert_eq!(got(Got::Full, true).missing(), None);
        assert_eq!(got(Got::Full, true).whole(), Ok(()));
    }

    #[test]
    fn an_older_kernels_landlock_is_no_warning_and_yet_not_the_whole() {
        let sandbox = got(Got::Partial, true);
        assert_eq!(sandbox.missing(), None);
        assert!(sandbox.whole().unwrap_err().to_string().contains("a part of Landlock"));
    }

    #[test]
    fn each_missing_part_is_named_in_the_warning_and_in_the_refusal() {
        for (sandbox, landlock, seccomp) in [
            (got(Got::None, true), true, false),
            (got(Got::Full, false), false, true),
            (got(Got::None, false), true, true),
        ] {
            for text in [sandbox.missing().unwrap(), sandbox.whole().unwrap_err().to_string()] {
                assert_eq!(text.contains("no Landlock"), landlock, "{text}");
                assert_eq!(
                    text.contains("seccomp cannot be set: the kernel does not take a filter: "),
                    seccomp,
                    "{text}"
                );
            }
            assert_eq!(sandbox.seccomp(), !seccomp);
        }
    }
}
