//! Text with the statistics of text: few words are frequent, most are rare.

use crate::dice::Dice;
use std::fmt::Write as _;

const WORDS: usize = 8192;

/// The words of one language that nobody speaks.
#[derive(Debug)]
pub(crate) struct Words(Vec<String>);

impl Words {
    pub(crate) fn new(seed: u64) -> Self {
        let (vowels, consonants) = (b"aeiou", b"bcdfghklmnprstvwz");
        let mut dice = Dice::new(seed);
        let word = |_| {
            let syllables = 1 + dice.index(4);
            let letters = (0..syllables).flat_map(|_| {
                let pair = [
                    consonants[dice.index(consonants.len())],
                    vowels[dice.index(vowels.len())],
                ];
                pair.map(char::from)
            });
            letters.collect()
        };
        Self((0..WORDS).map(word).collect())
    }

    /// A word; the first ones come up most.
    pub(crate) fn any(&self, dice: &mut Dice) -> &str {
        let spread = dice.below(14);
        let among = (1_usize << spread).min(self.0.len());
        &self.0[dice.index(among)]
    }

    /// Prose of exactly `length` bytes.
    pub(crate) fn prose(&self, dice: &mut Dice, length: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(length + 16);
        while text.len() < length {
            text.extend_from_slice(self.any(dice).as_bytes());
            text.push(if dice.once_in(12) { b'\n' } else { b' ' });
        }
        text.truncate(length);
        text
    }

    /// Something like a program, of exactly `length` bytes.
    pub(crate) fn source(&self, dice: &mut Dice, length: usize) -> Vec<u8> {
        let mut text = String::with_capacity(length + 128);
        while text.len() < length {
            let (a, b, c) = (self.any(dice), self.any(dice), self.any(dice));
            let number = dice.below(10_000);
            let _ = match dice.below(5) {
                0 => writeln!(text, "export function {a}_{b}({c}) {{"),
                1 => writeln!(text, "  const {a} = {b}.{c}({number});"),
                2 => writeln!(text, "  if ({a} === {b}) return {c};"),
                3 => writeln!(text, "  // {a} {b} {c} {number}"),
                _ => write!(text, "}}\n\n"),
            };
        }
        text.truncate(length);
        text.into_bytes()
    }

    /// Something like a settings file, of exactly `length` bytes.
    pub(crate) fn json(&self, dice: &mut Dice, length: usize) -> Vec<u8> {
        let mut text = String::with_capacity(length + 128);
        text.push('{');
        while text.len() + 1 < length {
            let (a, b) = (self.any(dice), self.any(dice));
            let (number, hex) = (dice.below(1 << 40), dice.roll());
            let _ = match dice.below(3) {
                0 => write!(text, "\"{a}\":{{\"{b}\":{number}}},"),
                1 => write!(text, "\"{a}_{b}\":\"{hex:016x}\","),
                _ => write!(text, "\"{a}\":[{number},\"{b}\",true],"),
            };
        }
        text.truncate(length.saturating_sub(1));
        text.push('}');
        text.into_bytes()
    }
}
