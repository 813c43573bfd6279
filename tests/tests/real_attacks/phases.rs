//! Verbs in phases that the table does not list.
use super::*;

pub(crate) fn about_phases() -> Vec<Attack> {
    let ask = |request: Request| move |w: &World| w.ask(&request);
    let mut attacks = vec![
        attack("the console of a stopped instance", rule("phase"), ask(Request::Console { instance: id("idle") })),
        attack("suspend a stopped instance", rule("phase"), ask(Request::LibvirtSuspend { instance: id("idle") })),
        attack("resume a stopped instance", rule("phase"), ask(Request::LibvirtResume { instance: id("idle") })),
        attack("undefine a running instance", rule("phase"), ask(Request::LibvirtUndefine { instance: id("live") })),
        attack("start a running instance paused", rule("phase"), ask(start("live", true))),
        attack("start a running instance again", Met::NoChange, ask(start("live", false))),
        attack("start a paused instance", rule("phase"), ask(start("frozen", false))),
        attack("shut a paused instance down", rule("phase"), ask(Request::LibvirtShutdown { instance: id("frozen") })),
        attack("undefine a paused instance", rule("phase"), ask(Request::LibvirtUndefine { instance: id("frozen") })),
        attack("resize a stopped instance's disk", rule("phase"), |w| {
            let disk = DiskBytes::new(w.definition().disk.get() * 2).expect("a size");
            w.ask(&Request::LibvirtBlockResize { instance: id("idle"), disk })
        }),
    ];
    for (name, request) in [
        ("start what was never defined", start("nobody", false)),
        ("shut down what was never defined", Request::LibvirtShutdown { instance: id("nobody") }),
        ("destroy what was never defined", Request::LibvirtDestroy { instance: id("nobody") }),
        ("suspend what was never defined", Request::LibvirtSuspend { instance: id("nobody") }),
        ("resume what was never defined", Request::LibvirtResume { instance: id("nobody") }),
        ("open the console of what was never defined", Request::Console { instance: id("nobody") }),
    ] {
        attacks.push(attack(name, rule("no-record"), ask(request)));
    }
    attacks
}
