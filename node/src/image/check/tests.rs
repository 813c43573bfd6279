//! Tests of the tenant image check: sound images taken, lies and other containers refused by name.
use super::*;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

struct Bench {
    directory: TempDir,
}

fn bench() -> Bench {
    Bench { directory: tempfile::tempdir().unwrap() }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A raw disk of 5 MiB and a sector with a boot record and scattered data.
    fn raw(&self) -> PathBuf {
        let path = self.path("disk.raw");
        let mut disk = vec![0; (5 * MIB + 512) as usize];
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        for (index, byte) in disk[MIB as usize..2 * MIB as usize].iter_mut().enumerate() {
            *byte = (index % 251) as u8 ^ (index / 4096) as u8;
        }
        let end = disk.len() - 512;
        disk[end..].fill(0x77);
        fs::write(&path, disk).unwrap();
        path
    }

    /// The raw disk converted with these options of qemu-img convert.
    fn converted(&self, options: &[&str]) -> PathBuf {
        let (from, to) = (self.raw(), self.path("disk.out"));
        let fixed = ["convert", "-q", "-f", "raw"];
        run("qemu-img", &[&fixed, options, &[from.to_str().unwrap(), to.to_str().unwrap()]].concat());
        to
    }

    /// A new image made with these options of qemu-img create.
    fn created(&self, options: &[&str], size: &str) -> PathBuf {
        let path = self.path("new.out");
        run("qemu-img", &[&["create", "-q"], options, &[path.to_str().unwrap(), size]].concat());
        path
    }

    fn written(&self, content: &[u8]) -> PathBuf {
        let path = self.path("content");
        fs::write(&path, content).unwrap();
        path
    }
}

/// Checks, and holds the check to a second of processor time: what is left of the wall clock's is the machine's load.
fn check(path: &Path, format: ImageFormat) -> Result<u64, CheckError> {
    let before = processor_nanoseconds();
    let answer = tenant(&File::open(path).unwrap(), format);
    let took = processor_nanoseconds() - before;
    assert!(took < 1_000_000_000, "{took} ns");
    answer
}

fn processor_nanoseconds() -> u64 {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split_whitespace().next().unwrap().parse().unwrap()
}

/// The refusal with its causes.
fn refusal(path: &Path, format: ImageFormat) -> String {
    match check(path, format) {
        Err(CheckError::Rejected(rejection)) => {
            let cause = std::error::Error::source(&rejection).map_or_else(String::new, |e| format!(": {e}"));
            format!("{rejection}{cause}")
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn sound_qcow2_images_of_every_making_are_accepted() {
    let options: &[&[&str]] = &[
        &[],
        &["-o", "compat=0.10"],
        &["-o", "compat=1.1,lazy_refcounts=on"],
        &["-c"],
        &["-c", "-o", "compat=0.10"],
        &["-c", "-o", "compression_type=zstd"],
        &["-o", "compression_type=zstd"],
        &["-o", "cluster_size=512"],
        &["-c", "-o", "cluster_size=512"],
        &["-o", "cluster_size=4k"],
        &["-o", "cluster_size=2M"],
        &["-c", "-o", "cluster_size=2M"],
        &["-o", "preallocation=metadata"],
        &["-o", "preallocation=falloc"],
        &["-o", "preallocation=full"],
        &["-o", "refcount_bits=1"],
        &["-o", "refcount_bits=64"],
        &["-S", "0"],
    ];
    for options in options {
        let bench = bench();
        let path = bench.converted(&[&["-O", "qcow2"], *options].concat());
        assert_eq!(check(&path, ImageFormat::Qcow2).unwrap(), 5 * MIB + 512, "{options:?}");
        assert_eq!(known_size(&File::open(&path).unwrap(), ImageFormat::Qcow2).unwrap(), 5 * MIB + 512);
    }
}

#[test]
fn sound_images_with_a_history_are_accepted() {
    let bench = bench();
    let path = bench.created(&["-f", "qcow2"], "8M");
    let name = path.to_str().unwrap().to_owned();
    // Bitmaps, deleted snapshots, growth, discarded and zeroed clusters, a backing file that was merged.
    run("qemu-io", &["-f", "qcow2", "-c", "write -q -P 1 0 3M", "-c", "write -q -z 1M 1M", &name]);
    run("qemu-img", &["snapshot", "-c", "a", &name]);
    run("qemu-io", &["-f", "qcow2", "-d", "unmap", "-c", "discard -q 0 1M", "-c", "write -q 4M 64k", &name]);
    run("qemu-img", &["snapshot", "-d", "a", &name]);
    run("qemu-img", &["resize", "-q", "-f", "qcow2", &name, "20G"]);
    assert_eq!(check(&path, ImageFormat::Qcow2).unwrap(), 20 << 30);
    run("qemu-img", &["bitmap", "--add", "-f", "qcow2", &name, "b0"]);
    run("qemu-img", &["bitmap", "--add", "-f", "qcow2", &name, "b1"]);
    assert_eq!(check(&path, ImageFormat::Qcow2).unwrap(), 20 << 30);
    let base = bench.raw();
    let overlay = bench.path("overlay");
    let (base, overlay_name) = (base.to_str().unwrap(), overlay.to_str().unwrap());
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", overlay_name]);
    assert!(refusal(&overlay, ImageFormat::Qcow2).contains("backing"));
    run("qemu-img", &["rebase", "-q", "-f", "qcow2", "-b", "", overlay_name]);
    assert_eq!(check(&overlay, ImageFormat::Qcow2).unwrap(), 5 * MIB + 512);
}

#[test]
fn large_sparse_images_are_accepted_quickly() {
    let cases: &[(&[&str], &str)] = &[
        (&["-f", "qcow2"], "4T"),
        (&["-f", "qcow2"], "64T"),
        (&["-f", "qcow2", "-o", "cluster_size=512"], "32G"),
        (&["-f", "qcow2", "-o", "cluster_size=2M,preallocation=metadata"], "1T"),
        (&["-f", "qcow2", "-o", "preallocation=metadata"], "100G"),
    ];
    for (options, size) in cases {
        let bench = bench();
        let path = bench.created(options, size);
        assert!(check(&path, ImageFormat::Qcow2).is_ok(), "{options:?} {size}: {:?}", check(&path, ImageFormat::Qcow2));
    }
}

#[test]
fn images_that_need_or_name_something_else_are_refused_with_the_field() {
    let cases: &[(&[&str], &str)] = &[
        (&["-o", "encryption=on,encrypt.key-secret=s", "--object", "secret,id=s,data=x"], "crypt_method"),
        (&["-o", "extended_l2=on"], "extended_l2=off"),
        (&["-o", "data_file=DATA,data_file_raw=on"], "data file"),
        (&["-o", "data_file=DATA"], "data file"),
        (&["-b", "BASE", "-F", "raw"], "backing_file_offset"),
        (&["-b", "BASE", "-F", "raw", "-o", "compat=0.10"], "backing_file_offset"),
    ];
    for (options, field) in cases {
        let bench = bench();
        let (data, base) = (bench.path("data"), bench.raw());
        let options: Vec<String> = options
            .iter()
            .map(|o| o.replace("DATA", data.to_str().unwrap()).replace("BASE", base.to_str().unwrap()))
            .collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let path = bench.created(&[&["-f", "qcow2"], &options[..]].concat(), "16M");
        let said = refusal(&path, ImageFormat::Qcow2);
        assert!(said.contains(field), "{options:?}: {said}");
    }
}

#[test]
fn either_encryption_is_refused() {
    for method in [1, 2] {
        let bench = bench();
        let path = bench.created(&["-f", "qcow2"], "8M");
        let mut image = fs::read(&path).unwrap();
        image[35] = method;
        let said = refusal(&bench.written(&image), ImageFormat::Qcow2);
        assert!(said.contains(&format!("crypt_method is {method}")), "{said}");
    }
}

#[test]
fn a_snapshot_inside_is_refused() {
    let bench = bench();
    let path = bench.created(&["-f", "qcow2"], "8M");
    run("qemu-img", &["snapshot", "-c", "a", path.to_str().unwrap()]);
    assert!(refusal(&path, ImageFormat::Qcow2).contains("nb_snapshots is 1"));
}

#[test]
fn a_relative_backing_name_in_version_2_and_3_is_refused_and_shown_escaped() {
    for compat in ["0.10", "1.1"] {
        let bench = bench();
        let path = bench.created(&["-f", "qcow2", "-o", &format!("compat={compat}")], "16M");
        run(
            "qemu-img",
            &["rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", "../\x1b[31mshadow", path.to_str().unwrap()],
        );
        let said = refusal(&path, ImageFormat::Qcow2);
        assert!(said.contains("backing_file_offset is \"../\\u{1b}[31mshadow\""), "{said}");
    }
}

/// Adds a header extension in front of those that are there.
fn add_extension(path: &Path, kind: u32, body: &[u8]) {
    let mut image = fs::read(path).unwrap();
    let at = u32::from_be_bytes(image[100..104].try_into().unwrap()) as usize;
    let mut extension = kind.to_be_bytes().to_vec();
    extension.extend((body.len() as u32).to_be_bytes());
    extension.extend(body);
    extension.resize(extension.len().next_multiple_of(8), 0);
    let rest = image[at..65536 - extension.len()].to_vec();
    image[at..at + extension.len()].copy_from_slice(&extension);
    image[at + extension.len()..65536].copy_from_slice(&rest);
    fs::write(path, image).unwrap();
}

#[test]
fn an_extension_that_names_a_data_file_is_refused_also_with_the_bit_clear_or_twice() {
    type Extension<'a> = (u32, &'a [u8]);
    let cases: &[(&[Extension<'_>], &str)] = &[
        (&[(0x4441_5441, b"/etc/passwd")], "data file extension is \"/etc/passwd\""),
        (&[(0x4441_5441, b"a"), (0x4441_5441, b"a")], "it is there twice"),
        (&[(0xe279_2aca, b"raw")], "backing format extension is \"raw\""),
        (&[(0x0537_be77, &[0; 16])], "encrypted"),
        (&[(0x2385_2875, &[0; 24])], "nb_bitmaps"),
        (&[(0x2385_2875, &[0; 8])], "bitmaps extension length"),
        (&[(0x6803_f857, &[])], "it is there twice"),
    ];
    for (extensions, said) in cases {
        let bench = bench();
        let path = bench.created(&["-f", "qcow2"], "16M");
        for (kind, body) in *extensions {
            add_extension(&path, *kind, body);
        }
        let found = refusal(&path, ImageFormat::Qcow2);
        assert!(found.contains(said), "{extensions:x?}: {found}");
    }
    // What the format says may be ignored is.
    let bench = bench();
    let path = bench.created(&["-f", "qcow2"], "16M");
    add_extension(&path, 0x1234_5678, b"anything");
    assert_eq!(check(&path, ImageFormat::Qcow2).unwrap(), 16 * MIB);
}

#[test]
fn a_qcow2_cut_anywhere_is_refused() {
    let bench = bench();
    for options in [&["-O", "qcow2"][..], &["-O", "qcow2", "-c"], &["-O", "qcow2", "-o", "cluster_size=4k"]] {
        let path = bench.converted(options);
        let whole = fs::read(&path).unwrap();
        let cluster = if options.contains(&"cluster_size=4k") { 4096 } else { 65536 };
        // A file may end within its last cluster, so the last one is not cut here.
        let mut cuts: Vec<usize> = (0..whole.len().saturating_sub(cluster)).step_by(whole.len() / 97).collect();
        cuts.extend([1, 71, 72, 103, 104, 111]);
        for cut in cuts {
            let path = bench.written(&whole[..cut]);
            assert!(check(&path, ImageFormat::Qcow2).is_err(), "{options:?} cut after {cut} of {}", whole.len());
        }
    }
}

#[test]
fn another_container_as_raw_is_refused_with_its_name() {
    let cases: &[(&[&str], &str)] = &[
        (&["-O", "qcow2"], "a qcow2 disk"),
        (&["-O", "qcow"], "a qcow disk of version 1"),
        (&["-O", "vmdk"], "a VMDK disk"),
        (&["-O", "vmdk", "-o", "subformat=streamOptimized"], "a VMDK disk"),
        (&["-O", "vmdk", "-o", "subformat=monolithicFlat"], "a VMDK descriptor"),
        (&["-O", "vmdk", "-o", "subformat=twoGbMaxExtentSparse"], "a VMDK descriptor"),
        (&["-O", "vpc"], "a VHD disk"),
        (&["-O", "vpc", "-o", "subformat=fixed"], "a VHD disk"),
        (&["-O", "vhdx"], "a VHDX disk"),
        (&["-O", "vdi"], "a VDI disk"),
        (&["-O", "qed"], "a QED disk"),
        (&["-O", "parallels"], "a Parallels disk"),
    ];
    for (options, name) in cases {
        let bench = bench();
        let path = bench.converted(options);
        assert_eq!(
            refusal(&path, ImageFormat::Raw),
            format!("it is declared as raw and looks like {name}"),
            "{options:?}"
        );
        if !options.contains(&"qcow2") {
            let said = refusal(&path, ImageFormat::Qcow2);
            assert_eq!(said, format!("it is declared as qcow2 and looks like {name}"), "{options:?}");
        }
    }
}

#[test]
fn archives_of_a_disk_are_refused_with_their_name() {
    let cases =
        [("gzip", "a gzip archive"), ("xz", "an xz archive"), ("zstd", "a zstd archive"), ("bzip2", "a bzip2 archive")];
    let bench = bench();
    let raw = bench.raw();
    for (tool, name) in cases {
        let Ok(output) = Command::new(tool).arg("-c").arg(&raw).output() else {
            assert!(tool == "zstd" || tool == "bzip2", "{tool} is part of every Debian");
            continue;
        };
        let path = bench.written(&output.stdout);
        assert_eq!(refusal(&path, ImageFormat::Raw), format!("it is declared as raw and looks like {name}"));
    }
    let tar = bench.path("disk.tar");
    run("tar", &["-C", bench.directory.path().to_str().unwrap(), "-cf", tar.to_str().unwrap(), "disk.raw"]);
    assert!(refusal(&tar, ImageFormat::Raw).ends_with("a tar archive"));
}

#[test]
fn what_a_server_sends_instead_of_an_image_is_refused_with_its_name() {
    let mut iso = vec![0; 64 << 10];
    iso[0x8001..0x8006].copy_from_slice(b"CD001");
    let mut hybrid = iso.clone();
    hybrid[510..512].copy_from_slice(&[0x55, 0xaa]);
    let mut old_footer = vec![0; 4096];
    old_footer[4096 - 511..4096 - 511 + 8].copy_from_slice(b"conectix");
    let mut padded = b"\xef\xbb\xbf \n# Disk DescriptorFile\nversion=1\n".to_vec();
    padded.resize(10240, 0);
    let cases: &[(&[u8], &str)] = &[
        (b"", "an empty file"),
        (b"<!DOCTYPE html><title>404</title>", "an HTML page"),
        (b"\r\n  <HTML><body>no</body>", "an HTML page"),
        (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "an XML document"),
        (b"{\"error\":\"not found\"}", "a JSON document"),
        (b"Not Found\n", "a text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "a text file"),
        (&padded, "a VMDK descriptor"),
        (b"LUKS\xba\xbe\x00\x01", "a LUKS volume"),
        (b"LUKS\xba\xbe\x00\x02", "a LUKS volume"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"BZh91AY&SYrest\x00", "a bzip2 archive"),
        (b"\x28\xb5\x2f\xfd\x00", "a zstd archive"),
        (&iso, "an ISO 9660 image"),
        (&hybrid, "an ISO 9660 image"),
        (&old_footer, "a VHD disk"),
    ];
    for (content, name) in cases {
        let bench = bench();
        let path = bench.written(content);
        for format in [ImageFormat::Raw, ImageFormat::Qcow2] {
            assert_eq!(refusal(&path, format), format!("it is declared as {format} and looks like {name}"));
        }
    }
}

#[test]
fn sound_raw_disks_are_accepted_whatever_their_partition_table() {
    let bench = bench();
    assert_eq!(check(&bench.raw(), ImageFormat::Raw).unwrap(), 5 * MIB + 512);
    // GPT with its protective boot record, and a whole-disk file system.
    let mut gpt = vec![0; MIB as usize];
    gpt[450] = 0xee;
    gpt[510..512].copy_from_slice(&[0x55, 0xaa]);
    gpt[512..520].copy_from_slice(b"EFI PART");
    assert_eq!(check(&bench.written(&gpt), ImageFormat::Raw).unwrap(), MIB);
    let ext4 = bench.path("ext4");
    fs::write(&ext4, vec![0; 4 * MIB as usize]).unwrap();
    run("/sbin/mke2fs", &["-q", "-F", ext4.to_str().unwrap()]);
    assert_eq!(check(&ext4, ImageFormat::Raw).unwrap(), 4 * MIB);
    // A boot record with text in it, as GRUB's has.
    let mut grub = vec![0; MIB as usize];
    grub[..4].copy_from_slice(&[0xeb, 0x63, 0x90, 0x00]);
    grub[0x180..0x188].copy_from_slice(b"GRUB \0Ge");
    grub[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(check(&bench.written(&grub), ImageFormat::Raw).unwrap(), MIB);
}

#[test]
fn a_raw_disk_of_broken_sectors_is_refused_with_its_size() {
    let bench = bench();
    let path = bench.written(&vec![0; 1000]);
    assert!(refusal(&path, ImageFormat::Raw).contains("1000 bytes"));
    let path = bench.path("huge");
    let file = File::create(&path).unwrap();
    if file.set_len(limits::DISK_MAX + 512).is_ok() {
        assert!(refusal(&path, ImageFormat::Raw).contains("larger than the most"));
    }
}

#[test]
fn a_raw_disk_declared_as_qcow2_is_refused() {
    let bench = bench();
    let said = refusal(&bench.raw(), ImageFormat::Qcow2);
    assert_eq!(said, "it is declared as qcow2 and looks like a raw disk or nothing known");
}

/// The costliest header there may be: the longest first-level table, every entry a second-level table, each of those
/// full of entries that must be looked at.
fn costliest(path: &Path) {
    let cluster: u64 = 64 << 10;
    let mut file = File::create(path).unwrap();
    let l1 = (8 * MIB / 8) as usize;
    let (l1_at, table_at) = (2 * cluster, 2 * cluster + 8 * MIB);
    let mut header = vec![0u8; 112];
    header[..4].copy_from_slice(b"QFI\xfb");
    header[7] = 3;
    header[23] = 16;
    header[24..32].copy_from_slice(&(64u64 << 40).to_be_bytes());
    header[36..40].copy_from_slice(&(l1 as u32).to_be_bytes());
    header[40..48].copy_from_slice(&l1_at.to_be_bytes());
    header[48..56].copy_from_slice(&cluster.to_be_bytes());
    header[59] = 1;
    header[99] = 4;
    header[103] = 112;
    file.write_all(&header).unwrap();
    file.seek(SeekFrom::Start(l1_at)).unwrap();
    file.write_all(&table_at.to_be_bytes().repeat(l1)).unwrap();
    file.write_all(&(table_at + cluster).to_be_bytes().repeat(8192)).unwrap();
    file.write_all_at(&[1], table_at + 2 * cluster - 1).unwrap();
}

/// The name of the test below, which measures itself in a process of its own.
const COSTLIEST: &str = "image::check::tests::the_costliest_header_stays_within_a_second_and_64_mib";

#[test]
fn the_costliest_header_stays_within_a_second_and_64_mib() {
    if std::env::var_os("BCD_TEST_ALONE").is_none() {
        let mut alone = Command::new("/proc/self/exe");
        alone.args(["--exact", COSTLIEST]).env("BCD_TEST_ALONE", "1").current_dir("/").process_group(0);
        assert!(alone.status().unwrap().success());
        return;
    }
    let bench = bench();
    let path = bench.path("costly");
    costliest(&path);
    let before = peak_kib();
    assert_eq!(check(&path, ImageFormat::Qcow2).unwrap(), 64 << 40);
    let grown = peak_kib() - before;
    assert!(grown < 64 << 10, "the check took {grown} KiB");
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
