//! The Debian package's list of files, its scripts, and the helper's page.
use super::{path, read};
use std::collections::BTreeSet;

fn metadata() -> toml::Table {
    let manifest: toml::Table = toml::from_str(&read("node/Cargo.toml")).expect("a manifest");
    manifest["package"]["metadata"]["deb"].as_table().expect("metadata of the package").clone()
}

/// Source and place of each file of the package.
fn assets() -> Vec<(String, String)> {
    let text = |value: &toml::Value| value.as_str().expect("text").to_owned();
    let assets = metadata()["assets"].as_array().expect("a list").clone();
    assets.iter().map(|asset| (text(&asset[0]), text(&asset[1]))).collect()
}

#[test]
fn every_unit_of_the_repository_is_in_the_package() {
    let packaged: BTreeSet<String> =
        assets().into_iter().filter(|(_, to)| to == "usr/lib/systemd/system/").map(|(from, _)| from).collect();
    let there: BTreeSet<String> = std::fs::read_dir(path("packaging/systemd"))
        .expect("the units")
        .map(|entry| format!("../packaging/systemd/{}", entry.expect("an entry").file_name().display()))
        .collect();
    assert_eq!(packaged, there);
    for (from, _) in assets().iter().filter(|(from, _)| from.starts_with("../")) {
        assert!(path("node").join(from).exists(), "{from} is not there");
    }
}

#[test]
fn the_scripts_know_every_unit_that_can_be_enabled_and_never_stop_the_slice() {
    let [postinst, prerm, postrm] =
        ["postinst", "prerm", "postrm"].map(|name| read(&format!("packaging/debian/{name}")));
    for entry in std::fs::read_dir(path("packaging/systemd")).expect("the units") {
        let name = entry.expect("an entry").file_name().into_string().expect("utf-8");
        let enabled = read(&format!("packaging/systemd/{name}")).contains("[Install]");
        for script in [&postinst, &prerm, &postrm] {
            assert_eq!(script.contains(&name), enabled, "{name}");
        }
    }
    for script in [&postinst, &prerm, &postrm] {
        assert!(script.starts_with("#!/bin/sh\n") && script.contains("\nset -e\n"));
        for word in ["virsh destroy", "virsh undefine", "libvirtd", "userdel", "deluser", "machine.slice"] {
            assert!(!script.contains(word), "{word}");
        }
    }
    assert!(prerm.contains("[ \"$1\" = remove ]"), "an upgrade stops nothing");
}

#[test]
fn the_user_and_the_places_are_the_same_with_and_without_systemd() {
    let postinst = read("packaging/debian/postinst");
    for line in read("packaging/bcd.tmpfiles").lines().filter(|line| line.starts_with("d ")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, place, mode, owner, group, _] = fields.as_slice() else { panic!("{line}") };
        let by_hand = format!("install -d -o {owner} -g {group} -m {} {place}\n", mode.trim_start_matches('0'));
        assert!(postinst.contains(&by_hand), "no {by_hand}");
    }
    assert!(read("packaging/bcd.sysusers").lines().any(|line| line.starts_with("u bcd ")));
    assert!(read("packaging/bcd.tmpfiles").contains("a+ /var/lib/libvirt/qemu -    -    -   - group:kvm:--x\n"));
}

#[test]
fn the_helpers_page_says_every_option_that_the_program_says() {
    let page = read("packaging/man/bcd-helper.8").replace("\\-", "-");
    let code = read("helper/src/main.rs");
    let (_, usage) = code.split_once("const USAGE: &str = \"").expect("its help");
    let (usage, _) = usage.split_once("\";").expect("its end");
    let options: BTreeSet<&str> = usage
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']'))
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .collect();
    assert!(options.len() >= 5, "{options:?}");
    for option in options {
        assert!(page.contains(option), "{option} is not in bcd-helper(8)");
    }
    for capability in ["CAP_DAC_READ_SEARCH", "CAP_DAC_OVERRIDE"] {
        assert!(page.contains(capability));
    }
}

#[test]
fn every_page_is_in_the_package_and_well_formed() {
    let mut pages = 0;
    for entry in std::fs::read_dir(path("packaging/man")).expect("the pages") {
        let name = entry.expect("an entry").file_name().into_string().expect("utf-8");
        let section = name.rsplit_once('.').expect("a section").1.to_owned();
        let wanted = (format!("target/release/man/*.{section}.gz"), format!("usr/share/man/man{section}/"));
        assert!(assets().contains(&wanted), "{name}");
        let text = read(&format!("packaging/man/{name}"));
        for part in [".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH SEE ALSO\n"] {
            assert!(text.contains(part), "{name}: no {part:?}");
        }
        pages += 1;
    }
    assert!(pages > 10, "{pages} pages");
}
