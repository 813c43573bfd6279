//! The Debian package's list of files, its scripts, and the helper's page.
use super::{path, read};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

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
    assert!(shipped().len() > assets().len(), "every pattern of the sources' was looked for");
}

/// Each file of the sources that is in the package: where it lies in them, and its whole path in the package.
fn shipped() -> Vec<(String, PathBuf)> {
    let mut files = Vec::new();
    for (from, to) in assets() {
        let Some(from) = from.strip_prefix("../") else { continue };
        let found = match from.split_once('*') {
            Some((before, after)) => {
                let directory = before.strip_suffix('/').expect("a pattern of whole names");
                std::fs::read_dir(path(directory))
                    .expect("the directory")
                    .map(|entry| entry.expect("an entry").file_name().into_string().expect("utf-8"))
                    .filter(|name| name.ends_with(after))
                    .map(|name| format!("{directory}/{name}"))
                    .collect()
            }
            None => vec![from.to_owned()],
        };
        assert!(!found.is_empty(), "{from} matches nothing");
        for file in found {
            assert!(path(&file).is_file(), "{file} is not there");
            let name = Path::new(&file).file_name().expect("a name");
            let place = if to.ends_with('/') { Path::new(&to).join(name) } else { PathBuf::from(&to) };
            files.push((file, place));
        }
    }
    files
}

/// `path` without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut so_far, part| {
        match part {
            Component::ParentDir => assert!(so_far.pop(), "{}", path.display()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => so_far.push(part),
        }
        so_far
    })
}

#[test]
fn a_link_of_a_packaged_document_leads_to_another_one_or_is_said_to_be_of_the_sources() {
    let places: BTreeSet<PathBuf> = shipped().into_iter().map(|(_, to)| to).collect();
    for wanted in ["README.md", "SECURITY.md", "docs/install.md", "docs/nodespec.md", "examples/node.toml"] {
        assert!(places.contains(&Path::new("usr/share/doc/bcd").join(wanted)), "{wanted}");
    }
    let (mut links, mut of_the_sources) = (0, BTreeSet::new());
    for (from, place) in shipped().iter().filter(|(from, _)| from.ends_with(".md")) {
        for line in read(from).lines() {
            for part in line.split("](").skip(1) {
                let target = part.split([')', '#']).next().unwrap_or_default();
                if target.is_empty() || target.contains("://") {
                    continue;
                }
                let leads = plain(&place.parent().expect("a directory").join(target));
                links += 1;
                if !places.contains(&leads) {
                    assert!(line.contains("in the sources"), "{from}: {target} is not in the package");
                    of_the_sources.insert(target.to_owned());
                }
            }
        }
    }
    assert!(links > 50, "{links} links");
    assert_eq!(of_the_sources, BTreeSet::from(["CONTRIBUTING.md", "packaging/README.md"].map(str::to_owned)));
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
