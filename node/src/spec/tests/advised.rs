//! What is said beside the parsers' words: what to write instead.
use super::*;

/// What is said of the example with one text in place of another, as TOML.
fn said(old: &str, new: &str) -> String {
    fault(old, new).message
}

#[test]
fn an_address_that_is_none_is_told_how_to_be_one() {
    for (new, words) in [
        ("\"198.18.213.2\"", "\"198.18.213.2\" has no prefix length: give it too, such as 198.18.213.2/24"),
        ("'198.18.213.2'", "\"198.18.213.2\" has no prefix length: give it too, such as 198.18.213.2/24"),
        ("\"2001:db8::7\"", "\"2001:db8::7\" has no prefix length: give it too, such as 2001:db8::7/64"),
        ("\"192.0.2.10/33\"", "\"192.0.2.10/33\" has no usable prefix length: use 0 to 32"),
        ("\"2001:db8::7/129\"", "\"2001:db8::7/129\" has no usable prefix length: use 0 to 128"),
        ("\"dhcp\"", "\"dhcp\" is no address with its prefix length: write such as 192.0.2.10/24"),
    ] {
        let told = said("\"192.0.2.10/24\"", new);
        assert!(told.starts_with(words), "{new}: {told}");
    }
    let told = said("gateway = \"192.0.2.1\"", "gateway = \"192.0.2.1/24\"");
    assert!(told.contains("write 192.0.2.1, without a prefix length"), "{told}");

    let mut document = full_json();
    document["instances"][0]["nics"][0]["addresses"][0] = json!("198.18.213.2");
    let error = parse("spec.json", &pretty(&document)).expect_err("no prefix length");
    assert!(error.message.contains("such as 198.18.213.2/24"), "{error}");
}

#[test]
fn a_table_in_place_of_a_list_of_tables_is_told_its_brackets() {
    for (text, field, header) in [
        ("[instances]\nid = \"a\"", "instances", "[[instances]]"),
        ("[volumes]\nid = \"a\"", "volumes", "[[volumes]]"),
        ("[holds]\nid = \"a\"", "holds", "[[holds]]"),
        ("[[instances]]\n[instances.nics]\nbridge = \"b\"", "instances[0].nics", "[[instances.nics]]"),
        ("[[instances]]\n[instances.volumes]\nid = \"v\"", "instances[0].volumes", "[[instances.volumes]]"),
    ] {
        let error = parse("spec.toml", text).expect_err(text);
        assert_eq!(error.field, field, "{error}");
        assert!(error.message.contains(&format!("write {header}, in two brackets")), "{error}");
    }
    let error = parse("spec.json", "{\"instances\": {}}").expect_err("no list");
    assert!(error.message.contains("write a list") && !error.message.contains("[["), "{error}");
}

#[test]
fn a_text_in_the_other_language_is_told_its_name() {
    let error = parse("json.toml", "{\n  \"instances\": []\n}").expect_err("JSON");
    assert!(error.message.ends_with(": if this is JSON, name the file .json"), "{error}");
    let error = parse("toml.json", "[[instances]]\nid = \"a\"\n").expect_err("TOML");
    assert!(error.message.ends_with(": if this is TOML, name the file .toml"), "{error}");
    for (name, text) in [("a.toml", "instances = ["), ("a.json", "{\"instances\": ["), ("a.json", " ")] {
        let error = parse(name, text).expect_err("cut");
        assert!(!error.message.contains("name the file"), "{error}");
    }
}
