//! Tests of the limits: their values, and what one needs of another.
use super::*;

#[test]
fn each_limit_has_its_documented_value() {
    assert_eq!(MESSAGE_BYTES, 65_536);
    assert_eq!((REPLY_DESCRIPTORS, REQUEST_DESCRIPTORS), (1, 0));
    assert_eq!((IN_FLIGHT, CONNECTIONS, HANDSHAKE_SECONDS), (64, 16, 5));
    assert_eq!((RECORDS_PER_PAGE, RECORDS), (14, 4_096));
    assert_eq!((INSTANCE_ID_CHARS, ALLOCATION_CHARS, INTERFACE_CHARS), (63, 64, 15));
    assert_eq!((NICS, ADDRESSES_PER_NIC, VCPUS), (8, 16, 255));
    assert_eq!((MEMORY_MIN, MEMORY_MAX, MEMORY_UNIT), (16_777_216, 17_592_186_044_416, 1_048_576));
    assert_eq!((DISK_MIN, DISK_MAX, SECTOR), (1_048_576, 70_368_744_177_664, 512));
    assert_eq!((DETAIL_CHARS, RULE_CHARS, XML_BYTES), (512, 48, 32_768));
    assert_eq!((GUEST_UID_FIRST, GUEST_UID_LAST), (0x7FFD_0000, 0x7FFD_7FFF));
}

#[test]
fn limits_that_need_one_another_agree() {
    let uids = usize::try_from(GUEST_UID_LAST - GUEST_UID_FIRST + 1).unwrap();
    assert!(uids >= RECORDS, "each record has a uid of its own");
    let longest_tap = format!("bc{}n{}", "0".repeat(10), NICS - 1);
    assert!(longest_tap.len() <= INTERFACE_CHARS, "{longest_tap}");
    assert!("bcd-".len() + INSTANCE_ID_CHARS <= 255, "a domain's name is a file's name");
    assert_eq!((MEMORY_MIN % MEMORY_UNIT, MEMORY_MAX % MEMORY_UNIT), (0, 0));
    assert_eq!((DISK_MIN % SECTOR, DISK_MAX % SECTOR), (0, 0));
    const { assert!(3 * MESSAGE_BYTES < 212_992, "a default socket buffer holds three messages") };
}
