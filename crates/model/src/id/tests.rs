use super::*;
use proptest::prelude::*;

fn refusal(text: &str) -> String {
    text.parse::<TenantId>().unwrap_err().to_string()
}

#[test]
fn a_refused_name_is_told_which_character_offends_and_where() {
    let allowed = "allowed are A-Z a-z 0-9 . _ - and a letter or digit first";

    assert_eq!(refusal(""), "the tenant is empty");
    assert_eq!(
        refusal("a/b"),
        format!("the tenant contains `/` at position 1; {allowed}")
    );
    assert_eq!(
        refusal("a\0"),
        format!("the tenant contains `\\0` at position 1; {allowed}")
    );
    assert_eq!(
        refusal("a\u{1b}[2J"),
        format!("the tenant contains `\\u{{1b}}` at position 1; {allowed}")
    );
    assert_eq!(
        refusal(".hidden"),
        format!("the tenant contains `.` at position 0; {allowed}")
    );
    assert_eq!(refusal("a..b"), "the tenant contains `..` at position 1");
    assert_eq!(
        refusal(&"a".repeat(64)),
        "the tenant is 64 characters long; at most 63 are allowed"
    );
}

#[test]
fn names_that_look_alike_stay_apart() {
    let refused = [
        "..", ".", "%2e%2e", "a b", "a\r\nb", "a ", "аcme", "a%2fb", "-a", "_a",
    ];

    for text in refused {
        assert!(text.parse::<ProfileId>().is_err(), "{text:?}");
    }
    assert_ne!("A".parse::<ProfileId>(), "a".parse::<ProfileId>());
}

#[test]
fn a_label_cannot_deceive_the_eye() {
    for text in [
        "a\u{1b}[2J",
        "run\u{202e}gpj",
        "a\u{200b}b",
        "line\nbreak",
        "\u{feff}x",
    ] {
        assert!(text.parse::<Label>().is_err(), "{text:?}");
    }
    assert!("Grüße, 東京 — run 7".parse::<Label>().is_ok());
}

#[test]
fn a_lineage_has_a_tenant_a_profile_and_a_major() {
    let lineage: Lineage = "acme/alice@131".parse().unwrap();

    assert_eq!(lineage.to_string(), "acme/alice@131");
    for text in [
        "acme",
        "acme/alice",
        "acme/alice@",
        "acme/alice@0131",
        "acme/alice@+1",
        "/alice@1",
        "a/b/c@1",
        "a/b@0",
        "a/b@99999",
    ] {
        assert!(text.parse::<Lineage>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn every_accepted_name_is_one_safe_path_component(text in "\\PC{0,70}") {
        if let Ok(name) = text.parse::<TenantId>() {
            prop_assert_eq!(name.as_str(), &text);
            prop_assert!(!text.contains('/') && !text.contains("..") && !text.starts_with('.'));
            prop_assert!(text.is_ascii() && (1..=63).contains(&text.len()));
        }
    }

    #[test]
    fn every_name_of_the_allow_list_is_accepted(text in "[A-Za-z0-9][A-Za-z0-9._-]{0,62}") {
        prop_assert_eq!(text.parse::<TenantId>().is_ok(), !text.contains(".."));
    }
}
