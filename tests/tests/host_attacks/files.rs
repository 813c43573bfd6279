//! Files, sockets and devices of root, of the node, and of other guests.
use super::*;

/// Opens for reading.
fn read(name: &str, path: &str) -> Attack {
    attack(format!("read {name}"), format!("true <{path}"))
}

/// Opens for writing, and writes nothing.
fn write(name: &str, path: &str) -> Attack {
    attack(format!("write {name}"), format!("true >>{path}"))
}

/// Makes a file in a directory.
fn plant(dir: &str) -> Attack {
    attack(format!("plant a file in {dir}"), format!("set -e; touch {dir}/planted.$$; rm {dir}/planted.$$"))
}

pub(crate) fn of_root() -> Vec<Attack> {
    let mut attacks = vec![
        read("the shadow file", "/etc/shadow"),
        read("the administrator's disk", FOREIGN_DISK),
        read("root's records", "/var/lib/bcd-helper/records/first.json"),
        read("the definition of a domain", "/etc/libvirt/qemu/bcd-first.xml"),
        read("the definition of a foreign domain", &format!("/etc/libvirt/qemu/{FOREIGN}.xml")),
        read("the state of a running domain", "/run/libvirt/qemu/bcd-second.xml"),
        read("the host's raw disk", "/dev/vda"),
        read("the kernel's memory", "/proc/kcore"),
        read("root's own files", "/root/.profile"),
        write("the configuration", host::CONFIG),
        write("a unit of another service", "/etc/systemd/system/test-images.service"),
        write("the administrator's disk", FOREIGN_DISK),
        write("a record", "/var/lib/bcd-helper/records/first.json"),
        write("a domain's definition", "/etc/libvirt/qemu/bcd-first.xml"),
        write("libvirt's configuration", "/etc/libvirt/qemu.conf"),
        write("the users", "/etc/passwd"),
        write("the raw disk", "/dev/vda"),
        write("a kernel setting", "/proc/sys/kernel/core_pattern"),
        write("a device's driver", "/sys/bus/pci/drivers/vfio-pci/new_id"),
        attack("take the helper's socket away", "set -e; s=/run/bcd/helper.sock; mv $s $s.x; mv $s.x $s"),
        attack("put the node's directory elsewhere", "set -e; d=/run/bcd/node; mv $d $d.x; mv $d.x $d"),
    ];
    attacks.extend(
        [
            "/etc/systemd/system",
            "/run/systemd/system",
            "/run/bcd",
            "/usr/lib/systemd/system",
            "/etc/bcd",
            "/etc/tmpfiles.d",
            "/etc/modprobe.d",
            "/etc/polkit-1/rules.d",
            "/etc/dbus-1/system.d",
            "/etc/ld.so.conf.d",
            "/etc/apparmor.d/libvirt",
            "/etc/libvirt/qemu",
            "/usr/bin",
            "/usr/sbin",
            "/run/libvirt/qemu",
            "/var/lib/libvirt/qemu",
            "/var/lib/libvirt/images",
            "/var/lib/bcd-helper",
            "/var/lib/bcd-helper/records",
            "/root",
            "/boot",
        ]
        .map(plant),
    );
    for socket in ["virtlogd-sock", "virtlogd-admin-sock", "libvirt-admin-sock"] {
        attacks.push(attack(format!("connect to {socket}"), connect(&format!("/run/libvirt/{socket}"))));
    }
    attacks
}

/// What the node's user shares a directory with, and root uses.
pub(crate) fn beyond_the_node(target: &Target) -> Vec<Attack> {
    let Target { pty, monitor, .. } = target;
    let make = |what: &str| format!("set -e; f={DATA}/made.$$; trap 'rm -f $f' EXIT; {what}");
    vec![
        attack("a guest's serial port by its name", format!("true <>{pty}")),
        attack("a guest's monitor", format!("ls {monitor}/")),
        attack("give a file to root", make("touch $f; chown root $f")),
        attack("give a file to a guest", make("touch $f; chown 2147287040 $f")),
        attack("a hard link to a file of root", make("ln /etc/shadow $f")),
        attack("a device node", make("mknod $f b 254 0")),
        attack(
            "a capability on a file",
            make("cp /usr/bin/true $f; setcap cap_setuid+ep $f; getcap $f | grep -q setuid"),
        ),
        attack("another user's group", make("touch $f; chgrp kvm $f")),
    ]
}

/// What the node keeps for itself.
pub(crate) fn of_the_node(target: &Target) -> Vec<Attack> {
    vec![
        read("user data", "/etc/bcd/secrets/test"),
        attack("the names of user data", "ls /etc/bcd/secrets/"),
        attack("the names of instances", format!("ls {DATA}/instances/")),
        attack("the node's directory", format!("ls {DATA}/")),
        plant(DATA),
        plant(&format!("{DATA}/instances")),
        plant(&format!("{DATA}/instances/first")),
        plant(&format!("{DATA}/images")),
        write("a base image", &target.base),
    ]
}

pub(crate) fn of_another_guest(target: &Target) -> Vec<Attack> {
    let Target { pty, monitor, .. } = target;
    let dir = format!("{DATA}/instances/second");
    let mut attacks: Vec<Attack> = ["disk.qcow2", "seed.iso", "console.head"]
        .into_iter()
        .flat_map(|file| [read(file, &format!("{dir}/{file}")), write(file, &format!("{dir}/{file}"))])
        .collect();
    attacks.extend([
        attack("another guest's directory", format!("ls {dir}/")),
        plant(&dir),
        attack("another guest's serial port", format!("true <>{pty}")),
        untried("another guest's monitor", connect(&format!("{monitor}/monitor.sock"))),
        plant(monitor),
        read("another guest's key", &format!("{monitor}/master-key.aes")),
        read("another guest's log", "/var/log/libvirt/qemu/bcd-second.log"),
    ]);
    attacks
}
