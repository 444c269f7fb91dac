//! How a source differs from what a dataset was packed from, as far as listing the source shows: names, lengths, times.
//!
//! A file whose length is the same and whose time is another may have other bytes or the same. Only
//! reading it tells, and `diff` does that. Where images were transformed the dataset has no bytes
//! to compare with: only packing them again tells.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use shade_formats::SampleId;
use shade_formats::index::Entry;

use crate::catalogue::{Catalogue, Sample};
use crate::dataset::Dataset;
use crate::options::Options;
use crate::times::{SourceFile, TIMES_FILE, Times};

/// Paths told one by one; of more there is a count.
const NAMED_MAX: usize = 5;

/// Said instead of naming `diff`, where that compares no bytes.
const TRANSFORMED: &str = "images were transformed: only packing again tells";

/// Some paths of many.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Named {
    /// How many there are.
    pub count: u64,
    /// The first of them, each perhaps with what is to be said of it.
    pub first: Vec<String>,
}

/// What listing a source shows to be other than it was packed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Changes {
    /// Files that were written to since, and are as long as they were. Whether their bytes differ,
    /// `diff` says, unless they were transformed.
    pub touched: Named,
    /// Files of another length.
    pub resized: Named,
    /// Samples that the dataset does not have.
    pub new: Named,
    /// Samples that the source does not have any more.
    pub gone: Named,
    /// Samples in both of whose files the dataset does not say when they were last changed.
    pub unknown: u64,
    /// Why it does not, if that is damage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Images were transformed when they were packed, so `diff` cannot compare their bytes: only
    /// packing them again tells.
    pub is_transformed: bool,
}

/// What listing shows of one file that was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Length and time are what they were.
    None,
    /// The length is what it was, the time is not known.
    Unknown,
    /// The length is what it was, the time is another.
    Touched,
    /// It was so many bytes long.
    Resized(u32),
}

impl Change {
    /// Of `sample`, which the dataset has as `entry`. `packed` is what is known of its file as of packing.
    pub(crate) fn of(
        sample: &Sample<'_>,
        entry: &Entry,
        packed: Option<SourceFile>,
        is_transformed: bool,
    ) -> Self {
        // How long a transformed image was, only `packed` says.
        let bytes = packed.map(|packed| packed.bytes).or((!is_transformed).then_some(entry.raw_len));
        match (bytes, packed) {
            (Some(bytes), _) if bytes != sample.bytes => Self::Resized(bytes),
            (_, Some(packed)) if !is_same_time(packed.changed_ns, sample.changed_ns) => Self::Touched,
            (_, Some(_)) => Self::None,
            (_, None) => Self::Unknown,
        }
    }
}

/// Whether two times of a file are one. tar, some file systems and some ways of copying keep whole seconds only.
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
    /// Between `catalogue` and `dataset`, beside which lay `times`.
    pub(crate) fn of(dataset: &Dataset, times: &Times, catalogue: &Catalogue) -> Self {
        let is_transformed = dataset.is_transformed();
        let mut changes = Self { fault: times.fault.clone(), is_transformed, ..Self::default() };
        let ids = (0..dataset.index.len()).map(SampleId);
        let mut unseen: HashMap<&[u8], SampleId> =
            ids.map(|id| (dataset.index.path(id).unwrap_or_default(), id)).collect();
        for sample in catalogue.samples() {
            let Some(id) = unseen.remove(sample.path.as_bytes()) else {
                changes.new.push(|| sample.path.to_owned());
                continue;
            };
            let Some(entry) = dataset.index.entry(id) else { continue };
            let change = Change::of(&sample, &entry, times.get(id, &entry), is_transformed);
            changes.note(&sample, change);
        }
        let mut gone: Vec<SampleId> = unseen.into_values().collect();
        gone.sort_unstable();
        for id in gone {
            changes.gone.push(|| dataset.path_text(id));
        }
        changes
    }

    /// Counts a file of both.
    pub(crate) fn note(&mut self, sample: &Sample<'_>, change: Change) {
        let (path, now) = (sample.path, sample.bytes);
        match change {
            Change::None => {}
            Change::Unknown => self.unknown += 1,
            Change::Touched => self.touched.push(|| path.to_owned()),
            Change::Resized(then) => self.resized.push(|| format!("{path} ({then} bytes then, {now} now)")),
        }
    }

    /// What to tell of a source that has the samples of a dataset, in names and lengths; empty if there is nothing.
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

    /// How the source and `options` differ from those of `dataset`, which is not what they make: a line for each way.
    pub(crate) fn differences(&self, dataset: &Dataset, options: &Options) -> String {
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
        f.write_str(&self.first.join(", "))?;
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
