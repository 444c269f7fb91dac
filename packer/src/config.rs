//! Settings that several commands share.

use std::num::NonZeroUsize;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use shade_formats::limits::SHARD_BYTES_MAX;

use crate::pack::Transform;

/// Smallest `--shard-size`. Below a header, a block and tar's end a shard could not hold one small
/// record.
pub(crate) const SHARD_BYTES_MIN: u64 = 4096;

const SHARD_BYTES: u64 = 1 << 30;

/// A record is stored compressed only if that saves at least this share of it: decompression costs
/// the trainer time.
pub(crate) const SAVING_MIN_PERCENT: u64 = 5;

/// `auto` compresses raw pixels only if that saves at least this share of them: a trainer
/// decompresses such a record on each use, and copies it otherwise.
pub(crate) const RAW_SAVING_MIN_PERCENT: u64 = 50;

/// And only if half of the records have at least this many bytes. Trainers take more of smaller
/// ones than zstd gives: in a try, 32x32 pixels that zstd halves came 1.6 times slower.
pub(crate) const RAW_RECORD_BYTES_MIN: u64 = 64 << 10;

/// The level of `zstd` and `auto`: the default of zstd.
pub(crate) const ZSTD_LEVEL: i32 = 3;

/// What shapes a dataset's bytes, besides its source.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// A shard is cut before it would exceed this, unless a single record does.
    pub(crate) shard_bytes: u64,
    /// The seed of the order on disk; `None` keeps the order of sample ids.
    pub(crate) shuffle: Option<u64>,
    /// How images are transformed; `None` keeps their bytes.
    pub(crate) transform: Option<Transform>,
    pub(crate) compression: Compression,
    /// Whether each record is followed by its label as a `.cls` member.
    pub(crate) cls: bool,
}

impl Default for Layout {
    /// What `create` does unless it is told otherwise.
    fn default() -> Self {
        let (shuffle, transform, compression) = (Some(0), None, Compression::None);
        Self { shard_bytes: SHARD_BYTES, shuffle, transform, compression, cls: false }
    }
}

/// How much of the machine a command may use.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Threads that compute.
    pub jobs: NonZeroUsize,
    /// Files read at a time.
    pub in_flight: NonZeroUsize,
    /// Whether the disk confirms what is written before it counts as complete.
    pub sync: bool,
}

/// What happens at a sample that cannot be packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBad {
    /// Packing ends at the first.
    #[default]
    Fail,
    /// It is left out and named in the report; the exit code is 4.
    Skip,
    /// All are named, and if there is one, no dataset is made.
    List,
}

/// What of a source the user accepts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accept {
    pub(crate) on_bad: OnBad,
    /// Whether classes may have no sample.
    pub(crate) allow_empty: bool,
}

/// How records are compressed. Never JPEG and WebP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compression {
    #[default]
    None,
    /// By zstd, where a sample of that kind of image showed that it saves [`SAVING_MIN_PERCENT`].
    /// Raw pixels train fastest as they are, and need [`RAW_SAVING_MIN_PERCENT`] of records of
    /// [`RAW_RECORD_BYTES_MIN`].
    Auto,
    /// By zstd at this level, where it saves [`SAVING_MIN_PERCENT`] of the record.
    Zstd { level: i32 },
}

/// Why the value of an option is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionFault {
    #[error("'{0}' is not 'auto', 'none', 'zstd' or 'zstd:LEVEL' with a level from 1 to 22")]
    Compression(String),
    #[error(transparent)]
    Size(#[from] parse_size::Error),
    #[error("{0} bytes; a shard may have 4KiB to 2TiB")]
    ShardSize(u64),
}

impl FromStr for Compression {
    type Err = OptionFault;

    fn from_str(text: &str) -> Result<Self, OptionFault> {
        let wrong = || OptionFault::Compression(text.to_owned());
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "auto" => Ok(Self::Auto),
            None if text == "zstd" => Ok(Self::Zstd { level: ZSTD_LEVEL }),
            Some(("zstd", level)) => {
                let level = level.parse().ok().filter(|level| (1..=22).contains(level)).ok_or_else(wrong)?;
                Ok(Self::Zstd { level })
            }
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Auto => f.write_str("auto"),
            Self::Zstd { level } => write!(f, "zstd:{level}"),
        }
    }
}

/// Reads `--shard-size`: bytes with an optional unit, IEC (KiB, MiB, GiB) or SI (kB, MB, GB).
pub(crate) fn parse_shard_size(text: &str) -> Result<u64, OptionFault> {
    let bytes = parse_size::parse_size(text)?;
    let fits = (SHARD_BYTES_MIN..=SHARD_BYTES_MAX).contains(&bytes);
    fits.then_some(bytes).ok_or(OptionFault::ShardSize(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_parses_and_prints() {
        for (text, printed) in [
            ("none", "none"),
            ("auto", "auto"),
            ("zstd", "zstd:3"),
            ("zstd:1", "zstd:1"),
            ("zstd:22", "zstd:22"),
        ] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), printed);
        }
        for text in ["", "gzip", "zstd:", "zstd:0", "zstd:23", "zstd:x", "none:1", "ZSTD"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }

    #[test]
    fn shard_sizes_take_both_unit_systems() {
        for (text, bytes) in [("1GiB", 1 << 30), ("1 GB", 1_000_000_000), ("64k", 64_000), ("4096", 4096)] {
            assert_eq!(parse_shard_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "4095", "0", "-1", "3TiB", "1 apple"] {
            assert!(parse_shard_size(text).is_err(), "{text}");
        }
    }
}
