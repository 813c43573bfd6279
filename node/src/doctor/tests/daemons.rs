//! libvirt, the helper and the node.
use super::*;

#[test]
fn libvirt_has_to_answer_the_nodes_user_and_know_qemu() {
    let libvirt = |version, qemu| move |f: &mut Facts| asked(f).libvirt = Ok(Libvirt { version, qemu });
    let only = |f: Vec<Finding>| f.into_iter().find(|f| f.check == "libvirt").unwrap();
    let unknown = only(found(libvirt(9_000_000, None)));
    assert!(unknown.level == Level::Fail && unknown.found.contains("knows no QEMU"), "{unknown:?}");
    expect(libvirt(8_999_999, Some(7_002_000)), Level::Warn, "libvirt", "made for 9.0.0 or later");
    expect_ok(libvirt(9_000_000, Some(7_002_000)), "libvirt", "libvirt 9.0.0 with QEMU 7.2.0");
    let silent = only(found(|f| asked(f).libvirt = Err("Failed to connect socket".into())));
    assert!(silent.found.contains("no answer on qemu:///system: \"Failed to connect socket\""), "{silent:?}");
    assert!(silent.remedy.unwrap().contains("libvirt-daemon-system"));
    let barred = only(found(|f| asked(f).libvirt = Err("authentication unavailable: no polkit agent".into())));
    assert!(barred.remedy.unwrap().contains("polkitd"));
    expect(|f| named(f).virtlogd = Some(false), Level::Fail, "virtlogd", "every start");
    assert_eq!(found(|f| named(f).virtlogd = None), []);
}

#[test]
fn vmms_have_to_reach_libvirts_directory() {
    let remedy =
        expect(|f| named(f).qemu_directory = Ok(Search::Refused), Level::Fail, "qemu-directory", "may not search");
    assert_eq!(remedy, "setfacl -m g:kvm:x /var/lib/libvirt/qemu");
    expect(|f| named(f).qemu_directory = Err("denied".to_owned()), Level::Warn, "qemu-directory", "denied");
}

#[test]
fn the_helper_has_to_answer_in_this_version() {
    let helper = |helper| |f: &mut Facts| asked(f).helper = helper;
    let alone = |f: &mut Facts| {
        asked(f).helper = Helper::Unreachable("gone".into());
        asked(f).node = Node::Answers { version: own(), unread: Vec::new(), helper: None };
    };
    expect(alone, Level::Fail, "helper", "it does not answer: \"gone\"");
    expect(helper(Helper::Welcome("0.0.1".into())), Level::Warn, "helper", "version 0.0.1");
    let remedy = expect(helper(Helper::Forbidden), Level::Fail, "helper", "bcd may not connect");
    assert!(remedy.starts_with("systemctl restart bcd-helper.socket"), "nothing is changed by its path: {remedy}");
    expect_ok(helper(Helper::Listens), "helper", "its version was not asked");
    // The node's word, and told as that.
    let of_node =
        expect_ok(helper(Helper::Unreachable("gone".into())), "helper", "the node says that a helper of its own");
    assert!(of_node.found.contains("no other does: \"gone\""), "{of_node:?}");
    let other = |f: &mut Facts| (asked(f).helper, named(f).probed_as_node) = (Helper::Forbidden, false);
    expect(other, Level::Warn, "helper", "this user may not connect");
}

#[test]
fn the_node_has_to_answer_in_this_version_and_read_everything() {
    let answers = |version: Version, unread: Vec<Words>| Node::Answers { version, unread, helper: Some(own()) };
    let node = |node| |f: &mut Facts| asked(f).node = node;
    let remedy = expect(node(Node::Unreachable("no node answers on x".into())), Level::Fail, "node", "no node answers");
    assert_eq!(remedy, "systemctl start bcd-node");
    let remedy = expect(node(Node::Forbidden), Level::Fail, "node", "bcd itself may not ask");
    assert_eq!(remedy, "systemctl restart bcd-node");
    let other = |f: &mut Facts| (asked(f).node, named(f).probed_as_node) = (Node::Forbidden, false);
    let remedy = expect(other, Level::Warn, "node", "this user may not ask");
    assert!(remedy.starts_with("run bcd doctor as root"), "{remedy}");
    expect(node(answers("0.0.1".into(), Vec::new())), Level::Warn, "node", "version 0.0.1");
    let unread = answers(own(), vec!["libvirt: it hangs".into()]);
    expect(node(unread), Level::Warn, "node", "cannot read \"libvirt: it hangs\"");
    expect_ok(node(answers(own(), Vec::new())), "node", "answers on /run/bcd/node/node.sock");
}

/// What a shell of root's starts by hand as another user is that user's process on root's terminal, until it has left it.
#[test]
fn without_systemd_the_daemons_are_started_away_from_roots_terminal_and_no_service_is_named() {
    let without = |change: fn(&mut Facts)| {
        let findings = found(move |f| {
            f.host.systemd = None;
            change(f);
        });
        let remedies = findings.iter().filter(|f| f.check != "systemd").filter_map(|f| f.remedy.clone());
        let remedies: Vec<String> = remedies.collect();
        assert!(remedies.iter().all(|remedy| !remedy.contains("systemctl")), "{remedies:?}");
        assert_eq!(remedies.len(), 1, "{findings:?}");
        remedies.concat()
    };
    let remedy = without(|f| asked(f).node = Node::Unreachable("gone".into()));
    let page = include_str!("../../../../docs/install.md").replace(" \\\n    ", " ");
    let told =
        remedy.replace(" --config /etc/bcd/bcd.toml", "").replace(&format!("--regid {} ", NODE.1), "--regid bcd ");
    let commands: Vec<&str> = told.split(" with ").skip(1).map(|part| &part[..part.find(" &").unwrap() + 2]).collect();
    assert!(
        matches!(commands.as_slice(), [both, alone] if both.contains("--standalone") && alone.contains("setpriv")),
        "{remedy}"
    );
    for by_hand in commands {
        assert!(page.lines().any(|line| line == by_hand), "docs/install.md says otherwise than {by_hand}");
        assert!(by_hand.starts_with("setsid "), "{by_hand}");
        assert!(by_hand.contains(" </dev/null >>/var/log/") && by_hand.ends_with(" 2>&1 &"), "{by_hand}");
    }
    for given_up in [
        "--reuid bcd",
        "--regid bcd",
        "--init-groups",
        "--inh-caps=-all",
        "--ambient-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
    ] {
        assert!(told.contains(given_up), "{given_up}: {remedy}");
    }
    // Nothing else that says how to start a node as another user leaves it on the terminal.
    let others = [
        include_str!("../../../../README.md"),
        include_str!("../../../../docs/standalone.md"),
        include_str!("../../../../docs/quickstart.md"),
        include_str!("../../daemon/identity.rs"),
    ];
    let starts = |line: &&str| line.contains("setpriv") && line.contains("bcd");
    let lines = others.iter().flat_map(|text| text.lines()).chain(page.lines());
    let bare: Vec<&str> = lines.filter(starts).filter(|line| !line.starts_with("setsid ")).collect();
    assert_eq!(bare, Vec::<&str>::new());
    without(|f| {
        asked(f).helper = Helper::Unreachable("gone".into());
        asked(f).node = Node::Answers { version: own(), unread: Vec::new(), helper: None };
    });
    without(|f| asked(f).helper = Helper::Welcome("0.0.1".into()));
    without(|f| asked(f).helper = Helper::Forbidden);
    without(|f| asked(f).node = Node::Answers { version: "0.0.1".into(), unread: Vec::new(), helper: Some(own()) });
    without(|f| named(f).virtlogd = Some(false));
    for libvirt in [Err("gone".into()), Ok(Libvirt { version: 9_000_000, qemu: None })] {
        let of = found(|f| (f.host.systemd, asked(f).libvirt) = (None, libvirt));
        let of_libvirt = of.iter().find(|f| f.check == "libvirt").unwrap();
        assert!(!of_libvirt.remedy.as_deref().unwrap().contains("systemctl"), "{of_libvirt:?}");
    }
}

#[test]
fn what_nobody_could_ask_is_one_finding_and_no_verdict_on_what_was_not_seen() {
    let silent = |f: &mut Facts| named(f).probe = Err(Unasked::Silent("no such process".into()));
    expect(silent, Level::Warn, "access", "helper, node and libvirt are not judged: \"no such process\"");
    let checks: Vec<String> = {
        let mut facts = healthy();
        silent(&mut facts);
        judge(&facts).into_iter().map(|f| f.check).collect()
    };
    for unseen in ["helper", "node", "libvirt", "runtimes", "document", "images"] {
        assert!(!checks.iter().any(|check| check == unseen), "{unseen} was judged unseen: {checks:?}");
    }
}
