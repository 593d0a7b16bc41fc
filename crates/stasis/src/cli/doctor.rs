//! `stasis doctor`

use super::output::table;
use super::{CliContext, system_clock, system_rng};
use crate::report::Exit;
use stasis_engine::doctor::{DoctorFinding, Health, examine, store_works};
use stasis_engine::open::Engine;

pub(super) async fn run(context: &CliContext) -> anyhow::Result<Exit> {
    let engine = Engine::open(
        context.open(context.location()?, false),
        system_clock(),
        system_rng(),
    )
    .await;
    let place = context
        .environment
        .data_directory
        .clone()
        .unwrap_or_else(std::env::temp_dir);
    let mut findings = examine(engine.as_ref(), place, &context.environment.search_path).await;
    findings.extend(super::hook::findings(context).await);
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
    let row = |finding: &DoctorFinding| {
        let health = match finding.health {
            Health::Ok => "ok",
            Health::Missing => "missing",
            Health::Broken => "broken",
        };
        vec![
            finding.name.clone(),
            health.to_owned(),
            finding.detail.clone(),
        ]
    };
    let table = table(
        &["WHAT", "HEALTH", "DETAIL"],
        findings.iter().map(row).collect(),
    );
    let missed = findings.iter().filter(|finding| !finding.costs.is_empty());
    let costs: Vec<String> = missed
        .map(|finding| format!("without {}: {}", finding.name, finding.costs))
        .collect();
    format!("{table}\n\n{}", costs.join("\n"))
        .trim_end()
        .to_owned()
}
