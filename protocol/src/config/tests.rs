//! Tests of the configuration: documented defaults, every bound, and errors that lead a person to the line.
use super::*;
use proptest::prelude::*;
use std::path::Component;

fn error(text: &str) -> String {
    Config::parse(text).expect_err(text).to_string()
}

fn path(text: &str) -> HostPath {
    HostPath::try_from(text.to_owned()).unwrap()
}

#[test]
fn an_empty_file_has_the_documented_default_of_every_key() {
    let Config { data_dir, node, helper, libvirt } = Config::parse("").unwrap();
    assert_eq!(data_dir.as_path(), Path::new("/var/lib/bcd"));

    let NodeConfig { spec, api, secrets, images } = node;
    assert_eq!(spec, None);
    assert_eq!(api.as_path(), Path::new("/run/bcd/node/node.sock"));
    assert_eq!(secrets.as_path(), Path::new("/etc/bcd/secrets"));
    let ImagesConfig { allowed_hosts, ca_file, max_bytes, max_downloads } = images;
    assert!(allowed_hosts.is_empty());
    assert_eq!(ca_file, None);
    assert_eq!(max_bytes, 68_719_476_736);
    assert_eq!(max_downloads, 2);

    let HelperConfig {
        node_user,
        socket,
        state_dir,
        instance_bridges,
        max_instances,
        max_vcpus,
        max_memory_bytes,
        max_disk_bytes,
        require_sandbox,
    } = helper;
    assert_eq!(node_user.as_str(), "bcd");
    assert_eq!(socket.as_path(), Path::new("/run/bcd/helper.sock"));
    assert_eq!(state_dir.as_path(), Path::new("/var/lib/bcd-helper"));
    assert!(instance_bridges.is_empty(), "no bridge is listed, so no instance gets a NIC");
    assert_eq!(max_instances, 1024);
    assert_eq!(max_vcpus, 64);
    assert_eq!(max_memory_bytes.get(), 274_877_906_944);
    assert_eq!(max_disk_bytes.get(), 4_398_046_511_104);
    assert!(!require_sandbox);

    let LibvirtConfig { uri, accel } = libvirt;
    assert_eq!(uri.as_str(), "qemu:///system");
    assert_eq!(accel, Accel::Auto);
    assert_eq!(DEFAULT_PATH, "/etc/bcd/bcd.toml");
}

#[test]
fn every_key_is_read_and_lands_in_its_own_field() {
    let config = Config::parse(
        r#"
data_dir = "/srv/bcd"

[node]
spec = "/etc/bcd/node.toml"
api = "/run/other/node.sock"
secrets = "/etc/other/secrets"

[node.images]
allowed_hosts = ["images.example.org", "cache.example.org:8443", "[2001:db8::1]:443", "192.0.2.1"]
ca_file = "/etc/bcd/ca.pem"
max_bytes = 1073741824
max_downloads = 5

[helper]
node_user = "vm_node-1"
socket = "/run/other/helper.sock"
state_dir = "/srv/bcd-helper"
instance_bridges = ["br0", "br-tenant"]
max_instances = 7
max_vcpus = 3
max_memory_bytes = 2147483648
max_disk_bytes = 10737418240
require_sandbox = true

[libvirt]
uri = "qemu:///system?socket=/run/test/libvirt-sock"
accel = "tcg"
"#,
    )
    .unwrap();
    let bridges = ["br0", "br-tenant"].map(|name| BridgeName::parse(name).unwrap());
    let hosts = ["images.example.org", "cache.example.org:8443", "[2001:db8::1]:443", "192.0.2.1"];
    let expected = Config {
        data_dir: path("/srv/bcd"),
        node: NodeConfig {
            spec: Some(path("/etc/bcd/node.toml")),
            api: path("/run/other/node.sock"),
            secrets: path("/etc/other/secrets"),
            images: ImagesConfig {
                allowed_hosts: hosts.map(str::to_owned).to_vec(),
                ca_file: Some(path("/etc/bcd/ca.pem")),
                max_bytes: 1 << 30,
                max_downloads: 5,
            },
        },
        helper: HelperConfig {
            node_user: UserName::try_from("vm_node-1".to_owned()).unwrap(),
            socket: path("/run/other/helper.sock"),
            state_dir: path("/srv/bcd-helper"),
            instance_bridges: bridges.to_vec(),
            max_instances: 7,
            max_vcpus: 3,
            max_memory_bytes: MemoryBytes::new(2 << 30).unwrap(),
            max_disk_bytes: DiskBytes::new(10 << 30).unwrap(),
            require_sandbox: true,
        },
        libvirt: LibvirtConfig {
            uri: LibvirtUri::try_from("qemu:///system?socket=/run/test/libvirt-sock".to_owned()).unwrap(),
            accel: Accel::Tcg,
        },
    };
    assert_eq!(config, expected);
}

#[test]
fn what_is_written_is_read_back() {
    let mut config = Config::default();
    config.node.spec = Some(path("/etc/bcd/node.json"));
    config.helper.instance_bridges = vec![BridgeName::parse("br0").unwrap()];
    config.libvirt.accel = Accel::Kvm;
    let json = serde_json::to_value(&config).unwrap();
    assert_eq!(json["helper"]["max_memory_bytes"], 274_877_906_944_u64);
    assert_eq!(json["libvirt"]["uri"], "qemu:///system");
    assert_eq!(json["libvirt"]["accel"], "kvm");
    assert_eq!(json["data_dir"], "/var/lib/bcd");
    assert_eq!(json["helper"]["node_user"], "bcd");
    let back: Config = serde_json::from_value(json).unwrap();
    assert_eq!(back, config);
}

#[test]
fn unknown_keys_are_refused_with_their_place_and_name() {
    for (place, key, unknown, text) in [
        ("2:1", "dta_dir", "dta_dir", "\ndta_dir = \"/var/lib/bcd\"\n"),
        ("3:3", "node.specs", "specs", "\n[node]\n  specs = \"/etc/bcd/x.toml\"\n"),
        ("3:1", "node.images.max_byte", "max_byte", "[node.images]\nmax_downloads = 2\nmax_byte = 5\n"),
        ("4:1", "helper.max_cpus", "max_cpus", "[helper]\nmax_vcpus = 4\n# a remark: größe\nmax_cpus = 4\n"),
        ("2:1", "libvirt.url", "url", "[libvirt]\nurl = \"qemu:///system\"\n"),
        ("1:28", "libvirt.url", "url", "libvirt = { accel = 'tcg', url = 'x' }\n"),
        ("2:2", "nodes", "nodes", "\n[nodes]\n"),
    ] {
        let said = error(text);
        assert!(said.starts_with(&format!("{place}: {key}: unknown field `{unknown}`, expected ")), "{text:?}: {said}");
    }
}

#[test]
fn a_value_out_of_bounds_is_refused_with_place_key_number_and_bound() {
    for (place, key, text, reason) in [
        ("2:17", "helper.max_instances", "[helper]\nmax_instances = 0", "0 is out of range: use 1 to 4096"),
        ("2:17", "helper.max_instances", "[helper]\nmax_instances = 4097", "4097 is out of range: use 1 to 4096"),
        ("2:13", "helper.max_vcpus", "[helper]\nmax_vcpus = 0", "0 is out of range: use 1 to 255"),
        ("2:13", "helper.max_vcpus", "[helper]\nmax_vcpus = 256", "256 is out of range: use 1 to 255"),
        ("2:17", "node.images.max_downloads", "[node.images]\nmax_downloads = 0", "0 is out of range: use 1 to 64"),
        ("2:17", "node.images.max_downloads", "[node.images]\nmax_downloads = 65", "65 is out of range: use 1 to 64"),
        ("2:13", "node.images.max_bytes", "[node.images]\nmax_bytes = 1048575", "use 1048576 to 70368744177664"),
        ("2:13", "node.images.max_bytes", "[node.images]\nmax_bytes = 70368744177665", "use 1048576 to 70368744177664"),
        ("2:20", "helper.max_memory_bytes", "[helper]\nmax_memory_bytes = 64", "the unit is bytes"),
        ("2:18", "helper.max_disk_bytes", "[helper]\nmax_disk_bytes = 1048577", "512-byte sectors"),
        ("2:13", "helper.max_vcpus", "[helper]\nmax_vcpus = -1", "-1 is out of range: use 1 to 255"),
        ("2:17", "helper.max_instances", "[helper]\nmax_instances = -1", "-1 is out of range: use 1 to 4096"),
        ("2:17", "helper.max_instances", "[helper]\nmax_instances = 5.0", "a whole number: use 1 to 4096"),
        ("2:17", "node.images.max_downloads", "[node.images]\nmax_downloads = -9", "-9 is out of range: use 1 to 64"),
        (
            "2:13",
            "node.images.max_bytes",
            "[node.images]\nmax_bytes = -1",
            "-1 is out of range: use 1048576 to 70368744177664, in bytes",
        ),
        (
            "2:20",
            "helper.max_memory_bytes",
            "[helper]\nmax_memory_bytes = -1",
            "-1 is out of range: use 16777216 to 17592186044416, in bytes",
        ),
        (
            "2:18",
            "helper.max_disk_bytes",
            "[helper]\nmax_disk_bytes = \"4 TiB\"",
            "a whole number: use 1048576 to 70368744177664, in bytes",
        ),
        ("2:20", "helper.instance_bridges", "[helper]\ninstance_bridges = \"br0\"", "write [\"br0\"]"),
        ("2:20", "helper.instance_bridges", "[helper]\ninstance_bridges = 5", "a list of texts, such as"),
        ("2:17", "node.images.allowed_hosts", "[node.images]\nallowed_hosts = \"a.example\"", "write [\"a.example\"]"),
        (
            "2:13",
            "helper.max_vcpus",
            "[helper]\nmax_vcpus = \"4\"",
            "string \"4\", expected a whole number: use 1 to 255",
        ),
        ("2:12", "data_dir", "\ndata_dir = \"var/lib/bcd\"", "path \"var/lib/bcd\" is not usable"),
        ("2:8", "node.spec", "[node]\nspec = \"/etc/../bcd\"", "without '..'"),
        ("2:13", "helper.node_user", "[helper]\nnode_user = \"root\"", "the node must be an unprivileged user"),
        ("2:13", "helper.node_user", "[helper]\nnode_user = \"Bcd\"", "user \"Bcd\" is not a user name"),
        (
            "3:14",
            "helper.instance_bridges",
            "[helper]\ninstance_bridges = [\n \"br0\",      \"br 0\"]",
            "bridge \"br 0\"",
        ),
        ("2:17", "node.images.allowed_hosts", "[node.images]\nallowed_hosts = [\"https://a\"]", "host \"https://a\""),
        ("2:7", "libvirt.uri", "[libvirt]\nuri = \"qemu:///session\"", "libvirt uri \"qemu:///session\" is not usable"),
        ("2:9", "libvirt.accel", "[libvirt]\naccel = \"KVM\"", "unknown variant `KVM`"),
        ("1:10", "helper", "helper = 3", "invalid type: integer `3`"),
    ] {
        let said = error(text);
        assert!(said.starts_with(&format!("{place}: {key}: ")), "{text:?}: {said}");
        assert!(said.contains(reason) && !said.contains('\n'), "{text:?}: {said}");
    }
}

#[test]
fn a_fault_of_syntax_has_a_place_and_no_key() {
    for (place, text) in [
        ("2:9", "[libvirt]\naccel = tcg"),
        ("1:6", "[node\n"),
        ("2:1", "data_dir = \"/a\"\ndata_dir = \"/b\"\n"),
        ("1:15", "data_dir = \"/a\n"),
    ] {
        let fault = Config::parse(text).expect_err(text);
        assert_eq!(fault.key, "", "{fault}");
        assert!(!fault.message.is_empty() && !fault.message.contains('\n'), "{fault}");
        let said = fault.to_string();
        assert_eq!(said, format!("{place}: {}", fault.message), "{text:?}");
    }
}

#[test]
fn the_bounds_themselves_are_accepted() {
    for text in [
        "[helper]\nmax_instances = 1\nmax_vcpus = 1",
        "[helper]\nmax_instances = 4096\nmax_vcpus = 255",
        "[node.images]\nmax_downloads = 1\nmax_bytes = 1048576",
        "[node.images]\nmax_downloads = 64\nmax_bytes = 70368744177664",
        "[helper]\nmax_memory_bytes = 16777216\nmax_disk_bytes = 1048576",
    ] {
        Config::parse(text).expect(text);
    }
}

#[test]
fn state_and_data_must_not_lie_within_each_other() {
    for (start, text) in [
        ("4:13: helper.state_dir: ", "data_dir = \"/srv/bcd\"\n\n[helper]\nstate_dir = \"/srv/bcd/state\"\n"),
        ("4:13: helper.state_dir: ", "data_dir = \"/srv/bcd/data\"\n\n[helper]\nstate_dir = \"/srv/bcd\"\n"),
        ("3:13: helper.state_dir: ", "data_dir = \"/srv/bcd\"\n[helper]\nstate_dir = \"/srv/bcd\"\n"),
        ("2:12: data_dir: ", "# only one is given\ndata_dir = \"/var/lib/bcd-helper/data\"\n"),
        ("1:12: data_dir: ", "data_dir = \"/var/lib\"\n[helper]\nmax_vcpus = 3\n"),
        ("3:13: helper.state_dir: ", "\n[helper]\nstate_dir = \"/var/lib/bcd/state\"\n"),
        ("1:25: helper.state_dir: ", "helper = { state_dir =  \"/var/lib/bcd/state\" }\n"),
    ] {
        let said = error(text);
        assert!(said.starts_with(&format!("{start}helper.state_dir /")), "{text:?}: {said}");
        assert!(said.contains("and data_dir /") && said.contains("lie within each other"), "{text:?}: {said}");
    }
    Config::parse("data_dir = \"/srv/bcd\"\n[helper]\nstate_dir = \"/srv/bcd-state\"\n")
        .expect("a common beginning of the name is not a common directory");
}

#[test]
fn a_path_is_absolute_plain_and_short() {
    let longest = format!("/{}", "a".repeat(199));
    for good in ["/a", "/a/b", "/var/lib/bcd", "/A9._-+@/z", "/a/..b/b..", "/a/.hidden", &longest] {
        let parsed = path(good);
        assert_eq!(parsed.to_string(), good);
        assert_eq!(parsed.as_path(), Path::new(good));
        assert_eq!(String::from(parsed), good);
    }
    let longer = format!("/{}", "a".repeat(200));
    for bad in [
        "", "/", "//", "a", "./a", "~/a", "/a/", "//a", "/a//b", "/.", "/..", "/a/.", "/a/./b", "/a/..", "/a/../b",
        "/a b", "/a\0", "/a\n", "/a'", "/a\"", "/a<", "/a&", "/a$b", "/a%b", "/a:b", "/a,b", "/a;b", "/a\\b", "/é",
        &longer,
    ] {
        let said = HostPath::try_from(bad.to_owned()).expect_err(bad).to_string();
        assert!(said.contains(&format!("{bad:?}")), "{said}");
    }
}

#[test]
fn a_path_contains_itself_and_what_lies_beneath_it() {
    assert!(path("/a").contains(&path("/a")));
    assert!(path("/a").contains(&path("/a/b/c")));
    assert!(!path("/a/b").contains(&path("/a")));
    assert!(!path("/a").contains(&path("/ab")));
}

#[test]
fn a_user_name_is_what_useradd_takes_and_never_root() {
    let longest = "a".repeat(32);
    for good in ["bcd", "_bcd", "b-1_2", "z", &longest] {
        let name = UserName::try_from(good.to_owned()).expect(good);
        assert_eq!(name.as_str(), good);
        assert_eq!(String::from(name), good);
    }
    let longer = "a".repeat(33);
    for bad in ["", "1a", "-a", "a b", "a:b", "A", "a.b", "ä", "a\n", "root", &longer] {
        UserName::try_from(bad.to_owned()).expect_err(bad);
    }
}

#[test]
fn a_libvirt_uri_is_the_local_system_daemon_of_qemu() {
    for good in ["qemu:///system", "qemu:///system?socket=/run/libvirt/libvirt-sock"] {
        let uri = LibvirtUri::try_from(good.to_owned()).expect(good);
        assert_eq!(uri.as_str(), good);
        assert_eq!(String::from(uri), good);
    }
    for bad in [
        "",
        "qemu:///session",
        "qemu+ssh://host/system",
        "qemu:///system/",
        "qemu:///system?socket=",
        "qemu:///system?socket=relative",
        "qemu:///system?socket=/a&command=/bin/sh",
        "qemu:///system?command=/bin/sh",
        "QEMU:///system",
        "test:///default",
    ] {
        LibvirtUri::try_from(bad.to_owned()).expect_err(bad);
    }
}

#[test]
fn an_allowed_host_has_no_scheme_path_user_or_capitals() {
    let longest = "a".repeat(255);
    for good in ["a", "a.example", "a-b_c.example:443", "[::1]:443", &longest] {
        let config = Config::parse(&format!("[node.images]\nallowed_hosts = [\"{good}\"]")).expect(good);
        assert_eq!(config.node.images.allowed_hosts, [good]);
    }
    let longer = "a".repeat(256);
    for bad in ["", "A", "a/b", "u@a", "a b", "*", "a?", &longer] {
        let said = error(&format!("[node.images]\nallowed_hosts = [\"ok\", \"{bad}\"]"));
        assert!(said.contains(&format!("host {bad:?} is not usable")), "{said}");
    }
}

proptest! {
    /// No text makes the parser panic, and whatever it accepts keeps the rules that span keys.
    #[test]
    fn arbitrary_text_never_panics(text in "(\\PC|\n){0,200}") {
        let _ = Config::parse(&text);
    }

    #[test]
    fn an_accepted_path_needs_no_escaping_anywhere(text in "/[ -~]{1,40}") {
        if let Ok(path) = HostPath::try_from(text) {
            let shown = path.to_string();
            prop_assert!(!shown.contains(['"', '\'', '<', '>', '&', '$', '%', ' ', '\\', ',', ':', ';']));
            let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
            prop_assert!(Path::new(&shown).components().all(plain), "{}", shown);
        }
    }
}
