//! Tests of the texts and lists in replies.
use super::*;

#[test]
fn a_sentence_is_made_of_any_text() {
    assert_eq!(Sentence::new("br9 is not listed").as_str(), "br9 is not listed");
    assert_eq!(Sentence::new("a\nb\0c\u{1b}[2J\u{85}").as_str(), "a b c [2J ");
    assert_eq!(Sentence::new("").as_str(), "");
    let fits = "ü".repeat(512);
    assert_eq!(Sentence::new(&fits).as_str(), fits);
    let cut = Sentence::new(&"ü".repeat(513));
    assert_eq!(cut.as_str(), "ü".repeat(511) + "…");
    assert_eq!(cut.to_string(), cut.as_str());
    assert_eq!(String::from(cut.clone()), cut.as_str());
    assert_eq!(Sentence::try_from(cut.as_str().to_owned()).unwrap(), cut, "what new makes, the decoder takes");
}

#[test]
fn a_received_sentence_is_refused_rather_than_mended() {
    Sentence::try_from("ü".repeat(512)).unwrap();
    for bad in ["ü".repeat(513), "a\nb".to_owned(), "\u{1b}[2J".to_owned()] {
        let said = Sentence::try_from(bad.clone()).unwrap_err().to_string();
        assert_eq!(said, "a sentence in a reply is too long or has characters it may not have");
        serde_json::from_value::<Sentence>(bad.into()).unwrap_err();
    }
}

#[test]
fn a_rule_is_lower_case_words_and_hyphens() {
    let longest = "r".repeat(48);
    for good in ["bridge-not-listed", "a", "9", "-", &longest] {
        let rule = RuleName::try_from(good.to_owned()).unwrap();
        assert_eq!((rule.as_str(), rule.to_string(), String::from(rule.clone())), (good, good.into(), good.into()));
        assert_eq!(serde_json::from_value::<RuleName>(good.into()).unwrap(), rule);
    }
    let longer = "r".repeat(49);
    for bad in ["", "Bridge", "a b", "a_b", "a.b", "é", "a\n", &longer] {
        let said = RuleName::try_from(bad.to_owned()).expect_err(bad).to_string();
        assert!(said.starts_with("a rule's id in a reply"), "{said}");
    }
}

#[test]
fn a_domains_xml_is_bounded() {
    let most = "x".repeat(32 * 1024);
    let xml = DomainXml::try_from(most.clone()).unwrap();
    assert_eq!(xml.as_str(), most);
    assert_eq!(String::from(xml), most);
    let said = DomainXml::try_from(most + "x").unwrap_err().to_string();
    assert!(said.starts_with("a domain's XML in a reply"), "{said}");
}

#[test]
fn texts_in_replies_are_texts_for_people_too() {
    let sentence = Sentence::new("no");
    assert_eq!(serde_json::to_string(&sentence).unwrap(), "\"no\"");
    let said = serde_json::from_str::<Sentence>("1").unwrap_err().to_string();
    assert!(said.contains("expected a sentence as a string"), "{said}");
}
