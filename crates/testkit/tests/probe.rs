use stasis_testkit::explore::{Order, explore};
use stasis_testkit::lineage_world::LineageWorld;
use stasis_testkit::lineage_world::cast::{Cast, Command, Start};
use stasis_testkit::lineage_world::conduct::Honest;

#[test]
fn probe() {
    let env = |name: &str, default: u8| {
        std::env::var(name)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(default)
    };
    let commands: &'static [Command] = match env("CMD", 0) {
        1 => &[Command::Rollback],
        2 => &[Command::ForceUnlock],
        3 => &[Command::Delete],
        4 => &[Command::Pin],
        5 => &[Command::RollbackIfUnmoved, Command::Adopt],
        6 => &[
            Command::Rollback,
            Command::ForceUnlock,
            Command::Delete,
            Command::Pin,
            Command::RollbackIfUnmoved,
        ],
        9 => &[Command::Adopt],
        7 => &[Command::Rollback, Command::ForceUnlock],
        8 => &[Command::Delete, Command::Pin],
        _ => &[],
    };
    let cast = Cast {
        writers: env("W", 2),
        renewals: env("RENEW", 0),
        fresh: env("FRESH", 0) > 0,
        reaps: env("REAPS", 0),
        acts: env("ACTS", 0),
        repertoire: commands,
        attempts: env("ATT", 2),
        attempts_of_others: env("OATT", 1),
        unreadable: env("BLIND", 0),
        crashes: env("CRASH", 0) > 0,
        start: if env("EMPTY", 0) > 0 {
            Start::Empty
        } else {
            Start::Published
        },
        ..Cast::default()
    };
    let order = if env("DFS", 0) > 0 {
        Order::Frugal
    } else {
        Order::Shortest
    };
    if env("STAT", 0) > 0 {
        use stasis_testkit::explore::World;
        let mut seen = std::collections::HashSet::new();
        let mut parts: Vec<std::collections::HashMap<u128, usize>> = vec![Default::default(); 10];
        let start = LineageWorld::<Honest>::new(cast);
        seen.insert(start.fingerprint());
        let mut q = std::collections::VecDeque::from([start]);
        while let Some(w) = q.pop_front() {
            let p = w.parts();
            for (i, x) in p.iter().enumerate() {
                *parts[i].entry(*x).or_default() += 1;
            }
            *parts[8].entry(p[0] ^ p[1].rotate_left(7)).or_default() += 1;
            *parts[9]
                .entry(p[0] ^ p[1].rotate_left(7) ^ p[2].rotate_left(17))
                .or_default() += 1;
            for (_, n) in w.moves() {
                let n = n.unwrap();
                if seen.insert(n.fingerprint()) {
                    q.push_back(n);
                }
            }
            if seen.len() > 300_000 {
                break;
            }
        }
        for (i, p) in parts.iter().enumerate() {
            let mut c: Vec<_> = p.values().collect();
            c.sort();
            c.reverse();
            println!("part {i}: {} s\n top {:?} s", p.len(), &c[..c.len().min(8)]);
        }
        return;
    }
    let t = std::time::Instant::now();
    let limit = std::env::var("LIMIT")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(3_000_000);
    let report = explore(LineageWorld::<Honest>::new(cast), order, limit);
    println!("{report}\n{:?}\n{:?}", report.sights, t.elapsed());
}
