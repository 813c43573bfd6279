//! Tests of MAC addresses.
use super::*;

#[test]
fn a_mac_is_six_hex_pairs_and_shown_in_lower_case() {
    let mac = MacAddress::parse("52:54:00:AB:cd:0F").unwrap();
    assert_eq!(mac.as_bytes(), &[0x52, 0x54, 0, 0xab, 0xcd, 0x0f]);
    assert_eq!(mac.to_string(), "52:54:00:ab:cd:0f");
    assert_eq!("52:54:00:ab:cd:0f".parse::<MacAddress>().unwrap(), mac);
    assert_eq!(MacAddress::from_bytes([0x52, 0x54, 0, 0xab, 0xcd, 0x0f]).unwrap(), mac);
    for bad in [
        "",
        "52:54:00:ab:cd",
        "52:54:00:ab:cd:0f:00",
        "52:54:00:ab:cd:0f:",
        "52-54-00-ab-cd-0f",
        "525400abcd0f",
        "52:54:00:ab:cd:f",
        "52:54:00:ab:cd:00f",
        "52:54:00:ab:cd:+f",
        "52:54:00:ab:cd:g0",
        " 52:54:00:ab:cd:0f",
        "52:54:00:ab:cd:é",
        "52:54::ab:cd:0f",
    ] {
        let said = MacAddress::parse(bad).expect_err(bad).to_string();
        assert!(said.contains("use six two-digit hex numbers separated by ':'"), "{said}");
    }
}

#[test]
fn a_mac_that_no_guest_may_have_is_refused_with_its_reason() {
    for (bad, reason) in [
        ("00:00:00:00:00:00", "all zero"),
        ("01:00:5e:00:00:01", "multicast"),
        ("ff:ff:ff:ff:ff:ff", "multicast"),
        ("53:54:00:00:00:01", "multicast"),
        ("fe:54:00:00:00:01", "host's end of a tap"),
    ] {
        let said = MacAddress::parse(bad).expect_err(bad).to_string();
        assert!(said.contains(bad) && said.contains(reason), "{said}");
        let said = serde_json::from_value::<MacAddress>(bad.into()).unwrap_err().to_string();
        assert!(said.contains(reason), "{said}");
    }
    for good in ["00:00:00:00:00:01", "00:54:00:00:00:00", "fc:00:00:00:00:01", "02:00:00:00:00:00"] {
        MacAddress::parse(good).expect(good);
    }
}

#[test]
fn a_mac_is_text_for_people() {
    let mac = MacAddress::parse("52:54:00:ab:cd:0f").unwrap();
    assert_eq!(serde_json::to_value(mac).unwrap(), "52:54:00:ab:cd:0f");
    assert_eq!(serde_json::from_value::<MacAddress>("52:54:00:AB:CD:0F".into()).unwrap(), mac);
}
