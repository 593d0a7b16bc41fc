//! Visits every state of saves beside sweeps.

use stasis_testkit::explore::{Order, Report, explore};
use stasis_testkit::sweep_world::{Bug, Config, Start, SweepWorld};

const LIMIT: usize = 60_000_000;

fn explored(name: &str, config: Config) -> Report {
    let report = explore(SweepWorld::new(config), Order::Shortest, LIMIT);
    println!("{name}: {report}");
    report
}

#[test]
fn measure() {
    let one = [0b11, 0];
    for (name, config) in [
        ("1 save 2 sweeps", Config { wants: one, ..Config::default() }),
        ("1 save 2 sweeps snap forget", Config { wants: one, forgets: 1, start: Start::Snapshot, ..Config::default() }),
        ("1 save 1 sweeps burial", Config { wants: one, sweepers: 1, burial: true, forgets: 1, takeovers: 1, start: Start::Snapshot, ..Config::default() }),
        ("1 save 1 sweeps burial silence 2", Config { wants: one, sweepers: 1, burial: true, forgets: 1, takeovers: 1, silences: 2, start: Start::Snapshot, ..Config::default() }),
        ("1 save 2 sweeps burial", Config { wants: [1,0], burial: true, forgets: 1, takeovers: 1, start: Start::Snapshot, ..Config::default() }),
        ("1 save 2 sweeps silence 1", Config { wants: one, silences: 1, ..Config::default() }),
        ("2 saves 1 sweep silence 2", Config { sweepers: 1, wants:[3,3], silences: 2, forgets: 1, unreadable: 1, ..Config::default() }),
        ("2 saves(1) 2 sweeps", Config { wants: [1,1], ..Config::default() }),
        ("2 saves 2 sweeps", Config { ..Config::default() }),
    ] {
        let begun = std::time::Instant::now();
        explored(name, config);
        println!("{:?}", begun.elapsed());
    }
}

#[test]
fn bugs() {
    for bug in [Bug::NoSecondListing, Bug::NoSecondRead, Bug::SameName, Bug::EpochIgnored, Bug::UnreadableIgnored, Bug::DeletedFirst, Bug::EpochKept,
       Bug::AgeGrace, Bug::ListForgotten, Bug::PlainNames, Bug::ExistenceTrusted, Bug::ManifestRewritten, Bug::Unburied] {
       for start in [Start::Orphan, Start::Snapshot] {
        let config = Config { start, bug: Some(bug), unreadable: 1, forgets: 1, burial: bug == Bug::Unburied, ..Config::default() };
        let report = explore(SweepWorld::new(config), Order::Shortest, 2_000_000);
        println!("{bug:?} {start:?}: {report}");
       }
    }
}
