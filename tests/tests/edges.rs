//! What the workspace's shape promises: the edges between its crates, purity of protocol and policy, headers and sizes
//! of files, and documents that name only what there is.
//!
//! Room: `tests`. Sources are read as tokens, so that neither a comment nor a string counts, and no spelling of a path
//! escapes.
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file beneath `folder` that ends in `.ext`, build output and hidden folders left out.
fn files(folder: &Path, ext: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && name != "target" && !name.starts_with('.') && !name.starts_with("mutants.out") {
                open.push(entry.path());
            } else if kind.is_file() && name.ends_with(&format!(".{ext}")) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(top()).unwrap().display().to_string()
}

/// Whether a file holds nothing but tests.
fn is_test(path: &Path) -> bool {
    let inside = path.strip_prefix(top()).unwrap();
    inside.file_name().is_some_and(|name| name == "tests.rs")
        || inside.components().any(|part| part.as_os_str() == "tests")
}

/// Files among `sources` that are compiled for tests alone: `#[cfg(test)]`, then `mod name;`.
fn compiled_for_tests(sources: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for path in sources {
        let text = read(path);
        for (mark, module) in text.lines().zip(text.lines().skip(1)) {
            let name = module.trim_end_matches(';').split_once("mod ").map(|(_, name)| name);
            if let (true, true, Some(name)) = (mark == "#[cfg(test)]", module.ends_with(';'), name) {
                let root = matches!(path.file_name().and_then(|n| n.to_str()), Some("lib.rs" | "main.rs"));
                let folder = if root { path.parent().unwrap().to_owned() } else { path.with_extension("") };
                found.insert(folder.join(name).with_extension("rs"));
            }
        }
    }
    found
}

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
fn the_sandbox_crate_builds_on_landlock_and_seccomp_alone() {
    let all = dependencies();
    let confine = ["landlock", "libc", "seccompiler", "thiserror"].into();
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

fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    // `#[cfg(test)]` and the item behind it, which in these crates is `mod tests;` or a module in braces.
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let attribute = tokens[i].to_string() == "#"
            && tokens.get(i + 1).is_some_and(|t| t.to_string().replace(' ', "") == "[cfg(test)]");
        if attribute {
            i += 2;
            while !matches!(&tokens[i], TokenTree::Group(g) if g.delimiter() == proc_macro2::Delimiter::Brace)
                && tokens[i].to_string() != ";"
            {
                i += 1;
            }
        } else {
            kept.push(tokens[i].clone());
        }
        i += 1;
    }
    kept
}

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
const UNSAFE_FILES: [&str; 4] =
    ["confine/src/memory.rs", "helper/src/sys.rs", "node/src/image/second.rs", "node/src/runtime/libvirt_kvm/sys.rs"];

// ---- files ----

fn sources() -> Vec<PathBuf> {
    let all = files(&top(), "rs");
    assert!(all.len() > 60, "{} files", all.len());
    all
}

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

// ---- documents ----

/// Names of all functions that are tests, in every crate and script of the repository.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in sources() {
        let text = read(&path);
        let mut after_attribute = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                after_attribute = true;
            } else if let Some(rest) = line.trim_start_matches("async ").strip_prefix("fn ")
                && std::mem::take(&mut after_attribute)
            {
                let end = rest.find(['(', '<']).unwrap();
                names.insert(rest[..end].to_owned());
            }
        }
    }
    assert!(names.len() > 200, "{} tests", names.len());
    names
}

/// Words in backticks of `text`.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_past_cve_names_a_test_that_exists_or_says_not_yet() {
    let text = read(&top().join("docs/past-cves.md"));
    let tests = tests();
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| CVE-")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{row}");
        let named = quoted(cells[3]);
        assert!(!named.is_empty() || cells[3].starts_with("not yet"), "{row}");
        for name in named {
            assert!(tests.contains(name), "{}: there is no test {name}", cells[0]);
        }
        rows += 1;
    }
    assert!(rows >= 12, "{rows} rows");
}

#[test]
fn every_document_that_is_named_exists() {
    let mut named = BTreeSet::new();
    let mut texts = sources();
    texts.extend(files(&top(), "md"));
    texts.extend(files(&top(), "toml"));
    for path in texts {
        let text = read(&path);
        for (at, _) in text.match_indices("docs/") {
            let name: String =
                text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || "/-_.".contains(*c)).collect();
            let own = at == 0 || !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c));
            if own && name.ends_with(".md") {
                named.insert((name, shown(&path)));
            }
        }
    }
    let missing: Vec<_> = named.iter().filter(|(name, _)| !top().join(name).is_file()).collect();
    assert_eq!(missing, Vec::<&(String, String)>::new());
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
