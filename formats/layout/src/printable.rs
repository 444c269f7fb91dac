//! Text for a terminal: names of files, classes and members come from strangers, and a terminal
//! obeys what is in them.
//!
//! An escape sequence can clear the screen, set the title or type an answer. A line break forges a
//! message, and a mark of direction shows a name backwards. Such characters are spelled out as JSON
//! does it, `\u001b`, so that JSON that passes through here means what it meant.

use std::fmt::{self, Display, Write};

/// Shows a name within one line: no control character of it reaches the terminal.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<T>(pub T);

/// Shows a message of several lines: its line breaks and tabs stay, every other control character
/// is spelled out. Programs print through it, so that no name is forgotten. What was JSON stays the
/// same JSON.
#[derive(Clone, Copy, Debug)]
pub struct Lines<T>(pub T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Speller { to: f, keeps_lines: false }, "{}", self.0)
    }
}

impl<T: Display> Display for Lines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Speller { to: f, keeps_lines: true }, "{}", self.0)
    }
}

/// Whether a terminal may obey `c` instead of showing it: control characters, separators of lines
/// and paragraphs, and marks that change the direction of text.
#[must_use]
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Passes text on and spells out what a terminal would obey.
struct Speller<'a, W> {
    to: &'a mut W,
    keeps_lines: bool,
}

impl<W: Write> Write for Speller<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let keeps_lines = self.keeps_lines;
        let is_spelled = |c: char| is_obeyed(c) && !(keeps_lines && matches!(c, '\n' | '\t'));
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_spelled(*c)) {
            self.to.write_str(rest.get(..at).unwrap_or_default())?;
            self.spell(c)?;
            rest = rest.get(at + c.len_utf8()..).unwrap_or_default();
        }
        self.to.write_str(rest)
    }
}

impl<W: Write> Speller<'_, W> {
    fn spell(&mut self, c: char) -> fmt::Result {
        match c {
            '\n' => self.to.write_str("\\n"),
            '\r' => self.to.write_str("\\r"),
            '\t' => self.to.write_str("\\t"),
            // None of the others is above U+FFFF, so that JSON needs one unit for each.
            c => write!(self.to, "\\u{:04x}", u32::from(c)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_one_line_that_no_terminal_obeys() {
        let name = "a\n\u{1b}[2J\u{9b}31m\u{7}\0\u{202e}gpj\u{2028}.\u{e9}\u{1f600}\t";
        let shown = OneLine(name).to_string();
        assert_eq!(shown, "a\\n\\u001b[2J\\u009b31m\\u0007\\u0000\\u202egpj\\u2028.\u{e9}\u{1f600}\\t");
        assert_eq!(Lines("a\n\tb\r\n").to_string(), "a\n\tb\\r\n");
        assert_eq!(OneLine("plain, caf\u{e9}").to_string(), "plain, caf\u{e9}");
    }

    #[test]
    fn json_stays_the_same_json() {
        let text = "\u{9b}\u{7f}\u{202e}\u{1b}\n\\\"";
        let json = serde_json::to_string(text).unwrap();
        let shown = Lines(&json).to_string();
        assert!(!shown.contains(is_obeyed), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }

    proptest! {
        #[test]
        fn nothing_that_is_obeyed_is_shown(text in any::<String>()) {
            prop_assert!(!OneLine(&text).to_string().contains(is_obeyed));
            let lines = Lines(&text).to_string();
            prop_assert!(!lines.contains(|c| is_obeyed(c) && !matches!(c, '\n' | '\t')));
            prop_assert_eq!(Lines(&lines).to_string(), lines);
        }
    }
}
