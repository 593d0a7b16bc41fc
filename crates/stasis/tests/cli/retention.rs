//! Which snapshots a policy of calendar periods keeps, through the commands that a user types: real snapshots, to which the index gives
//! times months apart.

use crate::encrypted::files;
use crate::session::Session;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// 2026-01-01T00:00:00Z.
const NEW_YEAR: u64 = 1_767_225_600_000;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// A directory that was saved once for each of some moments.
struct Diary {
    session: Session,
    dir: PathBuf,
    ids: Vec<String>,
}

impl Diary {
    fn of(moments: &[u64]) -> Self {
        let session = Session::new();
        let dir = session.home().join("diary");
        fs::create_dir(&dir).unwrap();
        let mut diary = Self {
            session,
            dir,
            ids: Vec::new(),
        };
        for number in 0..moments.len() {
            diary.write(number);
            let saved = diary.json(&["save"]);
            diary
                .ids
                .push(saved["snapshot"].as_str().unwrap().to_owned());
        }
        diary.date(moments);
        diary
    }

    fn write(&self, number: usize) {
        fs::write(self.dir.join("page"), format!("page {number}")).unwrap();
    }

    /// Has the index say that the snapshots were made at other times.
    fn date(&self, moments: &[u64]) {
        let store = self.session.object("");
        let is_index = |path: &PathBuf| path.ends_with("index.json");
        let index = files(&store).into_iter().find(is_index).unwrap();
        let mut document: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        let rows = document["snapshots"].as_array_mut().unwrap();
        assert_eq!(rows.len(), moments.len());
        for (row, at) in rows.iter_mut().zip(moments) {
            row["at_ms"] = json!(at);
        }
        fs::write(&index, serde_json::to_vec(&document).unwrap()).unwrap();
    }

    fn words<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let mut all = arguments.to_vec();
        all.insert(1, text(&self.dir));
        all
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.session.json(0, &self.words(arguments))
    }

    /// The pages that are still there, the oldest first.
    fn pages(&self) -> Vec<usize> {
        let log = self.json(&["log", "--all"]);
        let items = log["items"].as_array().unwrap().iter().rev();
        let number = |row: &Value| {
            let id = row["snapshot"].as_str().unwrap();
            self.ids.iter().position(|one| one == id).unwrap()
        };
        items.map(number).collect()
    }

    /// Why each page that a plan keeps stays, the newest first.
    fn reasons(&self, collected: &Value) -> Vec<(usize, String)> {
        let verdicts = collected["items"].as_array().unwrap().iter();
        let kept = verdicts.filter(|verdict| verdict["kept"] == true);
        let reason = |verdict: &Value| {
            let id = verdict["snapshot_id"].as_str().unwrap();
            let page = self.ids.iter().position(|one| one == id).unwrap();
            let because = verdict["because"].as_array().unwrap().iter();
            let because: Vec<&str> = because.filter_map(Value::as_str).collect();
            (page, because.join(", "))
        };
        kept.map(reason).collect()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Two on New Year's Day, one each in February and March, three in the last week of April, of which two on one day.
fn half_a_year() -> Diary {
    Diary::of(&[
        NEW_YEAR + 3 * HOUR,
        NEW_YEAR + 20 * HOUR,
        NEW_YEAR + 40 * DAY,
        NEW_YEAR + 70 * DAY,
        NEW_YEAR + 114 * DAY,
        NEW_YEAR + 116 * DAY + HOUR,
        NEW_YEAR + 116 * DAY + 9 * HOUR,
    ])
}

#[test]
fn the_newest_of_each_day_and_month_stays_and_the_plan_says_why() {
    let diary = half_a_year();
    let keep = ["gc", "--keep-daily", "2", "--keep-monthly", "3"];

    let planned = diary.json(&[&keep[..], &["--dry-run"]].concat());
    let words = diary
        .session
        .data(0, &diary.words(&[&keep[..], &["--dry-run"]].concat()));
    let untouched = diary.pages();
    let collected = diary.json(&keep);
    let left = diary.pages();
    let again = diary.json(&keep);

    assert_eq!(untouched, [0, 1, 2, 3, 4, 5, 6], "a plan changes nothing");
    let reasons = diary.reasons(&planned);
    assert_eq!(
        reasons,
        [
            (
                6,
                "it is the newest, it is active, daily snapshot, monthly snapshot".to_owned()
            ),
            (4, "daily snapshot".to_owned()),
            (3, "monthly snapshot".to_owned()),
            (2, "monthly snapshot".to_owned()),
        ]
    );
    assert!(words.contains("daily snapshot"), "{words}");
    assert_eq!(
        diary.reasons(&collected),
        reasons,
        "what was planned is done"
    );
    assert_eq!(left, [2, 3, 4, 6]);
    assert_eq!(diary.reasons(&again).len(), 4, "again, nothing more goes");
    // What stays comes back, and what went frees its bytes and can be named no more.
    let out = diary.session.home().join("out");
    diary.json(&["restore", &diary.ids[2], "--to", text(&out)]);
    assert_eq!(fs::read_to_string(out.join("page")).unwrap(), "page 2");
    let gone = diary.words(&["show", &diary.ids[0]]);
    assert_eq!(diary.session.run(&gone).code, 3);
    diary.json(&["check", "--read-data"]);
}

#[test]
fn pins_stay_whatever_the_calendar_says_and_a_larger_number_keeps_more() {
    let diary = half_a_year();
    diary.json(&["pin", &diary.ids[0]]);

    let kept = |number: &str| {
        let planned = diary.json(&["gc", "--keep-weekly", number, "--dry-run"]);
        let reasons = diary.reasons(&planned);
        reasons
            .into_iter()
            .map(|(page, _)| page)
            .collect::<Vec<_>>()
    };

    // 2026-04-25 was a Saturday and 2026-04-27 a Monday.
    assert_eq!(kept("1"), [6, 0]);
    assert_eq!(kept("2"), [6, 4, 0]);
    assert_eq!(kept("3"), [6, 4, 3, 0]);
    assert_eq!(kept("99"), [6, 4, 3, 2, 1, 0]);
}

#[test]
fn the_file_of_a_project_asks_for_periods_and_options_take_their_place() {
    let diary = half_a_year();
    let file = diary.dir.join("stasis.toml");
    let listed = diary.session.json(0, &["list"]);
    let name = listed["items"][0]["subject"].as_str().unwrap();
    let name = name.strip_prefix("dir:").unwrap();
    fs::write(
        &file,
        format!(
            "id = \"{name}\"\nlayout = \"in-place\"\n[retention]\nkeep_yearly = 1\nkeep_daily = 2\n"
        ),
    )
    .unwrap();

    let by_file = diary.json(&["gc", "--dry-run"]);
    let by_option = diary.json(&["gc", "--keep-last", "3", "--dry-run"]);
    fs::write(
        &file,
        format!("id = \"{name}\"\nlayout = \"in-place\"\n[retention]\nkeep_dayly = 2\n"),
    )
    .unwrap();
    let misspelt = diary.session.run(&diary.words(&["gc", "--dry-run"]));
    let none = diary
        .session
        .run(&diary.words(&["gc", "--keep-daily", "0"]));

    let pages = |collected: &Value| {
        let reasons = diary.reasons(collected);
        reasons
            .into_iter()
            .map(|(page, _)| page)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        pages(&by_file),
        [6, 4],
        "100 are kept only where nothing is asked for"
    );
    assert_eq!(pages(&by_option), [6, 5, 4]);
    assert_eq!(misspelt.code, 2, "{}{}", misspelt.out, misspelt.err);
    assert!(misspelt.err.contains("keep_dayly"), "{}", misspelt.err);
    assert_eq!(none.code, 2, "{}", none.err);
}
