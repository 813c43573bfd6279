//! What the workspace's shape promises: the edges between its crates, purity of protocol and policy, headers and sizes
//! of files.
//!
//! Room: `tests`. Sources are read as tokens, so that neither a comment nor a string counts, and no spelling of a path
//! escapes.
use bcd_tests::sources::{compiled_for_tests, files, is_test, read, shown, sources, top, without_tests};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::str::FromStr;

// ---- edges ----

/// Direct dependencies of each crate of the workspace, by kind (`normal`, `dev`, `build`).
fn dependencies() -> BTreeMap<String, BTreeSet<(String, String)>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--no-deps", "--format-version", "1"])
        .current_dir(top())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let edges = package["dependencies"].as_array().unwrap().iter().map(|dependency| {
                let kind = dependency["kind"].as_str().unwrap_or("normal");
                (kind.to_owned(), dependency["name"].as_str().unwrap().to_owned())
            });
            (package["name"].as_str().unwrap().to_owned(), edges.collect())
        })
        .collect()
}

fn of_kind<'a>(edges: &'a BTreeSet<(String, String)>, kind: &str) -> BTreeSet<&'a str> {
    edges.iter().filter(|(k, _)| k == kind).map(|(_, name)| name.as_str()).collect()
}

#[test]
fn the_edges_between_the_crates_are_the_drawn_ones() {
    let all = dependencies();
    let names: Vec<_> = all.keys().map(String::as_str).collect();
    assert_eq!(names, ["bcd-confine", "bcd-helper", "bcd-node", "bcd-policy", "bcd-protocol", "bcd-tests"]);
    let ours = |name: &str| -> BTreeSet<&str> {
        all[name].iter().map(|(_, dependency)| dependency.as_str()).filter(|d| all.contains_key(*d)).collect()
    };
    assert_eq!(ours("bcd-protocol"), BTreeSet::new());
    assert_eq!(ours("bcd-policy"), ["bcd-protocol"].into());
    assert_eq!(ours("bcd-confine"), BTreeSet::new(), "the sandbox knows nothing of what runs in it");
    assert_eq!(ours("bcd-helper"), ["bcd-confine", "bcd-policy", "bcd-protocol"].into());
    assert_eq!(ours("bcd-node"), ["bcd-confine", "bcd-protocol"].into(), "the node does not link the policy");
    for (name, edges) in &all {
        assert!(edges.iter().all(|(_, dependency)| dependency != "bcd-node"), "{name} links the node");
    }
}

/// Both daemons link it, one of them as root: it builds on what they would need without it, and on nothing else.
#[test]
fn the_sandbox_crate_builds_on_landlock_seccomp_and_the_kernels_calls_alone() {
    let all = dependencies();
    let confine = ["landlock", "libc", "nix", "seccompiler", "thiserror"].into();
    assert_eq!(of_kind(&all["bcd-confine"], "normal"), confine);
    assert_eq!(of_kind(&all["bcd-confine"], "build"), BTreeSet::new());
    // The node asks landlock itself in one place: doctor tells what the kernel has.
    for (name, other) in [("bcd-helper", "landlock"), ("bcd-helper", "seccompiler"), ("bcd-node", "seccompiler")] {
        assert!(!of_kind(&all[name], "normal").contains(other), "{name} has a sandbox beside confine's");
    }
}

#[test]
fn protocol_and_policy_build_on_nothing_that_does_io() {
    let all = dependencies();
    let protocol = ["bincode", "ipnet", "serde", "thiserror", "toml"].into();
    assert_eq!(of_kind(&all["bcd-protocol"], "normal"), protocol);
    let policy: BTreeSet<&str> = ["bcd-protocol", "ipnet", "quick-xml", "serde", "sha2", "thiserror"].into();
    let found = of_kind(&all["bcd-policy"], "normal");
    assert!(found.is_subset(&policy), "{found:?}");
    for name in ["bcd-protocol", "bcd-policy"] {
        assert_eq!(of_kind(&all[name], "build"), BTreeSet::new(), "{name} runs code while it is built");
    }
}

// ---- purity ----

/// Modules of std that neither do nor hold I/O, time, threads or the process's surroundings.
const PURE: [&str; 31] = [
    "any",
    "array",
    "ascii",
    "borrow",
    "boxed",
    "char",
    "clone",
    "cmp",
    "collections",
    "convert",
    "default",
    "error",
    "fmt",
    "hash",
    "hint",
    "iter",
    "marker",
    "mem",
    "num",
    "ops",
    "option",
    "path",
    "primitive",
    "rc",
    "result",
    "slice",
    "str",
    "string",
    "u64",
    "usize",
    "vec",
];

/// Values from modules that else do I/O.
const PURE_VALUES: [(&str, &str); 8] = [
    ("io", "Error"),
    ("io", "ErrorKind"),
    ("io", "Result"),
    ("io", "Write"),
    ("net", "IpAddr"),
    ("net", "Ipv4Addr"),
    ("net", "Ipv6Addr"),
    ("time", "Duration"),
];

/// Methods of `Path` that ask the filesystem.
const ASKING: [&str; 12] = [
    "canonicalize",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "metadata",
    "read_dir",
    "read_link",
    "read_to_string",
    "symlink_metadata",
    "try_exists",
    "set_permissions",
];

/// Macros that print or read files.
const LOUD: [&str; 8] = ["dbg", "env", "eprint", "eprintln", "option_env", "print", "println", "include_bytes"];

fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |i: usize| tokens.get(i).is_some_and(|t| t.to_string() == ":");
    colon(at) && colon(at + 1)
}

/// The first identifiers of the paths in a tree of `use`, or the one identifier of a plain path; `*` as itself.
fn heads(tokens: &[TokenTree], at: usize) -> Vec<(String, Vec<TokenTree>)> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) => {
            let inner: Vec<_> = group.stream().into_iter().collect();
            inner
                .split(|token| token.to_string() == ",")
                .filter(|part| !part.is_empty())
                .flat_map(|part| heads(part, 0))
                .collect()
        }
        Some(first) => vec![(first.to_string(), tokens[at + 1..].to_vec())],
        None => vec![("nothing".to_owned(), Vec::new())],
    }
}

/// Whether a path goes on, at `at`, to nothing but [`PURE_VALUES`] of `module`.
fn only_values(module: &str, tokens: &[TokenTree], at: usize) -> bool {
    let pure = |(value, _): &(String, _)| PURE_VALUES.contains(&(module, value.as_str()));
    is_path_separator(tokens, at) && heads(tokens, at + 2).iter().all(pure)
}

/// What `tokens` have that pure code has not.
fn impurities(tokens: &[TokenTree], found: &mut Vec<String>) {
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => impurities(&group.stream().into_iter().collect::<Vec<_>>(), found),
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                let next = |n: usize| tokens.get(i + n).map(ToString::to_string).unwrap_or_default();
                let called = i > 0 && tokens[i - 1].to_string() == "." && next(1).starts_with('(');
                if matches!(name.as_str(), "unsafe" | "extern" | "asm") {
                    found.push(name.clone());
                }
                if LOUD.contains(&name.as_str()) && next(1) == "!" {
                    found.push(format!("{name}!"));
                }
                if ASKING.contains(&name.as_str()) && called {
                    found.push(format!(".{name}()"));
                }
                if matches!(name.as_str(), "std" | "core" | "alloc") {
                    if !is_path_separator(tokens, i + 1) {
                        found.push(format!("{name} under another name"));
                        continue;
                    }
                    for (module, rest) in heads(tokens, i + 3) {
                        // `use std::io;` is fine: what is taken from it is looked at where it is.
                        let io = module == "io" && rest.first().is_none_or(|token| token.to_string() != "as");
                        if !PURE.contains(&module.as_str()) && !only_values(&module, &rest, 0) && !io {
                            found.push(format!("{name}::{module}"));
                        }
                    }
                }
                if name == "io" && is_path_separator(tokens, i + 1) && !only_values("io", tokens, i + 1) {
                    found.push("io".to_owned());
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn impurities_of(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    impurities(&without_tests(TokenStream::from_str(text).unwrap()), &mut found);
    found
}

#[test]
fn the_search_for_impurities_finds_every_spelling() {
    for bad in [
        "unsafe fn f() {}",
        "fn f() { unsafe { g() } }",
        "use std::fs;",
        "use std::{fmt, fs::File};",
        "use std::{fmt, {fs, str}};",
        "use ::std::net::TcpStream;",
        "use std::net::{IpAddr, UdpSocket};",
        "use std::net;",
        "use std::time::{Duration, Instant};",
        "use std::*;",
        "use std as s;",
        "extern crate std as s;",
        "fn f() { let x = std::env::var(\"A\"); }",
        "fn f() { std :: thread :: spawn(|| ()); }",
        "fn f() { vec![std::process::id()]; }",
        "fn f() { core::arch::asm!(\"\"); }",
        "fn f() { println!(\"a\"); }",
        "fn f(p: &Path) -> bool { p.exists() }",
        "fn f(p: &Path) { let _ = p.canonicalize(); }",
        "mod m { mod n { use std::os::fd; } }",
        "use std::sync::Mutex;",
        "use std::io as i;",
        "use std::io::*;",
        "use std::io::{Write, stdout};",
        "use std::io; fn f() { io::stdin(); }",
        "use std::io; use io::{self, stderr};",
    ] {
        assert!(!impurities_of(bad).is_empty(), "{bad}");
    }
    for good in [
        "#![forbid(unsafe_code)]",
        "// use std::fs;\n/* unsafe */ const A: &str = \"std::fs unsafe println!\";",
        "use std::fmt::{self, Write};",
        "use std::{collections::BTreeMap, net::{IpAddr, Ipv4Addr}, time::Duration};",
        "use std::io; fn f() -> io::Result<()> { Err(io::Error::other(\"a\")) }",
        "use std::{fmt, io::Write};",
        "fn f(record: &Record) -> bool { record.exists }",
        "#[cfg(test)] mod tests { use std::fs; }",
        "#[cfg(test)]\nmod tests;\nfn f() {}",
    ] {
        assert_eq!(impurities_of(good), Vec::<String>::new(), "{good}");
    }
    assert!(!impurities_of("#[cfg(test)]\nmod tests;\nfn f() { std::fs::read(\"a\"); }").is_empty());
}

#[test]
fn protocol_and_policy_have_no_unsafe_and_no_io() {
    for name in ["protocol", "policy"] {
        let source = top().join(name).join("src");
        assert!(read(&source.join("lib.rs")).contains("#![forbid(unsafe_code)]"), "{name}");
        let sources = files(&source, "rs");
        assert!(sources.len() > 5, "{name} has {} files", sources.len());
        let tests = compiled_for_tests(&sources);
        for path in sources.iter().filter(|path| !is_test(path) && !tests.contains(*path)) {
            assert_eq!(impurities_of(&read(path)), Vec::<String>::new(), "{}", shown(path));
        }
        assert!(!top().join(name).join("build.rs").exists());
    }
}

fn has_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => has_unsafe(group.stream()),
        TokenTree::Ident(ident) => ident == "unsafe",
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

#[test]
fn unsafe_code_lies_in_the_files_that_are_named_for_it() {
    let mut found = BTreeSet::new();
    for name in ["confine", "protocol", "policy", "helper", "node"] {
        for path in files(&top().join(name).join("src"), "rs") {
            if has_unsafe(TokenStream::from_str(&read(&path)).unwrap()) {
                found.insert(shown(&path));
            }
        }
    }
    let named: BTreeSet<String> = UNSAFE_FILES.map(str::to_owned).into();
    assert_eq!(found, named);
}

/// Where unsafe code is, each for one thing outside: the kernel, the allocator, imago's storage trait (its methods are
/// unsafe), libvirt.
const UNSAFE_FILES: [&str; 5] = [
    "confine/src/inherited.rs",
    "confine/src/memory.rs",
    "helper/src/sys.rs",
    "node/src/image/second.rs",
    "node/src/runtime/libvirt_kvm/sys.rs",
];

// ---- files ----

#[test]
fn every_source_file_says_what_it_is_for() {
    let silent: Vec<_> = sources()
        .iter()
        .filter(|path| {
            let text = read(path);
            let words = text.lines().next().and_then(|line| line.strip_prefix("//! ")).unwrap_or_default();
            !text.trim().is_empty() && words.split_whitespace().count() < 2
        })
        .map(|path| shown(path))
        .collect();
    assert_eq!(silent, Vec::<String>::new(), "their first line is no `//!` with a sentence");
}

#[test]
fn no_source_file_is_longer_than_500_lines_without_its_tests() {
    let mut long = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let text = read(path);
        let lines = text.find("#[cfg(test)]\nmod tests {").map_or(text.as_str(), |end| &text[..end]).lines().count();
        if lines > 500 {
            long.push(format!("{} has {lines}", shown(path)));
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn every_allowed_mutant_has_its_reason() {
    for line in read(&top().join("tests/mutants-allowed.txt")).lines().filter(|line| !line.is_empty()) {
        if !line.starts_with('#') {
            let (mutant, reason) = line.split_once(" # ").unwrap_or_else(|| panic!("{line:?} gives no reason"));
            assert!(mutant.contains(".rs: ") && reason.split_whitespace().count() > 4, "{line}");
        }
    }
}
