//! What guests run on: the configuration's word, or what this host can do.
//!
//! Room: `helper`. `/dev/kvm` alone is no proof: a paravirtual KVM without vmx or svm starts a VMM and hangs its guest.
use bcd_protocol::config::Accel;
use std::fs::OpenOptions;

/// Whether guests run under software emulation, and why, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Software emulation rather than KVM.
    pub(crate) software: bool,
    /// The reason in words.
    pub(crate) because: &'static str,
}

/// Resolves `accel` on this host.
pub(crate) fn resolve(accel: Accel) -> Resolved {
    match accel {
        Accel::Kvm => Resolved { software: false, because: "configured" },
        Accel::Tcg => Resolved { software: true, because: "configured" },
        Accel::Auto => {
            let opens = OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
            let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            judge(opens, &flags)
        }
    }
}

fn judge(kvm_opens: bool, cpuinfo: &str) -> Resolved {
    let virtualises = cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_ascii_whitespace().any(|flag| flag == "vmx" || flag == "svm"));
    match (kvm_opens, virtualises) {
        (true, true) => Resolved { software: false, because: "/dev/kvm opens and the CPU has vmx or svm" },
        (false, _) => Resolved { software: true, because: "/dev/kvm does not open" },
        (true, false) => Resolved { software: true, because: "the CPU has neither vmx nor svm" },
    }
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn kvm_without_a_cpu_flag_is_software() {
        assert!(judge(true, "processor : 0\nflags : fpu vme de pse\n").software);
    }

    #[test]
    fn kvm_with_vmx_or_svm_is_hardware() {
        assert!(!judge(true, "flags\t\t: fpu vmx sse\n").software);
        assert!(!judge(true, "flags\t\t: fpu svm sse\n").software);
    }

    #[test]
    fn a_flag_that_only_contains_the_word_does_not_count() {
        assert!(judge(true, "flags : svm_lock xvmx\nvmx flags : vmx\n").software);
    }

    #[test]
    fn no_device_is_software_whatever_the_cpu_says() {
        assert!(judge(false, "flags : vmx\n").software);
    }
}
