//! Tests of the identifiers: what is one and what is not, in text and on the way through serde.
use super::*;
use proptest::prelude::*;

/// Texts that must never be part of any identifier: they mean something to a path, a shell, XML or a terminal.
const NEVER: [&str; 24] = [
    "",
    "-",
    ".",
    "..",
    "/",
    "../a",
    "a/b",
    "a b",
    "a\0",
    "a\n",
    "a\t",
    "a'",
    "a\"",
    "a<b",
    "a>b",
    "a&b",
    "a$b",
    "a%b",
    "a:b",
    "a;b",
    "a*",
    "a\\b",
    "é",
    "\u{202e}a",
];

#[test]
fn an_instance_id_is_a_lower_case_dns_label() {
    let longest = "a".repeat(63);
    for good in ["a", "0", "web-1", "1a", "a--b", "xn--a", &longest] {
        assert_eq!(InstanceId::parse(good).expect(good).as_str(), good);
    }
    let longer = "a".repeat(64);
    for bad in NEVER.iter().copied().chain(["-a", "a-", "A", "a.b", "a_b", &longer]) {
        InstanceId::parse(bad).expect_err(bad);
    }
}

#[test]
fn an_allocation_is_a_plain_file_name() {
    let longest = "a".repeat(64);
    for good in ["a", "A.1_b-c", "0", "a.", "a-", "a_", &longest] {
        assert_eq!(AllocationId::parse(good).expect(good).as_str(), good);
    }
    let longer = "a".repeat(65);
    for bad in NEVER.iter().copied().chain([".a", "-a", "_a", &longer]) {
        AllocationId::parse(bad).expect_err(bad);
    }
}

#[test]
fn a_bridge_is_an_interface_name() {
    let longest = "b".repeat(15);
    for good in ["br0", "virbr-1", "a.b", "A_1", "0", &longest] {
        assert_eq!(BridgeName::parse(good).expect(good).as_str(), good);
    }
    let longer = "b".repeat(16);
    for bad in NEVER.iter().copied().chain([".a", "-a", "_a", "br0@x", &longer]) {
        BridgeName::parse(bad).expect_err(bad);
    }
}

#[test]
fn a_refusal_names_kind_text_and_rule_and_cuts_what_is_long() {
    let said = InstanceId::parse("Web").unwrap_err().to_string();
    assert_eq!(said, "instance id \"Web\" is not valid: use 1 to 63 lower-case letters, digits and inner hyphens");
    let said = BridgeName::parse(&"x".repeat(5_000)).unwrap_err().to_string();
    assert!(said.contains(&format!("bridge \"{}\" is not valid", "x".repeat(80))), "{said}");
    let said = AllocationId::parse("\u{1b}[2J").unwrap_err().to_string();
    assert!(said.starts_with("allocation \"\\u{1b}[2J\" is not valid"), "{said}");
}

#[test]
fn text_identifiers_are_the_same_by_every_way_in_and_out() {
    let id = InstanceId::parse("web-1").unwrap();
    assert_eq!(id.to_string(), "web-1");
    assert_eq!("web-1".parse::<InstanceId>().unwrap(), id);
    assert_eq!(InstanceId::try_from("web-1".to_owned()).unwrap(), id);
    assert_eq!(String::from(id.clone()), "web-1");
    assert_eq!(serde_json::to_string(&id).unwrap(), "\"web-1\"");
    assert_eq!(serde_json::from_str::<InstanceId>("\"web-1\"").unwrap(), id);
    assert_eq!(serde_json::from_str::<InstanceId>("\"web\\u002d1\"").unwrap(), id, "an escaped text is one too");
    "Web".parse::<InstanceId>().unwrap_err();
    InstanceId::try_from("Web".to_owned()).unwrap_err();
    let said = serde_json::from_str::<InstanceId>("\"Web\"").unwrap_err().to_string();
    assert!(said.contains("instance id \"Web\" is not valid"), "{said}");
    let said = serde_json::from_str::<BridgeName>("7").unwrap_err().to_string();
    assert!(said.contains("invalid type: integer `7`, expected bridge as a string"), "{said}");
}

const DIGEST: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";

#[test]
fn a_digest_is_64_lower_case_hex_digits() {
    let digest = Sha256Digest::parse(DIGEST).unwrap();
    let mut bytes: [u8; 32] = std::array::from_fn(|i| u8::try_from(i).unwrap());
    bytes[31] = 0xff;
    assert_eq!(digest.as_bytes(), &bytes);
    assert_eq!(Sha256Digest::from_bytes(bytes), digest);
    assert_eq!(digest.to_string(), DIGEST);
    assert_eq!(DIGEST.parse::<Sha256Digest>().unwrap(), digest);
    for bad in [
        "",
        &DIGEST[1..],
        &DIGEST[2..],
        &format!("{DIGEST}0"),
        &format!("{DIGEST}00"),
        &DIGEST.to_uppercase(),
        &DIGEST.replace('a', "g"),
        &DIGEST.replace('a', "`"),
        &DIGEST.replace('0', "/"),
        &DIGEST.replace('0', ":"),
        &format!(" {}", &DIGEST[1..]),
        &format!("é{}", &DIGEST[2..]),
    ] {
        Sha256Digest::parse(bad).expect_err(bad);
    }
}

const UUID: &str = "00112233-4455-4677-8899-aabbccddeeff";

#[test]
fn a_uuid_is_five_groups_of_lower_case_hex() {
    let uuid = DomainUuid::parse(UUID).unwrap();
    let bytes = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x46, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
    assert_eq!(uuid.as_bytes(), &bytes);
    assert_eq!(DomainUuid::from_bytes(bytes), uuid);
    assert_eq!(uuid.to_string(), UUID);
    assert_eq!(UUID.parse::<DomainUuid>().unwrap(), uuid);
    for bad in [
        "",
        &UUID.replace('-', ""),
        &UUID[..35],
        &format!("{UUID}0"),
        &UUID.to_uppercase(),
        &format!("{{{UUID}}}"),
        "001122334-455-4677-8899-aabbccddeeff",
        "00112233-44554-677-8899-aabbccddeeff",
        "00112233-4455-46778-899-aabbccddeeff",
        "00112233-4455-4677-8899a-abbccddeeff",
        "00112233-4455-4677-8899-aabbccddee-f",
        "00112233-4455-4677-8899-aabbccddeegf",
    ] {
        DomainUuid::parse(bad).expect_err(bad);
    }
}

#[test]
fn a_random_uuid_has_version_and_variant_and_else_the_bits_it_was_given() {
    assert_eq!(DomainUuid::from_random([0; 16]).to_string(), "00000000-0000-4000-8000-000000000000");
    assert_eq!(DomainUuid::from_random([0xff; 16]).to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    let bytes = std::array::from_fn(|i| 0x10 + u8::try_from(i).unwrap());
    assert_eq!(DomainUuid::from_random(bytes).to_string(), "10111213-1415-4617-9819-1a1b1c1d1e1f");
}

#[test]
fn digest_and_uuid_are_text_for_people() {
    let digest = Sha256Digest::parse(DIGEST).unwrap();
    assert_eq!(serde_json::to_value(digest).unwrap(), DIGEST);
    assert_eq!(serde_json::from_value::<Sha256Digest>(DIGEST.into()).unwrap(), digest);
    let uuid = DomainUuid::parse(UUID).unwrap();
    assert_eq!(serde_json::to_value(uuid).unwrap(), UUID);
    assert_eq!(serde_json::from_value::<DomainUuid>(UUID.into()).unwrap(), uuid);
    let said = serde_json::from_str::<Sha256Digest>("\"00\"").unwrap_err().to_string();
    assert!(said.contains("sha256 \"00\" is not valid"), "{said}");
    let said = serde_json::from_str::<DomainUuid>("\"00\"").unwrap_err().to_string();
    assert!(said.contains("uuid \"00\" is not valid"), "{said}");
}

#[test]
fn a_guest_uid_lies_in_the_guests_range() {
    for good in [0x7FFD_0000, 0x7FFD_0001, 0x7FFD_7FFF] {
        let uid = GuestUid::new(good).unwrap();
        assert_eq!(uid.get(), good);
        assert_eq!(u32::from(uid), good);
        assert_eq!(uid.to_string(), good.to_string());
        assert_eq!(GuestUid::try_from(good).unwrap(), uid);
        assert_eq!(serde_json::from_str::<GuestUid>(&serde_json::to_string(&uid).unwrap()).unwrap(), uid);
    }
    for bad in [0, 1, 65_534, 0x7FFC_FFFF, 0x7FFD_8000, u32::MAX] {
        let said = GuestUid::new(bad).unwrap_err().to_string();
        assert!(
            said.contains(&format!("{:?}", bad.to_string())) && said.contains("2147287040 to 2147319807"),
            "{said}"
        );
        serde_json::from_str::<GuestUid>(&bad.to_string()).unwrap_err();
    }
    assert_eq!((limits::GUEST_UID_FIRST, limits::GUEST_UID_LAST), (2_147_287_040, 2_147_319_807));
}

proptest! {
    #[test]
    fn bytes_and_text_of_a_digest_are_one(bytes: [u8; 32]) {
        let text = Sha256Digest::from_bytes(bytes).to_string();
        prop_assert_eq!(text.len(), 64);
        prop_assert_eq!(Sha256Digest::parse(&text).unwrap(), Sha256Digest::from_bytes(bytes));
    }

    #[test]
    fn bytes_and_text_of_a_uuid_are_one(bytes: [u8; 16]) {
        let text = DomainUuid::from_bytes(bytes).to_string();
        prop_assert_eq!(DomainUuid::parse(&text).unwrap(), DomainUuid::from_bytes(bytes));
        let random = DomainUuid::from_random(bytes).to_string();
        prop_assert_eq!(&random[14..15], "4");
        prop_assert!("89ab".contains(&random[19..20]));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,70}") {
        let _ = InstanceId::parse(&text);
        let _ = AllocationId::parse(&text);
        let _ = BridgeName::parse(&text);
        let _ = Sha256Digest::parse(&text);
        let _ = DomainUuid::parse(&text);
    }
}
