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
