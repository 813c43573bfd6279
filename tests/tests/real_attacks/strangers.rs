//! Domains that bcd did not create, and those that took over a name or UUID of ours.
use super::*;

pub(crate) fn about_strangers() -> Vec<Attack> {
    let on_foreign = |request: Request| move |w: &World| w.ask(&request);
    vec![
        attack("define a foreign domain by its name", rule("domain-foreign"), |w| w.planted("stranger", |_| ())),
        attack("plan over a foreign domain", rule("domain-foreign"), |w| {
            w.ask(&Request::LibvirtPlan { instance: id("stranger"), definition: w.definition() })
        }),
        attack(
            "undefine a foreign domain",
            rule("domain-foreign"),
            on_foreign(Request::LibvirtUndefine { instance: id("stranger") }),
        ),
        attack("start a foreign domain", rule("no-record"), on_foreign(start("stranger", false))),
        attack(
            "press a foreign domain's power button",
            rule("no-record"),
            on_foreign(Request::LibvirtShutdown { instance: id("stranger") }),
        ),
        attack(
            "destroy a foreign domain",
            rule("no-record"),
            on_foreign(Request::LibvirtDestroy { instance: id("stranger") }),
        ),
        attack(
            "suspend a foreign domain",
            rule("no-record"),
            on_foreign(Request::LibvirtSuspend { instance: id("stranger") }),
        ),
        attack(
            "resume a foreign domain",
            rule("no-record"),
            on_foreign(Request::LibvirtResume { instance: id("stranger") }),
        ),
        attack(
            "open a foreign domain's console",
            rule("no-record"),
            on_foreign(Request::Console { instance: id("stranger") }),
        ),
        attack("resize a foreign domain's disk", rule("no-record"), |w| {
            let disk = DiskBytes::new(w.definition().disk.get() * 2).expect("a size");
            w.ask(&Request::LibvirtBlockResize { instance: id("stranger"), disk })
        }),
        attack(
            "start a domain that took over the name of ours",
            rule("domain-foreign"),
            on_foreign(start("usurped", false)),
        ),
        attack(
            "destroy a domain that took over the name of ours",
            rule("domain-foreign"),
            on_foreign(Request::LibvirtDestroy { instance: id("usurped") }),
        ),
        attack(
            "undefine a domain that took over the name of ours",
            rule("domain-foreign"),
            on_foreign(Request::LibvirtUndefine { instance: id("usurped") }),
        ),
        attack("redefine a domain that took over the name of ours", rule("domain-foreign"), |w| {
            w.ask(&w.define("usurped", w.definition()))
        }),
        attack(
            "start a domain that took over the uuid of ours",
            rule("domain-foreign"),
            on_foreign(start("doubled", false)),
        ),
        attack(
            "undefine a domain that took over the uuid of ours",
            rule("domain-foreign"),
            on_foreign(Request::LibvirtUndefine { instance: id("doubled") }),
        ),
    ]
}
