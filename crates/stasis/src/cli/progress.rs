//! How far long work has come: one line where somebody watches, a line now and then where nobody does.

use super::byte_size::size;
use super::output::{Output, Verbosity};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;
use stasis_engine::progress::{Progress, Reached};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often a line is drawn anew.
const TICK: Duration = Duration::from_millis(100);
/// After how many ticks a line is written where there is no terminal.
const LINE: u32 = 100;
/// How wide a terminal is that does not say it.
const USUAL_WIDTH: usize = 80;
/// How wide the bar is.
const BAR: usize = 20;
/// How much of the pace of the last tick counts: what lies ten seconds back has a third of its weight left.
const NEWEST_WEIGHT: f64 = 0.01;
/// Before that nobody knows how long it takes.
const FIRST_ESTIMATE: Duration = Duration::from_secs(1);

/// Becomes true when somebody asks the process to stop.
pub(crate) fn cancel_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let cancel: Arc<AtomicBool> = Arc::default();
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        // The terminal is gone.
        SignalKind::hangup(),
    ];
    for kind in kinds {
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

/// What is said of long work: what is done, and what is counted beside bytes.
#[derive(Clone, Copy)]
pub(crate) struct Doing {
    verb: &'static str,
    things: &'static str,
}

impl Doing {
    /// `checking`, `snapshots`
    pub(crate) fn new(verb: &'static str, things: &'static str) -> Self {
        Self { verb, things }
    }
}

impl From<&'static str> for Doing {
    fn from(verb: &'static str) -> Self {
        Self::new(verb, "files")
    }
}

/// Shows how far `work` has come until it ends.
pub(crate) async fn watched<T>(
    output: Output,
    doing: impl Into<Doing>,
    progress: Arc<Progress>,
    work: impl Future<Output = T>,
) -> T {
    if output.as_json {
        return work.await;
    }
    let bar = is_shown(output).then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar
    });
    tokio::pin!(work);
    let doing = doing.into();
    let mut pace = Pace::default();
    loop {
        tokio::select! {
            done = &mut work => {
                if let Some(bar) = bar {
                    bar.finish_and_clear();
                }
                return done;
            }
            () = tokio::time::sleep(TICK) => {
                pace.tick(progress.reached());
                match &bar {
                    Some(bar) => bar.set_message(pace.line(doing, width())),
                    None if pace.ticks.is_multiple_of(LINE) => output.say(&pace.report(doing)),
                    None => {}
                }
            }
        }
    }
}

/// Shows for how long `work` has been going on, where nobody counts what it does.
pub(crate) async fn timed<T>(
    output: Output,
    verb: &'static str,
    work: impl Future<Output = T>,
) -> T {
    watched(output, verb, Arc::default(), work).await
}

/// How wide the terminal is now.
fn width() -> usize {
    let size = tcgetwinsize(std::io::stderr()).ok();
    let columns = size.map(|size| usize::from(size.ws_col));
    columns.filter(|width| *width > 0).unwrap_or(USUAL_WIDTH)
}

/// How far work has come, and how fast it goes.
#[derive(Default)]
struct Pace {
    reached: Reached,
    ticks: u32,
    /// Smoothed, in bytes and files for each tick.
    bytes: f64,
    files: f64,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates for people"
)]
impl Pace {
    fn tick(&mut self, reached: Reached) {
        self.ticks = self.ticks.saturating_add(1);
        let came = |now: u64, before: u64| now.saturating_sub(before) as f64;
        // In the beginning the mean of all ticks; later what is newest counts more.
        let weight = NEWEST_WEIGHT.max(1.0 / f64::from(self.ticks));
        self.bytes += (came(reached.bytes, self.reached.bytes) - self.bytes) * weight;
        self.files += (came(reached.files, self.reached.files) - self.files) * weight;
        self.reached = reached;
    }

    /// Whether anybody says what is done.
    fn is_counted(&self) -> bool {
        self.reached != Reached::default()
    }

    /// Whether bytes are counted, not only things.
    fn has_bytes(&self) -> bool {
        self.reached.bytes > 0 || self.reached.bytes_expected > 0
    }

    fn elapsed(&self) -> Duration {
        TICK * self.ticks
    }

    /// Bytes in a second.
    fn rate(&self) -> u64 {
        (self.bytes / TICK.as_secs_f64()) as u64
    }

    /// How long it will still take, once anybody can say: many small files take their time whatever their bytes, and large ones
    /// whatever their number, so it is the longer of both.
    fn left(&self) -> Option<Duration> {
        let is_known = self.reached.bytes_expected > 0 || self.reached.files_expected > 0;
        if self.elapsed() < FIRST_ESTIMATE || !is_known {
            return None;
        }
        let ticks = |expected: u64, done: u64, pace: f64| {
            let rest = expected.saturating_sub(done) as f64;
            if rest == 0.0 { 0.0 } else { rest / pace }
        };
        let Reached {
            files,
            bytes,
            files_expected,
            bytes_expected,
        } = self.reached;
        let ticks =
            ticks(bytes_expected, bytes, self.bytes).max(ticks(files_expected, files, self.files));
        // Where nothing moves, nobody can say.
        let ticks = Some(ticks.round()).filter(|ticks| ticks.is_finite())?;
        TICK.checked_mul(ticks as u32)
    }

    /// How much of it is done, from 0 to 1, once it is known of how much.
    fn share(&self) -> Option<f64> {
        let (done, all) = if self.has_bytes() {
            (self.reached.bytes, self.reached.bytes_expected)
        } else {
            (self.reached.files, self.reached.files_expected)
        };
        // More came meanwhile, or something had to be read twice.
        (all > 0).then(|| done as f64 / all.max(done) as f64)
    }

    /// One line of at most `width` columns: what does not fit is left out, the least important first.
    fn line(&self, doing: impl Into<Doing>, width: usize) -> String {
        let Doing { verb, things } = doing.into();
        let (counted, bytes) = text(self.reached);
        let (amount, done) = if self.has_bytes() {
            (bytes, size(self.reached.bytes))
        } else {
            let done = self.reached.files.to_string();
            (format!("{counted} {things}"), done)
        };
        let share = self.share();
        let percent = share.map(|share| format!("{:>3}%", (share * 100.0) as u64));
        let bar = share.map(|share| bar((share * BAR as f64) as usize));
        let rate = (self.rate() > 0).then(|| format!("{}/s", size(self.rate())));
        let left = self.left().map(|left| format!("{} left", clock(left)));
        let took = Some(clock(self.elapsed())).filter(|_| left.is_none());
        let amount = Some(amount).filter(|_| self.is_counted());
        let verb = Some(verb.to_owned());
        let choices = [
            vec![&verb, &bar, &percent, &amount, &rate, &left, &took],
            vec![&verb, &percent, &amount, &rate, &left, &took],
            vec![&verb, &percent, &amount, &left, &took],
            vec![&verb, &amount, &left],
            vec![&verb, &percent, &left],
            vec![&percent, &left],
        ];
        let lines = choices.into_iter().map(|parts| {
            let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
            parts.join("  ")
        });
        // The last column stays empty: some terminals go to the next line after it.
        let fits = |line: &String| line.chars().count() < width && !line.is_empty();
        let done = if self.is_counted() {
            done
        } else {
            clock(self.elapsed())
        };
        let shortest = || done.chars().take(width.saturating_sub(1)).collect();
        lines.into_iter().find(fits).unwrap_or_else(shortest)
    }

    /// The same for a log.
    fn report(&self, doing: impl Into<Doing>) -> String {
        let Doing { verb, things } = doing.into();
        if !self.is_counted() {
            return format!("{verb}: {}", clock(self.elapsed()));
        }
        let (counted, bytes) = text(self.reached);
        let left = self.left().map(|left| format!(", {} left", clock(left)));
        let left = left.unwrap_or_default();
        if !self.has_bytes() {
            return format!("{verb}: {counted} {things}{left}");
        }
        let rate = size(self.rate());
        let is_counted = self.reached.files > 0 || self.reached.files_expected > 0;
        let counted = is_counted.then(|| format!("{counted} {things}, "));
        format!(
            "{verb}: {}{bytes}, {rate}/s{left}",
            counted.unwrap_or_default()
        )
    }
}

fn bar(filled: usize) -> String {
    let filled = filled.min(BAR);
    ["█".repeat(filled), "░".repeat(BAR - filled)].concat()
}

/// `0:05`, `12:30`, `1:02:03`
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Files and bytes: what is done, and of how much once anybody knows.
fn text(reached: Reached) -> (String, String) {
    let files = match reached.files_expected {
        0 => reached.files.to_string(),
        // More came meanwhile, or something had to be read twice.
        expected => format!("{} of {}", reached.files, expected.max(reached.files)),
    };
    let done = size(reached.bytes);
    let bytes = match reached.bytes_expected {
        0 => done,
        expected => format!("{done} of {}", size(expected.max(reached.bytes))),
    };
    (files, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Work of 1000 MiB in 1000 files that does so many MiB, and as many files, in each tick.
    fn after(ticks: u32, files: u64, mib: u64) -> Pace {
        let mut pace = Pace::default();
        for tick in 1..=u64::from(ticks) {
            pace.tick(Reached {
                files: files * tick,
                bytes: mib * tick * MIB,
                files_expected: 1000,
                bytes_expected: 1000 * MIB,
            });
        }
        pace
    }

    #[test]
    fn a_line_fits_whatever_the_width_and_says_more_where_there_is_room() {
        let pace = after(50, 1, 10);

        for width in 0..200 {
            let line = pace.line("saving", width);
            assert!(line.chars().count() < width.max(1), "{width}: {line}");
        }
        assert_eq!(
            pace.line("saving", 80),
            "saving  ██████████░░░░░░░░░░   50%  500 MiB of 1000 MiB  100 MiB/s  1:35 left"
        );
        assert_eq!(
            pace.line("saving", 40),
            "saving  500 MiB of 1000 MiB  1:35 left"
        );
        assert_eq!(pace.line("saving", 26), "saving   50%  1:35 left");
    }

    #[test]
    fn where_nobody_counts_the_time_is_shown() {
        let mut pace = Pace::default();
        for _ in 0..130 {
            pace.tick(Reached::default());
        }

        assert_eq!(pace.line("collecting", 40), "collecting  0:13");
        assert_eq!(pace.line("collecting", 8), "0:13");
        assert_eq!(pace.report("collecting"), "collecting: 0:13");
    }

    #[test]
    fn where_only_things_are_counted_they_have_a_share_and_a_time_too() {
        let mut pace = Pace::default();
        for tick in 1..=50 {
            pace.tick(Reached {
                files: tick,
                files_expected: 200,
                ..Reached::default()
            });
        }
        let checking = Doing::new("checking", "snapshots");

        assert_eq!(
            pace.line(checking, 80),
            "checking  █████░░░░░░░░░░░░░░░   25%  50 of 200 snapshots  0:15 left"
        );
        assert_eq!(pace.line(checking, 26), "checking   25%  0:15 left");
        assert_eq!(
            pace.report(checking),
            "checking: 50 of 200 snapshots, 0:15 left"
        );
        for width in 0..200 {
            let line = pace.line(checking, width);
            assert!(line.chars().count() < width.max(1), "{width}: {line}");
        }
    }

    #[test]
    fn what_is_left_is_the_longer_of_what_bytes_and_files_say() {
        let even = after(50, 10, 10);
        let many_small = after(50, 1, 10);
        let stuck = after(50, 0, 0);

        assert_eq!(even.left(), Some(Duration::from_secs(5)));
        assert_eq!(many_small.left(), Some(Duration::from_secs(95)));
        assert_eq!(stuck.left(), None, "nobody can say");
        assert_eq!(after(5, 10, 10).left(), None, "too early");
    }

    #[test]
    fn the_time_left_follows_a_pace_that_changed() {
        let mut pace = after(50, 10, 10);
        let before = pace.left().unwrap();
        let mut reached = pace.reached;
        for _ in 0..100 {
            reached.bytes += MIB;
            reached.files += 1;
            pace.tick(reached);
        }

        // Four tenths are left, and a hundred slow ticks have more weight than fifty fast ones.
        let after = pace.left().unwrap();
        assert!(after > before * 2, "{before:?}, then {after:?}");
    }

    #[test]
    fn a_total_is_said_only_when_it_is_known() {
        let progress = Progress::default();
        progress.advance(3, 2048);
        let unknown = text(progress.reached());
        progress.expect(7, 4096);
        let known = text(progress.reached());

        assert_eq!(unknown, ("3".to_owned(), "2 KiB".to_owned()));
        assert_eq!(known, ("3 of 7".to_owned(), "2 KiB of 4 KiB".to_owned()));
        progress.advance(5, 4096);
        let beyond = text(progress.reached());
        let expected = ("8 of 8".to_owned(), "6 KiB of 6 KiB".to_owned());
        assert_eq!(beyond, expected, "never more than there is");
    }
}
