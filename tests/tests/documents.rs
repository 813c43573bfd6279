//! What documents name exists: tests, files of the sources, other documents.
//!
//! Room: `tests`.
use bcd_tests::sources::{files, read, shown, sources, tests, top};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Words in backticks of `text`.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The rows of the tables in `text` that begin with `start`, as their cells.
fn rows<'a>(text: &'a str, start: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().filter(|line| line.starts_with(&format!("| {start}")));
    rows.map(|row| row.trim().trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Whether a word in backticks is the name of a test: a sentence of lower-case words.
fn is_sentence(word: &str) -> bool {
    word.matches('_').count() >= 3 && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether a word in backticks is a path into the sources.
fn is_source(word: &str) -> bool {
    ["protocol/", "policy/", "confine/", "helper/", "node/", "tests/", "packaging/"]
        .iter()
        .any(|start| word.starts_with(start))
}

fn assert_named_things_exist(page: &str) {
    let (text, tests) = (read(&top().join(page)), tests());
    for word in quoted(&text) {
        assert!(!is_sentence(word) || tests.contains(word), "{page}: there is no test {word}");
        assert!(!is_source(word) || top().join(word).exists(), "{page}: there is no {word}");
    }
}

/// `CVE-`, a year, a number of four or more digits.
fn is_cve(id: &str) -> bool {
    let number = |digits: &str, least: usize| digits.len() >= least && digits.bytes().all(|b| b.is_ascii_digit());
    id.strip_prefix("CVE-")
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(year, n)| number(year, 4) && year.len() == 4 && number(n, 4))
}

#[test]
fn each_past_cve_says_why_it_cannot_happen_and_names_a_test_that_exists_or_says_that_none_is_built() {
    let text = read(&top().join("docs/past-cves.md"));
    let tests = tests();
    let (mut ids, mut built) = (BTreeSet::new(), 0);
    for cells in rows(&text, "CVE-") {
        let [name, what, kind, here, shown_by] = cells.as_slice() else { panic!("{cells:?} is not of five cells") };
        let id = name.split_whitespace().next().unwrap();
        assert!(is_cve(id), "{id}");
        assert!(ids.insert(id.to_owned()), "{id} twice");
        for (cell, words) in [(what, 6), (kind, 1), (here, 4)] {
            assert!(cell.split_whitespace().count() >= words, "{id} says too little: {cell:?}");
        }
        let named: Vec<_> = quoted(shown_by).into_iter().filter(|word| is_sentence(word)).collect();
        let says = ["not built yet", "not ours: "].iter().any(|start| shown_by.starts_with(start));
        assert_eq!(named.is_empty(), says, "{id} either names tests or says why there is none: {shown_by:?}");
        for name in &named {
            assert!(tests.contains(*name), "{id}: there is no test {name}");
        }
        built += usize::from(!named.is_empty());
    }
    let of_this_decade = ids.iter().filter(|id| id.as_str() >= "CVE-2020").count();
    assert!(of_this_decade >= 25, "{of_this_decade} of this decade");
    assert!(built >= 25, "{built} with a test");
    assert_named_things_exist("docs/past-cves.md");
}

/// The words of a text: `P1` is none of `P17`'s.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[test]
fn each_promise_of_the_threat_model_has_its_code_and_its_test() {
    let text = read(&top().join("docs/threat-model.md"));
    assert_named_things_exist("docs/threat-model.md");
    let promises = rows(&text, "P");
    let elsewhere: BTreeSet<&str> = text.lines().filter(|line| !line.starts_with("| P")).flat_map(words).collect();
    for (at, cells) in promises.iter().enumerate() {
        let [id, promise, code, shown_by] = cells.as_slice() else { panic!("{cells:?} is not of four cells") };
        assert_eq!(*id, format!("P{}", at + 1), "promises are numbered in order");
        assert!(promise.split_whitespace().count() > 4, "{id}");
        assert!(quoted(code).iter().any(|word| is_source(word)), "{id} names no file");
        assert!(quoted(shown_by).iter().any(|word| is_sentence(word)), "{id} names no test");
        assert!(elsewhere.contains(id), "{id} is promised and nothing else on the page refers to it");
    }
    assert!(promises.len() >= 12, "{} promises", promises.len());
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut pages = files(&top(), "md");
    pages.retain(|path| !shown(path).starts_with("policy/fuzz") && !shown(path).starts_with("protocol/fuzz"));
    assert!(pages.len() > 10, "{} pages", pages.len());
    let mut links = 0;
    for page in &pages {
        let text = read(page);
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            if target.contains("://") || target.is_empty() {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(path.exists(), "{}: {target} leads nowhere", shown(page));
            if !anchor.is_empty() && path.extension().is_some_and(|ending| ending == "md") {
                assert!(anchors(&path).contains(anchor), "{}: {target} has no such heading", shown(page));
            }
            links += 1;
        }
    }
    assert!(links > 20, "{links} links");
}

/// The anchors of a page's headings, as the usual renderers make them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = read(page);
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
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
fn the_helpers_dependencies_are_those_that_the_page_lists_and_counts() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "bcd-helper", "--prefix", "none", "--format", "{p}"])
        .args(["--edges", "normal,no-proc-macro"])
        .current_dir(top())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let all: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let (ours, others): (BTreeSet<&str>, BTreeSet<&str>) = all.into_iter().partition(|name| name.starts_with("bcd-"));
    let page = read(&top().join("docs/dependencies.md"));
    let rows: Vec<_> = rows(&page, "`").into_iter().filter(|cells| cells.len() == 3).collect();
    let column = |at: usize| rows.iter().flat_map(move |cells| quoted(cells[at]));
    let listed: Vec<&str> = column(0).chain(column(2)).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), others);
    assert_eq!(listed.len(), others.len(), "a crate is listed once");
    let asked_for = column(0).count();
    let counts = format!(
        "{} of the workspace and {} of others, of which {asked_for} are",
        ["no", "one", "two", "three", "four", "five"][ours.len()],
        others.len()
    );
    let flowing = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flowing.contains(&counts), "the page has to say: {counts}");
}
