//! Users, directories and files.
use super::*;
use bcd_protocol::id::AllocationId;

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
    // Whoever owned it may have it open: it is not handed over but replaced.
    let file = Seen::There(Entry { kind: Kind::File, uid: NODE.0, gid: 0, mode: 0o644 });
    let remedy = expect(change("/etc/bcd/bcd.toml", file), Level::Fail, "configuration", "belongs to uid 990");
    let fresh = "/etc/bcd/bcd.toml.fresh";
    assert!(
        remedy
            == format!(
                "make a new one, install -o root -g root -m 0644 -T /etc/bcd/bcd.toml {fresh}, read {fresh} through, and put it \
                 in place: mv -T {fresh} /etc/bcd/bcd.toml"
            ),
        "{remedy}"
    );
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
        expect_ok(helper(seen), "sockets", "in /run/bcd and /run/bcd/node, and nobody else can replace them");
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
        (entry(NODE.0, NODE.1, 0o770), "replace the node's socket"),
        (entry(0, NODE.1, 0o1770), "replace the node's socket"),
        (entry(0, 0, 0o755), "bcd cannot make the node's socket there"),
        (entry(0, 7, 0o750), "bcd cannot make the node's socket there"),
        (entry(NODE.0, NODE.1, 0o510), "bcd cannot make the node's socket there"),
    ] {
        let remedy = expect(node(seen.clone()), Level::Fail, "sockets", part);
        assert_eq!(remedy, "install -d -o bcd -g bcd -m 0710 /run/bcd/node", "{seen:?}");
    }
    for seen in [entry(NODE.0, NODE.1, 0o700), entry(NODE.0, NODE.1, 0o755)] {
        expect_ok(node(seen), "sockets", "nobody else can replace them");
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
        // What lies below was planted by whoever could write there: the next run makes each directory, once it is root's.
        assert_eq!(remedy, "set api = \"/run/bcd/node/node.sock\" in [node], then run bcd doctor again");
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
    let remedy = expect(data(entry(7, 7, 0o710)), Level::Fail, "data-dir", "belongs to uid 7");
    assert_eq!(remedy, "chown bcd: /var/lib/bcd");
    let link = Seen::There(Entry { kind: Kind::Link, uid: 0, gid: 0, mode: 0o777 });
    expect(data(link), Level::Fail, "data-dir", "no directory");
    expect(data(entry(0, 0, 0o710)), Level::Fail, "data-dir", "belongs to uid 0, not to bcd (uid 990)");
    expect(data(entry(NODE.0, NODE.1, 0o755)), Level::Warn, "data-dir", "mode 0755");
    expect(data(Seen::Unseen("denied".to_owned())), Level::Warn, "data-dir", "denied");
    expect(free(1 << 20), Level::Fail, "data-dir", "1 MiB free");
    expect(free(5 << 30), Level::Warn, "data-dir", "5 GiB free");
    expect_ok(free(10 << 30), "data-dir", "10 GiB free");
    let closed = |f: &mut Facts| named(f).data_dir_closed = vec![PathBuf::from("/var/lib")];
    let remedy = expect(closed, Level::Fail, "data-dir", "may not pass through /var/lib to");
    assert_eq!(remedy, "setfacl -m g:kvm:x /var/lib");
}

#[test]
fn user_data_is_the_nodes_alone() {
    let secrets = |seen: Seen| |f: &mut Facts| named(f).secrets = place("/etc/bcd/secrets", seen);
    expect_ok(secrets(Seen::Missing), "secrets", "no user data");
    expect(secrets(entry(0, 0, 0o700)), Level::Fail, "secrets", "belongs to uid 0 and not to bcd");
    let file = Seen::There(Entry { kind: Kind::File, uid: NODE.0, gid: 0, mode: 0o600 });
    expect(secrets(file), Level::Fail, "secrets", "no directory");
    expect(secrets(entry(NODE.0, NODE.1, 0o750)), Level::Warn, "secrets", "mode 0750");
}

#[test]
fn files_of_user_data_are_named_by_allocation_counted_otherwise_and_touched_by_no_command() {
    let ids = |names: &[&str]| names.iter().map(|name| AllocationId::parse(name).unwrap()).collect();
    let loose = |named: &[&str], others, more| {
        let secrets = Secrets { named: ids(named), others, more };
        move |f: &mut Facts| asked(f).secrets = Some(secrets)
    };
    let remedy =
        expect(loose(&["web-1"], 0, false), Level::Fail, "secrets", "in /etc/bcd/secrets: web-1: no files of bcd's");
    assert!(remedy.starts_with("make each of them anew"), "a sentence, no command: {remedy}");
    assert!(!remedy.contains("web-1"), "no remedy names what the node's user could plant: {remedy}");
    expect(loose(&["a", "b"], 3, false), Level::Fail, "secrets", "a, b, and 3 other entries: no files");
    expect(loose(&["a"], 1, false), Level::Fail, "secrets", "a, and 1 other entry: no files");
    expect(loose(&[], 2, false), Level::Warn, "secrets", "2 other entries");
    expect(loose(&[], 2, true), Level::Warn, "secrets", "at least 2 others");
    expect(loose(&[], 0, true), Level::Warn, "secrets", "more than were looked at");
    expect_ok(loose(&[], 0, false), "secrets", "bcd's alone");
    expect_ok(|f| asked(f).secrets = None, "secrets", "bcd's alone");
}

#[test]
fn what_the_kernel_bars_the_node_from_is_told_once() {
    let barred = |need: Need| move |f: &mut Facts| asked(f).barred = vec![(need, 13)];
    let told = "bcd cannot read the configuration: /etc/bcd/bcd.toml: Permission denied";
    let remedy = expect(barred(Need::Configuration), Level::Fail, "access", told);
    assert!(remedy.ends_with("a directory with chmod o+x: namei -l /etc/bcd/bcd.toml"), "{remedy}");
    expect(barred(Need::DataDir), Level::Fail, "access", "bcd cannot keep instances: /var/lib/bcd: Permission denied");
    expect(barred(Need::Secrets), Level::Fail, "access", "bcd cannot read user data: /etc/bcd/secrets");
    let unknown = |f: &mut Facts| asked(f).barred = vec![(Need::DataDir, -7)];
    expect(unknown, Level::Fail, "access", "Unknown errno");
    // The owner is the finding then, and the kernel's word its consequence.
    let owner = |f: &mut Facts| {
        barred(Need::DataDir)(f);
        named(f).data_dir = place("/var/lib/bcd", entry(0, 0, 0o710));
    };
    expect(owner, Level::Fail, "data-dir", "belongs to uid 0");
    let other = |f: &mut Facts| {
        barred(Need::Configuration)(f);
        named(f).probed_as_node = false;
    };
    assert_eq!(found(other), [], "what another user may do says nothing of the node");
}

#[test]
fn certificates_and_the_document_have_to_be_readable() {
    let certificates = |read| move |f: &mut Facts| asked(f).certificates = Some(read);
    expect(certificates(Ok(0)), Level::Fail, "images", "/etc/bcd/ca.pem holds no certificate");
    expect(certificates(Err(Unread::Errno(13))), Level::Fail, "images", "Permission denied");
    expect(certificates(Err(Unread::NoFile)), Level::Fail, "images", "it is no regular file");
    let document = |document| |f: &mut Facts| asked(f).document = Some(document);
    let wrong = Document::Wrong { line: 3, column: 1, what: "ids must differ".into() };
    expect(document(wrong), Level::Fail, "document", "/etc/bcd/node.toml:3:1: \"ids must differ\"");
    expect(document(Document::Missing), Level::Warn, "document", "no /etc/bcd/node.toml yet");
    expect(document(Document::Unreadable(Unread::NoFile)), Level::Warn, "document", "it is no regular file");
}

#[test]
fn something_else_in_the_place_of_the_helpers_socket_fails_and_is_removed_by_its_name() {
    let there = |kind, uid| {
        let seen = Seen::There(Entry { kind, uid, gid: NODE.1, mode: 0o777 });
        move |f: &mut Facts| named(f).helper_socket = place("/run/bcd/helper.sock", seen)
    };
    for (kind, words) in [
        (Kind::Link, "is a link of uid 990"),
        (Kind::Directory, "is a directory of uid 990"),
        (Kind::Socket, "is a socket of uid 990"),
        (Kind::File, "is a file of uid 990"),
        (Kind::Other, "is no socket of uid 990"),
    ] {
        let remedy = expect(there(kind, NODE.0), Level::Fail, "sockets", words);
        assert_eq!(remedy, "rm -rf --one-file-system -- /run/bcd/helper.sock");
    }
    assert_eq!(found(there(Kind::Socket, 0)), []);
}

#[test]
fn no_command_goes_by_a_path_that_somebody_else_could_lead_elsewhere() {
    // A directory of the node's above its data_dir: what it swaps there, chown would follow.
    let under = |above: Seen| {
        move |f: &mut Facts| {
            named(f).data_dir = place("/srv/bcd/data", entry(7, 7, 0o710));
            *part(&mut named(f).data_dir.way, "/srv/bcd") = above;
            named(f).config.data_dir = "/srv/bcd/data".to_owned().try_into().unwrap();
        }
    };
    for above in [entry(NODE.0, NODE.1, 0o755), entry(0, NODE.1, 0o775), entry(0, 0, 0o1777), entry(0, 0, 0o777)] {
        let remedy = expect(under(above.clone()), Level::Fail, "data-dir", "belongs to uid 7");
        assert!(
            remedy.starts_with("make every directory above /srv/bcd/data root's alone first"),
            "{above:?}: {remedy}"
        );
    }
    let remedy = expect(under(entry(0, 0, 0o755)), Level::Fail, "data-dir", "belongs to uid 7");
    assert_eq!(remedy, "chown bcd: /srv/bcd/data");
    // As in the older layout, in which the node's group could write: a link of the name that the new one has.
    let old = |f: &mut Facts| {
        let shared = entry(0, NODE.1, 0o1770);
        (named(f).helper_sockets, named(f).node_sockets) =
            (place("/run/bcd", shared.clone()), place("/run/bcd", shared));
        named(f).config.node.api = "/run/bcd/node.sock".to_owned().try_into().unwrap();
    };
    let remedy = expect(old, Level::Fail, "sockets", "both sockets are to lie in /run/bcd");
    assert!(!remedy.contains("install") && !remedy.contains(" -o "), "{remedy}");
    let link = Seen::There(Entry { kind: Kind::Link, uid: NODE.0, gid: NODE.1, mode: 0o777 });
    let planted = |above: Seen| {
        let link = link.clone();
        move |f: &mut Facts| {
            (named(f).helper_sockets, named(f).node_sockets) =
                (place("/run/bcd", above.clone()), place("/run/bcd/node", link));
            *part(&mut named(f).node_sockets.way, "/run/bcd") = above;
        }
    };
    let remedy = expect(planted(entry(0, NODE.1, 0o1770)), Level::Fail, "sockets", "in the helper's socket's place");
    assert_eq!(remedy, "install -d -o root -g bcd -m 0750 /run/bcd");
    let remedy = expect(planted(entry(0, NODE.1, 0o750)), Level::Fail, "sockets", "/run/bcd/node is no directory");
    assert!(remedy.starts_with("move it away"), "never a command that follows it: {remedy}");
    // The files of user data are put into their place by two commands, in a sentence: the same holds for those.
    let secrets = |above: Seen| {
        move |f: &mut Facts| {
            asked(f).secrets = Some(Secrets { others: 1, ..Secrets::default() });
            named(f).config.node.secrets = "/srv/bcd/secrets".to_owned().try_into().unwrap();
            named(f).secrets = place("/srv/bcd/secrets", entry(NODE.0, NODE.1, 0o700));
            *part(&mut named(f).secrets.way, "/srv/bcd") = above;
        }
    };
    for above in [entry(NODE.0, NODE.1, 0o755), entry(0, NODE.1, 0o775), entry(0, 0, 0o1777)] {
        let remedy = expect(secrets(above.clone()), Level::Warn, "secrets", "1 other entry");
        assert!(
            remedy.starts_with("make every directory above /srv/bcd/secrets root's alone first"),
            "{above:?}: {remedy}"
        );
    }
    let remedy = expect(secrets(entry(0, 0, 0o755)), Level::Warn, "secrets", "1 other entry");
    assert!(remedy.contains("mv -T /srv/bcd/ALLOCATION.new /srv/bcd/secrets/ALLOCATION"), "{remedy}");
    // Each breach on a way has its own finding, and only the first is mended by a command.
    let both = found(|f| {
        let Configuration::Fine(way) = &mut f.configuration else { panic!("fine") };
        *part(way, "/etc/bcd") = entry(NODE.0, 0, 0o755);
        *part(way, "/etc/bcd/bcd.toml") = Seen::There(Entry { kind: Kind::File, uid: NODE.0, gid: 0, mode: 0o644 });
    });
    let remedies: Vec<&str> = both.iter().filter_map(|f| f.remedy.as_deref()).collect();
    assert!(
        matches!(remedies.as_slice(), ["chown root /etc/bcd", second] if second.starts_with("make every")),
        "{both:?}"
    );
}

#[test]
fn what_lies_behind_a_link_is_not_judged_as_if_it_were_there() {
    let behind = |f: &mut Facts| named(f).data_dir = place("/var/lib/bcd", Seen::Behind);
    expect(behind, Level::Warn, "data-dir", "/var/lib/bcd lies behind a link");
    let nothing = |f: &mut Facts| {
        let way = vec![
            Part { path: PathBuf::from("/"), seen: entry(0, 0, 0o755) },
            Part {
                path: PathBuf::from("/etc"),
                seen: Seen::There(Entry { kind: Kind::Link, uid: 0, gid: 0, mode: 0o777 }),
            },
            Part { path: PathBuf::from("/etc/bcd.toml"), seen: Seen::Behind },
        ];
        (f.configuration, f.configured) = (Configuration::Open(way), None);
    };
    expect(nothing, Level::Fail, "configuration", "/etc is a link, and root follows none here; what it would name");
}

/// What the instructions have root do by hand, in an older layout's directory as well: nothing of others is left before the node's
/// is made, and where something is, the rest does not happen.
#[test]
fn by_hand_the_places_of_the_sockets_are_made_anew() {
    let page = include_str!("../../../../docs/install.md");
    let made = "rm -rf /run/bcd &&\n\
                install -d -o root -g bcd -m 0750 /run/bcd &&\n\
                install -d -o bcd -g bcd -m 0710 /run/bcd/node\n";
    assert!(page.contains(made), "docs/install.md makes them otherwise");
    assert_eq!(page.matches("install -d").count(), 2, "and makes no other place");
}
