//! Which names somebody may have meant who typed one that there is not.

/// How many are offered.
const OFFERED: usize = 3;

/// What each of these names is called to whoever typed a word that is near to it: the nearest first, each once, of equally near ones in
/// the order in which they come.
pub fn nearest(typed: &str, names: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let mut near: Vec<(usize, String)> = Vec::new();
    for (name, shown) in names {
        let Some(distance) = nearness(typed, &name) else {
            continue;
        };
        match near.iter_mut().find(|(_, one)| *one == shown) {
            Some((known, _)) => *known = distance.min(*known),
            None => near.push((distance, shown)),
        }
    }
    near.sort_by_key(|(distance, _)| *distance);
    let shown = near.into_iter().map(|(_, shown)| shown);
    shown.take(OFFERED).collect()
}

/// How far a name is from what was typed; none if nobody could have meant it.
fn nearness(typed: &str, name: &str) -> Option<usize> {
    let (typed, name) = (typed.to_lowercase(), name.to_lowercase());
    let distance = distance(&typed, &name);
    let length = typed.chars().count();
    let is_begun = length >= 3 && name.starts_with(&typed);
    // A slip in three letters, two in six.
    (is_begun || distance <= (length / 3).max(1)).then_some(distance)
}

/// How many letters have to be put in, taken out, changed, or exchanged with the next one, to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, wanted) in other.iter().enumerate() {
            let changed = last[column] + usize::from(letter != wanted);
            let fewest = changed.min(last[column + 1] + 1).min(current[column] + 1);
            let is_exchanged =
                row > 0 && column > 0 && one[row - 1] == *wanted && other[column - 1] == *letter;
            current.push(if is_exchanged {
                fewest.min(before_last[column - 1] + 1)
            } else {
                fewest
            });
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(typed: &str, names: &[&str]) -> Vec<String> {
        let both = |name: &&str| ((*name).to_owned(), (*name).to_owned());
        nearest(typed, names.iter().map(both))
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        assert_eq!(near("srcc", &["docs", "src", "tests"]), ["src"]);
        assert_eq!(near("lates", &["latest"]), ["latest"]);
        assert_eq!(near("tset", &["test", "rest"]), ["test"]);
        assert_eq!(near("Notes", &["notes"]), ["notes"]);
        assert_eq!(
            near("befor", &["before-the-release"]),
            ["before-the-release"]
        );
        assert!(near("src", &["docs", "target"]).is_empty());
        assert!(near("", &["docs"]).is_empty());
    }

    #[test]
    fn the_nearest_comes_first_and_none_twice() {
        let names = ["notess", "notes", "notes", "note", "nodes", "votes"];
        assert_eq!(near("notes", &names), ["notes", "notess", "note"]);
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("same", "same"), 0);
    }
}
