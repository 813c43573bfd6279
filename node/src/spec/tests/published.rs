//! The published schema against the parser.
use super::*;
use boon::{Compiler, SchemaIndex, Schemas};

struct Published {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Published {
    fn new() -> Self {
        let document = serde_json::to_value(schema()).expect("json");
        assert_eq!(document["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("mem:///node-spec.json", document).expect("a resource");
        let index = compiler.compile("mem:///node-spec.json", &mut schemas).expect("the schema compiles");
        Self { schemas, index }
    }

    fn takes(&self, document: &Value) -> bool {
        self.schemas.validate(document, self.index).is_ok()
    }
}

#[test]
fn the_schema_takes_what_the_parser_takes() {
    let published = Published::new();
    assert!(published.takes(&full_json()));
    assert!(published.takes(&json!({})));
    let written = serde_json::to_value(parse("spec.toml", FULL).expect("TOML")).expect("json");
    assert!(published.takes(&written), "what the node writes out itself");
    let without = serde_json::to_value(parse("a.json", "{}").expect("JSON")).expect("json");
    assert!(published.takes(&without));
}

/// Values for the fields of the example: the schema and the parser must agree on each.
fn trials() -> Vec<(&'static str, Vec<Value>)> {
    let texts = |values: &[&str]| values.iter().map(|v| json!(v)).collect::<Vec<_>>();
    let digest = "0".repeat(64);
    vec![
        ("/instances/0/id", texts(&["a", "a-b", "A", "-a", "a-", "", "a_b", &"a".repeat(63), &"a".repeat(64), "é"])),
        ("/instances/0/allocation", texts(&["a", "A.b_c-d", ".a", "", "a/b", &"a".repeat(64), &"a".repeat(65)])),
        ("/instances/0/runtime", texts(&["libvirt-kvm", "x", "X", "a_b", "", &"a".repeat(64)])),
        (
            "/instances/0/hostname",
            texts(&[
                "a",
                "a.b",
                "A-1.example",
                "a.",
                ".a",
                "a..b",
                "1.2",
                "a.1",
                "1a",
                "a-",
                "a.-b",
                "-",
                &"a".repeat(64),
                "a_b",
            ]),
        ),
        (
            "/instances/0/vcpus",
            vec![json!(1), json!(0), json!(3), json!(256), json!(-1), json!(1.5), json!("2"), json!(null)],
        ),
        (
            "/instances/0/memory_bytes",
            vec![
                json!(1u64 << 30),
                json!(16 << 20),
                json!(50),
                json!((1 << 30) + 1),
                json!(1e30),
                json!("1"),
                json!(-5),
                json!((16u64 << 40) + (1 << 20)),
            ],
        ),
        (
            "/instances/0/disk_bytes",
            vec![json!(1 << 20), json!((1 << 20) + 512), json!((1 << 20) + 1), json!(50), json!(1e30), json!(true)],
        ),
        (
            "/instances/0/image/sha256",
            texts(&[&digest, "", &digest[1..], &"F".repeat(64), &"f".repeat(64), &"g".repeat(64)]),
        ),
        ("/instances/0/image/format", texts(&["qcow2", "raw", "iso", "vmdk", "", "RAW"])),
        (
            "/instances/0/image/url",
            texts(&[
                "https://a.example/x",
                "https://a.example",
                "http://a.example/x",
                "https://u@a.example/x",
                "https://a.example/x#y",
                "",
                "file:///x",
                "https:///x",
                "https://a.example/a b",
            ]),
        ),
        ("/instances/0/network_policy", texts(&["public", "private", "none", "open", "Public"])),
        ("/instances/0/desired_state", texts(&["running", "stopped", "paused", "on"])),
        ("/instances/0/ssh_from_host_only", vec![json!(true), json!(false), json!(1), json!("true"), json!(null)]),
        (
            "/instances/0/gpu_device_ids/0",
            texts(&[
                "GPU-00000000-0000-0000-0000-000000000000",
                "00000000-0000-0000-0000-000000000000",
                "GPU-0",
                "GPU-0000000000000-0000-0000-000000000000",
            ]),
        ),
        (
            "/instances/0/identity_rebind_ref",
            vec![json!("a"), json!("a b"), json!(""), json!(null), json!("~"), json!("a".repeat(257))],
        ),
        ("/instances/0/nics/0/bridge", texts(&["br0", "a.b", "-a", "", &"a".repeat(15), &"a".repeat(16)])),
        (
            "/instances/0/nics/0/mac",
            texts(&[
                "52:54:00:00:00:01",
                "52:54:00:AA:BB:CC",
                "00:00:00:00:00:00",
                "00:00:00:00:00:01",
                "fe:00:00:00:00:01",
                "FE:00:00:00:00:01",
                "Fa:00:00:00:00:01",
                "01:00:00:00:00:00",
                "53:54:00:00:00:01",
                "52:54:00:00:00",
                "525400000001",
            ]),
        ),
        (
            "/instances/0/nics/0/addresses",
            vec![json!([]), json!(["192.0.2.9/24"]), json!(["192.0.2.9"]), json!("192.0.2.9/24"), json!([5])],
        ),
        (
            "/instances/0/nics/0/gateway",
            vec![json!("192.0.2.1"), json!(null), json!("192.0.2.1/24"), json!(5), json!("")],
        ),
        (
            "/instances/0/nics/0/nameservers",
            vec![json!([]), json!(["192.0.2.9"]), json!(["a.example"]), json!("192.0.2.9")],
        ),
        (
            "/instances/0/volumes/0/serial",
            texts(&["s", "", "data-serial-20-chars", "data-serial-21-chars-", "a b", "-a"]),
        ),
        ("/instances/0/volumes/0/read_only", vec![json!(true), json!("no")]),
        ("/instances/0/placement", vec![json!(null), json!({}), json!([]), json!({"cpu": "1"})]),
        ("/instances/0/placement/cpus", texts(&["0-1", "0,5", "a", "", "1-", "1,,2", "0x1"])),
        (
            "/instances/0/placement/hugepage_size_bytes",
            vec![json!(0), json!(2_097_152), json!(4096), json!("0"), json!(-1)],
        ),
        ("/instances/0/restore_from", vec![json!(null), json!({}), json!("x")]),
        ("/volumes/0/size_bytes", vec![json!(1 << 20), json!(1), json!("1")]),
        ("/holds/0/id", texts(&["h", "", "-h", &"h".repeat(64), &"h".repeat(65)])),
        ("/holds/0/memory_bytes", vec![json!(1 << 30), json!(1)]),
        ("/instances", vec![json!([]), json!({}), json!(null), json!([[]])]),
    ]
}

#[test]
fn the_schema_and_the_parser_agree_on_every_field() {
    let published = Published::new();
    let mut refused = 0;
    for (pointer, values) in trials() {
        for value in values {
            let mut document = full_json();
            *document.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is in the example")) = value.clone();
            let (parsed, validated) = (parse("a.json", &document.to_string()), published.takes(&document));
            assert_eq!(parsed.is_ok(), validated, "{pointer} = {value}: {parsed:?}");
            refused += usize::from(!validated);
        }
    }
    assert!(refused > 100, "the trials hold refusals");
}

#[test]
fn the_schema_and_the_parser_agree_on_unknown_and_missing_fields() {
    let published = Published::new();
    for table in [
        "",
        "/instances/0",
        "/instances/0/image",
        "/instances/0/nics/0",
        "/instances/0/volumes/0",
        "/instances/0/placement",
        "/instances/0/restore_from",
        "/volumes/0",
        "/holds/0",
    ] {
        let fields: Vec<String> =
            full_json().pointer(table).and_then(Value::as_object).expect("a table").keys().cloned().collect();
        let mut with = full_json();
        with.pointer_mut(table).expect("there")["stray"] = json!(1);
        assert!(!published.takes(&with) && parse("a.json", &with.to_string()).is_err(), "{table}/stray");
        for field in fields {
            let mut less = full_json();
            less.pointer_mut(table).and_then(Value::as_object_mut).expect("a table").remove(&field);
            // Without its declaration the example's volume leads nowhere, which no schema can say.
            less["instances"].as_array_mut().into_iter().flatten().filter(|_| field == "volumes").for_each(|i| {
                i.as_object_mut().expect("a table").remove("volumes");
            });
            let parsed = parse("a.json", &less.to_string());
            assert_eq!(parsed.is_ok(), published.takes(&less), "{table}/{field}: {parsed:?}");
        }
    }
}

#[test]
fn every_field_of_the_schema_says_what_it_is() {
    fn walk(at: &str, schema: &Value, bare: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            if field["description"].as_str().is_none_or(str::is_empty) {
                bare.push(format!("{at}.{name}"));
            }
        }
        for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
            walk(name, definition, bare);
        }
    }
    let document = serde_json::to_value(schema()).expect("json");
    let mut bare = Vec::new();
    walk("NodeSpec", &document, &mut bare);
    assert!(bare.is_empty(), "{bare:?}");
    for definition in ["Instance", "NicSpec", "MemoryBytes", "DiskBytes", "MacAddress", "HttpsUrl"] {
        assert!(document["$defs"][definition].is_object(), "{definition} is published by name");
    }
    let memory = &document["$defs"]["MemoryBytes"];
    assert_eq!((&memory["minimum"], &memory["multipleOf"]), (&json!(16 << 20), &json!(1 << 20)));
}
