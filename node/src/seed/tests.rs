//! Tests of seeds: both tools, every file name, network-config by MAC.
use super::*;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

struct Host {
    _directory: TempDir,
    layout: Layout,
}

fn instance() -> InstanceId {
    InstanceId::parse("web-1").unwrap()
}

fn host() -> Host {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(directory.path());
    fs::create_dir(layout.instances()).unwrap();
    crate::disk::make_directory(&layout, &instance()).unwrap();
    Host { _directory: directory, layout }
}

impl Host {
    fn entries(&self) -> Vec<String> {
        let names = fs::read_dir(self.layout.instance(&instance())).unwrap();
        names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn seed(&self) -> String {
        self.layout.seed(&instance()).to_str().unwrap().to_owned()
    }

    /// A file of the seed, read by the names of `extension` (`-R` Rock Ridge, `-J` Joliet).
    fn read(&self, extension: &str, name: &str) -> Vec<u8> {
        output("isoinfo", &[extension, "-x", &format!("/{name}"), "-i", &self.seed()])
    }
}

fn output(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn nic(mac: &str, addresses: &[&str], gateway: Option<&str>, nameservers: &[&str]) -> SeedNic {
    SeedNic {
        mac: MacAddress::parse(mac).unwrap(),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        gateway: gateway.map(|g| g.parse().unwrap()),
        nameservers: nameservers.iter().map(|n| n.parse().unwrap()).collect(),
    }
}

fn input(nics: Vec<SeedNic>, user_data: Option<&str>) -> SeedInput {
    SeedInput {
        instance: instance(),
        hostname: Hostname::parse("web-1.example").unwrap(),
        nics,
        user_data: user_data.map(|text| Secret::from(Vec::from(text))),
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

const SECRET: &str = "#cloud-config\npassword: hunter2-äöü\n";

#[test]
fn both_tools_make_a_seed_with_every_name_in_rock_ridge_and_joliet() {
    for tool in [Tool::Genisoimage, Tool::Xorriso] {
        let host = host();
        let nics = vec![nic("52:54:00:AB:CD:EF", &["10.0.0.5/24"], Some("10.0.0.1"), &["10.0.0.2"])];
        run(write_with(tool, &host.layout, &input(nics, Some(SECRET)))).unwrap();
        let label = String::from_utf8(output("isoinfo", &["-d", "-i", &host.seed()])).unwrap();
        assert!(label.lines().any(|line| line == "Volume id: cidata"), "{tool:?}: {label}");
        for extension in ["-R", "-J"] {
            let listed = String::from_utf8(output("isoinfo", &["-f", extension, "-i", &host.seed()])).unwrap();
            let mut names: Vec<_> = listed.lines().collect();
            names.sort_unstable();
            assert_eq!(names, ["/meta-data", "/network-config", "/user-data"], "{tool:?} {extension}");
            assert_eq!(host.read(extension, "user-data"), SECRET.as_bytes(), "{tool:?} {extension}");
            let meta: Value = serde_json::from_slice(&host.read(extension, "meta-data")).unwrap();
            assert_eq!(meta, json!({ "instance-id": "web-1", "local-hostname": "web-1.example" }));
            let network: Value = serde_json::from_slice(&host.read(extension, "network-config")).unwrap();
            assert_eq!(network["ethernets"]["nic0"]["match"]["macaddress"], "52:54:00:ab:cd:ef");
        }
        assert_eq!(host.entries(), ["seed.iso"], "{tool:?}");
        let mode = fs::metadata(host.seed()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}

#[test]
fn a_guest_without_user_data_still_gets_both_files_and_keeps_dhcp() {
    let host = host();
    run(write(&host.layout, &input(vec![nic("52:54:00:ab:cd:ef", &[], None, &[])], None))).unwrap();
    assert_eq!(host.read("-R", "user-data"), b"#cloud-config\n{}\n");
    let listed = String::from_utf8(output("isoinfo", &["-f", "-R", "-i", &host.seed()])).unwrap();
    assert!(!listed.contains("network-config") && listed.contains("/meta-data"), "{listed}");
}

#[test]
fn a_second_seed_replaces_the_first() {
    let host = host();
    run(write(&host.layout, &input(Vec::new(), Some("#cloud-config\nfirst: 1\n")))).unwrap();
    run(write(&host.layout, &input(Vec::new(), Some(SECRET)))).unwrap();
    assert_eq!(host.read("-J", "user-data"), SECRET.as_bytes());
    assert_eq!(host.entries(), ["seed.iso"]);
}

#[test]
fn what_is_structured_reads_the_same_as_yaml() {
    // Host names that YAML 1.1 reads as something else unless they are quoted.
    for name in ["on", "null", "0x1f", "1e3", "no.yes", "12-30a"] {
        let mut input = input(Vec::new(), None);
        input.hostname = Hostname::parse(name).unwrap();
        let files = files(&input);
        let meta = std::str::from_utf8(&files[1].1).unwrap();
        assert!(meta.contains(&format!("\"local-hostname\": \"{name}\"")), "{meta}");
    }
}

fn network(nics: &[SeedNic]) -> Value {
    network::config(nics).unwrap()["ethernets"].clone()
}

#[test]
fn a_static_nic_has_no_dhcp_and_one_without_addresses_keeps_it() {
    let nics = [
        nic("52:54:00:00:00:01", &["10.1.0.5/16", "fd00::5/64"], Some("10.1.255.254"), &["1.1.1.1", "2606:4700::1111"]),
        nic("52:54:00:00:00:02", &[], None, &[]),
    ];
    assert_eq!(network::config(&nics).unwrap()["version"], 2);
    assert_eq!(
        network(&nics),
        json!({
            "nic0": {
                "match": { "macaddress": "52:54:00:00:00:01" },
                "dhcp4": false,
                "addresses": ["10.1.0.5/16", "fd00::5/64"],
                "routes": [{ "to": "0.0.0.0/0", "via": "10.1.255.254" }],
                "nameservers": { "addresses": ["1.1.1.1", "2606:4700::1111"] },
            },
            "nic1": { "match": { "macaddress": "52:54:00:00:00:02" }, "dhcp4": true },
        })
    );
}

#[test]
fn the_route_is_on_link_exactly_when_the_gateway_lies_in_no_prefix() {
    let cases = [
        (&["10.0.0.5/24"][..], "10.0.0.1", false),
        (&["10.0.0.5/24"], "10.0.1.1", true),
        (&["10.0.0.5/32"], "10.0.0.1", true),
        (&["10.0.0.5/24", "192.168.7.2/30"], "192.168.7.1", false),
        (&["fd00::5/64"], "fd00::1", false),
        (&["fd00::5/64"], "fe80::1", true),
        (&["fd00::5/128"], "fd00::1", true),
        (&["fd00::5/64", "fe80::5/64"], "fe80::1", false),
        // A prefix of the other family contains nothing of this one.
        (&["0.0.0.0/0"], "fd00::1", true),
    ];
    for (addresses, gateway, on_link) in cases {
        let route = network(&[nic("52:54:00:00:00:01", addresses, Some(gateway), &[])])["nic0"]["routes"][0].clone();
        let everything = if gateway.contains(':') { "::/0" } else { "0.0.0.0/0" };
        let expected = if on_link {
            json!({ "to": everything, "via": gateway, "on-link": true })
        } else {
            json!({ "to": everything, "via": gateway })
        };
        assert_eq!(route, expected, "{addresses:?} {gateway}");
    }
}

#[test]
fn name_servers_alone_leave_dhcp_on() {
    let nics = [nic("52:54:00:00:00:01", &[], None, &["9.9.9.9"])];
    assert_eq!(network(&nics)["nic0"]["dhcp4"], true);
    assert_eq!(network(&nics)["nic0"]["nameservers"]["addresses"][0], "9.9.9.9");
}

#[test]
fn user_data_is_never_shown() {
    let shown = format!("{:?}", input(Vec::new(), Some(SECRET)));
    assert!(!shown.contains("hunter2") && shown.contains("Secret(39 bytes)"), "{shown}");
}

#[test]
fn the_scratch_directory_is_private_and_goes_with_its_content() {
    let host = host();
    let directory = host.layout.instance(&instance());
    let scratch = Scratch::fill(&directory, files(&input(Vec::new(), Some(SECRET)))).unwrap();
    let (path, names) = (scratch.directory.path().to_owned(), scratch.names.clone());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    for name in names {
        assert_eq!(fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o7777, 0o600, "{name}");
    }
    // Another name for the secret's blocks shows that they were overwritten, not only unlinked.
    let witness = directory.join("witness");
    fs::hard_link(path.join("user-data"), &witness).unwrap();
    drop(scratch);
    assert!(!path.exists());
    assert_eq!(fs::read(&witness).unwrap(), vec![0; SECRET.len()]);
}

#[test]
fn a_tool_that_makes_no_seed_leaves_the_earlier_one_and_nothing_else() {
    let host = host();
    run(write(&host.layout, &input(Vec::new(), Some(SECRET)))).unwrap();
    let before = fs::read(host.seed()).unwrap();
    let directory = host.layout.instance(&instance());
    for content in [&b""[..], &[0; 64 << 10]] {
        let scratch = Scratch::fill(&directory, files(&input(Vec::new(), None))).unwrap();
        fs::write(scratch.directory.path().join(ISO), content).unwrap();
        assert!(scratch.publish(Path::new(&host.seed())).is_err());
    }
    assert_eq!(fs::read(host.seed()).unwrap(), before);
    assert_eq!(host.entries(), ["seed.iso"]);
}

#[test]
fn a_missing_instance_directory_is_a_fault_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(directory.path());
    assert_eq!(run(write(&layout, &input(Vec::new(), None))).unwrap_err().kind(), FaultKind::Internal);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

fn shell(script: &str, deadline: Duration) -> Result<(), Fault> {
    run(tool::run("sh", tokio::process::Command::new("/bin/sh").args(["-c", script]), deadline))
}

#[test]
fn a_tool_that_hangs_is_ended_at_its_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let begun = Instant::now();
    let script = format!("echo $$ > {}; exec sleep 60", pid.display());
    let fault = shell(&script, Duration::from_millis(300)).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let gone = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    let waited = Instant::now();
    while !gone() {
        assert!(waited.elapsed() < Duration::from_secs(10), "process {pid} lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_tool_that_fails_is_quoted_in_bounds_and_gets_no_environment() {
    let fault = shell("echo \"disk $HOME is bad\" >&2; exit 3", Duration::from_secs(10)).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Internal);
    assert!(fault.to_string().contains("disk  is bad"), "{fault}");
    let long = "i=0; while [ $i -lt 20000 ]; do echo aaaaaaaaaaaaaaaa >&2; i=$((i+1)); done; exit 1";
    assert!(shell(long, Duration::from_secs(20)).unwrap_err().to_string().len() < 1024);
    let full = shell("echo 'write: No space left on device' >&2; exit 1", Duration::from_secs(10)).unwrap_err();
    assert_eq!(full.kind(), FaultKind::ResourcesExhausted);
}

#[test]
fn many_new_instances_at_once_run_a_few_tools_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let script = format!("echo + >>{0}; sleep 0.1; echo - >>{0}", log.display());
    let all = async {
        let mut tools = tokio::task::JoinSet::new();
        for _ in 0..3 * tool::AT_ONCE {
            let script = script.clone();
            tools.spawn(async move {
                let mut command = tokio::process::Command::new("/bin/sh");
                tool::run("sh", command.args(["-c", &script]), Duration::from_secs(20)).await
            });
        }
        while let Some(ended) = tools.join_next().await {
            ended.unwrap().unwrap();
        }
    };
    run(all);
    let text = fs::read_to_string(log).unwrap();
    let (mut now, mut most) = (0_usize, 0);
    for line in text.lines() {
        now = if line == "+" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    assert_eq!(text.lines().count(), 6 * tool::AT_ONCE);
    assert!((2..=tool::AT_ONCE).contains(&most), "{most} at once");
}
