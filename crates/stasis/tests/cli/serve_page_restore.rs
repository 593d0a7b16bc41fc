//! Restoring from the page in a real browser: to a new directory of the server's host, for whoever has a token of that host.

use crate::profile_chromium::chromium;
use crate::serve::{Served, token};
use crate::session::Session;
use crate::tab::{Tab, axe};
use serde_json::json;
use std::fs;

/// Two saves of a directory beneath a root; what the first one is called.
fn saved_twice(session: &Session) -> String {
    let notes = session.home().join("srv/notes");
    fs::create_dir_all(&notes).unwrap();
    let [first, _] = ["one", "two"].map(|word| {
        fs::write(notes.join("todo"), word).unwrap();
        session.json(0, &["save", notes.to_str().unwrap()])
    });
    first["snapshot_id"].as_str().unwrap().to_owned()
}

/// Asks for another place, which is refused before anything can be agreed to.
fn refuse(tab: &mut Tab, to: &str, said: &str) {
    tab.evaluate("document.querySelector('#to').select()");
    tab.fill("#to", to);
    tab.press("Enter", 13);
    tab.until(&format!(
        "document.querySelector('dialog .problem')?.textContent.includes('{said}')"
    ));
    let typed = tab.evaluate("document.querySelector('#typed').offsetParent");
    assert_eq!(typed, json!(null));
}

/// A token of the host.
fn host_token(session: &Session, scope: &str) -> String {
    let words = [
        "token", "create", "--tenant", "default", "--scope", scope, "--host",
    ];
    let said = session.data(0, &words);
    said.lines().last().unwrap().to_owned()
}

/// Opens the only subject that there is; what it is called.
fn open_only(tab: &mut Tab) -> String {
    tab.until("!!document.querySelector('tbody a')");
    tab.click("document.querySelector('tbody a')");
    tab.until("document.querySelectorAll('tr [type=checkbox]').length === 2");
    let name = tab.evaluate("document.querySelector('h1').textContent");
    name.as_str().unwrap().to_owned()
}

#[test]
fn an_operator_of_the_host_writes_a_snapshot_to_a_new_directory_after_its_plan() {
    if !chromium() || !axe() {
        return;
    }
    let session = Session::new();
    let first = saved_twice(&session);
    let host = host_token(&session, "write");
    let root = session.home().join("srv");
    let root = root.to_str().unwrap();
    let served = Served::start(&session, &["--root", root]);
    let shown = served.get(&host, "/v1/token").body;
    assert_eq!(
        (&shown["host"], &shown["roots"]),
        (&json!(true), &json!([root]))
    );
    let mut tab = Tab::open(&session);

    tab.sign_in(&served, &host);
    let name = open_only(&mut tab);
    tab.press_in_row(&first, "Restore …");
    tab.until("!!document.querySelector('dialog[open] #to')");
    let proposed = tab.evaluate("document.querySelector('#to').value");
    assert_eq!(proposed, format!("{root}/{name}-{}", &first[..8]));

    // What is there is never replaced, which is said before anything is typed.
    refuse(&mut tab, &format!("{root}/notes"), "is not empty");
    refuse(&mut tab, "/elsewhere/notes", "beneath a root");
    tab.evaluate("document.querySelector('#to').select()");
    tab.fill("#to", &format!("{root}/back"));
    tab.press("Enter", 13);
    tab.until("document.activeElement.id === 'typed'");
    let plan = tab.evaluate("document.querySelector('dialog').innerText");
    let plan = plan.as_str().unwrap();
    assert!(plan.contains("/srv/back") && plan.contains("3 B"), "{plan}");
    let refused = "document.querySelector('dialog [type=submit]').disabled";
    assert_eq!(tab.evaluate(refused), true);
    tab.load_axe();
    tab.assert_for_everybody("the dialog");
    assert!(!session.home().join("srv/back").exists());
    // Another place is another plan.
    tab.fill("#typed", &name);
    tab.fill("#to", "-again");
    tab.until("document.querySelector('dialog [type=submit]').textContent === 'Show the plan'");
    tab.evaluate("document.querySelector('#to').focus()");
    tab.press("Enter", 13);
    tab.until("document.activeElement.id === 'typed'");
    tab.fill("#typed", &name);
    tab.press("Enter", 13);
    tab.until("document.querySelector('.notice.good')?.textContent.includes('back-again')");

    let back = fs::read_to_string(session.home().join("srv/back-again/todo"));
    assert_eq!(back.unwrap(), "one");
    assert!(!session.home().join("srv/back").exists());
    tab.go("#/operations");
    tab.until("document.querySelector('tbody tr')?.textContent.includes('wrote 1 file, 3 B')");
    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

#[test]
fn whoever_has_no_right_on_the_host_or_no_root_sees_no_button_for_it() {
    if !chromium() {
        return;
    }
    let session = Session::new();
    saved_twice(&session);
    let root = session.home().join("srv");
    let root = ["--root", root.to_str().unwrap()];
    let weak = token(&session, "default", "admin");
    for (token, roots) in [
        (weak, &root[..]),
        (host_token(&session, "read"), &root[..]),
        (host_token(&session, "write"), &[]),
    ] {
        let served = Served::start(&session, roots);
        let shown = served.get(&token, "/v1/token").body;
        let may = shown["host"] == true && shown["scope"] != "read";
        assert!(!may || shown.get("roots").is_none(), "{shown}");
        let mut tab = Tab::open(&session);

        tab.sign_in(&served, &token);
        open_only(&mut tab);
        let buttons = tab.evaluate("document.querySelector('tbody').textContent");
        assert!(!buttons.as_str().unwrap().contains("Restore"), "{buttons}");
        drop(tab);
        assert_eq!(served.stop(), 0);
    }
}
