//! Values that contradict each other.
use super::*;

/// A document of these instances, with two volumes declared.
fn document(instances: Value) -> Value {
    json!({
        "volumes": [{"id": "a", "size_bytes": 1 << 30}, {"id": "b", "size_bytes": 1 << 30}],
        "instances": instances,
    })
}

fn instance(id: &str, more: Value) -> Value {
    let mut instance = json!({
        "id": id, "allocation": "x", "runtime": "libvirt-kvm", "hostname": "h", "vcpus": 2,
        "memory_bytes": 1 << 30, "disk_bytes": 1 << 30,
        "image": {"url": "https://a.example/x", "sha256": "0".repeat(64), "format": "raw"},
    });
    for (key, value) in more.as_object().expect("fields") {
        instance[key] = value.clone();
    }
    instance
}

fn nic(mac: &str, more: Value) -> Value {
    let mut nic = json!({"bridge": "br0", "mac": mac});
    for (key, value) in more.as_object().expect("fields") {
        nic[key] = value.clone();
    }
    nic
}

/// The fault of a document, the same in JSON and TOML, its place checked against both texts.
fn fault_of(document: &Value) -> SpecError {
    let text = pretty(document);
    let json = parse("d.json", &text).expect_err("a fault");
    let toml_text = toml::to_string_pretty(document).expect("toml");
    let toml = parse("d.toml", &toml_text).expect_err("a fault");
    assert_eq!((&json.field, &json.message), (&toml.field, &toml.message));
    let pointer = format!("/{}", json.field.replace('[', "/").replace(']', "").replace('.', "/"));
    let value = document.pointer(&pointer).unwrap_or_else(|| panic!("{json} names no value"));
    let shown = serde_json::to_string(value).expect("json");
    for (text, error) in [(&text, &json), (&toml_text, &toml)] {
        let line = text.lines().nth(error.line - 1).expect("the line is there");
        let rest: String = line.chars().skip(error.column - 1).collect();
        assert!(rest.starts_with(&shown), "{error}: {rest:?} is not {shown:?}");
    }
    json
}

#[test]
fn two_things_of_one_id_refuse_the_document() {
    let error =
        fault_of(&document(json!([instance("a", json!({})), instance("b", json!({})), instance("a", json!({}))])));
    assert_eq!(error.field, "instances[2].id");
    assert!(error.message.contains("instances[0]"), "{error}");
    let hold = json!({"id": "h", "memory_bytes": 1 << 30});
    assert_eq!(fault_of(&json!({"holds": [hold, hold]})).field, "holds[1].id");
    let volume = json!({"id": "v", "size_bytes": 1 << 30});
    assert_eq!(fault_of(&json!({"volumes": [volume, volume]})).field, "volumes[1].id");
}

#[test]
fn one_mac_twice_on_a_bridge_is_refused_naming_the_other_instance() {
    let with = |id: &str, mac: &str, bridge: &str| instance(id, json!({"nics": [{"bridge": bridge, "mac": mac}]}));
    let mac = "52:54:00:00:00:0a";
    let error = fault_of(&document(json!([with("one", mac, "br0"), with("two", "52:54:00:00:00:0A", "br0")])));
    assert_eq!(error.field, "instances[1].nics[0].mac");
    assert!(error.message.contains("instance one") && error.message.contains("br0"), "{error}");
    let apart = document(json!([with("one", mac, "br0"), with("two", mac, "br1")]));
    assert!(parse("d.json", &pretty(&apart)).is_ok(), "another bridge is another network");
    let same = instance("one", json!({"nics": [nic(mac, json!({})), nic(mac, json!({}))]}));
    assert_eq!(fault_of(&document(json!([same]))).field, "instances[0].nics[1].mac");
}

#[test]
fn one_address_twice_on_a_bridge_is_refused() {
    let with =
        |id: &str, mac: &str, address: &str| instance(id, json!({"nics": [nic(mac, json!({"addresses": [address]}))]}));
    let twice = document(json!([
        with("one", "52:54:00:00:00:01", "192.0.2.10/24"),
        with("two", "52:54:00:00:00:02", "192.0.2.10/25"),
    ]));
    let error = fault_of(&twice);
    assert_eq!(error.field, "instances[1].nics[0].addresses[0]");
    assert!(error.message.contains("instance one"), "{error}");
    let once = instance(
        "one",
        json!({"nics": [nic("52:54:00:00:00:01", json!({"addresses": ["10.0.0.1/8", "10.0.0.1/8"]}))]}),
    );
    assert_eq!(fault_of(&document(json!([once]))).field, "instances[0].nics[0].addresses[1]");
}

#[test]
fn an_address_that_is_no_guests_own_is_refused() {
    for address in [
        "192.0.2.0/24",
        "192.0.2.255/24",
        "0.0.0.0/0",
        "224.0.0.1/24",
        "127.0.0.1/8",
        "::/64",
        "ff02::1/64",
        "::1/128",
        "255.255.255.255/32",
    ] {
        let nic = nic("52:54:00:00:00:01", json!({"addresses": [address]}));
        let error = fault_of(&document(json!([instance("a", json!({"nics": [nic]}))])));
        assert_eq!(error.field, "instances[0].nics[0].addresses[0]", "{error}");
    }
    for address in ["192.0.2.0/31", "192.0.2.0/32", "10.0.0.0/32", "192.0.2.1/24", "2001:db8::/127", "fe80::5/64"] {
        let nic = nic("52:54:00:00:00:01", json!({"addresses": [address]}));
        let text = pretty(&document(json!([instance("a", json!({"nics": [nic]}))])));
        assert!(parse("d.json", &text).is_ok(), "{address}");
    }
}

#[test]
fn a_gateway_that_cannot_be_reached_is_refused_and_one_on_link_is_not() {
    let with = |addresses: Value, gateway: &str| {
        let nic = nic("52:54:00:00:00:01", json!({"addresses": addresses, "gateway": gateway}));
        document(json!([instance("a", json!({"nics": [nic]}))]))
    };
    for (addresses, gateway) in [
        (json!(["2001:db8::5/64"]), "192.0.2.1"),
        (json!(["192.0.2.5/24"]), "192.0.2.5"),
        (json!(["192.0.2.5/24"]), "0.0.0.0"),
        (json!([]), "224.0.0.1"),
    ] {
        assert_eq!(fault_of(&with(addresses, gateway)).field, "instances[0].nics[0].gateway");
    }
    for (addresses, gateway) in
        [(json!(["192.0.2.5/32"]), "198.51.100.1"), (json!(["192.0.2.5/24"]), "fe80::1"), (json!([]), "192.0.2.1")]
    {
        assert!(parse("d.json", &pretty(&with(addresses, gateway))).is_ok(), "{gateway}");
    }
}

#[test]
fn a_volume_must_be_declared_and_attached_once_with_its_own_serial() {
    let with = |volumes: Value| document(json!([instance("one", json!({"volumes": volumes}))]));
    let error = fault_of(&with(json!([{"id": "c", "serial": "s"}])));
    assert_eq!(error.field, "instances[0].volumes[0].id");
    let error = fault_of(&with(json!([{"id": "a", "serial": "s"}, {"id": "b", "serial": "s"}])));
    assert_eq!(error.field, "instances[0].volumes[1].serial");
    let error = fault_of(&with(json!([{"id": "a", "serial": "s"}, {"id": "a", "serial": "t", "read_only": true}])));
    assert_eq!(error.field, "instances[0].volumes[1].id");
}

#[test]
fn two_writers_of_one_volume_are_refused_naming_the_other_also_across_runtimes() {
    let with = |id: &str, runtime: &str, state: &str, read_only: bool| {
        let volumes = json!([{"id": "a", "serial": "s", "read_only": read_only}]);
        instance(id, json!({"runtime": runtime, "volumes": volumes, "desired_state": state}))
    };
    let two = document(json!([
        with("one", "libvirt-kvm", "running", false),
        with("two", "cloud-hypervisor", "paused", false),
    ]));
    let error = fault_of(&two);
    assert_eq!(error.field, "instances[1].volumes[0].id");
    assert!(error.message.contains("instance one"), "{error}");
    for (state, read_only) in [("stopped", false), ("running", true)] {
        let fine = document(json!([
            with("one", "libvirt-kvm", "running", false),
            with("two", "cloud-hypervisor", state, read_only),
        ]));
        assert!(parse("d.json", &pretty(&fine)).is_ok(), "{state} {read_only}");
    }
}

#[test]
fn a_gpu_belongs_to_one_instance_that_runs() {
    let gpu = "GPU-6f3d0c8e-0d3c-4b7e-9d5e-2f1f0a6f8a11";
    let with =
        |id: &str, gpus: Value, state: &str| instance(id, json!({"gpu_device_ids": gpus, "desired_state": state}));
    assert_eq!(
        fault_of(&document(json!([with("one", json!([gpu, gpu]), "stopped")]))).field,
        "instances[0].gpu_device_ids[1]"
    );
    let both = |state: &str| document(json!([with("one", json!([gpu]), "running"), with("two", json!([gpu]), state)]));
    let error = fault_of(&both("running"));
    assert!(error.message.contains("instance one"), "{error}");
    assert!(parse("d.json", &pretty(&both("stopped"))).is_ok());
}

#[test]
fn placement_has_a_cpu_for_each_vcpu_and_memory_in_whole_pages() {
    let with = |placement: Value| document(json!([instance("one", json!({"placement": placement}))]));
    let error = fault_of(&with(json!({"cpus": "3"})));
    assert_eq!(error.field, "instances[0].placement.cpus");
    assert!(error.message.contains('1') && error.message.contains('2'), "{error}");
    assert!(parse("d.json", &pretty(&with(json!({"cpus": "3,5", "hugepage_size_bytes": 1 << 30})))).is_ok());
    let mut odd = with(json!({"hugepage_size_bytes": 1 << 30}));
    odd["instances"][0]["memory_bytes"] = json!((1u64 << 30) + (1 << 20));
    let error = fault_of(&odd);
    assert_eq!(error.field, "instances[0].placement.hugepage_size_bytes");
    assert!(error.message.contains("1074790400") && error.message.contains("1073741824"), "{error}");
}
