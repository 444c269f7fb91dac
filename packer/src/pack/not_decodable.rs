//! Records that trainers cannot decode, counted by what they are.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use shade_formats::index::{KIND_BYTES, Kind, Media};
use shade_formats::printable::OneLine;

/// Records of each kind that are named.
const NAMED_MAX: usize = 3;

/// Records that are no images, or images of a kind without a decoder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct NotDecodable(BTreeMap<String, Counted>);

/// Records of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Counted {
    /// How many there are.
    count: u64,
    /// The first ones, by their paths in the dataset.
    first: Vec<String>,
}

impl NotDecodable {
    /// Counts the record `image` of the sample at `path`, if it cannot be decoded.
    pub(crate) fn note_record(&mut self, media: Media, image: &[u8], path: &str) {
        if matches!(media, Media::Other | Media::Gif) {
            self.note(Kind::of(image.get(..KIND_BYTES).unwrap_or(image)), path);
        }
    }

    pub(crate) fn note(&mut self, kind: Kind, path: &str) {
        if matches!(kind, Kind::Image(_)) {
            return;
        }
        let counted = self.0.entry(kind.name().to_owned()).or_default();
        counted.count += 1;
        if counted.first.len() < NAMED_MAX {
            counted.first.push(path.to_owned());
        }
    }

    /// Adds what was counted behind these records.
    pub(crate) fn extend(&mut self, more: &Self) {
        for (kind, more) in &more.0 {
            let counted = self.0.entry(kind.clone()).or_default();
            counted.count += more.count;
            let room = NAMED_MAX.saturating_sub(counted.first.len());
            counted.first.extend(more.first.iter().take(room).cloned());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A note, with its line's end; nothing without such records.
impl fmt::Display for NotDecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        let total: u64 = self.0.values().map(|counted| counted.count).sum();
        let kind = |(kind, counted): (&String, &Counted)| {
            let more = if counted.count > counted.first.len() as u64 { ", ..." } else { "" };
            format!("{} {kind} ({}{more})", counted.count, OneLine(counted.first.join(", ")))
        };
        let kinds: Vec<String> = self.0.iter().map(kind).collect();
        writeln!(
            f,
            "note: {total} records cannot be decoded by trainers: {}; --exclude leaves files out",
            kinds.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_and_the_first_are_named() {
        let mut all = NotDecodable::default();
        all.note_record(Media::Jpeg, b"\xff\xd8\xff", "a.jpg");
        assert!(all.is_empty() && all.to_string().is_empty());
        for number in 0..3 {
            all.note_record(Media::Other, b"<html>", &format!("{number}.jpg"));
        }
        let mut more = all.clone();
        more.note_record(Media::Gif, b"GIF89a\x01\0\x01\0", "x.jpg");
        all.extend(&more);
        let text = all.to_string();
        assert!(
            text.contains("7 records") && text.contains("1 GIF (x.jpg); 6 HTML (0.jpg, 1.jpg, 2.jpg, ...)"),
            "{text}"
        );
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!(json["HTML"]["count"], 6);
        assert_eq!(serde_json::from_value::<NotDecodable>(json).unwrap(), all);
    }
}
