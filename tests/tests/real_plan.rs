//! `bcd plan` against a real helper: what its configuration refuses is in the plan, by its rule, and nothing is done.
//!
//! Room: `tests`. Needs libvirtd, and makes no domain.
use bcd_tests::daemons::wait_for;
use bcd_tests::pair::{Pair, Wish};

#[test]
fn a_plan_shows_what_the_helper_would_deny_and_says_when_it_was_not_asked() {
    let test = "a_plan_shows_what_the_helper_would_deny_and_says_when_it_was_not_asked";
    if !bcd_tests::real(test) {
        return;
    }
    let keys = "max_vcpus = 2\nmax_instances = 2\ninstance_bridges = [\"br-listed\"]\n";
    let Some(mut pair) = Pair::start("plan", &[], keys) else { return };
    let read = |pair: &Pair| {
        let status = pair.status()?;
        let whole = status["unreadable"].as_array()?.is_empty() && !status["runtimes"].as_array()?.is_empty();
        whole.then_some(status)
    };
    wait_for("a look at the host", 20, || read(&pair).is_some());
    let version = read(&pair).expect("a status")["runtimes"][0]["version"].clone();
    assert!(version.as_str().is_some_and(|v| v.split('.').count() == 3), "libvirt's version: {version}");
    let plan = |pair: &Pair, text: &str| {
        let output = pair.bcd(&["plan", pair.write(text).to_str().expect("utf-8")]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };

    let nic = "[[instances.nics]]\nbridge = \"br-other\"\nmac = \"52:54:00:00:00:01\"\n".to_owned();
    let lan = Wish { more: nic, ..Wish::running("lan") };
    let (code, shown) = plan(&pair, &pair.document(&[Wish::running("fine"), lan]));
    assert!(shown.starts_with("+ fine  fetch the image, create the disk, "), "{shown}");
    let denied = "! lan   Denied: nics[0]: bridge br-other is not in helper.instance_bridges: list it there or use another \
                  (bridge-not-listed)\n1 instance to change, 1 instance refused\n";
    assert!(shown.ends_with(denied), "{shown}");
    assert_eq!(code, Some(1));

    let wide = pair.document(&[Wish::running("wide")]).replace("vcpus = 1", "vcpus = 3");
    let (code, shown) = plan(&pair, &wide);
    assert_eq!(code, Some(1), "{shown}");
    assert_eq!(shown, "! wide  Denied: vcpus is 3: helper.max_vcpus allows 2 (max-vcpus)\n1 instance refused\n");

    let (code, shown) = plan(&pair, &pair.document(&["a", "b", "c"].map(Wish::running)));
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("! c  Denied: the document has more instances than the 2 that"), "{shown}");
    assert!(shown.ends_with("2 instances to change, 1 instance refused\n"), "{shown}");

    let (code, shown) = plan(&pair, &pair.document(&["a", "b"].map(Wish::running)));
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.ends_with("2 instances to change\n"), "{shown}");

    pair.helper = None;
    wait_for("the loss", 20, || read(&pair).is_none());
    let (code, shown) = plan(&pair, &pair.document(&["a", "b"].map(Wish::running)));
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.starts_with("? nothing is decided before the helper's records can be read"), "{shown}");
    assert!(shown.contains("not checked against what the helper allows: "), "{shown}");
    let status = pair.status().expect("a status");
    assert_eq!(status["runtimes"][0]["driver"], "libvirt-kvm", "runtimes are listed without a helper");
    let document = pair.bcd(&["spec"]);
    assert_eq!(document.status.code(), Some(1), "a plan puts nothing in force");
}
