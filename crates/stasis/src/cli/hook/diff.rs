//! What differs between two texts, as a unified diff.

use std::fmt::Write as _;

/// How many equal lines are shown around a change.
const AROUND: usize = 3;
/// Texts of more pairs of lines than this are shown as one change.
const PAIRS: usize = 4_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line<'a> {
    Same(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// The unified diff from `before` to `after`; empty when they are equal. A text that is not there is `None`.
pub(super) fn unified(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    if before == after {
        return String::new();
    }
    let name = |text: Option<&str>| text.map_or("/dev/null", |_| path).to_owned();
    let mut out = format!("--- {}\n+++ {}\n", name(before), name(after));
    let old: Vec<&str> = before.unwrap_or_default().split_inclusive('\n').collect();
    let new: Vec<&str> = after.unwrap_or_default().split_inclusive('\n').collect();
    let lines = compared(&old, &new);
    for (from, to) in hunks(&lines) {
        hunk(&mut out, &lines, from, to);
    }
    out
}

/// Every line of both, in order.
fn compared<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let pairs = old_rest.iter().rev().zip(new_rest.iter().rev());
    let tail = pairs.take_while(|(a, b)| a == b).count();
    let old_middle = &old_rest[..old_rest.len() - tail];
    let new_middle = &new_rest[..new_rest.len() - tail];
    let mut lines: Vec<Line> = old[..head].iter().map(|line| Line::Same(line)).collect();
    lines.extend(middle(old_middle, new_middle));
    let ending = &old_rest[old_rest.len() - tail..];
    lines.extend(ending.iter().map(|line| Line::Same(line)));
    lines
}

/// The longest common subsequence, by the table that everybody knows.
fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > PAIRS {
        let gone = old.iter().map(|line| Line::Gone(line));
        return gone.chain(new.iter().map(|line| Line::New(line))).collect();
    }
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            common[a * width + b] = if old[a] == new[b] {
                common[(a + 1) * width + b + 1] + 1
            } else {
                common[(a + 1) * width + b].max(common[a * width + b + 1])
            };
        }
    }
    let (mut a, mut b, mut lines) = (0, 0, Vec::new());
    while a < old.len() || b < new.len() {
        if a < old.len() && b < new.len() && old[a] == new[b] {
            lines.push(Line::Same(old[a]));
            (a, b) = (a + 1, b + 1);
        } else if a < old.len()
            && (b == new.len() || common[(a + 1) * width + b] >= common[a * width + b + 1])
        {
            lines.push(Line::Gone(old[a]));
            a += 1;
        } else {
            lines.push(Line::New(new[b]));
            b += 1;
        }
    }
    lines
}

/// The stretches that are shown: every change with what is around it, those that touch as one.
fn hunks(lines: &[Line]) -> Vec<(usize, usize)> {
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if matches!(line, Line::Same(_)) {
            continue;
        }
        let (from, to) = (
            at.saturating_sub(AROUND),
            (at + 1 + AROUND).min(lines.len()),
        );
        match hunks.last_mut() {
            Some(last) if last.1 >= from => last.1 = to,
            _ => hunks.push((from, to)),
        }
    }
    hunks
}

fn hunk(out: &mut String, lines: &[Line], from: usize, to: usize) {
    let in_old = |lines: &[Line]| lines.iter().filter(|l| !matches!(l, Line::New(_))).count();
    let in_new = |lines: &[Line]| lines.iter().filter(|l| !matches!(l, Line::Gone(_))).count();
    let (before, shown) = (&lines[..from], &lines[from..to]);
    let range = |start: usize, count: usize| match count {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        _ => format!("{},{count}", start + 1),
    };
    let old = range(in_old(before), in_old(shown));
    let new = range(in_new(before), in_new(shown));
    let _ = writeln!(out, "@@ -{old} +{new} @@");
    for line in shown {
        let (mark, text) = match line {
            Line::Same(text) => (' ', text),
            Line::Gone(text) => ('-', text),
            Line::New(text) => ('+', text),
        };
        let _ = write!(out, "{mark}{text}");
        if !text.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests;
