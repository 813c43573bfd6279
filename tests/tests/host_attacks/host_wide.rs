//! What belongs to the host: systemd and others over D-Bus, libvirt's writing socket, mounts, namespaces, network, kernel.
use super::*;

pub(crate) fn attacks() -> Vec<Attack> {
    let manager = "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager";
    let mut attacks = vec![
        attack("systemd: reload", format!("{manager} Reload")),
        attack("systemd: environment", "systemctl set-environment A=b && systemctl unset-environment A"),
        attack("systemd: a unit of one's own", "systemd-run --quiet --wait true"),
        attack("systemd: a scope", "systemd-run --quiet --scope true"),
        attack("systemd: restart of a service", "systemctl restart test-images.service"),
        attack("systemd: start", "systemctl start bcd-helper.service"),
        attack("systemd: enable", "systemctl enable test-images.service"),
        attack("systemd: a property", "systemctl set-property --runtime test-images.service CPUWeight=100"),
        attack("systemd: a signal", "systemctl kill --signal=CONT bcd-helper.service"),
        attack("systemd: log level", "systemctl log-level info"),
        untried("systemd: stop", "systemctl stop libvirtd.service"),
        untried("systemd: mask", "systemctl mask --runtime test-images.service"),
        untried("systemd: power off", format!("{manager} PowerOff")),
        untried("systemd: dump with file descriptors of jobs", format!("{manager} CancelJob u 1")),
        attack("hostnamed", "hostnamectl set-hostname test-host"),
        attack("timedated", "set -e; timedatectl set-timezone Etc/GMT-1; timedatectl set-timezone Etc/UTC"),
        attack("networkd", "networkctl reload"),
        attack("libvirt: list over the writing socket", "virsh -q -c qemu:///system list"),
        attack(
            "libvirt: open the writing socket by its path",
            "virsh -q -c 'qemu:///system?socket=/run/libvirt/libvirt-sock' list",
        ),
        attack("libvirt: secrets in a definition", "virsh -q -c qemu:///system dumpxml --security-info bcd-second"),
        attack("libvirt: autostart", format!("virsh -q -c qemu:///system autostart --disable {FOREIGN}")),
        untried("libvirt: end of a foreign domain", format!("virsh -q -c qemu:///system destroy {FOREIGN}")),
        untried("libvirt: end of a guest", "virsh -q -c qemu:///system destroy bcd-second"),
        untried(
            "libvirt: end of a foreign domain, read-only",
            format!("virsh -q -r -c qemu:///system destroy {FOREIGN}"),
        ),
        untried(
            "libvirt: secrets in a definition, read-only",
            "virsh -q -r -c qemu:///system dumpxml --security-info bcd-second",
        ),
        untried("libvirt: a guest's console, read-only", "timeout 5 virsh -q -r -c qemu:///system console bcd-second"),
        untried(
            "libvirt: a monitor command",
            "virsh -q -c qemu:///system qemu-monitor-command bcd-second --hmp info status",
        ),
        attack("mount", "mount -t tmpfs none /mnt/payload && umount /mnt/payload"),
        attack("bind a directory over another", "mount --bind /tmp /etc/bcd && umount /etc/bcd"),
        attack("make the root read-only or not", "mount -o remount,rw /"),
        attack("chroot", "chroot / true"),
        attack("a network interface", "ip link add planted0 type dummy && ip link del planted0"),
        attack("a tap", "ip tuntap add planted1 mode tap && ip tuntap del planted1 mode tap"),
        attack("the bridge", format!("ip link set {} mtu 1500", host::BRIDGE)),
        attack("a route", "ip route add 203.0.113.0/24 dev lo && ip route del 203.0.113.0/24 dev lo"),
        attack("a packet socket", "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'"),
        attack("packet filter", "nft add table inet planted && nft delete table inet planted"),
        attack("a kernel module", "set -e; modprobe -r dummy; modprobe dummy"),
        attack("a kernel setting", "sysctl -qw vm.swappiness=$(sysctl -n vm.swappiness)"),
        attack("the kernel's log", "dmesg"),
        attack("the clock", "date -s @$(date +%s)"),
        attack("the host's name", "hostname test-host"),
        attack("root by set-user-id", "su root -c true"),
        attack("root's uid", "setpriv --reuid 0 true"),
        attack("a guest's uid", format!("setpriv --reuid {} true", bcd_protocol::limits::GUEST_UID_LAST)),
        attack("another group", "setpriv --regid disk --keep-groups true"),
        attack("more groups", "setpriv --groups disk true"),
        untried(
            "reboot",
            "python3 -c 'import ctypes; import sys; sys.exit(ctypes.CDLL(None).reboot(0x89abcdef) != 0)'",
        ),
    ];
    for namespace in ["mount", "net", "pid --fork", "ipc", "uts", "cgroup"] {
        attacks.push(attack(format!("a new namespace: {namespace}"), format!("unshare --{namespace} true")));
    }
    // The kernel gives anyone a user namespace; what is in it must not reach the host.
    for inside in [
        "mount --bind /tmp /etc/bcd && grep -q /etc/bcd /proc/$PPID/mounts",
        "nsenter --target 1 --mount true",
        "true </etc/shadow",
        "true </dev/vda",
        "kill -CONT $(systemctl show --value -p MainPID bcd-helper.service)",
        "date -s @$(date +%s)",
        "modprobe -r dummy",
    ] {
        attacks.push(untried(
            format!("from a user namespace: {inside}"),
            format!("unshare --user --map-root-user --mount bash -c '{inside}'"),
        ));
    }
    attacks
}
