//! How a source differs from what a dataset was packed from, as far as listing the source shows:
//! names, lengths, times.
//!
//! A file of equal length with another time may have other bytes or the same. Only reading it
//! tells, and `diff` does that. Where images were transformed the dataset has no bytes to compare
//! with: only packing them again tells.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use shade_formats::index::Entry;
use shade_formats::printable::OneLine;

use crate::catalogue::{Catalogue, Sample};
use crate::dataset::{Dataset, Matched};
use crate::options::PackOptions;
use crate::times::{SourceFile, TIMES_FILE, Times};

/// Most paths that a message names; it counts the others.
const NAMED_MAX: usize = 5;

/// Stands in place of a hint to `diff`, which compares no bytes of transformed images.
const TRANSFORMED: &str = "images were transformed: only packing again tells";

/// Files, some of them by name.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Named {
    /// How many there are.
    pub(crate) count: u64,
    /// The first paths, some with a remark.
    pub(crate) first: Vec<String>,
}

/// How a source differs from what was packed.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Changes {
    /// Files that were written to since, at equal length. `diff` says whether their bytes differ,
    /// unless they were transformed.
    pub(crate) touched: Named,
    /// Files of another length.
    pub(crate) resized: Named,
    /// Files that the dataset does not have.
    pub(crate) new: Named,
    /// Samples without a file.
    pub(crate) gone: Named,
    /// Samples in both; the dataset does not say when their files were last changed.
    pub(crate) unknown: u64,
    /// Why it does not say so, if that is damage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    /// Images were transformed when they were packed, so `diff` cannot compare their bytes: only
    /// packing them again tells.
    pub(crate) is_transformed: bool,
}

/// How a listed file differs from what was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Length and time are what they were.
    None,
    /// The length is what it was, the time is not known.
    Unknown,
    /// The length is what it was, the time is another.
    Touched,
    /// The length was this.
    Resized(u32),
}

impl Change {
    /// How `sample` differs from its record `entry` and from `packed`, its file when it was packed.
    pub(crate) fn of(
        sample: &Sample<'_>,
        entry: &Entry,
        packed: Option<SourceFile>,
        is_transformed: bool,
    ) -> Self {
        // Only `packed` says how long a transformed image was.
        let bytes = packed.map(|packed| packed.bytes).or((!is_transformed).then_some(entry.raw_len));
        match (bytes, packed) {
            (Some(bytes), _) if bytes != sample.bytes => Self::Resized(bytes),
            (_, Some(packed)) if !is_same_time(packed.changed_ns, sample.changed_ns) => Self::Touched,
            (_, Some(_)) => Self::None,
            (_, None) => Self::Unknown,
        }
    }
}

/// Whether two times of a file are equal. tar, some file systems and some ways of copying keep
/// whole seconds only.
fn is_same_time(packed_ns: i64, now_ns: i64) -> bool {
    const SECOND_NS: i64 = 1_000_000_000;
    let is_whole = |ns: i64| ns.rem_euclid(SECOND_NS) == 0;
    let is_same_second = packed_ns.div_euclid(SECOND_NS) == now_ns.div_euclid(SECOND_NS);
    packed_ns == now_ns || (is_same_second && (is_whole(packed_ns) || is_whole(now_ns)))
}

impl Named {
    fn push(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push(text());
        }
    }
}

impl Changes {
    pub(crate) fn of(dataset: &Dataset, times: &Times, catalogue: &Catalogue) -> Self {
        let is_transformed = dataset.is_transformed();
        let mut changes = Self { fault: times.fault.clone(), is_transformed, ..Self::default() };
        let Matched { both, only_in_source, only_in_dataset } = Matched::new(catalogue, dataset);
        for (id, of_dataset) in both {
            let (Some(sample), Some(entry)) = (catalogue.sample(id), dataset.index.entry(of_dataset)) else {
                continue;
            };
            let sample = Sample { changed_ns: catalogue.changed_ns_of(id), ..sample };
            let change = Change::of(&sample, &entry, times.get(of_dataset, &entry), is_transformed);
            changes.note(&sample, change);
        }
        for sample in only_in_source.into_iter().filter_map(|id| catalogue.sample(id)) {
            changes.new.push(|| sample.path.to_owned());
        }
        for id in only_in_dataset {
            changes.gone.push(|| dataset.path_text(id));
        }
        changes
    }

    /// Counts the change of a file that is in both.
    pub(crate) fn note(&mut self, sample: &Sample<'_>, change: Change) {
        let (path, now) = (sample.path, sample.bytes);
        match change {
            Change::None => {}
            Change::Unknown => self.unknown += 1,
            Change::Touched => self.touched.push(|| path.to_owned()),
            Change::Resized(then) => self.resized.push(|| format!("{path} ({then} bytes then, {now} now)")),
        }
    }

    /// The message for a source that has the samples of a dataset, in names and lengths; empty if
    /// there is nothing to tell.
    pub(crate) fn told(&self, source: &Path, dataset: &Path) -> String {
        let mut text = String::new();
        let (source, dir) = (source.display(), dataset.display());
        if self.touched.count > 0 {
            let (count, named) = (self.touched.count, &self.touched);
            let _ = writeln!(
                text,
                "{count} files of the source were written to since they were packed, at equal length: {named}"
            );
            let _ = if self.is_transformed {
                writeln!(text, "{TRANSFORMED}. If the files may be others, remove {dir} and create it again")
            } else {
                writeln!(
                    text,
                    "whether their bytes differ: shade-pack diff {source} {dir}. If they do, remove {dir} and create it again"
                )
            };
        }
        if self.unknown > 0 {
            let why = match &self.fault {
                Some(fault) => format!("{TIMES_FILE} is damaged: {fault}"),
                None => "it was not recorded when they were packed".to_owned(),
            };
            let count = self.unknown;
            let compares = if self.is_transformed {
                TRANSFORMED.to_owned()
            } else {
                format!("shade-pack diff {source} {dir} compares their bytes")
            };
            let _ = writeln!(
                text,
                "note: whether {count} files of the source were written to since is not known ({why}). {compares}"
            );
        }
        text
    }

    /// How the source and `options` differ from those of `dataset`: a line for each way.
    pub(crate) fn differences(&self, dataset: &Dataset, options: &PackOptions) -> String {
        let others = options.others_than(dataset.index.options());
        let mut text = String::new();
        for (what, named) in [
            ("files of the source are of another length now", &self.resized),
            ("files of the source were written to since, at equal length", &self.touched),
            ("samples of the source are new", &self.new),
            ("samples are not in the source any more", &self.gone),
        ] {
            if named.count > 0 {
                let _ = write!(text, "\n  {} {what}: {named}", named.count);
            }
        }
        if !others.is_empty() {
            let _ = write!(text, "\n  options that are others: {}", others.join(", "));
        }
        if text.is_empty() {
            text.push_str("\n  names, lengths and times are the same: labels or fields are others, or it was merged or appended to");
        }
        text
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", OneLine(self.first.join(", ")))?;
        match self.count.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_the_time_that_they_were_cut_from() {
        for (packed, now, is_same) in [
            (1_500_000_001, 1_500_000_001, true),
            (1_500_000_001, 1_500_000_002, false),
            (1_500_000_001, 1_000_000_000, true),
            (1_000_000_000, 1_999_999_999, true),
            (1_500_000_001, 2_000_000_000, false),
            (-1, -1_000_000_000, true),
        ] {
            assert_eq!(is_same_time(packed, now), is_same, "{packed} {now}");
        }
    }

    #[test]
    fn the_first_are_named_and_the_rest_counted() {
        let mut named = Named::default();
        for number in 0..7 {
            named.push(|| number.to_string());
        }
        assert_eq!(named.to_string(), "0, 1, 2, 3, 4 and 2 more");
    }
}
