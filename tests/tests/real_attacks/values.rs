//! Values beyond the configuration, and changes that a record forbids.
use super::*;

pub(crate) fn about_values() -> Vec<Attack> {
    let with = |change: fn(&mut Definition)| {
        move |w: &World| {
            let mut definition = w.definition();
            change(&mut definition);
            files::instance(&w.place, "value", &w.base);
            w.ask(&w.define("value", definition))
        }
    };
    let on_live = |change: fn(&mut Definition)| {
        move |w: &World| {
            let mut definition = files::definition(&w.base, Vec::new());
            change(&mut definition);
            w.ask(&w.define("live", definition))
        }
    };
    vec![
        attack(
            "a bridge that the administrator did not list",
            rule("bridge-not-listed"),
            with(|d| {
                d.nics = Nics::try_from(vec![nic("eth0", OTHER_MAC)]).expect("nics");
            }),
        ),
        attack(
            "the second NIC's bridge is not listed",
            rule("bridge-not-listed"),
            with(|d| {
                d.nics = Nics::try_from(vec![nic(BRIDGE, OTHER_MAC), nic("virbr0", OTHER_MAC)]).expect("nics");
            }),
        ),
        attack(
            "one mac twice on one bridge",
            rule("mac-twice"),
            with(|d| {
                d.nics = Nics::try_from(vec![nic(BRIDGE, OTHER_MAC), nic(BRIDGE, OTHER_MAC)]).expect("nics");
            }),
        ),
        attack(
            "another instance's mac",
            rule("mac-taken"),
            with(|d| {
                d.nics = Nics::try_from(vec![nic(BRIDGE, MAC)]).expect("nics");
            }),
        ),
        attack("more vcpus than allowed", rule("max-vcpus"), with(|d| d.vcpus = Vcpus::new(5).expect("vcpus"))),
        attack(
            "more memory than allowed",
            rule("max-memory"),
            with(|d| {
                d.memory = MemoryBytes::new((256 << 20) + (1 << 20)).expect("memory");
            }),
        ),
        attack(
            "a larger disk than allowed",
            rule("max-disk"),
            with(|d| d.disk = DiskBytes::new((1 << 30) + 512).expect("disk")),
        ),
        attack("a disk that shrinks", rule("disk-shrinks"), |w| {
            let mut definition = w.definition();
            definition.disk = DiskBytes::new(files::BASE_BYTES).expect("disk");
            w.ask(&w.define("grown", definition))
        }),
        attack("another base under an existing disk", rule("image-fixed"), |w| {
            let image = ImageRef { sha256: Sha256Digest::from_bytes([2; 32]), ..w.base };
            w.ask(&w.define("idle", files::definition(&image, vec![nic(BRIDGE, MAC)])))
        }),
        attack(
            "a NIC added under a running guest",
            rule("nics-fixed"),
            on_live(|d| {
                d.nics = Nics::try_from(vec![nic(BRIDGE, OTHER_MAC)]).expect("nics");
            }),
        ),
        attack(
            "a running guest's disk grown by a definition",
            rule("disk-in-use"),
            on_live(|d| {
                d.disk = DiskBytes::new(files::BASE_BYTES * 2).expect("disk");
            }),
        ),
        attack("a running guest's disk grown beyond what is allowed", rule("max-disk"), |w| {
            let disk = DiskBytes::new((1 << 30) + 512).expect("disk");
            w.ask(&Request::LibvirtBlockResize { instance: id("live"), disk })
        }),
        attack("an interface with one of the instance's tap names", rule("tap-exists"), |w| {
            let tap = bcd_policy::TapName::of(&id("idle"), 0).to_string();
            files::run("ip", &["link", "add", &tap, "type", "bridge"]);
            let met = w.ask(&start("idle", false));
            files::run("ip", &["link", "del", &tap]);
            met
        }),
        attack("one instance more than allowed", rule("max-instances"), |w| {
            let mut made = Vec::new();
            let met = loop {
                let name = format!("extra{}", made.len());
                files::instance(&w.place, &name, &w.base);
                match w.wire().call(&w.define(&name, w.definition())) {
                    Reply::Defined(_) => made.push(name),
                    Reply::Denied(denied) => break Met::Rule(denied.rule.to_string()),
                    other => panic!("{other:?}"),
                }
                assert!(made.len() < 20, "the limit does not hold");
            };
            for name in made {
                let reply = w.wire().call(&Request::LibvirtUndefine { instance: id(&name) });
                assert_eq!(reply, Reply::Done { changed: true });
            }
            met
        }),
    ]
}
