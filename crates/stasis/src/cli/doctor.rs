//! `stasis doctor`

use super::output::printable;
use super::{CliContext, color, hook, system_clock, system_rng};
use crate::report::Exit;
use stasis_engine::doctor::{
    DoctorFinding, Examined, Health, examine, examine_workspace, store_works,
};
use stasis_engine::open::Engine;

/// How wide a report is.
const WIDTH: usize = 80;
/// How much of a line a name may take.
const NAME: usize = 18;
/// How much of a line the health takes.
const HEALTH: usize = 9;

pub(super) async fn run(context: &CliContext) -> anyhow::Result<Exit> {
    let engine = Engine::open(
        context.open(context.location()?, false),
        system_clock(),
        system_rng(),
    )
    .await;
    let data = context.environment.data_directory.clone();
    let examined = Examined {
        place: data.unwrap_or_else(std::env::temp_dir),
        here: std::env::current_dir().ok(),
        search_path: &context.environment.search_path,
        docker_host: context
            .environment
            .variables
            .get("DOCKER_HOST")
            .map(Into::into),
    };
    let here = examined.here.clone();
    let mut findings = examine(engine.as_ref(), examined).await;
    findings.extend(hook::findings(context).await);
    if let (Some(here), Ok(host_env)) = (here, context.environment.host_env()) {
        findings.extend(examine_workspace(&here, &host_env).await);
    }
    context
        .output
        .result(&findings, |findings| text(findings))?;
    Ok(if store_works(&findings) {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn text(findings: &[DoctorFinding]) -> String {
    let (notes, found): (Vec<_>, Vec<_>) =
        findings.iter().partition(|one| one.health == Health::Note);
    let mut lines = vec![color::head(&format!(
        "{:<NAME$}{:<HEALTH$}DETAIL",
        "WHAT", "HEALTH"
    ))];
    for finding in found {
        let health = match finding.health {
            Health::Ok => "ok",
            Health::Missing => "missing",
            Health::Broken => "broken",
            Health::Note => "note",
        };
        let lead = format!("{:<NAME$}{health:<HEALTH$}", finding.name);
        lines.extend(wrapped(&lead, &printable(&finding.detail)));
        if !finding.costs.is_empty() {
            let indent = " ".repeat(NAME + HEALTH);
            let costs = format!("without it: {}", finding.costs);
            lines.extend(wrapped(&indent, &costs));
        }
    }
    for note in notes {
        lines.push(String::new());
        lines.extend(wrapped("note: ", &printable(&note.detail)));
    }
    lines.join("\n")
}

/// Text behind a lead, in lines that begin below its first word. A word that is too long for a line, such as a path, is not broken.
fn wrapped(lead: &str, text: &str) -> Vec<String> {
    let indent = lead.chars().count();
    let mut lines = vec![lead.to_owned()];
    let mut used = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        let last = lines.last_mut().expect("there is one from the beginning");
        if used > indent && used + 1 + length > WIDTH {
            lines.push(format!("{}{word}", " ".repeat(indent)));
            used = indent + length;
            continue;
        }
        if used > indent {
            last.push(' ');
            used += 1;
        }
        last.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_detail_goes_on_below_itself_and_a_path_stays_whole() {
        let path = format!("/{}", "a".repeat(90));
        let lines = wrapped("store  ok  ", &format!("one two {path} three"));

        let indent = " ".repeat(11);
        let wanted = [
            "store  ok  one two".to_owned(),
            format!("{indent}{path}"),
            format!("{indent}three"),
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn what_its_absence_costs_stands_below_what_is_missing() {
        let missing = DoctorFinding::new("docker", Health::Missing, "no docker", "no containers");

        let said = text(&[missing]);

        assert!(
            said.contains("docker            missing  no docker\n"),
            "{said}"
        );
        assert!(
            said.ends_with("                           without it: no containers"),
            "{said}"
        );
    }
}
