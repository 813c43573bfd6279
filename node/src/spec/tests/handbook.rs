//! docs/nodespec.md against the types it describes.
use super::*;

const PAGE: &str = include_str!("../../../../docs/nodespec.md");

/// The page's example.
fn example() -> &'static str {
    let (_, rest) = PAGE.split_once("```toml\n").expect("an example");
    rest.split_once("```").expect("an end").0
}

#[test]
fn the_example_of_the_page_is_a_document() {
    let spec = parse("node.toml", example()).expect("a document");
    assert_eq!((spec.instances.len(), spec.instances[0].nics.len()), (1, 1));
}

#[test]
fn the_error_that_the_page_shows_is_the_one_a_person_gets() {
    let wrong = example().replace("memory_bytes = 2147483648", "memory_bytes = 50");
    let error = parse("node.toml", &wrong).expect_err("50 bytes").to_string();
    assert!(PAGE.lines().any(|line| line == error), "{error}");
}

#[test]
fn the_page_has_every_field_of_the_document() {
    let document = serde_json::to_value(schema()).expect("json");
    let instance = document["$defs"]["Instance"]["properties"].as_object().expect("fields");
    let top = document["properties"].as_object().expect("fields");
    for field in instance.keys().chain(top.keys()) {
        assert!(PAGE.contains(&format!("\n| `{field}` |")), "{field} has no row");
    }
    let inner = ["Image", "NicSpec", "VolumeAttachment", "Placement", "RestoreFrom", "Volume", "Hold"];
    for field in
        inner.iter().flat_map(|table| document["$defs"][table]["properties"].as_object().expect("fields").keys())
    {
        assert!(PAGE.contains(&format!("`{field}`")), "{field} is not named");
    }
    let rows = PAGE.split("## Fields").nth(1).and_then(|rest| rest.split("## ").next()).expect("the fields");
    let named = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(field, _)| field));
    for field in named {
        assert!(instance.contains_key(field) || top.contains_key(field), "{field} is no field");
    }
}
