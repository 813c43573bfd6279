//! libvirt, the helper and the node.
use super::*;

#[test]
fn libvirt_has_to_answer_the_nodes_user_and_know_qemu() {
    let libvirt = |version, qemu| move |f: &mut Facts| named(f).probe.libvirt = Ok(Libvirt { version, qemu });
    let only = |f: Vec<Finding>| f.into_iter().find(|f| f.check == "libvirt").unwrap();
    let unknown = only(found(libvirt(9_000_000, None)));
    assert!(unknown.level == Level::Fail && unknown.found.contains("knows no QEMU"), "{unknown:?}");
    expect(libvirt(8_999_999, Some(7_002_000)), Level::Warn, "libvirt", "made for 9.0.0 or later");
    expect_ok(libvirt(9_000_000, Some(7_002_000)), "libvirt", "libvirt 9.0.0 with QEMU 7.2.0");
    let silent = only(found(|f| named(f).probe.libvirt = Err("Failed to connect socket".to_owned())));
    assert!(silent.found.contains("no answer on qemu:///system: Failed to connect"), "{silent:?}");
    assert!(silent.remedy.unwrap().contains("libvirt-daemon-system"));
    let barred =
        only(found(|f| named(f).probe.libvirt = Err("authentication unavailable: no polkit agent".to_owned())));
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
    let helper = |helper| |f: &mut Facts| named(f).probe.helper = helper;
    expect(helper(Helper::Unreachable("gone".to_owned())), Level::Fail, "helper", "gone");
    expect(helper(Helper::Welcome("0.0.1".to_owned())), Level::Warn, "helper", "version 0.0.1");
    expect(helper(Helper::Forbidden), Level::Fail, "helper", "bcd may not connect");
    expect_ok(helper(Helper::Listens), "helper", "its version was not asked");
    expect_ok(helper(Helper::OfNode("0.1.0".to_owned())), "helper", "its standalone node alone");
    let other = |f: &mut Facts| (named(f).probe.helper, named(f).probed_as_node) = (Helper::Forbidden, false);
    expect(other, Level::Warn, "helper", "this user may not connect");
}

#[test]
fn the_node_has_to_answer_in_this_version_and_read_everything() {
    let own = || env!("CARGO_PKG_VERSION").to_owned();
    let node = |node| |f: &mut Facts| named(f).node = node;
    expect(node(Node::Unreachable("no node answers on x".to_owned())), Level::Fail, "node", "no node answers");
    expect(node(Node::Forbidden), Level::Warn, "node", "may not ask");
    expect(node(Node::Answers("0.0.1".to_owned(), Vec::new())), Level::Warn, "node", "version 0.0.1");
    let unread = Node::Answers(own(), vec!["libvirt: it hangs".to_owned()]);
    expect(node(unread), Level::Warn, "node", "cannot read libvirt: it hangs");
    expect_ok(node(Node::Answers(own(), Vec::new())), "node", "answers on /run/bcd/node/node.sock");
}
