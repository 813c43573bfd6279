//! What lies in `packaging/` agrees with the code.
//!
//! Room: `tests`.
use bcd_protocol::config::Config;

const PACKAGED: &str = include_str!("../../packaging/bcd.toml");

#[test]
fn the_packaged_configuration_says_the_defaults() {
    assert_eq!(Config::parse(PACKAGED).expect("parse packaging/bcd.toml"), Config::default());
}

#[test]
fn the_packaged_configuration_explains_every_key() {
    let whole = PACKAGED.replace("# spec =", "spec =").replace("# ca_file =", "ca_file =");
    let shown: toml::Table = toml::from_str(&whole).expect("parse with the commented keys");
    let Config { data_dir: _, node, helper, libvirt } = Config::parse(&whole).expect("parse as configuration");
    assert!(node.spec.is_some() && node.images.ca_file.is_some());
    let table = |value: &toml::Value| value.as_table().expect("a table").keys().cloned().collect::<Vec<_>>();
    let keys = |value: serde_json::Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    for (name, code) in [
        ("node", serde_json::to_value(&node).expect("json")),
        ("helper", serde_json::to_value(&helper).expect("json")),
        ("libvirt", serde_json::to_value(&libvirt).expect("json")),
    ] {
        assert_eq!(sorted(table(&shown[name])), sorted(keys(code)), "keys of [{name}]");
    }
    let images = serde_json::to_value(&node.images).expect("json");
    assert_eq!(sorted(table(&shown["node"]["images"])), sorted(keys(images)), "keys of [node.images]");
}
