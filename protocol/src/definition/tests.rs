//! Tests of definitions: bounded lists, and the form that records keep.
use super::*;

const KEPT: &str = r#"{
  "allocation": "alloc-7",
  "vcpus": 2,
  "memory": 536870912,
  "disk": 10737418240,
  "image": {
    "sha256": "abababababababababababababababababababababababababababababababab",
    "format": "qcow2"
  },
  "nics": [
    {
      "bridge": "br0",
      "mac": "52:54:00:00:00:01",
      "addresses": [
        "192.0.2.7/24",
        "2001:db8::7/64"
      ]
    }
  ]
}"#;

fn nic() -> Nic {
    Nic {
        bridge: BridgeName::parse("br0").unwrap(),
        mac: MacAddress::parse("52:54:00:00:00:01").unwrap(),
        addresses: Addresses::try_from(vec!["192.0.2.7/24".parse().unwrap(), "2001:db8::7/64".parse().unwrap()])
            .unwrap(),
    }
}

fn definition() -> Definition {
    Definition {
        allocation: AllocationId::parse("alloc-7").unwrap(),
        vcpus: Vcpus::new(2).unwrap(),
        memory: MemoryBytes::new(512 << 20).unwrap(),
        disk: DiskBytes::new(10 << 30).unwrap(),
        image: ImageRef { sha256: Sha256Digest::from_bytes([0xab; 32]), format: ImageFormat::Qcow2 },
        nics: Nics::try_from(vec![nic()]).unwrap(),
    }
}

#[test]
fn the_form_that_records_keep_is_stable() {
    assert_eq!(serde_json::to_string_pretty(&definition()).unwrap(), KEPT);
    assert_eq!(serde_json::from_str::<Definition>(KEPT).unwrap(), definition());
}

#[test]
fn unknown_missing_and_doubled_fields_are_refused() {
    for (from, to) in [
        ("\"vcpus\": 2,", "\"vcpus\": 2, \"cpus\": 2,"),
        ("\"format\": \"qcow2\"", "\"format\": \"qcow2\", \"path\": \"/etc/passwd\""),
        ("\"bridge\": \"br0\",", "\"bridge\": \"br0\", \"tap\": \"tap0\","),
        ("\"vcpus\": 2,", ""),
        ("\"vcpus\": 2,", "\"vcpus\": 2, \"vcpus\": 3,"),
        ("\"qcow2\"", "\"vmdk\""),
        ("\"qcow2\"", "\"QCOW2\""),
        ("192.0.2.7/24", "192.0.2.7/33"),
        ("192.0.2.7/24", "192.0.2.7"),
    ] {
        let text = KEPT.replacen(from, to, 1);
        assert_ne!(text, KEPT);
        serde_json::from_str::<Definition>(&text).expect_err(&text);
    }
}

#[test]
fn a_list_holds_its_bound_and_not_one_more() {
    let most = Nics::try_from(vec![nic(); limits::NICS]).unwrap();
    assert_eq!(most.len(), 8);
    assert_eq!(Vec::from(most.clone()), vec![nic(); 8]);
    let said = Nics::try_from(vec![nic(); limits::NICS + 1]).unwrap_err().to_string();
    assert_eq!(said, "more than 8 NICs of one instance");

    let json = serde_json::to_value(&most).unwrap();
    assert_eq!(serde_json::from_value::<Nics>(json).unwrap(), most);
    let json = serde_json::to_value(vec![nic(); limits::NICS + 1]).unwrap();
    let said = serde_json::from_value::<Nics>(json).unwrap_err().to_string();
    assert!(said.contains("more than 8 NICs of one instance"), "{said}");

    let address = "192.0.2.7/24".parse().unwrap();
    Addresses::try_from(vec![address; limits::ADDRESSES_PER_NIC]).unwrap();
    let said = Addresses::try_from(vec![address; limits::ADDRESSES_PER_NIC + 1]).unwrap_err().to_string();
    assert_eq!(said, "more than 16 addresses of one NIC");

    let said = serde_json::from_str::<Nics>("7").unwrap_err().to_string();
    assert!(said.contains("expected at most 8 NICs of one instance"), "{said}");
}

#[test]
fn image_formats_have_the_names_that_files_and_tools_use() {
    for (format, name) in [(ImageFormat::Qcow2, "qcow2"), (ImageFormat::Raw, "raw")] {
        assert_eq!(format.as_str(), name);
        assert_eq!(format.to_string(), name);
        assert_eq!(serde_json::to_value(format).unwrap(), name);
    }
}

#[test]
fn each_image_format_is_found_by_its_own_name_and_by_no_other() {
    for (format, name) in [(ImageFormat::Qcow2, "qcow2"), (ImageFormat::Raw, "raw")] {
        assert_eq!((format.as_str(), ImageFormat::named(name)), (name, Some(format)));
    }
    for name in ["", "RAW", "qcow", "qcow2 ", "iso", "vmdk"] {
        assert_eq!(ImageFormat::named(name), None, "{name:?}");
    }
}
