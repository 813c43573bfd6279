//! `bcd doctor` on a host that is as it should be, and on the same host with one thing broken at a time: each is found, comes with
//! a remedy, and is gone when mended. Most are mended by the remedy's own words.
use bcd_tests::daemons::wait_for;
use bcd_tests::host::{self, Undo, ok};
use serde_json::Value;
use std::collections::BTreeSet;

/// One prerequisite: how it breaks, what the doctor calls it, what the doctor ends with, what its remedy must say, whether that is a
/// command which mends it here, and what surely does.
struct Broken {
    how: &'static str,
    check: &'static str,
    exit: i32,
    remedy: &'static str,
    pasted: bool,
    mend: &'static str,
}

const FAIL: i32 = 1;
const WARN: i32 = 2;

/// What a time service does: tells the kernel that the clock is right (adjtimex with no error, no status).
const KEEP_CLOCK: &str = "python3 -c 'import ctypes, struct; t = bytearray(208); struct.pack_into(\"I\", t, 0, 0x14); \
     ctypes.CDLL(None).adjtimex((ctypes.c_char * 208).from_buffer(t))'";

/// One whose remedy is advice.
fn broken(how: &'static str, check: &'static str, exit: i32, remedy: &'static str, mend: &'static str) -> Broken {
    Broken { how, check, exit, remedy, pasted: false, mend }
}

/// One whose remedy is a command, to be pasted into a shell of root's as it stands.
fn pasted(how: &'static str, check: &'static str, exit: i32, remedy: &'static str, mend: &'static str) -> Broken {
    Broken { pasted: true, ..broken(how, check, exit, remedy, mend) }
}

fn prerequisites() -> Vec<Broken> {
    vec![
        broken("modprobe -r kvm_amd", "kvm", WARN, "kvm_amd", "modprobe kvm_amd"),
        pasted(
            "chmod 600 /dev/kvm",
            "kvm-device",
            FAIL,
            "chmod 660 /dev/kvm",
            "chgrp kvm /dev/kvm && chmod 660 /dev/kvm",
        ),
        pasted(
            "systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service",
            "libvirt",
            FAIL,
            "systemctl start libvirtd",
            "systemctl start libvirtd",
        ),
        broken(
            "mv /run/libvirt/virtlogd-sock /run/libvirt/away",
            "virtlogd",
            FAIL,
            "systemctl start virtlogd.socket",
            "mv /run/libvirt/away /run/libvirt/virtlogd-sock",
        ),
        pasted(
            "setfacl -x g:kvm /var/lib/libvirt/qemu",
            "qemu-directory",
            FAIL,
            "setfacl -m g:kvm:x /var/lib/libvirt/qemu",
            "setfacl -m g:kvm:x /var/lib/libvirt/qemu",
        ),
        pasted(
            "systemctl stop bcd-helper.socket bcd-helper.service",
            "helper",
            FAIL,
            "systemctl start bcd-helper",
            "systemctl start bcd-helper",
        ),
        pasted(
            "chown root:root /run/bcd/helper.sock",
            "helper",
            FAIL,
            "systemctl restart bcd-helper.socket",
            "systemctl restart bcd-helper.socket",
        ),
        pasted("systemctl stop bcd-node.service", "node", FAIL, "systemctl start bcd-node", "systemctl start bcd-node"),
        broken(
            "mv /usr/bin/genisoimage /usr/bin/genisoimage.away",
            "seed-tool",
            FAIL,
            "apt-get install genisoimage",
            "mv /usr/bin/genisoimage.away /usr/bin/genisoimage",
        ),
        pasted("ip link set brtest down", "bridges", WARN, "ip link set brtest up", "ip link set brtest up"),
        pasted(
            "ip link delete brtest",
            "bridges",
            FAIL,
            "ip link add brtest type bridge && ip link set brtest up",
            "systemctl restart systemd-networkd.service",
        ),
        pasted(
            "modprobe br_netfilter && nft add table ip closed && nft 'add chain ip closed forward { type filter hook forward priority 0; policy drop; }'",
            "firewall",
            WARN,
            "bridge-nf-call-iptables=0",
            "nft delete table ip closed && rmmod br_netfilter",
        ),
        broken(
            "cp -a /etc/bcd/bcd.toml /etc/bcd/saved && echo 'colour = 1' >>/etc/bcd/bcd.toml",
            "configuration",
            FAIL,
            "correct that key",
            "mv /etc/bcd/saved /etc/bcd/bcd.toml",
        ),
        broken("chmod o+w /etc/bcd/bcd.toml", "configuration", FAIL, "mv -T", "chmod o-w /etc/bcd/bcd.toml"),
        pasted("chown root /var/lib/bcd", "data-dir", FAIL, "chown bcd: /var/lib/bcd", "chown bcd: /var/lib/bcd"),
        pasted("chmod o=rx /var/lib/bcd", "data-dir", WARN, "chmod o-rwx /var/lib/bcd", "chmod o-rwx /var/lib/bcd"),
        broken(
            "fallocate -l $(($(stat -f -c %a /) * 4096 - (3 << 30))) /var/filler",
            "data-dir",
            WARN,
            "free space there",
            "rm /var/filler",
        ),
        pasted(
            "chmod 755 /etc/bcd/secrets",
            "secrets",
            WARN,
            "chmod 0700 /etc/bcd/secrets",
            "chmod 0700 /etc/bcd/secrets",
        ),
        broken(
            "mv /etc/bcd/image-ca.pem /etc/bcd/away.pem",
            "images",
            FAIL,
            "node.images.ca_file",
            "mv /etc/bcd/away.pem /etc/bcd/image-ca.pem",
        ),
        broken("date -s @$(date +%s)", "clock", WARN, "systemd-timesyncd", KEEP_CLOCK),
        broken(
            "d=$(date +%s) && date -s 2001-01-01 && echo $d >/run/date",
            "clock",
            FAIL,
            "set the clock",
            "date -s @$(cat /run/date)",
        ),
    ]
}

/// What the doctor ends with, and what it found.
fn doctor() -> (Option<i32>, Vec<Value>) {
    let output = host::sh("bcd doctor --json");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report["findings"].as_array().expect("findings").clone())
}

fn not_fine(findings: &[Value]) -> Vec<String> {
    findings.iter().filter(|finding| finding["level"] != "ok").map(ToString::to_string).collect()
}

/// Waits until the doctor is content: daemons take a moment.
fn clean_again(after: &str) {
    let mut left = Vec::new();
    wait_for(&format!("a content doctor after {after}"), 60, || {
        let (code, findings) = doctor();
        left = not_fine(&findings);
        if !left.is_empty() {
            eprintln!("still: {left:?}");
        }
        code == Some(0) && left.is_empty()
    });
}

#[test]
fn each_broken_prerequisite_is_explained_and_the_doctor_is_content_when_it_is_mended() {
    if !host::inside("each_broken_prerequisite_is_explained_and_the_doctor_is_content_when_it_is_mended") {
        return;
    }
    // No guest: one would keep the module of the KVM.
    let _ = host::empty();
    let _ = ok(KEEP_CLOCK);
    clean_again("installation");
    let (mut wrong, mut exits) = (Vec::new(), BTreeSet::new());
    for Broken { how, check, exit, remedy, pasted, mend } in prerequisites() {
        let undo = Undo::with(if check == "clock" { format!("{mend} && {KEEP_CLOCK}") } else { mend.to_owned() });
        let _ = ok(how);
        let (code, findings) = doctor();
        let level = if exit == FAIL { "fail" } else { "warn" };
        let told = findings.iter().find(|finding| finding["check"] == check && finding["level"] == level);
        let advice = told.and_then(|finding| finding["remedy"].as_str());
        eprintln!("{how}\n  {}", told.map_or_else(|| "nothing".to_owned(), ToString::to_string));
        let fits = advice.is_some_and(|advice| !advice.is_empty() && advice.contains(remedy));
        if code != Some(exit) || !fits {
            wrong.push(format!(
                "after {how}: exit {code:?}, wanted {exit} and a remedy with {remedy:?}; found {:?}",
                not_fine(&findings)
            ));
        }
        if exits.insert(exit) {
            assert_eq!(host::sh("bcd doctor").status.code(), code, "for people it ends the same");
        }
        match advice.filter(|_| pasted && fits) {
            Some(advice) => {
                let _ = ok(advice);
                clean_again(advice);
                drop(undo);
            }
            None => {
                drop(undo);
                clean_again(mend);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(ok("ip -br addr show brtest | grep -c 198.18.213.1"), "1", "the bridge is as it was");
}
