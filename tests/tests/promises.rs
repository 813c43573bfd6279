//! What the threat model says of sources, packages and domains and no compiler holds: root runs no program and listens to no
//! environment, nothing is set-uid, a domain has the few devices it needs.
//!
//! Room: `tests`. Sources are read as tokens: neither a comment nor a string counts.
use bcd_tests::sources::{compiled_for_tests, files, is_test, read, shown, top, without_tests};
use proc_macro2::{TokenStream, TokenTree};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

// ---- root's program ----

/// Every source that is part of the helper as it is installed.
fn sources_of_root() -> Vec<PathBuf> {
    ["protocol", "policy", "confine", "helper"]
        .iter()
        .flat_map(|name| {
            let all = files(&top().join(name).join("src"), "rs");
            let tests = compiled_for_tests(&all);
            all.into_iter().filter(move |path| !is_test(path) && !tests.contains(path))
        })
        .collect()
}

/// All tokens of a text in order, out of their groups.
fn flat(tokens: Vec<TokenTree>, into: &mut Vec<TokenTree>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => flat(group.stream().into_iter().collect(), into),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => into.push(token),
        }
    }
}

fn tokens_of(text: &str) -> Vec<TokenTree> {
    let mut all = Vec::new();
    flat(without_tests(TokenStream::from_str(text).unwrap()), &mut all);
    all
}

const MOUNTS: [&str; 11] = [
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsmount",
];

/// What makes a process, mounts, or enters another namespace, by the names that std, nix and libc have for it.
fn what_root_never_does(text: &str) -> Vec<String> {
    let names = |name: &str| {
        let exec = name.strip_prefix("exec").is_some_and(|rest| rest.chars().all(|c| "lvpe at".contains(c)));
        exec || name.starts_with("posix_spawn")
            || matches!(name, "Command" | "fork" | "vfork" | "popen")
            || MOUNTS.contains(&name)
    };
    let tokens = tokens_of(text);
    // A word of its own in our code too: only the C library's counts.
    let of_libc = |i: usize| i >= 3 && tokens[i - 3].to_string() == "libc" && tokens[i - 1].to_string() == ":";
    let idents = tokens.iter().enumerate().filter(|(_, token)| matches!(token, TokenTree::Ident(_)));
    let named = idents.map(|(i, ident)| (i, ident.to_string()));
    named.filter(|(i, name)| names(name) || (name == "system" && of_libc(*i))).map(|(_, name)| name).collect()
}

#[test]
fn the_helper_has_no_code_that_runs_a_program_or_mounts() {
    for bad in [
        "use std::process::Command;",
        "fn f() { std::process::Command::new(\"a\"); }",
        "fn f() { unsafe { libc::execve(a, b, c) }; }",
        "fn f() { nix::unistd::execvp(a, b); }",
        "fn f() { nix::unistd::fork(); }",
        "fn f() { libc::posix_spawnp(); }",
        "fn f() { { libc::system(a) } }",
        "fn f() { nix::mount::mount(a, b, c, d, e); }",
        "use nix::sched::{setns};",
    ] {
        assert!(!what_root_never_does(bad).is_empty(), "{bad}");
    }
    for good in [
        "// Command\nfn executor() { \"fork\"; let system = 1; }",
        "#[cfg(test)] mod tests { use std::process::Command; }",
    ] {
        assert_eq!(what_root_never_does(good), Vec::<String>::new(), "{good}");
    }
    let sources = sources_of_root();
    assert!(sources.len() > 40, "{} files", sources.len());
    for path in sources {
        assert_eq!(what_root_never_does(&read(&path)), Vec::<String>::new(), "{}", shown(&path));
    }
}

/// Names of variables that a text reads; `?` for one that is not written out, or that could be read under another name.
fn variables(text: &str) -> Vec<String> {
    let tokens: Vec<String> = tokens_of(text).iter().map(ToString::to_string).collect();
    let at = |i: usize| tokens.get(i).map_or("", String::as_str);
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "getenv" | "secure_getenv" | "environ" | "__environ" => found.push("?".to_owned()),
            "env" if (at(i + 1), at(i + 2)) == (":", ":") => match at(i + 3) {
                "var" | "var_os" | "vars" | "vars_os" => {
                    let name = at(i + 4).strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                    found.push(name.unwrap_or("?").to_owned());
                }
                "args" | "args_os" | "consts" | "current_exe" | "current_dir" => {}
                _ => found.push("?".to_owned()),
            },
            // Something imported from it, all of it, or it under another name.
            "use" => {
                let imported: Vec<&str> = (i..tokens.len()).map(at).take_while(|token| *token != ";").collect();
                let read = ["var", "var_os", "vars", "vars_os", "*", "as"];
                if imported.contains(&"env") && imported.iter().any(|token| read.contains(token)) {
                    found.push("?".to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_helpers_code_reads_no_variable_but_those_of_its_page() {
    for (text, reads) in [
        ("fn f() { let a = std::env::var_os(\"A\"); env::vars(); }", vec!["A", "?"]),
        ("use std::env as host; fn f() { host::var(\"A\") }", vec!["?"]),
        ("use std::{env, fs}; fn f() { env::var(\"A\"); fs::read(p); }", vec!["A"]),
        ("fn f() { unsafe { libc::getenv(a) } }", vec!["?"]),
        ("const V: &str = env!(\"CARGO_PKG_VERSION\"); fn f() { std::env::args_os() }", vec![]),
    ] {
        assert_eq!(variables(text), reads, "{text}");
    }
    for text in [
        "use std::env::var;",
        "use std::env::{args, var as v};",
        "use std::{fs, env::*};",
        "use std::env::{self, vars};",
    ] {
        assert!(variables(text).contains(&"?".to_owned()), "{text}");
    }
    let found: BTreeSet<String> = sources_of_root().iter().flat_map(|path| variables(&read(path))).collect();
    // Of the crash tests alone: no release has it. And what systemd says to whom it reads the standard error of.
    let unsaid = ["BCD_HELPER_CRASH_AT", "JOURNAL_STREAM"].map(str::to_owned);
    let page = read(&top().join("packaging/man/bcd-helper.8"));
    let (_, said) = page.split_once(".SH ENVIRONMENT\n").unwrap();
    let (said, _) = said.split_once(".SH ").unwrap();
    let words = said.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let said: BTreeSet<String> = words.filter(|word| word.starts_with("BCD_")).map(str::to_owned).collect();
    assert!(said.len() >= 2, "{said:?}");
    assert_eq!(found, said.into_iter().chain(unsaid).collect());
}

// ---- packages ----

/// Every file of `packaging/` and the workspace's manifests.
fn packaged() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = files(&top(), "toml");
    let mut open = vec![top().join("packaging")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found
}

/// Words that give a program somebody else's rights, on lines that set modes: a mode with the set-uid or set-gid bit, or
/// capabilities of a file.
fn grants(text: &str) -> Vec<&str> {
    let sets = |line: &&str| {
        ["chmod", "install", "mode", "Mode", "mkdir", "setcap", "assets", "usr/"]
            .iter()
            .any(|maker| line.contains(maker))
    };
    let is_mode = |word: &str| {
        let digits = word.strip_prefix('0').unwrap_or(word);
        digits.len() == 4 && digits.bytes().all(|b| (b'0'..=b'7').contains(&b)) && digits.as_bytes()[0] >= b'2'
    };
    let symbolic = |word: &str| {
        let of = |part: &str, letters: &[u8]| !part.is_empty() && part.bytes().all(|b| letters.contains(&b));
        word.split_once('+').is_some_and(|(who, what)| of(who, b"ugoa") && of(what, b"rwxXst") && what.contains('s'))
    };
    let split = |c: char| c.is_whitespace() || "\"',;=[]".contains(c);
    text.lines()
        .filter(sets)
        .flat_map(|line| line.split(split))
        .filter(|word| *word == "setcap" || is_mode(word) || symbolic(word))
        .collect()
}

#[test]
fn nothing_that_is_installed_runs_with_anothers_rights() {
    for bad in [
        "chmod 4755 a",
        "install -m 02755 a b",
        "mode = \"6755\"",
        "chmod u+s a",
        "chmod ug+s a",
        "setcap cap=ep a",
        "[\"target/release/bcd\", \"usr/bin/\", \"4755\"]",
    ] {
        assert_eq!(grants(bad).len(), 1, "{bad}");
    }
    assert_eq!(grants("install -d -m 1770 /run/bcd; a+small 0755 755 10755\nof 2026\nchmod u+x a"), Vec::<&str>::new());
    let mut looked = 0;
    for path in packaged() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        assert_eq!(grants(&text), Vec::<&str>::new(), "{}", shown(&path));
        looked += 1;
    }
    assert!(looked > 8, "{looked} files");
}

// ---- domains ----

/// The attributes of an element that say what it is.
fn kind(element: &BytesStart<'_>) -> String {
    let of = |key: &str| element.try_get_attribute(key).ok().flatten().map(|found| found.value.into_owned());
    let name = element.name().as_ref().to_owned();
    ["type", "device", "model"].iter().filter_map(|key| of(key)).fold(name, |name, value| format!("{name} {value}"))
}

/// What stands directly beneath `devices`, and every source of a disk that is relabelled or not labelled at all.
fn devices(xml: &str) -> (Vec<String>, usize) {
    let (mut reader, mut open) = (Reader::from_str(xml), Vec::<String>::new());
    let (mut found, mut sources, mut kept) = (Vec::new(), 0, 0);
    loop {
        let (element, closed) = match reader.read_event().unwrap() {
            Event::Start(element) => (element, false),
            Event::Empty(element) => (element, true),
            Event::End(_) => {
                open.pop();
                continue;
            }
            Event::Eof => return (found, sources - kept),
            Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => continue,
        };
        let path: Vec<&str> = open.iter().map(String::as_str).collect();
        if path == ["domain", "devices"] {
            found.push(kind(&element));
        }
        let name = element.name().as_ref().to_owned();
        if path.contains(&"disk") {
            sources += usize::from(name == "source");
            let of = |key: &str| element.try_get_attribute(key).unwrap().map(|found| found.value.into_owned());
            let stays = of("model").as_deref() == Some("dac") && of("relabel").as_deref() == Some("no");
            kept += usize::from(name == "seclabel" && path.last() == Some(&"source") && stays);
        }
        if !closed {
            open.push(name);
        }
    }
}

/// Every kind of device a domain may have. A guest agent, a display, USB, sound, shared folders, sockets, host devices and
/// the like are each a way out of a guest that somebody once found.
const DEVICES: [&str; 11] = [
    "disk file disk",
    "disk file cdrom",
    "controller scsi virtio-scsi",
    "controller usb none",
    "interface bridge",
    "serial pty",
    "console pty",
    "video",
    "memballoon none",
    "panic isa",
    "rng virtio",
];

#[test]
fn a_domain_has_the_few_devices_it_needs_and_no_file_of_it_changes_owner() {
    let golden = files(&top().join("policy/tests/golden"), "xml");
    assert!(golden.len() >= 5, "{} domains", golden.len());
    for path in golden {
        let xml = read(&path);
        let (found, relabelled) = devices(&xml);
        let count = |kind: &str| found.iter().filter(|device| *device == kind).count();
        for device in &found {
            assert!(DEVICES.contains(&device.as_str()), "{}: {device}", shown(&path));
        }
        for one in DEVICES.iter().filter(|device| **device != "interface bridge") {
            assert_eq!(count(one), 1, "{}: {one}", shown(&path));
        }
        assert_eq!(relabelled, 0, "{}: sources whose file libvirt would give to somebody", shown(&path));
        assert!(xml.contains("<model type=\"none\"/>"), "{}: a display", shown(&path));
        for word in ["qemu:commandline", "<emulator", "<kernel", "<loader", "<hostdev", "<filesystem", "<channel"] {
            assert!(!xml.contains(word), "{}: {word}", shown(&path));
        }
    }
}
