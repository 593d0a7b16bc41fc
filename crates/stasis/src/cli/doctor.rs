//! `stasis doctor`

use super::Context;
use super::output::table;
use crate::report::Exit;
use stasis_engine::doctor::{Finding, Health};

pub(super) async fn run(context: &Context) -> anyhow::Result<Exit> {
    let engine = context.engine().await?;
    let findings = engine.doctor(&context.environment.search_path).await;
    context
        .output
        .result(&findings, |findings| words(findings))?;
    let store_works = findings
        .iter()
        .all(|finding| finding.name != "store" || finding.health == Health::Ok);
    Ok(if store_works {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn words(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let health = match finding.health {
            Health::Ok => "ok",
            Health::Missing => "missing",
            Health::Broken => "broken",
        };
        vec![
            finding.name.to_owned(),
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
