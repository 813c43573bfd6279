//! `packaging/bcd.toml` says the defaults and every key, and so does bcd.toml(5), which is made of it.
use super::{held, read};
use bcd_protocol::config::Config;

const PACKAGED: &str = include_str!("../../../packaging/bcd.toml");

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

/// A key that has no default stands behind a comment sign.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("# ").unwrap_or(line).split_once(" = ")?;
    (!key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).then_some(key)
}

fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// bcd.toml(5): what the packaged configuration says, key by key.
fn page() -> String {
    let mut page = ".\\\" Made from packaging/bcd.toml: change that, then run the test packaging with BCD_BLESS=1.\n\
                    .TH BCD.TOML 5 \"\" \"bcd\" \"bcd\"\n.SH NAME\nbcd.toml \\- configuration of bcd and bcd\\-helper\n\
                    .SH SYNOPSIS\n.I /etc/bcd/bcd.toml\n.SH DESCRIPTION\n"
        .to_owned();
    let (mut words, mut keys) = (Vec::<&str>::new(), Vec::<&str>::new());
    let flush = |words: &mut Vec<&str>, keys: &mut Vec<&str>, page: &mut String| {
        for (index, line) in keys.iter().enumerate() {
            page.push_str(if index == 0 { ".TP\n" } else { ".TQ\n" });
            match line.strip_prefix("# ") {
                Some(example) => page.push_str(&format!(".BR \"{}\" \"   (no default)\"\n", quoted(example))),
                None => page.push_str(&format!(".B \"{}\"\n", quoted(line))),
            }
        }
        for line in words.iter() {
            page.push_str(&if line.is_empty() { ".PP\n".to_owned() } else { format!("{}\n", roff(line)) });
        }
        words.clear();
        keys.clear();
    };
    for line in PACKAGED.lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            flush(&mut words, &mut keys, &mut page);
            page.push_str(&format!(".SH [{section}]\n"));
        } else if line.is_empty() {
            flush(&mut words, &mut keys, &mut page);
            if !page.contains(".SH KEYS") && !page.contains(".SH [") {
                page.push_str(".SH KEYS AT THE TOP\n");
            }
        } else if key_of(line).is_some() {
            keys.push(line);
        } else {
            let comment = line.strip_prefix('#').expect("a comment, a key or a section");
            words.push(comment.strip_prefix(' ').unwrap_or(comment));
        }
    }
    flush(&mut words, &mut keys, &mut page);
    page.push_str(".SH SEE ALSO\n.BR bcd (1),\n.BR bcd\\-helper (8)\n");
    page
}

fn quoted(text: &str) -> String {
    roff(text).replace('"', "\"\"")
}

#[test]
fn the_manual_page_says_what_the_packaged_configuration_says() {
    held("packaging/man/bcd.toml.5", &page());
}

#[test]
fn the_manual_page_names_every_key_in_its_section() {
    let page = read("packaging/man/bcd.toml.5").replace("\\-", "-");
    let section = |name: &str| {
        let (_, rest) = page.split_once(&format!(".SH {name}\n")).unwrap_or_else(|| panic!("no section {name}"));
        rest.split(".SH ").next().expect("a section").to_owned()
    };
    let config = serde_json::to_value(Config::default()).expect("json");
    let mut seen = 0;
    let mut check = |name: &str, table: &serde_json::Value| {
        let text = section(name);
        for (key, value) in table.as_object().expect("a table") {
            if !value.is_object() {
                assert!(text.contains(&format!("\"{key} = ")), "{key} is not in {name}:\n{text}");
                seen += 1;
            }
        }
    };
    check("KEYS AT THE TOP", &config);
    check("[node]", &config["node"]);
    check("[node.images]", &config["node"]["images"]);
    check("[helper]", &config["helper"]);
    check("[libvirt]", &config["libvirt"]);
    assert!(seen > 15, "{seen} keys were looked for");
}
