//! `stasis ui` in a real browser: what each prompt changed, side by side, and the way back.

use crate::profile_chromium::chromium;
use crate::rewind::{command, prompt};
use crate::serve::Served;
use crate::serve_host::ask;
use crate::session::Session;
use crate::tab::{Tab, axe};
use crate::workspace::Tree;
use serde_json::{Value, json};
use std::fs;

/// A workspace in which an agent was asked two things.
fn worked_in() -> Tree {
    let tree = Tree::new(&[("todo.txt", "buy milk\nbuy bread\n")]);
    prompt(&tree, "add the shop");
    tree.write("shop/list.rs", "fn list() {}\n");
    command(&tree, "cargo test");
    tree.write("todo.txt", "buy milk\nsell bread\n");
    prompt(&tree, "tidy up");
    fs::remove_file(tree.at("shop/list.rs")).unwrap();
    tree
}

fn ui(session: &Session, dir: &str) -> Served {
    Served::started(session.command(&["--json", "ui", dir]))
}

/// Opens what was printed, and waits for the first view.
fn open(tab: &mut Tab, served: &Served) {
    tab.call("Page.navigate", &json!({ "url": served.url }));
    tab.until("document.querySelectorAll('.prompt').length === 2");
}

const FIRST: &str = "[...document.querySelectorAll('.prompt')].find(one => one.textContent.includes('add the shop'))";

#[test]
fn a_developer_sees_what_each_prompt_changed_and_goes_back_to_before_one() {
    if !chromium() || !axe() {
        return;
    }
    let tree = worked_in();
    let served = ui(&tree.session, &tree.dir());
    let mut tab = Tab::open(&tree.session);
    open(&mut tab, &served);

    // The token is in the address no more, and in no request but those of the page.
    assert_eq!(tab.evaluate("location.hash"), "#/directory");
    // What the first prompt changed, and nothing that the second one did.
    tab.click(&format!("{FIRST}.querySelector('.changes summary')"));
    tab.until(&format!(
        "{FIRST}.querySelectorAll('.changes li').length >= 3"
    ));
    let changed = tab.evaluate(&format!(
        "[...{FIRST}.querySelectorAll('.changes li')].map(one => one.innerText.replace(/\\s+/g, ' ')).sort()"
    ));
    assert_eq!(
        changed,
        json!(["added shop", "added shop/list.rs", "content todo.txt"])
    );
    tab.load_axe();
    tab.assert_for_everybody("the timeline");
    tab.click(&format!(
        "[...{FIRST}.querySelectorAll('.changes a')].find(one => one.textContent === 'todo.txt')"
    ));
    tab.until("!!document.querySelector('.sides')");
    let sides = tab.evaluate(
        "[...document.querySelectorAll('.sides .gone.text, .sides .come.text')].map(one => one.textContent)",
    );
    assert_eq!(sides, json!(["buy bread", "sell bread"]));
    tab.load_axe();
    tab.assert_for_everybody("the changes");

    // Back to before the first prompt, after the plan.
    tab.go("#/directory");
    tab.until(&format!("!!{FIRST}"));
    tab.click(&format!(
        "[...{FIRST}.querySelectorAll('button')].find(one => one.textContent.startsWith('Go back to before'))"
    ));
    tab.until("document.querySelector('dialog button.primary')?.disabled === false");
    let plan = tab.evaluate("document.querySelector('dialog').innerText");
    let plan = plan.as_str().unwrap();
    assert!(plan.contains("todo.txt") && plan.contains("shop"), "{plan}");
    tab.assert_for_everybody("the plan");
    assert_eq!(tree.read("todo.txt"), "buy milk\nsell bread\n");
    // Whoever presses Enter too early has agreed to nothing.
    assert_eq!(tab.evaluate("document.activeElement.textContent"), "Cancel");
    tab.click("document.querySelector('dialog button.primary')");
    tab.until("!document.querySelector('dialog') && document.querySelector('#status').textContent.includes('what it was')");
    assert_eq!(tree.read("todo.txt"), "buy milk\nbuy bread\n");
    assert!(!tree.at("shop").exists());

    // And forth again.
    let undo = "[...document.querySelectorAll('main button')].find(one => one.textContent.startsWith('Undo'))";
    tab.until(&format!("!!{undo}"));
    tab.click(undo);
    tab.until("document.querySelector('dialog button.primary')?.disabled === false");
    tab.click("document.querySelector('dialog button.primary')");
    tab.until("document.querySelector('#status').textContent.includes('taken back')");
    assert_eq!(tree.read("todo.txt"), "buy milk\nsell bread\n");
    assert!(tree.at("shop").is_dir());
    assert_eq!(tab.complaints, Vec::<String>::new());
    drop(tab);
    assert_eq!(served.stop(), 0);
}

/// What stands in a group: its prompt, its checkpoint, the one that ends it, and its moments.
const GROUPS: &str = "import('/page/directory.js').then(({ byPrompts }) => byPrompts([ \
    { kind: 'checkpoint', snapshot: 'cp-101', at_ms: 300, agent_events: [{ event: 'prompt', prompt: 3, timestamp_ms: 299 }] }, \
    { kind: 'undo', snapshot: 'u-1', at_ms: 250 }, \
    { kind: 'checkpoint', snapshot: 'cp-100', at_ms: 101, agent_events: [ \
      { event: 'prompt', prompt: 1, timestamp_ms: 100 }, { event: 'command', timestamp_ms: 120 }, \
      { event: 'prompt', prompt: 2, timestamp_ms: 200 }, { event: 'prompt', prompt: 4, timestamp_ms: 500 }] }, \
    { kind: 'snapshot', snapshot: 'saved', at_ms: 50 }, \
  ]).map((one) => [one.prompt?.prompt ?? 0, one.item?.snapshot ?? '', one.after?.snapshot ?? '', one.steps.map((step) => step.snapshot).join(' ')]))";

#[test]
fn each_prompt_stands_once_where_it_was_asked_also_if_several_share_a_checkpoint() {
    if !chromium() {
        return;
    }
    let tree = worked_in();
    let served = ui(&tree.session, &tree.dir());
    let mut tab = Tab::open(&tree.session);
    open(&mut tab, &served);

    assert_eq!(
        tab.evaluate(GROUPS),
        json!([
            // Somebody went back to the first one, and asked again.
            [4, "cp-100", "", ""],
            [3, "cp-101", "cp-100", "cp-101"],
            [2, "cp-100", "cp-101", "u-1"],
            [1, "cp-100", "cp-100", "cp-100"],
            [0, "", "", "saved"],
        ])
    );
    // Of a service for many, a link signs nobody in.
    let host = ["token", "create", "--tenant", "acme", "--scope", "read"];
    let other = tree.session.data(0, &host);
    let many = Served::start(&tree.session, &[]);
    let url = format!("{}/#token={}", many.url, other.lines().last().unwrap());
    tab.call("Page.navigate", &json!({ "url": url }));
    tab.until("!!document.querySelector('#token')");
    assert_eq!(tab.evaluate("sessionStorage.length"), 0);
    drop(tab);
    assert_eq!((served.stop(), many.stop()), (0, 0));
}

#[test]
fn what_changed_since_the_plan_is_not_deleted_without_having_been_shown() {
    let tree = worked_in();
    let served = ui(&tree.session, &tree.dir());
    let token = served.url.split("#token=").nth(1).unwrap().to_owned();
    let shown = served.get(&token, "/v1/directory").body;
    let first = shown["items"].as_array().unwrap().iter().rev();
    let mut first = first.filter(|one| one["kind"] == "checkpoint");
    let first = first.next().unwrap()["snapshot"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/v1/directory/snapshots/{first}/restore");
    let restore = |body: &Value| ask(&served, &token, &path, body);

    let plan = restore(&json!({}));
    assert_eq!(plan["answer"]["done"], false, "{plan}");
    tree.write("shop/new.rs", "fn main() {}\n");
    let agreed = json!({ "agreed": plan["answer"]["digest"] });
    let refused = restore(&agreed);

    assert_eq!(refused["state"], "failed", "{refused}");
    assert_eq!(tree.read("shop/new.rs"), "fn main() {}\n");
    // Nor is a checkpoint that is another one by now than the one of the row.
    let another = restore(&json!({ "made_at_ms": 1 }));
    assert_eq!(another["problem"]["code"], "retry", "{another}");
    let again = restore(&json!({}));
    let agreed = json!({ "agreed": again["answer"]["digest"] });
    assert_eq!(restore(&agreed)["answer"]["done"], true);
    assert!(!tree.at("shop").exists());
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_directory_that_is_only_saved_goes_back_to_a_snapshot_of_the_store() {
    let session = Session::new();
    let notes = session.home().join("notes");
    fs::create_dir(&notes).unwrap();
    let dir = notes.to_str().unwrap();
    let saved = ["one", "two"].map(|word| {
        fs::write(notes.join("todo"), word).unwrap();
        fs::write(notes.join(word), word).unwrap();
        session.json(0, &["save", dir])
    });
    fs::remove_file(notes.join("one")).unwrap();
    let served = ui(&session, dir);
    let token = served.url.split("#token=").nth(1).unwrap().to_owned();
    let shown = served.get(&token, "/v1/directory").body;
    assert_eq!(shown["is_protected"], false, "{shown}");
    assert_eq!(shown["items"].as_array().unwrap().len(), 2);
    let first = saved[0]["snapshot_id"].as_str().unwrap();
    let diff = served.get(
        &token,
        &format!("/v1/directory/diff?before={first}&path=todo&patch=true"),
    );
    assert!(
        diff.body["patch"].as_str().unwrap().contains("+two"),
        "{}",
        diff.text
    );

    let path = format!("/v1/directory/snapshots/{first}/restore");
    let plan = ask(&served, &token, &path, &json!({}));
    let counts = ["creates", "replaces", "deletes"].map(|name| plan["answer"][name].as_u64());
    assert_eq!(counts, [Some(1); 3], "{plan}");
    // What goes is named first, and is what this snapshot does not have.
    let change = |at: usize| {
        (
            plan["answer"]["items"][at]["change"].clone(),
            plan["answer"]["items"][at]["path"].clone(),
        )
    };
    assert_eq!(change(0), (json!("removed"), json!("two")), "{plan}");
    assert_eq!(change(1), (json!("added"), json!("one")), "{plan}");
    assert_eq!(fs::read_to_string(notes.join("todo")).unwrap(), "two");
    let agreed = json!({ "agreed": plan["answer"]["digest"] });
    // What came since then would go, and nobody was shown that.
    fs::write(notes.join("since"), "since").unwrap();
    let refused = ask(&served, &token, &path, &agreed);
    assert_eq!(refused["problem"]["code"], "retry", "{refused}");
    assert_eq!(fs::read_to_string(notes.join("since")).unwrap(), "since");
    assert_eq!(fs::read_to_string(notes.join("todo")).unwrap(), "two");
    fs::remove_file(notes.join("since")).unwrap();
    let done = ask(&served, &token, &path, &agreed);
    assert_eq!(done["answer"]["done"], true, "{done}");
    assert_eq!(done["answer"]["can_be_undone"], true, "{done}");
    assert_eq!(fs::read_to_string(notes.join("todo")).unwrap(), "one");
    assert!(notes.join("one").exists() && !notes.join("two").exists());

    let plan = ask(&served, &token, "/v1/directory/undo", &json!({}));
    let agreed = json!({ "agreed": plan["answer"]["digest"] });
    let undone = ask(&served, &token, "/v1/directory/undo", &agreed);
    assert_eq!(undone["answer"]["done"], true, "{undone}");
    assert_eq!(fs::read_to_string(notes.join("todo")).unwrap(), "two");
    assert!(notes.join("two").exists() && !notes.join("one").exists());
    assert_eq!(served.stop(), 0);
}

#[test]
fn the_page_is_for_nobody_else() {
    let tree = worked_in();
    let served = ui(&tree.session, &tree.dir());
    let other =
        "stasis_0123456789abcdef_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    for token in ["", other] {
        assert_eq!(served.get(token, "/v1/directory").status, 401);
    }
    // Nothing of it is in the store: it ends with the command.
    assert_eq!(tree.session.run(&["token", "list"]).code, 3);
    assert_eq!(served.stop(), 0);
    let said = tree
        .session
        .run(&["ui", &tree.dir(), "--listen", "0.0.0.0:0"]);
    assert!(said.err.contains("is not on loopback"), "{}", said.err);
    // A service for many shows none.
    let session = Session::new();
    let host = [
        "token", "create", "--tenant", "default", "--scope", "admin", "--host",
    ];
    let host = session.data(0, &host).lines().last().unwrap().to_owned();
    let served = Served::start(&session, &[]);
    assert_eq!(served.get(&host, "/v1/directory").status, 404);
    assert_eq!(served.stop(), 0);
}
