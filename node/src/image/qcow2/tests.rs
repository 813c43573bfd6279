//! Tests of the header reader: each field that can lie, and arbitrary bytes.
use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::process::Command;
use std::sync::OnceLock;

/// A file in memory that counts what is read of it.
struct Counted<'a> {
    content: &'a [u8],
    /// The length it claims, so that a small file can stand for a long, sparse one.
    length: u64,
    read: Cell<u64>,
    largest: Cell<u64>,
}

impl<'a> Counted<'a> {
    fn new(content: &'a [u8]) -> Self {
        Self { content, length: content.len() as u64, read: Cell::new(0), largest: Cell::new(0) }
    }
}

impl Bytes for Counted<'_> {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = into.len() as u64;
        let end = offset.checked_add(bytes).expect("an offset overflows");
        assert!(end <= self.length, "{bytes} bytes at {offset} lie beyond the end {}", self.length);
        self.read.set(self.read.get() + bytes);
        self.largest.set(self.largest.get().max(bytes));
        for (place, byte) in (offset..).zip(into) {
            *byte = usize::try_from(place).ok().and_then(|place| self.content.get(place)).copied().unwrap_or(0);
        }
        Ok(())
    }
}

/// An image of 3 MiB with data in it, of the given compatibility.
fn image(compat: &str) -> Vec<u8> {
    static IMAGES: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    let slot = &IMAGES[usize::from(compat == "1.1")];
    slot.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let name = path.to_str().unwrap();
        let options = format!("compat={compat},cluster_size=4k");
        for (program, arguments) in [
            ("qemu-img", &["create", "-q", "-f", "qcow2", "-o", &options, name, "3M"][..]),
            ("qemu-io", &["-f", "qcow2", "-c", "write -q -P 1 0 64k", "-c", "write -q -c -P 2 1M 64k", name]),
        ] {
            assert!(Command::new(program).args(arguments).status().unwrap().success());
        }
        std::fs::read(path).unwrap()
    })
    .clone()
}

fn judge(content: &[u8]) -> Result<Header, HeaderError> {
    let file = Counted::new(content);
    let header = Header::read(&file)?;
    header.tenant()?;
    check_tables(&header, &file)?;
    Ok(header)
}

/// The field that is refused after `bytes` were written at `at`.
fn refused(compat: &str, at: usize, bytes: &[u8]) -> &'static str {
    let mut image = image(compat);
    image[at..at + bytes.len()].copy_from_slice(bytes);
    match judge(&image) {
        Err(HeaderError::Lie(lie)) => lie.field(),
        other => panic!("{bytes:x?} at {at}: {other:?}"),
    }
}

fn u32_at(image: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(image[at..at + 4].try_into().unwrap())
}

fn u64_at(image: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(image[at..at + 8].try_into().unwrap())
}

#[test]
fn the_fields_of_a_sound_header_are_read() {
    for (compat, version) in [("0.10", 2), ("1.1", 3)] {
        let header = judge(&image(compat)).unwrap();
        assert_eq!((header.version, header.cluster_bits, header.virtual_bytes), (version, 12, 3 << 20));
        assert_eq!(header.backing_name, None);
    }
}

#[test]
fn each_lie_is_refused_with_its_field() {
    let length = image("1.1").len() as u64;
    let beyond = (length.next_multiple_of(4096)).to_be_bytes();
    let high = (!4095u64).to_be_bytes();
    let cases: &[(usize, &[u8], &str)] = &[
        (0, b"QFI\xfa", "magic"),
        (4, &[0, 0, 0, 1], "version"),
        (4, &[0, 0, 0, 4], "version"),
        (20, &[0, 0, 0, 8], "cluster_bits"),
        (20, &[0, 0, 0, 22], "cluster_bits"),
        (20, &[0xff; 4], "cluster_bits"),
        (24, &[0; 8], "size"),
        (24, &1000u64.to_be_bytes(), "size"),
        (24, &u64::MAX.to_be_bytes(), "size"),
        (24, &((64u64 << 40) + 512).to_be_bytes(), "size"),
        (24, &(1u64 << 40).to_be_bytes(), "l1_size"),
        (32, &[0, 0, 0, 1], "crypt_method"),
        (32, &[0xff; 4], "crypt_method"),
        (36, &[0; 4], "l1_size"),
        (36, &[0xff; 4], "l1_size"),
        (36, &(1u32 << 20).to_be_bytes(), "l1_table_offset"),
        (40, &[0; 8], "l1_table_offset"),
        (40, &beyond, "l1_table_offset"),
        (40, &high, "l1_table_offset"),
        (40, &4097u64.to_be_bytes(), "l1_table_offset"),
        (48, &[0; 8], "refcount_table_offset"),
        (48, &beyond, "refcount_table_offset"),
        (48, &high, "refcount_table_offset"),
        (48, &4608u64.to_be_bytes(), "refcount_table_offset"),
        (56, &[0; 4], "refcount_table_clusters"),
        (56, &[0xff; 4], "refcount_table_clusters"),
        (56, &1024u32.to_be_bytes(), "refcount_table_offset"),
        (60, &[0, 0, 0, 1], "nb_snapshots"),
    ];
    for compat in ["0.10", "1.1"] {
        for (at, bytes, field) in cases {
            assert_eq!(refused(compat, *at, bytes), *field, "{bytes:x?} at {at} in {compat}");
        }
    }
}

#[test]
fn each_lie_of_version_3_is_refused_with_its_field() {
    let cases: &[(usize, &[u8], &str)] = &[
        (79, &[1], "incompatible_features"),
        (79, &[2], "incompatible_features"),
        (79, &[4], "incompatible_features"),
        (79, &[32], "incompatible_features"),
        (72, &[0x80], "incompatible_features"),
        (95, &[1], "autoclear_features"),
        (95, &[2], "autoclear_features"),
        (96, &[0, 0, 0, 7], "refcount_order"),
        (96, &[0xff; 4], "refcount_order"),
        (100, &[0, 0, 0, 72], "header_length"),
        (100, &[0, 0, 0, 105], "header_length"),
        (100, &[0, 0, 0x10, 8], "header_length"),
        (100, &[0xff; 4], "header_length"),
        // A compression type without its bit, the bit without a type, and a type that is none.
        (104, &[1], "compression_type"),
        (79, &[8], "compression_type"),
    ];
    for (at, bytes, field) in cases {
        assert_eq!(refused("1.1", *at, bytes), *field, "{bytes:x?} at {at}");
    }
    let mut unknown = image("1.1");
    (unknown[79], unknown[104]) = (8, 2);
    assert!(matches!(judge(&unknown), Err(HeaderError::Lie(lie)) if lie.field() == "compression_type"));
    (unknown[79], unknown[104]) = (8, 1);
    judge(&unknown).unwrap();
}

#[test]
fn unknown_compatible_bits_are_ignored_as_the_format_says() {
    let mut image = image("1.1");
    image[87] = 0xff;
    image[88] = 0x80;
    judge(&image).unwrap();
}

#[test]
fn a_backing_name_must_lie_in_the_first_cluster_and_is_refused_even_there() {
    let cases: &[(u64, u32, &str)] = &[
        (200, 0, "backing_file_size"),
        (200, 1024, "backing_file_size"),
        (4096, 5, "backing_file_offset"),
        (4090, 7, "backing_file_offset"),
        (u64::MAX, 5, "backing_file_offset"),
        (8, 5, "backing_file_offset"),
        (4090, 6, "backing_file_offset"),
    ];
    for compat in ["0.10", "1.1"] {
        for (offset, size, field) in cases {
            let bytes = [&offset.to_be_bytes()[..], &size.to_be_bytes()].concat();
            assert_eq!(refused(compat, 8, &bytes), *field, "{offset} {size} in {compat}");
        }
    }
}

#[test]
fn an_endless_or_overlong_list_of_extensions_is_refused() {
    let mut endless = image("1.1");
    for place in endless[112..4096].chunks_exact_mut(8) {
        place.copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 0]);
    }
    assert!(matches!(judge(&endless), Err(HeaderError::Lie(lie)) if lie.field() == "header extensions"));
    for bytes in [4000u32, u32::MAX] {
        let head = [&7u32.to_be_bytes()[..], &bytes.to_be_bytes()].concat();
        assert_eq!(refused("1.1", 112, &head), "header extension length");
    }
    let name = [&0x4441_5441u32.to_be_bytes()[..], &1024u32.to_be_bytes()].concat();
    assert_eq!(refused("1.1", 112, &name), "header extension length");
}

#[test]
fn a_first_level_table_over_the_refcount_table_is_refused() {
    let image = image("1.1");
    let refcounts = u64_at(&image, 48);
    assert_eq!(refused("1.1", 40, &refcounts.to_be_bytes()), "l1_table_offset");
}

#[test]
fn table_entries_that_lead_out_of_the_file_are_refused() {
    let image = image("1.1");
    let l1 = usize::try_from(u64_at(&image, 40)).unwrap();
    let beyond = image.len() as u64 & !4095;
    for entry in [beyond, 1 << 63 | beyond, 4097 << 9, 0x1000 | 1, 1 << 62, 0x00ff_ffff_ffff_f000, 512] {
        assert_eq!(refused("1.1", l1, &entry.to_be_bytes()), "L1 entry", "{entry:#x}");
    }
    let l2 = usize::try_from(u64_at(&image, l1) & 0x00ff_ffff_ffff_fe00).unwrap();
    // The offset has 58 bits in a compressed entry with clusters of 4 KiB, and a further sector is counted above them.
    let last = image.len() as u64 - 1;
    for entry in
        [1 << 63 | image.len() as u64 & !4095 | 1 << 40, 1 << 62 | image.len() as u64, 1 << 62 | 3 << 58 | last]
    {
        assert_eq!(refused("1.1", l2, &entry.to_be_bytes()), "L2 entry", "{entry:#x}");
    }
    assert_eq!(refused("1.1", l2, &((1u64 << 63) | 4608).to_be_bytes()), "L2 entry");
    // A cluster that reads as zeroes may keep an offset that nothing was ever written to.
    let mut zero = image.clone();
    zero[l2..l2 + 8].copy_from_slice(&(1u64 << 40 | 1).to_be_bytes());
    judge(&zero).unwrap();
}

#[test]
fn what_is_read_of_a_long_file_is_bounded() {
    // A file that claims 2^60 bytes and whose first-level table is full of tables.
    let mut head = image("1.1");
    head.truncate(4096);
    let entries = u32::try_from(L1_BYTES_MAX / 8).unwrap();
    head[23] = 21;
    head[36..40].copy_from_slice(&entries.to_be_bytes());
    head[40..48].copy_from_slice(&(1u64 << 40).to_be_bytes());
    head[48..56].copy_from_slice(&(1u64 << 30).to_be_bytes());
    let file = Counted { length: 1 << 60, ..Counted::new(&head) };
    let header = Header::read(&file).unwrap();
    check_tables(&header, &file).unwrap();
    assert!(file.read.get() < 32 << 20, "{} bytes were read", file.read.get());
    assert!(file.largest.get() <= 2 << 20, "{} bytes were read at once", file.largest.get());
}

#[test]
fn no_single_byte_of_the_header_can_make_it_panic_or_read_beyond_the_end() {
    for compat in ["0.10", "1.1"] {
        let sound = image(compat);
        for at in 0..512 {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut image = sound.clone();
                image[at] = byte;
                let _ = judge(&image);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_change_makes_the_reader_panic_or_read_beyond_the_end(
        version_3 in any::<bool>(),
        changes in prop::collection::vec((0usize..112, any::<u8>()), 1..12),
        cut in prop::option::of(0usize..20_000),
        claimed in prop::option::of(any::<u64>()),
    ) {
        let mut image = image(if version_3 { "1.1" } else { "0.10" });
        for (at, byte) in changes {
            image[at] = byte;
        }
        image.truncate(cut.unwrap_or(usize::MAX));
        let mut file = Counted::new(&image);
        if let Some(claimed) = claimed {
            file.length = claimed;
        }
        if let Ok(header) = Header::read(&file) {
            let _ = header.tenant();
            let _ = header.overlay();
            let _ = check_tables(&header, &file);
        }
        prop_assert!(file.read.get() < 32 << 20);
    }

    #[test]
    fn no_content_behind_a_magic_makes_the_reader_panic(content in prop::collection::vec(any::<u8>(), 0..4096)) {
        let mut image = MAGIC.to_vec();
        image.extend(content);
        let _ = judge(&image);
    }

    #[test]
    fn an_accepted_header_names_nothing_and_stays_within_the_file(
        changes in prop::collection::vec((8usize..112, any::<u8>()), 1..3),
    ) {
        let mut image = image("1.1");
        for (at, byte) in changes {
            image[at] = byte;
        }
        if let Ok(header) = judge(&image) {
            prop_assert_eq!(u64_at(&image, 8), 0);
            prop_assert_eq!(u32_at(&image, 32), 0);
            prop_assert_eq!(u32_at(&image, 60), 0);
            prop_assert_eq!(u64_at(&image, 72) & !8, 0);
            prop_assert!(header.virtual_bytes > 0 && header.virtual_bytes.is_multiple_of(512));
            prop_assert!(header.l1_offset + u64::from(header.l1_entries) * 8 <= image.len() as u64);
        }
    }
}
