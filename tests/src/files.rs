//! An instance's files as a node would have made them, without a node: for tests that talk to the helper alone.
//!
//! Room: `tests`. The disks hold no system; QEMU starts on them and its firmware finds nothing to boot, which is all that
//! a test of the helper needs.
use crate::place::Place;
use bcd_protocol::definition::{Addresses, Definition, ImageFormat, ImageRef, Nic, Nics};
use bcd_protocol::id::{AllocationId, BridgeName, InstanceId, Sha256Digest};
use bcd_protocol::net::MacAddress;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of the empty base image and of disks on it, bytes.
pub const BASE_BYTES: u64 = 1 << 20;

/// Runs a tool of the host.
///
/// # Panics
/// When it is missing or fails.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("run {program}: {e}"));
    assert!(output.status.success(), "{program} {arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
}

/// An instance id.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).expect("an instance id")
}

/// A NIC.
///
/// # Panics
/// When bridge or MAC are none.
#[must_use]
pub fn nic(bridge: &str, mac: &str) -> Nic {
    Nic {
        bridge: BridgeName::parse(bridge).expect("a bridge"),
        mac: MacAddress::parse(mac).expect("a mac"),
        addresses: Addresses::default(),
    }
}

/// A definition on the empty base image.
///
/// # Panics
/// Never: the values are within the limits.
#[must_use]
pub fn definition(base: &ImageRef, nics: Vec<Nic>) -> Definition {
    Definition {
        allocation: AllocationId::parse("test").expect("an allocation"),
        vcpus: Vcpus::new(1).expect("vcpus"),
        memory: MemoryBytes::new(64 << 20).expect("memory"),
        disk: DiskBytes::new(BASE_BYTES).expect("disk"),
        image: *base,
        nics: Nics::try_from(nics).expect("nics"),
    }
}

/// Puts an empty raw base image into the place.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn base(place: &Place) -> ImageRef {
    let bytes = vec![0u8; usize::try_from(BASE_BYTES).expect("a size")];
    let sha256 = Sha256Digest::from_bytes(Sha256::digest(&bytes).into());
    let image = ImageRef { sha256, format: ImageFormat::Raw };
    let path = place.data().join(format!("images/{sha256}.raw"));
    fs::write(&path, bytes).expect("write the base image");
    keep(place, &path, 0o640);
    image
}

/// Puts an instance's directory, overlay and seed into the place.
///
/// # Panics
/// When they cannot be written.
pub fn instance(place: &Place, name: &str, base: &ImageRef) -> PathBuf {
    let dir = place.data().join("instances").join(name);
    fs::create_dir_all(&dir).expect("make the directory");
    keep(place, &dir, 0o700);
    let disk = dir.join("disk.qcow2");
    let backing = place.data().join(format!("images/{}.{}", base.sha256, base.format));
    let (disk_text, backing_text) = (disk.to_str().expect("utf-8"), backing.to_str().expect("utf-8"));
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", backing_text, "-F", base.format.as_str(), disk_text]);
    keep(place, &disk, 0o600);
    let seed = dir.join("seed.iso");
    fs::write(&seed, vec![0u8; 64 * 1024]).expect("write the seed");
    keep(place, &seed, 0o600);
    dir
}

fn keep(place: &Place, path: &Path, mode: u32) {
    place.give(path);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Shares an instance's files with its guest's uid, as the node does.
///
/// # Panics
/// When `setfacl` refuses.
pub fn share(place: &Place, name: &str, uid: u32, base: &ImageRef) {
    let data = place.data();
    let at = |tail: &str| data.join(tail).to_str().expect("utf-8").to_owned();
    for dir in ["", "instances", "images"] {
        run("setfacl", &["-m", "g:kvm:x", &at(dir)]);
    }
    run("setfacl", &["-m", &format!("u:{uid}:x"), &at(&format!("instances/{name}"))]);
    run("setfacl", &["-m", &format!("u:{uid}:rw"), &at(&format!("instances/{name}/disk.qcow2"))]);
    run("setfacl", &["-m", &format!("u:{uid}:r"), &at(&format!("instances/{name}/seed.iso"))]);
    run("setfacl", &["-m", &format!("u:{uid}:r"), &at(&format!("images/{}.{}", base.sha256, base.format))]);
}
