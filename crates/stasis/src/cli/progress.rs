//! How far long work has come: a bar where somebody watches, a line now and then where nobody does.

use super::output::{Output, Verbosity};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use stasis_engine::progress::{Progress, Reached};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often a bar moves.
const TICK: Duration = Duration::from_millis(100);
/// How often a line is written where there is no terminal.
const LINE: u32 = 100;

/// Becomes true when somebody asks the process to stop.
pub(crate) fn cancel_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let cancel: Arc<AtomicBool> = Arc::default();
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (mut asked, cancel) = (signal(kind)?, cancel.clone());
        tokio::spawn(async move {
            asked.recv().await;
            cancel.store(true, Ordering::Relaxed);
        });
    }
    Ok(cancel)
}

/// Whether somebody watches a bar move.
pub(crate) fn is_shown(output: Output) -> bool {
    let is_wanted = !output.as_json && output.verbosity != Verbosity::Quiet;
    is_wanted && std::io::stderr().is_terminal()
}

/// Shows how far `work` has come until it ends.
pub(crate) async fn watched<T>(
    output: Output,
    verb: &'static str,
    progress: Arc<Progress>,
    work: impl Future<Output = T>,
) -> T {
    if output.as_json {
        return work.await;
    }
    let bar = if is_shown(output) {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = "{msg} {bar:24} {pos}/{len} files, {prefix}, {elapsed}, {eta} left";
        bar.set_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_message(verb);
        Some(bar)
    } else {
        None
    };
    tokio::pin!(work);
    let mut ticks: u32 = 0;
    loop {
        tokio::select! {
            done = &mut work => {
                if let Some(bar) = bar {
                    bar.finish_and_clear();
                }
                return done;
            }
            () = tokio::time::sleep(TICK) => {
                ticks += 1;
                show(output, verb, bar.as_ref(), progress.reached(), ticks);
            }
        }
    }
}

fn show(output: Output, verb: &str, bar: Option<&ProgressBar>, reached: Reached, ticks: u32) {
    let seconds = f64::from(ticks) * TICK.as_secs_f64();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate for people"
    )]
    let rate = (reached.bytes as f64 / seconds) as u64;
    let (files, bytes) = text(reached);
    let bytes = format!("{bytes}, {}/s", HumanBytes(rate));
    match bar {
        Some(bar) => {
            bar.set_length(reached.files_expected.max(reached.files));
            bar.set_position(reached.files);
            bar.set_prefix(bytes);
        }
        None if ticks.is_multiple_of(LINE) => {
            output.say(&format!("{verb}: {files} files, {bytes}"));
        }
        None => {}
    }
}

/// Files and bytes: what is done, and of how much once anybody knows.
fn text(reached: Reached) -> (String, String) {
    let files = match reached.files_expected {
        0 => reached.files.to_string(),
        // More came meanwhile, or something had to be read twice.
        expected => format!("{} of {}", reached.files, expected.max(reached.files)),
    };
    let done = HumanBytes(reached.bytes);
    let bytes = match reached.bytes_expected {
        0 => done.to_string(),
        expected => format!("{done} of {}", HumanBytes(expected.max(reached.bytes))),
    };
    (files, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_said_only_when_it_is_known() {
        let progress = Progress::default();
        progress.advance(3, 2048);
        let unknown = text(progress.reached());
        progress.expect(7, 4096);
        let known = text(progress.reached());

        assert_eq!(unknown, ("3".to_owned(), "2.00 KiB".to_owned()));
        assert_eq!(
            known,
            ("3 of 7".to_owned(), "2.00 KiB of 4.00 KiB".to_owned())
        );
        progress.advance(5, 4096);
        let beyond = text(progress.reached());
        let expected = ("8 of 8".to_owned(), "6.00 KiB of 6.00 KiB".to_owned());
        assert_eq!(beyond, expected, "never more than there is");
    }
}
