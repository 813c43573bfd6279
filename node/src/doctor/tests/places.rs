//! Users, directories and files.
use super::*;

/// Changes the entry of one part of a way.
fn part<'a>(way: &'a mut [Part], path: &str) -> &'a mut Seen {
    &mut way.iter_mut().find(|part| part.path == Path::new(path)).unwrap().seen
}

#[test]
fn the_node_user_has_to_exist_and_share_no_uid_or_group_with_root_or_guests() {
    expect(|f| named(f).node_user = Ok(None), Level::Fail, "node-user", "no user bcd");
    let guest = bcd_protocol::limits::GUEST_UID_FIRST;
    for (ids, words) in [
        ((0, 990), "uid 0"),
        ((65_534, 990), "uid 65534"),
        ((990, 0), "root's group"),
        ((guest, 990), "guests run as"),
        ((990, 107), "group kvm"),
    ] {
        let found = found(move |f| named(f).node_user = Ok(Some(user(ids))));
        assert!(
            found.iter().any(|f| f.check == "node-user" && f.level == Level::Fail && f.found.contains(words)),
            "{ids:?}: {found:?}"
        );
    }
    // Root by way of a group: the remedy takes it out of that group and leaves the user.
    let member = |group| Ok(Some(Candidate { groups: vec![NODE.1, group], ..user(NODE) }));
    for (group, words, name) in [(0, "root's group", "root"), (106, "group libvirt", "libvirt")] {
        let remedy = expect(move |f| named(f).node_user = member(group), Level::Fail, "node-user", words);
        assert_eq!(remedy, format!("gpasswd --delete bcd {name}"));
    }
    let silent = |f: &mut Facts| named(f).node_user = Err("Input/output error".to_owned());
    let found = found(silent);
    assert!(found.iter().any(|f| f.check == "node-user" && f.level == Level::Fail && f.found.contains("Input/output")));
}

#[test]
fn the_configuration_is_roots_alone_from_the_root_on() {
    let change = |path: &'static str, seen: Seen| {
        move |f: &mut Facts| {
            let Configuration::Fine(way) = &mut f.configuration else { panic!("fine") };
            *part(way, path) = seen;
        }
    };
    let remedy = expect(change("/etc/bcd", entry(0, 0, 0o775)), Level::Fail, "configuration", "/etc/bcd has mode 0775");
    assert_eq!(remedy, "chmod go-w /etc/bcd");
    let remedy = expect(change("/etc", entry(7, 0, 0o755)), Level::Fail, "configuration", "/etc belongs to uid 7");
    assert_eq!(remedy, "chown root /etc");
    let remedy = expect(change("/etc/bcd", entry(0, 0, 0o1777)), Level::Fail, "configuration", "mode 1777");
    assert!(remedy.starts_with("move it out of /etc/bcd") && !remedy.contains("chmod"), "{remedy}");
    let link = Seen::There(Entry { kind: Kind::Link, uid: 0, gid: 0, mode: 0o777 });
    expect(change("/etc/bcd", link), Level::Fail, "configuration", "/etc/bcd is a link");
    let file = Seen::There(Entry { kind: Kind::File, uid: NODE.0, gid: 0, mode: 0o644 });
    expect(change("/etc/bcd/bcd.toml", file), Level::Fail, "configuration", "belongs to uid 990");
    expect(change("/etc/bcd", Seen::Unseen("denied".to_owned())), Level::Warn, "configuration", "denied");
}

#[test]
fn the_helpers_socket_lies_where_root_alone_writes_and_the_nodes_user_passes() {
    let helper = |seen: Seen| move |f: &mut Facts| named(f).helper_sockets = place("/run/bcd", seen);
    for (seen, part) in [
        (Seen::Missing, "there is no /run/bcd"),
        (entry(0, NODE.1, 0o1770), "in the helper's socket's place"),
        (entry(0, NODE.1, 0o770), "in the helper's socket's place"),
        (entry(0, 0, 0o1777), "in the helper's socket's place"),
        (entry(NODE.0, NODE.1, 0o755), "in the helper's socket's place"),
        (entry(0, 0, 0o750), "bcd cannot reach the helper's socket"),
        (entry(0, NODE.1, 0o740), "bcd cannot reach the helper's socket"),
    ] {
        let remedy = expect(helper(seen.clone()), Level::Fail, "sockets", part);
        assert_eq!(remedy, "install -d -o root -g bcd -m 0750 /run/bcd", "{seen:?}");
        let told = found(helper(seen)).into_iter().filter(|f| f.check == "sockets").count();
        assert_eq!(told, 1, "of a directory below one that is wrong nothing is said");
    }
    for seen in [entry(0, NODE.1, 0o710), entry(0, 0, 0o755)] {
        expect_ok(helper(seen), "sockets", "in /run/bcd and /run/bcd/node, and nobody can replace them");
    }
    let link = Seen::There(Entry { kind: Kind::Link, uid: 0, gid: 0, mode: 0o777 });
    expect(helper(link), Level::Fail, "sockets", "no directory");
    let open_above = |f: &mut Facts| *part(&mut named(f).helper_sockets.way, "/run") = entry(0, 0, 0o777);
    expect(open_above, Level::Fail, "sockets", "/run has mode 0777");
}

#[test]
fn the_nodes_socket_lies_where_the_node_writes_and_not_everyone() {
    let node = |seen: Seen| move |f: &mut Facts| named(f).node_sockets = place("/run/bcd/node", seen);
    for (seen, part) in [
        (Seen::Missing, "there is no /run/bcd/node"),
        (entry(0, 0, 0o1777), "replace the node's socket"),
        (entry(7, NODE.1, 0o770), "replace the node's socket"),
        (entry(0, 0, 0o755), "bcd cannot make the node's socket there"),
        (entry(0, 7, 0o1770), "bcd cannot make the node's socket there"),
        (entry(NODE.0, NODE.1, 0o510), "bcd cannot make the node's socket there"),
    ] {
        let remedy = expect(node(seen.clone()), Level::Fail, "sockets", part);
        assert_eq!(remedy, "install -d -o bcd -g bcd -m 0710 /run/bcd/node", "{seen:?}");
    }
    for seen in [entry(NODE.0, NODE.1, 0o700), entry(0, NODE.1, 0o1770)] {
        expect_ok(node(seen), "sockets", "nobody can replace them");
    }
}

#[test]
fn one_directory_for_both_sockets_suits_neither_of_its_modes() {
    for seen in [entry(0, NODE.1, 0o1770), entry(0, NODE.1, 0o750), entry(NODE.0, NODE.1, 0o755), Seen::Missing] {
        let both = move |f: &mut Facts| {
            named(f).config.node.api = "/run/bcd/node.sock".to_owned().try_into().unwrap();
            named(f).helper_sockets = place("/run/bcd", seen.clone());
            named(f).node_sockets = place("/run/bcd", seen);
        };
        let remedy = expect(both, Level::Fail, "sockets", "both sockets are to lie in /run/bcd");
        let wanted =
            "set api = \"/run/bcd/node/node.sock\" in [node], then install -d -o bcd -g bcd -m 0710 /run/bcd/node";
        assert_eq!(remedy, wanted);
    }
}

#[test]
fn the_helpers_records_are_roots_alone_and_have_room() {
    let state = |seen: Seen| |f: &mut Facts| named(f).state_dir = place("/var/lib/bcd-helper", seen);
    expect(state(entry(NODE.0, 0, 0o700)), Level::Fail, "state-dir", "belongs to uid 990");
    expect(state(entry(0, 0, 0o720)), Level::Fail, "state-dir", "mode 0720");
    expect_ok(state(Seen::Missing), "state-dir", "root's alone");
    let file = Seen::There(Entry { kind: Kind::File, uid: 0, gid: 0, mode: 0o600 });
    expect(state(file), Level::Fail, "state-dir", "no directory");
    let deep = |f: &mut Facts| {
        let way = &mut named(f).state_dir.way;
        *part(way, "/var/lib") = Seen::Missing;
        *part(way, "/var/lib/bcd-helper") = Seen::Missing;
    };
    expect(deep, Level::Fail, "state-dir", "nor the directory above it");
    expect(|f| named(f).state_dir.free = Some(1 << 20), Level::Fail, "state-dir", "1 MiB free");
}

#[test]
fn the_data_directory_is_the_nodes_open_to_vmms_and_has_room() {
    let data = |seen: Seen| |f: &mut Facts| named(f).data_dir = place("/var/lib/bcd", seen);
    let free = |free| move |f: &mut Facts| named(f).data_dir.free = Some(free);
    let remedy = expect(data(Seen::Missing), Level::Fail, "data-dir", "no /var/lib/bcd");
    assert_eq!(remedy, "install -d -o bcd -g bcd -m 0710 /var/lib/bcd");
    let link = Seen::There(Entry { kind: Kind::Link, uid: 0, gid: 0, mode: 0o777 });
    expect(data(link), Level::Fail, "data-dir", "no directory");
    expect(data(entry(0, 0, 0o710)), Level::Fail, "data-dir", "belongs to uid 0, not to bcd (uid 990)");
    expect(data(entry(NODE.0, NODE.1, 0o755)), Level::Warn, "data-dir", "mode 0755");
    expect(data(Seen::Unseen("denied".to_owned())), Level::Warn, "data-dir", "denied");
    expect(free(1 << 20), Level::Fail, "data-dir", "1 MiB free");
    expect(free(5 << 30), Level::Warn, "data-dir", "5 GiB free");
    expect_ok(free(10 << 30), "data-dir", "10 GiB free");
    let closed = |f: &mut Facts| named(f).data_dir_closed = vec![PathBuf::from("/root")];
    let remedy = expect(closed, Level::Fail, "data-dir", "may not pass through /root");
    assert!(remedy.starts_with("setfacl -m g:kvm:x /root"), "{remedy}");
}

#[test]
fn user_data_is_the_nodes_alone() {
    let secrets = |seen: Seen| |f: &mut Facts| named(f).secrets = place("/etc/bcd/secrets", seen);
    expect_ok(secrets(Seen::Missing), "secrets", "no user data");
    expect(secrets(entry(0, 0, 0o700)), Level::Fail, "secrets", "belongs to uid 0 and not to bcd");
    let file = Seen::There(Entry { kind: Kind::File, uid: NODE.0, gid: 0, mode: 0o600 });
    expect(secrets(file), Level::Fail, "secrets", "no directory");
    expect(secrets(entry(NODE.0, NODE.1, 0o750)), Level::Warn, "secrets", "mode 0750");
    let loose = |f: &mut Facts| named(f).loose_secrets = Some(vec!["web-1".to_owned()]);
    let remedy = expect(loose, Level::Fail, "secrets", "/etc/bcd/secrets/web-1");
    assert_eq!(remedy, "chown bcd: /etc/bcd/secrets/web-1 && chmod 0600 /etc/bcd/secrets/web-1");
    expect_ok(|f| named(f).loose_secrets = None, "secrets", "bcd's alone");
}

#[test]
fn what_the_kernel_bars_the_node_from_is_told_once() {
    let barred = |path: &'static str| {
        move |f: &mut Facts| {
            named(f).probe.barred = vec![(PathBuf::from(path), "read it".to_owned(), "Permission denied".to_owned())];
        }
    };
    expect(
        barred("/etc/bcd/bcd.toml"),
        Level::Fail,
        "access",
        "bcd cannot read it: /etc/bcd/bcd.toml: Permission denied",
    );
    expect(barred("/var/lib/bcd"), Level::Fail, "access", "/var/lib/bcd");
    // The owner is the finding then, and the kernel's word its consequence.
    let owner = |f: &mut Facts| {
        barred("/var/lib/bcd")(f);
        named(f).data_dir = place("/var/lib/bcd", entry(0, 0, 0o710));
    };
    expect(owner, Level::Fail, "data-dir", "belongs to uid 0");
    let other = |f: &mut Facts| {
        barred("/etc/bcd/bcd.toml")(f);
        named(f).probed_as_node = false;
    };
    assert_eq!(found(other), [], "what another user may do says nothing of the node");
}

#[test]
fn certificates_and_the_document_have_to_be_readable() {
    let path = || PathBuf::from("/etc/bcd/x");
    expect(|f| named(f).ca_file = Some((path(), Ok(0))), Level::Fail, "images", "no certificate");
    expect(|f| named(f).ca_file = Some((path(), Err("denied".into()))), Level::Fail, "images", "denied");
    let document = |document| |f: &mut Facts| named(f).document = Some((path(), document));
    expect(document(Document::Wrong("x:3:1".into())), Level::Fail, "document", "x:3:1");
    expect(document(Document::Missing), Level::Warn, "document", "no /etc/bcd/x yet");
    expect(document(Document::Unreadable("denied".into())), Level::Warn, "document", "denied");
}
