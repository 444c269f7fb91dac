//! Sizes of samples: bytes from an index, a file or a model, or one unit where nothing is known.
#![warn(clippy::indexing_slicing)]

use std::path::Path;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use shade_core::{Samples, block_bytes_for, charged_bytes};
use shade_formats::SampleId;

use crate::error::SimulateError;
use crate::lines::Source;

/// Losses are drawn from stream 0 of the seed.
const SIZES_STREAM: u64 = 1;
/// Not a size: the file has not given it yet.
const UNSAID: u32 = 0;

/// Sizes as a distribution.
///
/// As text: `fixed:110KB`, or `lognormal:110KB:0.5` (median and standard deviation of the natural
/// logarithm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeModel {
    /// All samples have this many bytes.
    Fixed(u32),
    /// Sizes spread around a median.
    LogNormal {
        /// The median in bytes.
        median_bytes: u32,
        /// Standard deviation of the natural logarithm, 0 to 5; photographs have about 0.5.
        sigma: f64,
    },
}

impl FromStr for SizeModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let model = match text.split(':').collect::<Vec<_>>().as_slice() {
            ["fixed", bytes] => parse_bytes(bytes).map(Self::Fixed),
            ["lognormal", median, sigma] => parse_bytes(median).and_then(|median_bytes| {
                let sigma = sigma.parse().ok().filter(|sigma| (0.0..=5.0).contains(sigma))?;
                Some(Self::LogNormal { median_bytes, sigma })
            }),
            _ => None,
        };
        model.ok_or_else(|| {
            format!(
                "{text:?} is no model of sizes: write fixed:110KB or lognormal:110KB:0.5 (1 byte to \
                 4 GiB, sigma 0 to 5)"
            )
        })
    }
}

/// Bytes of one sample, at least 1.
fn parse_bytes(text: &str) -> Option<u32> {
    let bytes = parse_size::parse_size(text).ok()?;
    u32::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

/// Sizes of the samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sizes {
    /// Not known: each is one unit.
    Unit,
    /// Bytes, the same for all.
    Same(u32),
    /// By sample.
    Each {
        /// Stored bytes.
        lens: Vec<u32>,
        /// Samples are charged in multiples of it.
        block_bytes: u32,
    },
}

impl Sizes {
    /// Sizes of a dataset, charged as the daemon does.
    pub(super) fn of_index(index: &dyn Samples) -> Self {
        let lens: Vec<u32> = (0..index.len())
            .map(|id| index.entry(SampleId(id)).map_or(0, |entry| entry.stored_len))
            .collect();
        let block_bytes = block_bytes_for(lens.iter().copied());
        Self::Each { lens, block_bytes }
    }

    /// Sizes drawn from a model.
    pub(super) fn drawn(model: SizeModel, samples: u32, seed: u64) -> Self {
        match model {
            SizeModel::Fixed(bytes) => Self::Same(bytes),
            SizeModel::LogNormal { median_bytes, sigma } => {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                random.set_stream(SIZES_STREAM);
                // Sigma is finite and not negative, so the distribution exists.
                let spread = LogNormal::new(0.0, sigma).ok();
                let mut draw = || spread.map_or(1.0, |spread| spread.sample(&mut random));
                let lens = (0..samples).map(|_| in_bytes(f64::from(median_bytes) * draw())).collect();
                Self::Each { lens, block_bytes: 1 }
            }
        }
    }

    /// Sizes of `samples` samples from a file. `place` translates an id of the file to a sample,
    /// and ignores ids that it does not know; `id` translates back.
    ///
    /// # Errors
    /// The file cannot be read, a line is no size, or a sample has none.
    pub(super) fn read(
        path: &Path,
        samples: u32,
        place: impl Fn(u32) -> Option<u32>,
        id: impl Fn(u32) -> u32,
    ) -> Result<Self, SimulateError> {
        let mut lens = vec![UNSAID; samples as usize];
        let mut lines = 0u32;
        let mut with_ids = None;
        Source::open(path)?.each(|line| {
            let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
            let (named, bytes) = match (words.next(), words.next(), words.next()) {
                (Some(bytes), None, _) => (None, bytes),
                (Some(id), Some(bytes), None) => {
                    (Some(id.parse::<u32>().map_err(|_| format!("{id:?} is no sample id"))?), bytes)
                }
                _ => return Err(format!("{line:?} is more than a sample id and its bytes")),
            };
            if *with_ids.get_or_insert(named.is_some()) != named.is_some() {
                return Err("either all lines have a sample id or none has".to_owned());
            }
            let len = bytes
                .parse()
                .ok()
                .filter(|&len| len != UNSAID)
                .ok_or_else(|| format!("{bytes:?} is no size: write bytes, 1 to {}", u32::MAX))?;
            if let Some(slot) = place(named.unwrap_or(lines)).and_then(|at| lens.get_mut(at as usize)) {
                *slot = len;
            }
            lines = lines.saturating_add(1);
            Ok(())
        })?;
        match (0..).zip(&lens).find(|(_, len)| **len == UNSAID) {
            Some((missing, _)) => {
                let what = format!("it has no size of sample {}", id(missing));
                Err(SimulateError::File { path: path.to_owned(), what })
            }
            None => Ok(Self::Each { lens, block_bytes: 1 }),
        }
    }

    /// The sizes of some samples, numbered anew.
    pub(super) fn part(&self, samples: &[u32]) -> Self {
        match self {
            Self::Unit => Self::Unit,
            Self::Same(bytes) => Self::Same(*bytes),
            &Self::Each { ref lens, block_bytes } => {
                let lens = samples.iter().filter_map(|&id| lens.get(id as usize)).copied().collect();
                Self::Each { lens, block_bytes }
            }
        }
    }

    /// Whether sizes are bytes.
    pub(super) fn are_known(&self) -> bool {
        *self != Self::Unit
    }

    /// Bytes that a read of the sample brings; 1 where sizes are not known.
    pub(super) fn stored(&self, id: SampleId) -> u32 {
        match self {
            Self::Unit => 1,
            Self::Same(bytes) => *bytes,
            Self::Each { lens, .. } => lens.get(id.index()).copied().unwrap_or(0),
        }
    }

    /// Samples are charged in multiples of it.
    pub(super) fn block_bytes(&self) -> u32 {
        match self {
            Self::Unit | Self::Same(_) => 1,
            Self::Each { block_bytes, .. } => *block_bytes,
        }
    }

    /// Cache size of the sample.
    pub(super) fn charged(&self, id: SampleId) -> u64 {
        charged_bytes(self.stored(id), self.block_bytes())
    }

    /// Cache size of all `samples` samples.
    pub(super) fn total(&self, samples: u32) -> u64 {
        (0..samples).map(|id| self.charged(SampleId(id))).sum()
    }
}

/// A size of at least 1.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn in_bytes(size: f64) -> u32 {
    (size.round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn models() {
        assert_eq!("fixed:110KB".parse(), Ok(SizeModel::Fixed(110_000)));
        let model = "lognormal:100KiB:0.5".parse();
        assert_eq!(model, Ok(SizeModel::LogNormal { median_bytes: 102_400, sigma: 0.5 }));
        for bad in ["", "110KB", "fixed:0", "fixed:5GiB", "lognormal:1KB", "lognormal:1KB:-1", "fixed:1:2"] {
            assert!(bad.parse::<SizeModel>().is_err(), "{bad}");
        }
    }

    #[test]
    fn drawn_sizes_have_the_median_and_come_from_the_seed() {
        let model = SizeModel::LogNormal { median_bytes: 10_000, sigma: 1.0 };
        let sizes = Sizes::drawn(model, 10_001, 5);
        assert_eq!(sizes, Sizes::drawn(model, 10_001, 5));
        assert_ne!(sizes, Sizes::drawn(model, 10_001, 6));
        let Sizes::Each { mut lens, .. } = sizes else { panic!("one by one") };
        lens.sort_unstable();
        assert!((9600..10_400).contains(&lens[5000]), "{}", lens[5000]);
        // One standard deviation above: 84.1 % lie below.
        assert!((26_000..28_500).contains(&lens[8413]), "{}", lens[8413]);
    }

    #[test]
    fn blocks_are_charged_and_bytes_are_read() {
        let sizes = Sizes::Each { lens: vec![1, 4096, 5000], block_bytes: 4096 };
        assert_eq!([0, 1, 2].map(|id| sizes.charged(SampleId(id))), [4096, 4096, 8192]);
        assert_eq!(sizes.stored(SampleId(2)), 5000);
        assert_eq!((sizes.total(3), Sizes::Unit.total(3), Sizes::Same(7).total(3)), (16_384, 3, 21));
    }

    fn read(text: &str) -> Result<Sizes, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let place =
            |id: u32| [7, 0].iter().position(|&known| known == id).map(|at| u32::try_from(at).unwrap());
        let sizes = Sizes::read(file.path(), 2, place, |at| [7, 0][at as usize]);
        sizes.map_err(|error| error.to_string().replace(&file.path().display().to_string(), "s.txt"))
    }

    #[test]
    fn a_file_says_sizes_in_order_or_by_id() {
        let lens = |lens: [u32; 2]| Ok(Sizes::Each { lens: lens.into(), block_bytes: 1 });
        assert_eq!(read("10\n1\n2\n3\n4\n5\n6\n70\n8\n"), lens([70, 10]));
        assert_eq!(read("# id size\n0 10\n7,70\n5\t6\n"), lens([70, 10]));
    }

    #[test]
    fn a_file_that_says_no_sizes_is_refused() {
        for (text, expected) in [
            ("0 10\n", "s.txt: it has no size of sample 7"),
            ("0 10\n11\n", "s.txt line 2: either all lines have a sample id or none has"),
            ("10\n0\n", "s.txt line 2: \"0\" is no size: write bytes, 1 to 4294967295"),
            ("a 10\n", "s.txt line 1: \"a\" is no sample id"),
            ("1 2 3\n", "s.txt line 1: \"1 2 3\" is more than a sample id and its bytes"),
        ] {
            assert_eq!(read(text).unwrap_err(), expected);
        }
    }
}
