//! Man pages, as `man` shows them.

use crate::session::Session;
use std::fs;
use std::process::Command;

#[test]
fn every_command_has_a_man_page_that_groff_has_nothing_to_say_about() {
    let session = Session::new();
    let dir = session.home().join("man/man1");
    let dir = dir.to_str().unwrap();

    let written = session.json(0, &["man", "--dir", dir]);
    let again = session.data(0, &["man", "--dir", dir]);

    let pages = written["pages"].as_array().unwrap();
    let on_disk = fs::read_dir(dir).unwrap().count();
    assert_eq!(pages.len(), on_disk);
    assert!(
        again.starts_with(&format!("wrote {on_disk} man pages to {dir}")),
        "{again}"
    );
    for name in ["stasis.1", "stasis-save.1", "stasis-tenant-policy-set.1"] {
        assert!(pages.iter().any(|page| page == name), "{name}");
    }
    for hidden in [
        "stasis-internal.1",
        "stasis-reference.1",
        "stasis-snapshots.1",
    ] {
        assert!(pages.iter().all(|page| page != hidden), "{hidden}");
    }
    if Command::new("groff").arg("--version").output().is_err() {
        println!("skipped: groff is not installed");
        return;
    }
    for page in pages {
        let path = format!("{dir}/{}", page.as_str().unwrap());
        let mut groff = Command::new("groff");
        let output = groff
            .args(["-Kutf8", "-man", "-ww", "-Tutf8", "-z", &path])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{path}: {said}");
    }
}

#[test]
fn a_man_page_has_examples_and_the_first_one_has_the_options_of_every_command() {
    let session = Session::new();
    let dir = session.home().join("man1");
    session.data(0, &["man", "--dir", dir.to_str().unwrap()]);
    let page = |name: &str| fs::read_to_string(dir.join(name)).unwrap();

    let (program, save) = (page("stasis.1"), page("stasis-save.1"));

    assert!(program.contains("\\-\\-store"), "{program}");
    assert!(
        save.contains(".SH EXAMPLES") && !save.contains("\\-\\-config"),
        "{save}"
    );
    assert!(!save.contains("EXTRA"), "{save}");
    assert_eq!(save.matches(".TH ").count(), 1);
}
