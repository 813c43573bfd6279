//! The domain XML, whole: rendered anew, compared with `tests/golden/*.xml`, checked against libvirt's own schema, and read
//! back.
//!
//! Room: `policy`, tests. `BLESS=1` rewrites the golden files; look at the difference before you commit it.
use bcd_policy::record::RECORD_VERSION;
use bcd_policy::xml::{METADATA_NAMESPACE, Parts, ROOT_DISK, render};
use bcd_policy::{DomainName, Record, TapName};
use bcd_protocol::config::HostPath;
use bcd_protocol::definition::{Addresses, Definition, ImageFormat, ImageRef, Nic, Nics};
use bcd_protocol::id::{AllocationId, BridgeName, DomainUuid, GuestUid, InstanceId, Sha256Digest};
use bcd_protocol::limits;
use bcd_protocol::net::MacAddress;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use proptest::prelude::*;
use quick_xml::events::Event;
use std::path::{Path, PathBuf};
use std::process::Command;

fn nic(bridge: &str, last: u8, addresses: &[&str]) -> Nic {
    Nic {
        bridge: BridgeName::parse(bridge).unwrap(),
        mac: MacAddress::from_bytes([0x52, 0x54, 0, 0x12, 0x34, last]).unwrap(),
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap(),
    }
}

fn record(instance: &str, format: ImageFormat, nics: Vec<Nic>) -> Record {
    Record {
        version: RECORD_VERSION,
        instance: InstanceId::parse(instance).unwrap(),
        uuid: DomainUuid::from_random([0x5a; 16]),
        uid: GuestUid::new(limits::GUEST_UID_FIRST + 1).unwrap(),
        definition: Definition {
            allocation: AllocationId::parse("Alloc_7.b-c").unwrap(),
            vcpus: Vcpus::new(2).unwrap(),
            memory: MemoryBytes::new(1536 << 20).unwrap(),
            disk: DiskBytes::new(10 << 30).unwrap(),
            image: ImageRef { sha256: Sha256Digest::from_bytes([0xc5; 32]), format },
            nics: Nics::try_from(nics).unwrap(),
        },
        intent: None,
    }
}

/// The longest that every value can be.
fn largest() -> Record {
    let addresses: Vec<String> = (0..limits::ADDRESSES_PER_NIC)
        .map(|number| format!("2001:db8:aaaa:bbbb:cccc:dddd:eeee:{:04x}/128", 0xff00 + number))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let nics = (0..limits::NICS).map(|last| nic("br-with-15-char", u8::try_from(last).unwrap(), &addresses)).collect();
    let mut record = record(&"x".repeat(limits::INSTANCE_ID_CHARS), ImageFormat::Qcow2, nics);
    record.definition.allocation = AllocationId::parse(&"a".repeat(limits::ALLOCATION_CHARS)).unwrap();
    record.definition.vcpus = Vcpus::new(u64::from(limits::VCPUS)).unwrap();
    record.definition.memory = MemoryBytes::new(limits::MEMORY_MAX).unwrap();
    record.definition.disk = DiskBytes::new(limits::DISK_MAX).unwrap();
    record
}

struct Golden {
    name: &'static str,
    data_dir: String,
    software: bool,
    record: Record,
}

fn goldens() -> Vec<Golden> {
    let golden = |name, software, record| Golden { name, data_dir: "/var/lib/bcd".to_owned(), software, record };
    vec![
        golden("kvm", false, record("web", ImageFormat::Qcow2, vec![nic("br0", 1, &["192.0.2.5/24"])])),
        golden("software", true, record("web", ImageFormat::Qcow2, vec![nic("br0", 1, &["192.0.2.5/24"])])),
        golden("no-nic", false, record("db-1", ImageFormat::Qcow2, vec![])),
        golden("raw-base", false, record("db-1", ImageFormat::Raw, vec![nic("br0", 1, &[]), nic("br.1", 1, &[])])),
        Golden { data_dir: format!("/{}", "d".repeat(199)), ..golden("largest", false, largest()) },
    ]
}

fn xml(golden: &Golden) -> String {
    let data_dir = HostPath::try_from(golden.data_dir.clone()).unwrap();
    let parts = Parts { data_dir: data_dir.as_path(), software: golden.software, record: &golden.record };
    String::from(render(&parts).expect("the definition fits")) + "\n"
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.xml"))
}

/// The lines from the first to the last that differ, marked.
fn difference(expected: &str, found: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let mut out = format!("from line {}:\n", head + 1);
    for (mark, lines) in [('-', &old[head..old.len() - tail]), ('+', &new[head..new.len() - tail])] {
        for line in lines {
            out.push_str(&format!("{mark}{line}\n"));
        }
    }
    out
}

#[test]
fn the_xml_is_the_golden_one() {
    for golden in goldens() {
        let (path, found) = (path(golden.name), xml(&golden));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &found).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            expected == found,
            "{} differs, {}run again with BLESS=1 if that is meant",
            path.display(),
            difference(&expected, &found)
        );
    }
}

#[test]
fn every_golden_file_is_of_a_definition_here() {
    let mut names: Vec<String> = goldens().iter().map(|golden| format!("{}.xml", golden.name)).collect();
    names.sort();
    let mut files: Vec<String> = std::fs::read_dir(path("x").parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, names);
}

#[test]
fn libvirts_own_schema_takes_every_golden_file() {
    for (tool, package) in [("virt-xml-validate", "libvirt-clients"), ("xmllint", "libxml2-utils")] {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("skipped: {tool} ({package}) is not installed");
            return;
        }
    }
    for golden in goldens() {
        let output = Command::new("virt-xml-validate").arg(path(golden.name)).arg("domain").output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {out}{err}", golden.name);
    }
}

/// One element: the names from the root to it, its attributes, its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Element {
    path: String,
    attributes: Vec<(String, String)>,
    text: String,
}

impl Element {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// All elements in document order, read by a parser.
fn elements(xml: &str) -> Vec<Element> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let (mut open, mut out): (Vec<usize>, Vec<Element>) = (Vec::new(), Vec::new());
    loop {
        let event = reader.read_event().unwrap();
        match &event {
            Event::Start(tag) | Event::Empty(tag) => {
                let parent = open.last().map_or(String::new(), |index| format!("{}/", out[*index].path));
                let attributes = tag
                    .attributes()
                    .map(|attribute| {
                        let attribute = attribute.unwrap();
                        let key = AsRef::<str>::as_ref(&attribute.key.as_ref()).to_owned();
                        (key, attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).unwrap().into_owned())
                    })
                    .collect();
                let name = tag.name();
                out.push(Element {
                    path: format!("{parent}{}", AsRef::<str>::as_ref(&name.as_ref())),
                    attributes,
                    text: String::new(),
                });
                if matches!(event, Event::Start(_)) {
                    open.push(out.len() - 1);
                }
            }
            Event::End(_) => {
                open.pop().expect("an end has its start");
            }
            Event::Text(text) => {
                if let Some(index) = open.last() {
                    out[*index].text.push_str(text.xml10_content().trim());
                }
            }
            Event::Eof => break,
            Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => panic!("neither element nor text: {event:?}"),
        }
    }
    assert!(open.is_empty());
    out
}

fn all<'a>(elements: &'a [Element], path: &str) -> Vec<&'a Element> {
    elements.iter().filter(|element| element.path == path).collect()
}

fn one<'a>(elements: &'a [Element], path: &str) -> &'a Element {
    match all(elements, path).as_slice() {
        [element] => element,
        found => panic!("{} of {path}", found.len()),
    }
}

/// What must hold of the XML of any record at all.
fn hold(xml: &str, software: bool, data_dir: &str, record: &Record) {
    let elements = elements(xml);
    let (definition, instance) = (&record.definition, &record.instance);
    assert_eq!(one(&elements, "domain").attribute("type"), Some(if software { "qemu" } else { "kvm" }));
    assert_eq!(one(&elements, "domain/name").text, DomainName::of(instance).as_str());
    assert_eq!(one(&elements, "domain/uuid").text, record.uuid.to_string());
    assert_eq!(one(&elements, "domain/memory").attribute("unit"), Some("KiB"));
    assert_eq!(one(&elements, "domain/memory").text, (definition.memory.get() / 1024).to_string());
    assert_eq!(one(&elements, "domain/vcpu").text, definition.vcpus.get().to_string());

    // Who the VMM runs as, and that nothing changes owner for it.
    let label = one(&elements, "domain/seclabel");
    assert_eq!((label.attribute("type"), label.attribute("model")), (Some("static"), Some("dac")));
    assert_eq!(one(&elements, "domain/seclabel/label").text, format!("+{}:kvm", record.uid.get()));
    let is_file = |element: &&Element| element.path.ends_with("/source") && element.attribute("file").is_some();
    let files: Vec<&Element> = elements.iter().filter(is_file).collect();
    let labels = elements.iter().filter(|element| element.path.ends_with("/source/seclabel")).collect::<Vec<_>>();
    assert_eq!((files.len(), labels.len()), (3, 3));
    for (index, element) in elements.iter().enumerate().filter(|(_, element)| is_file(element)) {
        let label = &elements[index + 1];
        assert_eq!(label.path, format!("{}/seclabel", element.path));
        assert_eq!((label.attribute("model"), label.attribute("relabel")), (Some("dac"), Some("no")));
    }

    // Files: only below data_dir, formats stated, each chain with an end.
    let files: Vec<&str> = files.iter().filter_map(|file| file.attribute("file")).collect();
    let image = definition.image;
    assert_eq!(
        files,
        [
            format!("{data_dir}/instances/{instance}/disk.qcow2"),
            format!("{data_dir}/images/{}.{}", image.sha256, image.format),
            format!("{data_dir}/instances/{instance}/seed.iso"),
        ]
    );
    let drivers = all(&elements, "domain/devices/disk/driver");
    assert_eq!(drivers.iter().filter_map(|driver| driver.attribute("type")).collect::<Vec<_>>(), ["qcow2", "raw"]);
    let format = one(&elements, "domain/devices/disk/backingStore/format");
    assert_eq!(format.attribute("type"), Some(image.format.as_str()));
    let end = one(&elements, "domain/devices/disk/backingStore/backingStore");
    assert!(end.attributes.is_empty());
    assert!(all(&elements, "domain/devices/disk/backingStore").iter().any(|store| store.attributes.is_empty()));
    let targets = all(&elements, "domain/devices/disk/target");
    let buses: Vec<_> = targets.iter().map(|target| (target.attribute("dev"), target.attribute("bus"))).collect();
    assert_eq!(buses, [(Some(ROOT_DISK), Some("virtio")), (Some("sda"), Some("scsi"))]);
    one(&elements, "domain/devices/disk/readonly");

    // NICs: our tap names in order.
    let found: Vec<_> = all(&elements, "domain/devices/interface/target")
        .iter()
        .zip(all(&elements, "domain/devices/interface/mac"))
        .zip(all(&elements, "domain/devices/interface/source"))
        .map(|((target, mac), source)| {
            let value = |element: &Element, name| element.attribute(name).unwrap().to_owned();
            (value(target, "dev"), value(mac, "address"), value(source, "bridge"))
        })
        .collect();
    let expected: Vec<_> = definition
        .nics
        .iter()
        .enumerate()
        .map(|(index, nic)| (TapName::of(instance, index).to_string(), nic.mac.to_string(), nic.bridge.to_string()))
        .collect();
    assert_eq!(found, expected);

    // Metadata.
    let meta = "domain/metadata/bc:instance";
    assert_eq!(one(&elements, meta).attribute("xmlns:bc"), Some(METADATA_NAMESPACE));
    assert_eq!(one(&elements, &format!("{meta}/bc:id")).text, instance.as_str());
    assert_eq!(one(&elements, &format!("{meta}/bc:allocation")).text, definition.allocation.as_str());
    let addresses: Vec<&str> =
        all(&elements, &format!("{meta}/bc:nic/bc:address")).iter().map(|element| element.text.as_str()).collect();
    let expected: Vec<String> =
        definition.nics.iter().flat_map(|nic| nic.addresses.iter().map(ToString::to_string)).collect();
    assert_eq!(addresses, expected);

    // Nothing that runs, opens or reaches anything else of the host.
    for element in &elements {
        let name = element.path.rsplit('/').next().unwrap();
        for never in
            ["emulator", "hostdev", "filesystem", "commandline", "script", "shmem", "kernel", "loader", "graphics"]
        {
            assert_ne!(name, never);
        }
        if matches!(name, "serial" | "console") {
            assert_eq!(element.attribute("type"), Some("pty"));
        }
    }
}

#[test]
fn the_largest_definition_fits_and_everything_that_must_hold_holds() {
    for golden in goldens() {
        hold(&xml(&golden), golden.software, &golden.data_dir, &golden.record);
    }
    let largest = goldens().pop().unwrap();
    assert_eq!(largest.name, "largest");
    assert!(xml(&largest).len() < limits::XML_BYTES / 4 * 3, "a quarter of the room is left");
}

#[test]
fn what_is_larger_than_the_wire_takes_is_not_rendered() {
    let data_dir = format!("/{}", "d".repeat(limits::XML_BYTES));
    let record = record("web", ImageFormat::Raw, vec![]);
    assert_eq!(render(&Parts { data_dir: Path::new(&data_dir), software: false, record: &record }), None);
}

prop_compose! {
    fn any_nic()(
        bridge in "[A-Za-z0-9][A-Za-z0-9._-]{0,14}",
        mac in any::<[u8; 6]>().prop_filter_map("a guest's", |bytes| MacAddress::from_bytes(bytes).ok()),
        v4 in proptest::collection::vec((any::<[u8; 4]>(), 0u8..=32), 0..8),
        v6 in proptest::collection::vec((any::<[u8; 16]>(), 0u8..=128), 0..8),
    ) -> Nic {
        let v4 = v4.iter().map(|(ip, bits)| format!("{}/{bits}", std::net::Ipv4Addr::from(*ip)));
        let v6 = v6.iter().map(|(ip, bits)| format!("{}/{bits}", std::net::Ipv6Addr::from(*ip)));
        let addresses: Vec<_> = v4.chain(v6).map(|text| text.parse().unwrap()).collect();
        Nic { bridge: BridgeName::parse(&bridge).unwrap(), mac, addresses: Addresses::try_from(addresses).unwrap() }
    }
}

prop_compose! {
    fn any_record()(
        instance in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        allocation in "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        vcpus in 1..=u64::from(limits::VCPUS),
        mib in (limits::MEMORY_MIN >> 20)..=(limits::MEMORY_MAX >> 20),
        sha256 in any::<[u8; 32]>(),
        raw in any::<bool>(),
        uuid in any::<[u8; 16]>(),
        uid in limits::GUEST_UID_FIRST..=limits::GUEST_UID_LAST,
        nics in proptest::collection::vec(any_nic(), 0..=limits::NICS),
    ) -> Record {
        let format = if raw { ImageFormat::Raw } else { ImageFormat::Qcow2 };
        Record {
            version: RECORD_VERSION,
            instance: InstanceId::parse(&instance).unwrap(),
            uuid: DomainUuid::from_random(uuid),
            uid: GuestUid::new(uid).unwrap(),
            definition: Definition {
                allocation: AllocationId::parse(&allocation).unwrap(),
                vcpus: Vcpus::new(vcpus).unwrap(),
                memory: MemoryBytes::new(mib << 20).unwrap(),
                disk: DiskBytes::new(10 << 30).unwrap(),
                image: ImageRef { sha256: Sha256Digest::from_bytes(sha256), format },
                nics: Nics::try_from(nics).unwrap(),
            },
            intent: None,
        }
    }
}

proptest! {
    #[test]
    fn any_value_that_parses_is_in_the_xml_as_exactly_that_value(
        record in any_record(),
        data_dir in "(/[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,20}){1,8}",
        software in any::<bool>(),
    ) {
        let host_path = HostPath::try_from(data_dir.clone()).unwrap();
        let rendered = render(&Parts { data_dir: host_path.as_path(), software, record: &record }).expect("it fits");
        hold(rendered.as_str(), software, &data_dir, &record);
    }

    #[test]
    fn nothing_with_a_meaning_in_xml_parses_at_all(text in r#"[a-z0-9]{0,4}[<>&'"\n\t\x00;= $`\\%/][a-z0-9]{0,4}"#) {
        prop_assert!(InstanceId::parse(&text).is_err());
        prop_assert!(AllocationId::parse(&text).is_err());
        prop_assert!(BridgeName::parse(&text).is_err());
        prop_assert!(Sha256Digest::parse(&text).is_err());
        prop_assert!(DomainUuid::parse(&text).is_err());
        prop_assert!(MacAddress::parse(&text).is_err());
        if !text.contains('/') {
            let refused = HostPath::try_from(format!("/{text}")).is_err();
            prop_assert!(refused);
        }
    }
}
