//! Tests of the NodeSpec: every field, both formats, and where a fault is.
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A document that uses every field once. Line numbers in the tests below count from its first line.
const FULL: &str = r#"[[instances]]
id = "web-1"
allocation = "alloc-7"
runtime = "libvirt-kvm"
hostname = "web-1.example.net"
vcpus = 2
memory_bytes = 536870912
disk_bytes = 10737418240
network_policy = "private"
ssh_from_host_only = true
gpu_device_ids = ["GPU-6f3d0c8e-0d3c-4b7e-9d5e-2f1f0a6f8a11"]
identity_rebind_ref = "ref:1"
desired_state = "paused"

[instances.image]
url = "https://images.example.net:8443/debian.qcow2?x=1"
sha256 = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
format = "qcow2"

[[instances.nics]]
bridge = "br0"
mac = "52:54:00:AB:cd:01"
addresses = ["192.0.2.10/24", "2001:db8::10/64"]
gateway = "192.0.2.1"
nameservers = ["192.0.2.53", "2001:db8::53"]

[[instances.volumes]]
id = "data"
serial = "data-serial-20-chars"
read_only = false

[instances.placement]
cpus = "4-5,8"
mems = "0"
hugepage_size_bytes = 2097152
balloon = false

[instances.restore_from]
url = "https://snapshots.example.net/one.tar"
sha256 = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"

[[volumes]]
id = "data"
size_bytes = 1073741824

[[holds]]
id = "system"
memory_bytes = 1073741824
"#;

fn full_json() -> Value {
    toml::from_str::<Value>(FULL).expect("the example is TOML")
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("json")
}

/// What the documentation shows and the package brings, read as the node reads it.
#[test]
fn the_documents_that_are_shown_are_documents() {
    let shipped = include_str!("../../../examples/node.toml");
    let spec = parse("node.toml", shipped).expect("examples/node.toml");
    assert_eq!(spec.instances.len(), 1);
    assert_eq!(spec.instances[0].nics.len(), 1, "with a NIC to be changed");
    let page = include_str!("../../../docs/nodespec.md");
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (shown, _) = rest.split_once("```").expect("its end");
    assert_eq!(parse("nodespec.toml", shown).expect("docs/nodespec.md").instances.len(), 1);
}

/// The fault of the example with one text in place of another, which stands in it exactly once.
fn fault(old: &str, new: &str) -> SpecError {
    assert_eq!(FULL.matches(old).count(), 1, "{old:?} names one place of the example");
    parse("spec.toml", &FULL.replace(old, new)).expect_err("the change is a fault")
}

/// Line of the example that begins with `text`.
fn line_of(text: &str) -> usize {
    FULL.lines().position(|line| line.starts_with(text)).map_or(0, |i| i + 1)
}

#[test]
fn every_field_is_read_from_toml_and_from_json_alike() {
    let from_toml = parse("spec.toml", FULL).expect("TOML");
    let from_json = parse("spec.json", &pretty(&full_json())).expect("JSON");
    assert_eq!(from_toml, from_json);
    let instance = &from_toml.instances[0];
    assert_eq!(instance.nics[0].mac.to_string(), "52:54:00:ab:cd:01", "shown as the kernel spells it");
    assert_eq!(instance.placement.as_ref().and_then(|p| p.cpus.as_ref()).expect("cpus").members(), [4, 5, 8]);
    assert_eq!(instance.desired_state, DesiredState::Paused);
    assert_eq!(from_toml.volumes[0].size_bytes.get(), 1 << 30);
}

#[test]
fn what_is_written_out_reads_back_the_same() {
    let spec = parse("spec.toml", FULL).expect("TOML");
    let text = serde_json::to_string(&spec).expect("json");
    assert_eq!(parse("kept.json", &text).expect("reads back"), spec);
}

#[test]
fn an_empty_document_wants_nothing() {
    assert_eq!(parse("spec.toml", "").expect("TOML"), NodeSpec::default());
    assert_eq!(parse("spec.json", "{}").expect("JSON"), NodeSpec::default());
}

#[test]
fn a_number_of_the_wrong_unit_or_kind_is_refused_with_field_and_unit() {
    let lines = [
        ("memory_bytes = 536870912", "memory_bytes", "bytes"),
        ("disk_bytes = 10737418240", "disk_bytes", "bytes"),
        ("vcpus = 2", "vcpus", "virtual CPUs"),
        ("size_bytes = 1073741824", "size_bytes", "bytes"),
        ("hugepage_size_bytes = 2097152", "hugepage_size_bytes", "bytes"),
    ];
    for (line, field, unit) in lines {
        for value in ["50.0", "1e30", "-5", "\"50GiB\"", "true", "nan", "[1]", "99999999999999999999", "1979-05-27"] {
            let error = fault(line, &format!("{field} = {value}"));
            assert!(error.field.ends_with(field), "{field} = {value}: {error}");
            assert!(error.message.contains(unit), "{field} = {value}: {error}");
            assert_eq!((error.line, error.column), (line_of(line), field.len() + 4), "{field} = {value}: {error}");
        }
    }
    let absurd = fault("memory_bytes = 536870912", &format!("memory_bytes = {}", "9".repeat(60)));
    assert!(absurd.message.contains("bytes"), "{absurd}");
}

#[test]
fn a_size_out_of_its_range_is_refused_and_never_rounded() {
    for value in ["0", "50", "16777215", "536870913", "17592186044417"] {
        let error = fault("memory_bytes = 536870912", &format!("memory_bytes = {value}"));
        assert!(error.message.contains(value) && error.message.contains("bytes"), "{error}");
    }
    for value in ["0", "50", "10737418241", "70368744177665"] {
        let error = fault("disk_bytes = 10737418240", &format!("disk_bytes = {value}"));
        assert!(error.message.contains(value) && error.message.contains("bytes"), "{error}");
    }
    for value in ["0", "256", "4294967297"] {
        let error = fault("vcpus = 2", &format!("vcpus = {value}"));
        assert!(error.message.contains(value), "{error}");
    }
    let error = fault("hugepage_size_bytes = 2097152", "hugepage_size_bytes = 4096");
    assert!(error.message.contains("4096") && error.message.contains("bytes"), "{error}");
}

#[test]
fn the_same_numbers_are_refused_in_json_with_line_and_column() {
    for value in ["50.0", "5e8", "1e30", "-5", "\"50GiB\"", "null", "99999999999999999999", "536870913"] {
        let text = pretty(&full_json()).replace("\"memory_bytes\": 536870912", &format!("\"memory_bytes\": {value}"));
        let error = parse("spec.json", &text).expect_err("not bytes");
        let line = text.lines().position(|l| l.contains(&format!("\"memory_bytes\": {value}"))).expect("line");
        assert_eq!(error.field, "instances[0].memory_bytes", "{error}");
        assert!(error.message.contains("bytes"), "{error}");
        assert_eq!(error.line, line + 1, "{error}");
        assert_eq!(error.column, text.lines().nth(line).and_then(|l| l.find(value)).expect("column") + 1, "{error}");
        assert!(!error.message.contains("at line"), "{error}");
    }
}

#[test]
fn an_unknown_field_is_refused_where_it_stands() {
    for (before, field) in [
        ("vcpus = 2", "instances[0].memory"),
        ("read_only = false", "instances[0].volumes[0].memory"),
        ("bridge = \"br0\"", "instances[0].nics[0].memory"),
        ("mems = \"0\"", "instances[0].placement.memory"),
        ("format = \"qcow2\"", "instances[0].image.memory"),
        ("id = \"system\"", "holds[0].memory"),
        ("size_bytes = 1073741824", "volumes[0].memory"),
    ] {
        let error = fault(before, &format!("{before}\nmemory = 5"));
        assert_eq!((error.field.as_str(), error.line, error.column), (field, line_of(before) + 1, 1), "{error}");
        assert!(error.message.contains("unknown field `memory`"), "{error}");
    }
    let text = "{\n  \"instances\": [],\n  \"instance\": []\n}";
    let error = parse("spec.json", text).expect_err("unknown");
    assert_eq!((error.field.as_str(), error.line, error.column), ("instance", 3, 3), "{error}");
}

#[test]
fn a_missing_field_names_its_table() {
    let error = fault("hostname = \"web-1.example.net\"\n", "");
    assert_eq!((error.field.as_str(), error.line), ("instances[0]", 1), "{error}");
    assert!(error.message.contains("missing field `hostname`"), "{error}");
    let mut document = full_json();
    document["instances"][0].as_object_mut().expect("table").remove("hostname");
    let error = parse("spec.json", &pretty(&document)).expect_err("missing");
    assert_eq!((error.field.as_str(), error.line, error.column), ("instances[0]", 9, 5), "{error}");
}

#[test]
fn a_list_is_never_taken_for_a_table() {
    assert!(parse("spec.json", "[[], [], []]").is_err(), "the document");
    for (table, list) in [
        ("/instances/0/image", json!(["https://a.example/x", "0".repeat(64), "raw"])),
        ("/instances/0/placement", json!([null, null, 0, false])),
        ("/instances/0/nics/0", json!(["br0", "52:54:00:00:00:01", [], null, []])),
        ("/instances/0/volumes/0", json!(["data", "s", true])),
        ("/volumes/0", json!(["data", 1_073_741_824])),
        ("/holds/0", json!(["system", 1_073_741_824])),
    ] {
        let mut document = full_json();
        *document.pointer_mut(table).expect("there") = list;
        let error = parse("spec.json", &pretty(&document)).expect_err(table);
        assert!(error.message.contains("as a table of its fields"), "{table}: {error}");
    }
}

#[test]
fn syntax_faults_and_repeated_fields_have_their_line() {
    let error = parse("spec.toml", "volumes = []\ninstances = [").expect_err("cut");
    assert_eq!(error.line, 2, "{error}");
    let error = parse("spec.toml", "volumes = []\nvolumes = []").expect_err("twice");
    assert_eq!(error.line, 2, "{error}");
    let error = parse("spec.json", "{\"volumes\": [],\n\"volumes\": []}").expect_err("twice");
    assert_eq!((error.line, error.column), (2, 1), "{error}");
    let error = parse("spec.json", "{\"volumes\": []}\n{}").expect_err("two documents");
    assert_eq!(error.line, 2, "{error}");
    let error = parse("spec.json", "{\n\"volumes\": [}").expect_err("syntax");
    assert_eq!(error.line, 2, "{error}");
    assert!(error.to_string().starts_with("spec.json:2:"), "{error}");
    assert!(parse("spec.json", "").is_err());
    assert!(parse("spec.json", &"[".repeat(100_000)).is_err(), "deep nesting is refused, not followed");
    assert!(parse("spec.toml", &format!("instances = {}", "[".repeat(100_000))).is_err());
}

#[test]
fn a_column_counts_characters() {
    let error = parse("spec.toml", "volumes = [{id = \"é\", size_bytes = 1}]").expect_err("id");
    assert_eq!((error.field.as_str(), error.column), ("volumes[0].id", 18), "{error}");
    let error = parse("spec.toml", "holds = [] # ä\nvolumes = [{ id = \"a\", size_bytes = 1 }]").expect_err("size");
    assert_eq!((error.line, error.column), (2, 37), "{error}");
    let error = parse("spec.json", "{\"volumes\": [{\"id\": \"a\", \"é\": 1}]}").expect_err("unknown");
    assert_eq!(error.column, 26, "{error}");
}

#[test]
fn a_document_larger_than_the_bound_is_not_read() {
    let text = format!("# {}\n", "x".repeat(DOCUMENT_BYTES));
    let error = parse("spec.toml", &text).expect_err("too large");
    assert!(error.message.contains("4194304"), "{error}");
    let most = format!("{{\"volumes\": []{}}}", " ".repeat(DOCUMENT_BYTES - 15));
    assert_eq!(most.len(), DOCUMENT_BYTES);
    assert!(parse("spec.json", &most).is_ok());
}

#[test]
fn what_the_node_writes_out_itself_is_read_back_whatever_its_size() {
    let instance = |i: usize| {
        let nics: Vec<Value> = (0..8)
            .map(|n| json!({"bridge": "b", "mac": format!("52:54:00:{:02x}:{:02x}:{n:02x}", i >> 8, i & 255)}))
            .collect();
        let image = json!({"url": "https://a.example/x", "sha256": "0".repeat(64), "format": "raw"});
        json!({
            "id": format!("i{i}"), "allocation": "x", "runtime": "r", "hostname": "h", "vcpus": 1, "image": image,
            "memory_bytes": 1 << 30, "disk_bytes": 1 << 30, "nics": nics,
        })
    };
    let text = json!({"instances": (0..INSTANCES).map(instance).collect::<Vec<_>>()}).to_string();
    let spec = parse("a.json", &text).expect("within the bound");
    let written = serde_json::to_string(&spec).expect("json");
    assert!(written.len() > DOCUMENT_BYTES, "{} bytes", written.len());
    assert!(parse("a.json", &written).is_err());
    assert!(parse_kept("kept.json", &written).expect("its own") == spec);
}

#[test]
fn more_entries_than_the_bound_are_refused_with_the_bound() {
    let gpu = |i: usize| json!(format!("GPU-00000000-0000-0000-0000-{i:012x}"));
    for (list, entry, most) in [
        ("/instances/0/gpu_device_ids", &gpu as &dyn Fn(usize) -> Value, GPUS),
        ("/instances/0/nics", &|i| json!({"bridge": "br0", "mac": format!("52:54:00:00:00:{i:02x}")}), 8),
        ("/instances/0/nics/0/nameservers", &|i| json!(format!("192.0.2.{i}")), NAMESERVERS),
        ("/instances/0/nics/0/addresses", &|i| json!(format!("192.0.2.{}/24", i + 2)), 16),
        ("/holds", &|i| json!({"id": format!("h{i}"), "memory_bytes": 1 << 30}), HOLDS),
    ] {
        for (count, fits) in [(most, true), (most + 1, false)] {
            let mut document = full_json();
            *document.pointer_mut(list).expect("there") = (0..count).map(entry).collect();
            match parse("spec.json", &document.to_string()) {
                Ok(_) => assert!(fits, "{list} with {count}"),
                Err(error) => {
                    assert!(!fits, "{list} with {count}: {error}");
                    assert!(error.message.contains(&most.to_string()), "{error}");
                }
            }
        }
    }
}

#[test]
fn texts_that_break_their_rule_are_refused_by_field() {
    let digest = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let cases: &[(&str, &str, &str)] = &[
        ("id = \"web-1\"", "id = \"Web-1\"", "instances[0].id"),
        ("id = \"web-1\"", "id = \"../etc\"", "instances[0].id"),
        ("allocation = \"alloc-7\"", "allocation = \"../../shadow\"", "instances[0].allocation"),
        ("runtime = \"libvirt-kvm\"", "runtime = \"Libvirt\"", "instances[0].runtime"),
        ("hostname = \"web-1.example.net\"", "hostname = \"web_1\"", "instances[0].hostname"),
        ("hostname = \"web-1.example.net\"", "hostname = \"a..b\"", "instances[0].hostname"),
        ("hostname = \"web-1.example.net\"", "hostname = \"192.0.2.1\"", "instances[0].hostname"),
        ("hostname = \"web-1.example.net\"", "hostname = \"web-1\\nruncmd: x\"", "instances[0].hostname"),
        (digest, &digest.to_uppercase(), "instances[0].image.sha256"),
        (digest, &digest[1..], "instances[0].image.sha256"),
        ("format = \"qcow2\"", "format = \"vmdk\"", "instances[0].image.format"),
        ("format = \"qcow2\"", "format = \"QCOW2\"", "instances[0].image.format"),
        ("network_policy = \"private\"", "network_policy = \"open\"", "instances[0].network_policy"),
        ("desired_state = \"paused\"", "desired_state = \"on\"", "instances[0].desired_state"),
        ("ssh_from_host_only = true", "ssh_from_host_only = 1", "instances[0].ssh_from_host_only"),
        ("GPU-6f3d0c8e-0d3c", "GPU-6F3D0C8E-0D3C", "instances[0].gpu_device_ids[0]"),
        ("bridge = \"br0\"", "bridge = \"a-bridge-that-is-long\"", "instances[0].nics[0].bridge"),
        ("serial = \"data-serial-20-chars\"", "serial = \"data-serial-21-chars-\"", "instances[0].volumes[0].serial"),
        ("serial = \"data-serial-20-chars\"", "serial = \"\"", "instances[0].volumes[0].serial"),
        ("serial = \"data-serial-20-chars\"", "serial = \"a b\"", "instances[0].volumes[0].serial"),
        ("\"192.0.2.10/24\"", "\"192.0.2.10\"", "instances[0].nics[0].addresses[0]"),
        ("\"192.0.2.10/24\"", "\"192.0.2.10/33\"", "instances[0].nics[0].addresses[0]"),
        ("gateway = \"192.0.2.1\"", "gateway = \"192.0.2.1/24\"", "instances[0].nics[0].gateway"),
        ("identity_rebind_ref = \"ref:1\"", "identity_rebind_ref = \"a b\"", "instances[0].identity_rebind_ref"),
        ("cpus = \"4-5,8\"", "cpus = \"5-4\"", "instances[0].placement.cpus"),
    ];
    for (old, new, field) in cases {
        let error = fault(old, new);
        // ipnet's list is read as a whole: its fault is the list's.
        let found = error.field.as_str();
        assert!(found == *field || field.strip_suffix("[0]") == Some(found), "{old} -> {new}: {error}");
        assert!(error.line > 1 && error.column > 1, "{error}");
    }
}

#[test]
fn a_mac_that_no_guest_may_have_is_refused() {
    for mac in ["01:00:5e:00:00:01", "00:00:00:00:00:00", "fe:54:00:00:00:01", "52-54-00-00-00-01", "52:54:00:00:01"] {
        let error = fault("52:54:00:AB:cd:01", mac);
        assert_eq!(error.field, "instances[0].nics[0].mac", "{error}");
        assert_eq!((error.line, error.column), (line_of("mac ="), 7), "{error}");
        assert!(error.message.contains(mac), "{error}");
    }
}

#[test]
fn only_plain_https_urls_are_taken() {
    for url in [
        "https://images.example.net/debian.qcow2",
        "https://images.example.net:8443/a/b?c=d&e=f",
        "https://[2001:db8::1]:8443/x",
        "https://192.0.2.1/x",
        "HTTPS://images.example.net/x",
    ] {
        assert_eq!(HttpsUrl::parse(url).expect(url).as_str(), url);
    }
    for url in [
        "http://images.example.net/x",
        "file:///etc/shadow",
        "ftp://a.example/x",
        "//images.example.net/x",
        "images.example.net/x",
        "https://user@images.example.net/x",
        "https://user:secret@images.example.net/x",
        "https://images.example.net/x#part",
        "https:///x",
        "https://",
        "https://images.example.net:99999/x",
        "https://images.example.net:/x",
        "https://images.example.net/a b",
        "https://images.example.net/\n",
        " https://images.example.net/x",
        "https:\\\\images.example.net\\x",
        "",
    ] {
        assert!(HttpsUrl::parse(url).is_err(), "{url:?}");
    }
    let long = format!("https://images.example.net/{}", "x".repeat(2048));
    assert!(HttpsUrl::parse(&long).is_err());
}

#[test]
fn a_cpu_list_is_the_kernels_and_bounded() {
    for (text, members) in [("0", vec![0]), ("3,1", vec![3, 1]), ("8-10,0-1", vec![8, 9, 10, 0, 1])] {
        assert_eq!(CpuList::parse(text).expect(text).members(), members);
    }
    assert_eq!(CpuList::parse("0-4095").expect("the widest").members().len(), 4096);
    for text in
        ["", ",", "1,", "a", "1-", "-1", "0-4096", "0-4095,5000", "3-1", "1,1", "0-3,2", "1 ,2", "1048576", "0x1", "+1"]
    {
        assert!(CpuList::parse(text).is_err(), "{text:?}");
    }
}

mod advised;

mod together;

mod handbook;

mod published;

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        drop(parse("a.toml", &text));
        drop(parse("a.json", &text));
    }

    #[test]
    fn no_cut_or_changed_byte_of_a_document_makes_it_panic(at in 0usize..FULL.len(), byte in 0x20u8..0x7f, cut: bool) {
        let mut text = FULL.to_owned();
        if cut {
            text.truncate(at);
        } else {
            text.replace_range(at..=at, &char::from(byte).to_string());
        }
        if let Err(error) = parse("a.toml", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}");
        }
        let json = pretty(&full_json());
        let at = at.min(json.len() - 1);
        let mut text = json.clone();
        if cut { text.truncate(at) } else { text.replace_range(at..=at, &char::from(byte).to_string()) }
        if let Err(error) = parse("a.json", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}");
        }
    }

    #[test]
    fn a_list_of_cpus_reads_back(members in proptest::collection::hash_set(0u32..100_000, 1..40)) {
        let text = members.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let list = CpuList::parse(&text).expect("a list");
        prop_assert_eq!(list.members().iter().copied().collect::<std::collections::HashSet<_>>(), members);
    }
}
