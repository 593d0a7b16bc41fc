//! The `OpenAPI` document, and whether the service keeps to it: asked by programs that know nothing of us but the document.

use crate::profile::{profile, save, sqlite};
use crate::serve::{Served, token};
use crate::session::{Said, Session, said};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many requests are made up for each route, beside those that follow from its schema.
const MADE_UP: &str = "12";

/// What is not asked for. A valid value may be refused all the same: the document says what a value looks like, and not which two of
/// them go together, or which text is a name.
const LEFT_OUT: &str = "positive_data_acceptance";

/// A program of `target/parts/checks`; `None` means that the test is skipped.
pub(crate) fn check_program(name: &str) -> Option<PathBuf> {
    let parts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/parts/checks/bin");
    let program = Path::new(parts).join(name);
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    let found = program.exists();
    assert!(found || !needed, "{name} is not there: run scripts/parts");
    if !found {
        println!("skipped: {name} is not there; scripts/parts brings it");
    }
    found.then_some(program)
}

/// A service over a store with snapshots in it, and a token for all of it.
struct World {
    session: Session,
    served: Served,
    token: String,
    /// The beginning of the active snapshot, which no request can delete.
    active: String,
}

impl World {
    fn new() -> Self {
        let session = Session::new();
        let dir = profile(&session, "profile");
        save(&session, 0, &dir, &[]);
        sqlite(&dir, "insert into cookies values('two');");
        save(&session, 0, &dir, &[]);
        sqlite(&dir, "insert into cookies values('three');");
        let active = save(&session, 0, &dir, &[]);
        let notes = session.home().join("notes");
        std::fs::create_dir(&notes).unwrap();
        std::fs::write(notes.join("today"), "buy milk").unwrap();
        session.data(0, &["save", notes.to_str().unwrap()]);
        let token = token(&session, "acme", "admin");
        let served = Served::start(&session, &["--rate", "1000000"]);
        Self {
            active: active["sha256"].as_str().unwrap()[..12].to_owned(),
            session,
            served,
            token,
        }
    }

    /// Asks whatever the document allows, and what it does not allow; says what came of it.
    fn ask(&self, schemathesis: &Path, settings: &str, more: &[&str]) -> Said {
        let file = self.session.home().join("schemathesis.toml");
        std::fs::write(&file, settings).unwrap();
        let document = format!("{}/v1/openapi.json", self.served.url);
        let mut command = Command::new(schemathesis);
        command.arg("--config-file").arg(&file);
        command.args(["run", &document, "--no-color", "--seed", "19"]);
        command.args(["-H", &format!("Authorization: Bearer {}", self.token)]);
        command.args(["--checks", "all", "--exclude-checks", LEFT_OUT]);
        command.args(["--max-examples", MADE_UP, "--continue-on-failure"]);
        command.args(["--suppress-health-check", "all", "--warnings", "off"]);
        command.args(["--request-timeout", "30"]).args(more);
        // What it remembers of a run is not for the next one.
        command.current_dir(self.session.home());
        said(command.output().unwrap())
    }
}

/// How many requests were made.
fn cases(report: &str) -> usize {
    let line = report.lines().find(|line| line.contains(" generated"));
    let line = line.unwrap_or_else(|| panic!("{report}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_document_is_valid_openapi() {
    let Some(validator) = check_program("openapi-spec-validator") else {
        return;
    };
    let session = Session::new();
    let file = session.home().join("openapi.json");
    std::fs::write(&file, session.data(0, &["serve", "--print-openapi"])).unwrap();

    let checked = Command::new(validator).arg(&file).output().unwrap();

    let checked = said(checked);
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
}

/// No 5xx; no status, header, type of content or body that the document does not have; nothing taken that is wrong by it, and nothing
/// answered without a token. [`LEFT_OUT`] is what is not asked.
#[test]
fn whatever_is_asked_the_service_keeps_to_its_document() {
    let Some(schemathesis) = check_program("schemathesis") else {
        return;
    };
    let world = World::new();
    // Names that nobody has, and whatever else fits into a path.
    let strange = world.ask(&schemathesis, "", &["--phases", "fuzzing"]);
    assert_eq!(strange.code, 0, "{}{}", strange.out, strange.err);
    // What is there, with whatever fits into queries and bodies.
    let there = format!(
        "[[operations]]\ninclude-path-regex = '^/v1/profile-snapshots/'\n[operations.parameters]\n\
         'path.tenant_id' = 'acme'\n'path.profile_id' = 'alice'\n'path.sha_prefix' = '{active}'\n\
         [[operations]]\ninclude-path-regex = '^/v1/subjects/'\n[operations.parameters]\n\
         'path.kind' = 'profile'\n'path.id' = 'alice@131'\n'path.snapshot' = '{active}'\n",
        active = world.active
    );
    let there = world.ask(&schemathesis, &there, &["--phases", "coverage,fuzzing"]);
    assert_eq!(there.code, 0, "{}{}", there.out, there.err);

    let all = cases(&strange.out) + cases(&there.out);
    assert!(all > 200, "only {all} requests were made\n{}", there.out);
    // Nothing of it moved what is active, or cost it its snapshots.
    let path = format!("/v1/profile-snapshots/acme/alice/{}", world.active);
    let shown = world.served.get(&world.token, &path);
    assert_eq!(shown.status, 200, "{}", shown.body);
    assert_eq!(world.served.stop(), 0);
}
