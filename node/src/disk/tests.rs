//! Tests of root disks: made, grown and inspected, with qemu-img as the second opinion.
use super::*;
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::Sha256Digest;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

struct Host {
    _directory: TempDir,
    layout: Layout,
    id: InstanceId,
}

fn host() -> Host {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(directory.path());
    fs::create_dir(layout.images()).unwrap();
    fs::create_dir(layout.instances()).unwrap();
    let id = InstanceId::parse("web-1").unwrap();
    make_directory(&layout, &id).unwrap();
    Host { _directory: directory, layout, id }
}

fn size(bytes: u64) -> DiskBytes {
    DiskBytes::new(bytes).unwrap()
}

impl Host {
    /// A base of `bytes` whose first MiB is `0xa5`.
    fn base(&self, format: ImageFormat, bytes: u64) -> BaseImage {
        let image = ImageRef { sha256: Sha256Digest::from_bytes([7; 32]), format };
        let path = self.layout.image(&image);
        let bytes_text = bytes.to_string();
        run("qemu-img", &["create", "-q", "-f", format.as_str(), path.to_str().unwrap(), &bytes_text]);
        run("qemu-io", &["-f", format.as_str(), "-c", "write -q -P 0xa5 0 1M", path.to_str().unwrap()]);
        BaseImage { path, image, virtual_bytes: bytes }
    }

    fn disk(&self) -> PathBuf {
        self.layout.disk(&self.id)
    }

    fn create(&self, base: &BaseImage, bytes: u64) -> Result<(), Fault> {
        create(&self.layout, &self.id, base, size(bytes))
    }

    fn grow(&self, bytes: u64) -> Result<Growth, Fault> {
        grow(&self.layout, &self.id, size(bytes))
    }

    fn check(&self) {
        let disk = self.disk();
        run("qemu-img", &["check", "-q", "-f", "qcow2", disk.to_str().unwrap()]);
    }

    fn info(&self) -> serde_json::Value {
        let disk = self.disk();
        serde_json::from_str(&run("qemu-img", &["info", "--output=json", "-f", "qcow2", disk.to_str().unwrap()]))
            .unwrap()
    }

    fn entries(&self) -> Vec<String> {
        let names = fs::read_dir(self.layout.instance(&self.id)).unwrap();
        names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_overlay_names_its_base_and_format_and_reads_through_to_it() {
    for format in [ImageFormat::Qcow2, ImageFormat::Raw] {
        let host = host();
        let base = host.base(format, 64 << 20);
        host.create(&base, 10 * GIB).unwrap();
        let info = host.info();
        assert_eq!(info["virtual-size"], 10 * GIB);
        assert_eq!(info["backing-filename"], base.path.to_str().unwrap());
        assert_eq!(info["backing-filename-format"], format.as_str());
        assert_eq!(info["format-specific"]["data"]["compat"], "1.1");
        host.check();
        let disk = host.disk();
        run("qemu-io", &["-f", "qcow2", "-c", "read -P 0xa5 0 1M", "-c", "read -P 0 1M 63M", disk.to_str().unwrap()]);
        let facts = inspect(&host.layout, &host.id).unwrap().unwrap();
        assert_eq!(facts.virtual_bytes, 10 * GIB);
        assert_eq!(facts.backing, Some(Backing { path: base.path.clone(), format }));
        assert!(!facts.written, "nothing was ever written to it");
        let metadata = fs::symlink_metadata(&disk).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o7777, metadata.nlink()), (0o600, 1));
        assert!(metadata.blocks() * 512 < 512 << 10, "an empty overlay takes {} blocks", metadata.blocks());
        assert_eq!(host.entries(), ["disk.qcow2"]);
    }
}

#[test]
fn a_disk_smaller_than_its_image_is_refused_with_both_numbers() {
    let host = host();
    let base = host.base(ImageFormat::Qcow2, 2 * GIB);
    let fault = host.create(&base, 2 * GIB - 512).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::InvalidSpec);
    assert!(fault.to_string().contains("2147483136") && fault.to_string().contains("2147483648"), "{fault}");
    assert!(host.entries().is_empty());
    host.create(&base, 2 * GIB).unwrap();
}

#[test]
fn creating_again_keeps_the_disk_and_its_data() {
    let host = host();
    let base = host.base(ImageFormat::Raw, 4 << 20);
    host.create(&base, GIB).unwrap();
    let disk = host.disk();
    run("qemu-io", &["-f", "qcow2", "-c", "write -q -P 0x11 0 64k", disk.to_str().unwrap()]);
    assert!(inspect(&host.layout, &host.id).unwrap().unwrap().written);
    host.create(&base, 2 * GIB).unwrap();
    run("qemu-io", &["-f", "qcow2", "-c", "read -P 0x11 0 64k", disk.to_str().unwrap()]);
    assert_eq!(inspect(&host.layout, &host.id).unwrap().unwrap().virtual_bytes, GIB);
}

#[test]
fn one_cluster_at_the_end_of_the_largest_disk_counts_as_written() {
    let host = host();
    let base = host.base(ImageFormat::Raw, 4 << 20);
    host.create(&base, limits::DISK_MAX).unwrap();
    assert!(!inspect(&host.layout, &host.id).unwrap().unwrap().written);
    let write = format!("write -q -P 0x11 {} 512", limits::DISK_MAX - 512);
    run("qemu-io", &["-f", "qcow2", "-c", &write, host.disk().to_str().unwrap()]);
    assert!(inspect(&host.layout, &host.id).unwrap().unwrap().written);
}

#[test]
fn a_disk_on_another_base_is_never_replaced() {
    let host = host();
    let base = host.base(ImageFormat::Raw, 4 << 20);
    host.create(&base, GIB).unwrap();
    let before = fs::read(host.disk()).unwrap();
    let other = BaseImage { path: host.layout.images().join("other.raw"), ..base };
    assert_eq!(host.create(&other, GIB).unwrap_err().kind(), FaultKind::Internal);
    assert_eq!(fs::read(host.disk()).unwrap(), before);
}

#[test]
fn a_disk_grows_in_steps_keeps_its_data_and_stays_sound() {
    let host = host();
    let base = host.base(ImageFormat::Qcow2, 4 << 20);
    host.create(&base, GIB).unwrap();
    let disk = host.disk();
    run("qemu-io", &["-f", "qcow2", "-c", "write -q -P 0x22 1020M 4M", disk.to_str().unwrap()]);
    let mut before = GIB;
    // 5 TiB lies beyond what a first-level table of one cluster spans.
    for bytes in [GIB + 512, 3 * GIB, 5 << 40, limits::DISK_MAX] {
        assert_eq!(host.grow(bytes).unwrap(), Growth::From(before));
        assert_eq!(host.grow(bytes).unwrap(), Growth::Already);
        assert_eq!(host.info()["virtual-size"], bytes);
        host.check();
        before = bytes;
    }
    let end = format!("write -q -P 0x33 {} 64k", limits::DISK_MAX - (64 << 10));
    run(
        "qemu-io",
        &["-f", "qcow2", "-c", "read -P 0x22 1020M 4M", "-c", "read -P 0 1G 1M", "-c", &end, disk.to_str().unwrap()],
    );
    host.check();
}

#[test]
fn a_disk_that_a_vmm_grew_before_is_known_by_its_size() {
    let host = host();
    let base = host.base(ImageFormat::Qcow2, 4 << 20);
    host.create(&base, GIB).unwrap();
    let disk = host.disk();
    run("qemu-img", &["resize", "-q", "-f", "qcow2", disk.to_str().unwrap(), "3G"]);
    assert_eq!(host.grow(3 * GIB).unwrap(), Growth::Already);
    assert_eq!(host.grow(4 * GIB).unwrap(), Growth::From(3 * GIB));
    host.check();
}

#[test]
fn shrinking_is_refused_with_both_numbers_and_changes_nothing() {
    let host = host();
    let base = host.base(ImageFormat::Qcow2, 4 << 20);
    host.create(&base, 2 * GIB).unwrap();
    let before = fs::read(host.disk()).unwrap();
    let fault = host.grow(GIB).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::InvalidSpec);
    assert!(fault.to_string().contains("1073741824") && fault.to_string().contains("2147483648"), "{fault}");
    assert_eq!(fs::read(host.disk()).unwrap(), before);
}

#[test]
fn a_disk_open_in_a_vmm_does_not_grow_under_it() {
    let host = host();
    let base = host.base(ImageFormat::Qcow2, 4 << 20);
    host.create(&base, GIB).unwrap();
    // A reader's and a writer's lock of a VMM: shared locks on single bytes of the range.
    for byte in [100, 101, 203] {
        let vmm = OpenOptions::new().read(true).write(true).open(host.disk()).unwrap();
        let held = libc::flock {
            l_type: libc::F_RDLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: byte,
            l_len: 1,
            l_pid: 0,
        };
        fcntl(&vmm, FcntlArg::F_OFD_SETLK(&held)).unwrap();
        assert_eq!(host.grow(2 * GIB).unwrap_err().kind(), FaultKind::Unavailable, "byte {byte}");
    }
    assert_eq!(host.grow(2 * GIB).unwrap(), Growth::From(GIB));
}

#[test]
fn what_is_not_a_plain_file_of_ours_is_neither_read_nor_grown() {
    let host = host();
    let base = host.base(ImageFormat::Qcow2, 4 << 20);
    host.create(&base, GIB).unwrap();
    let (disk, aside) = (host.disk(), host.layout.root().join("aside"));
    let refused = |what: &str| {
        assert!(inspect(&host.layout, &host.id).is_err(), "{what}");
        assert!(host.grow(2 * GIB).is_err(), "{what}");
        assert!(host.create(&base, GIB).is_err(), "{what}");
    };
    fs::hard_link(&disk, &aside).unwrap();
    refused("hard link");
    fs::remove_file(&disk).unwrap();
    symlink(&aside, &disk).unwrap();
    refused("link");
    fs::remove_file(&disk).unwrap();
    nix::unistd::mkfifo(&disk, nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused("fifo");
    fs::remove_file(&disk).unwrap();
    fs::create_dir(&disk).unwrap();
    refused("directory");
    assert_eq!(qcow2_size(&aside), GIB);
}

fn qcow2_size(path: &Path) -> u64 {
    read(&File::open(path).unwrap()).unwrap().header.virtual_bytes
}

#[test]
fn a_header_that_a_vmm_rewrote_is_refused_before_it_is_used() {
    let host = host();
    let base = host.base(ImageFormat::Qcow2, 4 << 20);
    host.create(&base, GIB).unwrap();
    let good = fs::read(host.disk()).unwrap();
    // A data file, the corrupt mark, another cluster size, encryption, an empty disk.
    for (at, byte) in [(79, 4u8), (79, 2), (23, 30), (35, 1), (4, 9)] {
        let mut bad = good.clone();
        bad[at] = byte;
        fs::write(host.disk(), &bad).unwrap();
        assert!(inspect(&host.layout, &host.id).is_err(), "byte {at}");
        assert_eq!(host.grow(2 * GIB).unwrap_err().kind(), FaultKind::Internal, "byte {at}");
        assert_eq!(fs::read(host.disk()).unwrap(), bad);
    }
}

#[test]
fn no_disk_is_none_and_cannot_grow() {
    let host = host();
    assert_eq!(inspect(&host.layout, &host.id).unwrap(), None);
    assert_eq!(host.grow(GIB).unwrap_err().kind(), FaultKind::Internal);
}

#[test]
fn the_directory_loses_leftovers_and_keeps_the_rest() {
    let host = host();
    let directory = host.layout.instance(&host.id);
    fs::write(directory.join(".making-abc"), "half").unwrap();
    fs::create_dir(directory.join(".making-dir")).unwrap();
    fs::write(directory.join(".making-dir/user-data"), "secret").unwrap();
    fs::write(directory.join("console.head"), "boot").unwrap();
    make_directory(&host.layout, &host.id).unwrap();
    assert_eq!(host.entries(), ["console.head"]);
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn removing_an_instance_takes_links_but_not_what_they_lead_to() {
    let host = host();
    let directory = host.layout.instance(&host.id);
    let outside = host.layout.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("keep"), "keep").unwrap();
    symlink(&outside, directory.join("link")).unwrap();
    fs::write(directory.join("seed.iso"), "seed").unwrap();
    remove_directory(&host.layout, &host.id).unwrap();
    assert!(!directory.exists());
    remove_directory(&host.layout, &host.id).unwrap();
    symlink(&outside, &directory).unwrap();
    assert_eq!(make_directory(&host.layout, &host.id).unwrap_err().kind(), FaultKind::Internal);
    remove_directory(&host.layout, &host.id).unwrap();
    assert!(fs::symlink_metadata(&directory).is_err());
    assert_eq!(fs::read(outside.join("keep")).unwrap(), b"keep");
}
