//! The repository's own sources and documents, as its tests read them.
//!
//! Room: `tests`. Only what lies in the repository: build output, hidden folders and what a mutation run leaves are left out.
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The repository's directory.
#[must_use]
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file beneath `folder` that ends in `.ext`.
///
/// # Panics
/// When a folder cannot be listed.
#[must_use]
pub fn files(folder: &Path, ext: &str) -> Vec<PathBuf> {
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

/// The text of a file.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A path as the repository names it.
///
/// # Panics
/// For a path outside it.
#[must_use]
pub fn shown(path: &Path) -> String {
    path.strip_prefix(top()).unwrap().display().to_string()
}

/// Whether a file holds nothing but tests.
///
/// # Panics
/// For a path outside the repository.
#[must_use]
pub fn is_test(path: &Path) -> bool {
    let inside = path.strip_prefix(top()).unwrap();
    inside.file_name().is_some_and(|name| name == "tests.rs")
        || inside.components().any(|part| part.as_os_str() == "tests")
}

/// Files among `sources` that are compiled for tests alone: `#[cfg(test)]`, then `mod name;`.
#[must_use]
pub fn compiled_for_tests(sources: &[PathBuf]) -> BTreeSet<PathBuf> {
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

/// Every Rust source of the repository.
///
/// # Panics
/// When hardly any is found.
#[must_use]
pub fn sources() -> Vec<PathBuf> {
    let all = files(&top(), "rs");
    assert!(all.len() > 60, "{} files", all.len());
    all
}

/// `tokens` less what is compiled for tests alone.
#[must_use]
pub fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    // `#[cfg(test)]` and the item behind it, which in these crates is `mod tests;` or a module in braces.
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let attribute = tokens[i].to_string() == "#"
            && tokens.get(i + 1).is_some_and(|t| t.to_string().replace(' ', "") == "[cfg(test)]");
        if attribute {
            i += 2;
            while !matches!(&tokens[i], TokenTree::Group(g) if g.delimiter() == Delimiter::Brace)
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

/// Names of all functions that are tests, in every crate.
///
/// # Panics
/// When hardly any is found.
#[must_use]
pub fn tests() -> BTreeSet<String> {
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

/// The capabilities that the helper keeps, by their names in its list.
///
/// # Panics
/// When the list is not where it was.
#[must_use]
pub fn kept_capabilities() -> BTreeSet<String> {
    let text = read(&top().join("helper/src/harden.rs"));
    let (_, rest) = text.split_once("const KEPT").expect("the list");
    let (list, _) = rest.split_once("];").expect("its end");
    list.split("Capability::")
        .filter_map(|part| part.split(',').next())
        .filter(|name| name.starts_with("CAP_"))
        .map(str::to_owned)
        .collect()
}
