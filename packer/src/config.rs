//! Validated settings: what the command line becomes before anything runs.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use shade_formats::limits::SHARD_BYTES_MAX;

/// Smallest `--shard-size`. Below a header, a block and tar's end a shard could not hold one small record.
pub const SHARD_BYTES_MIN: u64 = 4096;

/// A record is stored compressed only if that saves at least this share of it: decompression costs the trainer time.
pub const SAVING_MIN_PERCENT: u64 = 5;

/// How to make a dataset.
#[derive(Clone, Debug)]
pub struct CreateConfig {
    /// The ImageFolder; only read.
    pub source: PathBuf,
    /// The dataset's directory, which must not exist.
    pub out: PathBuf,
    /// A shard is cut before it would exceed this, unless a single record does.
    pub shard_bytes: u64,
    /// The seed of the order on disk; `None` keeps the order of sample ids.
    pub shuffle: Option<u64>,
    /// How records are stored.
    pub compression: Compression,
    /// Worker threads.
    pub jobs: NonZeroUsize,
}

/// How records are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// The source's bytes.
    #[default]
    None,
    /// zstd at this level, where it saves [`SAVING_MIN_PERCENT`]; never for JPEG and WebP.
    Zstd {
        /// 1 to 22.
        level: i32,
    },
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is neither 'none' nor 'zstd' nor 'zstd:LEVEL' with a level from 1 to 22");
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "zstd" => Ok(Self::Zstd { level: 3 }),
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
            Self::Zstd { level } => write!(f, "zstd:{level}"),
        }
    }
}

/// Reads `--shard-size`: bytes with an optional unit, IEC (KiB, MiB, GiB) or SI (kB, MB, GB).
pub(crate) fn parse_shard_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size::parse_size(text).map_err(|fault| fault.to_string())?;
    if (SHARD_BYTES_MIN..=SHARD_BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{bytes} bytes; a shard may have 4KiB to 2TiB"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_parses_and_prints() {
        for (text, printed) in
            [("none", "none"), ("zstd", "zstd:3"), ("zstd:1", "zstd:1"), ("zstd:22", "zstd:22")]
        {
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
