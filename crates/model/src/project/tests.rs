use super::*;
use serde_json::{Value, json};

fn read(value: Value) -> Result<ProjectConfig, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn shop(change: impl FnOnce(&mut Value)) -> ProjectConfig {
    let mut value = json!({
        "id": "shop",
        "volumes": {
            "main": { "consistency": "sqlite" },
            "db": { "consistency": "postgres", "url_env": "DATABASE_URL", "services": ["server"] },
            "media": { "consistency": "generic", "services": ["web"] },
        },
        "services": {
            "server": { "container": "shop-db" },
            "web": { "start": "exec ./web", "health": { "tcp": "127.0.0.1:8080" } },
        },
    });
    change(&mut value);
    read(value).unwrap()
}

#[test]
fn what_is_not_said_is_as_the_guide_says() {
    let config = read(json!({ "id": "shop" })).unwrap();

    assert_eq!(config.state(), PathBuf::from("./state"));
    assert_eq!(config.layout(), Layout::State);
    assert_eq!(config.retention.policy().keep_last, Some(100));
    assert_eq!(config.autosave.debounce(), Duration::from_secs(30));
    assert_eq!(config.check(), Ok(()));
}

#[test]
fn a_key_that_is_misspelt_is_refused() {
    let error = read(json!({ "id": "shop", "volume": {} })).unwrap_err();

    assert!(error.contains("unknown field `volume`"), "{error}");
}

#[test]
fn a_name_that_could_step_outside_is_refused() {
    let volumes = json!({ "../up": { "consistency": "generic" } });

    assert!(read(json!({ "id": "shop", "volumes": volumes })).is_err());
    assert!(read(json!({ "id": "a/b" })).is_err());
}

#[test]
fn the_server_of_a_database_is_known_as_such() {
    let config = shop(|_| {});

    assert_eq!(config.check(), Ok(()));
    assert_eq!(
        config
            .servers()
            .map(ServiceName::as_str)
            .collect::<Vec<_>>(),
        ["server"]
    );
}

#[test]
fn what_does_not_fit_together_is_named() {
    let wrong = |change: fn(&mut Value)| shop(change).check().unwrap_err().to_string();

    let missing = wrong(|value| value["volumes"]["media"]["services"] = json!(["worker"]));
    let nowhere = wrong(|value| value["volumes"]["db"] = json!({ "consistency": "postgres" }));
    let stray = wrong(|value| value["volumes"]["main"]["url"] = json!("postgres:///a"));
    let idle = wrong(|value| value["services"]["web"] = json!({}));
    let twice = wrong(|value| value["services"]["server"]["pid_file"] = json!("a.pid"));
    let empty = wrong(|value| value["services"]["web"]["stop"] = json!([]));
    let well = wrong(|value| value["services"]["web"]["health"] = json!({}));
    let nothing = wrong(|value| value["retention"] = json!({ "max_snapshots": 0 }));

    assert!(missing.contains("`worker`"), "{missing}");
    assert!(nowhere.contains("`url_env`"), "{nowhere}");
    assert!(stray.contains("`main`"), "{stray}");
    assert!(idle.contains("`web`"), "{idle}");
    assert!(twice.contains("both"), "{twice}");
    assert!(empty.contains("`stop` is empty"), "{empty}");
    assert!(well.contains("`health`"), "{well}");
    assert!(nothing.contains("at least 1"), "{nothing}");
}

#[test]
fn a_line_is_for_the_shell_and_words_are_not() {
    let line = CommandLine::Shell("a && b".to_owned());
    let words = CommandLine::Words(vec!["a".to_owned(), "&&".to_owned()]);

    assert_eq!(line.words(), ["/bin/sh", "-c", "a && b"]);
    assert_eq!(words.words(), ["a", "&&"]);
}

#[test]
fn a_volume_with_a_path_lies_in_the_applications_own_tree() {
    let config = |value: Value| read(value).unwrap();
    let volume = |path: &str| json!({ "consistency": "sqlite", "path": path });
    let shop = config(json!({ "id": "shop", "volumes": {
        "db": volume("./data/app.db"),
        "server": { "consistency": "postgres", "url_env": "URL" },
    } }));

    assert_eq!(shop.check(), Ok(()));
    assert_eq!(shop.layout(), Layout::InPlace);
    let place = |name: &str| shop.place_of(&name.parse().unwrap()).to_string();
    assert_eq!(place("db"), "data/app.db");
    assert_eq!(place("server"), ".stasis/volumes/server");
}

#[test]
fn paths_that_lead_out_and_layouts_that_contradict_are_refused() {
    let check = |value: Value| read(value).unwrap().check().unwrap_err().to_string();
    let sqlite = json!({ "consistency": "sqlite" });
    let at = |path: &str| json!({ "consistency": "sqlite", "path": path });

    for path in ["../x.db", "/etc/x.db", "", "a//b", "a/../b"] {
        let words = check(json!({ "id": "shop", "volumes": { "db": at(path) } }));
        assert!(words.contains("not a path within"), "{words}");
    }
    let words = check(json!({ "id": "shop", "layout": "in-place", "volumes": { "db": sqlite } }));
    assert!(words.contains("say where with `path`"), "{words}");
    let words = check(json!({ "id": "shop", "layout": "state", "volumes": { "db": at("a.db") } }));
    assert!(words.contains("says `path`"), "{words}");
    let words = check(json!({ "id": "shop", "layout": "in-place", "state": "./state" }));
    assert!(words.contains("in-place"), "{words}");
}
