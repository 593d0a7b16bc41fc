use super::*;

#[test]
fn a_model_reads_what_matters_in_few_words() {
    let length = INSTRUCTIONS.chars().count();

    assert!(length <= 1_500, "{length}");
    for word in [
        "snapshots_create",
        "dry_run",
        "confirm",
        "snapshots_undo",
        "untrusted",
    ] {
        assert!(INSTRUCTIONS.contains(word), "{word}");
    }
    assert!(INSTRUCTIONS.contains("`\\xNN`"));
}
