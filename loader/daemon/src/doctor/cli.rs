//! The arguments and errors of `shade-load doctor`.

use std::io;
use std::path::PathBuf;

use clap::Args;
use shade_dataset::{DatasetError, StoreFault};
use shade_job::Servers;
use shade_reads::ReadsError;
use shade_tier::PASSWORD_VARIABLE;

/// Longest probe, in seconds: every read's latency is kept in memory until the end.
const PROBE_SECONDS_MAX: f64 = 300.0;

/// Longest comparison, in seconds.
const COMPARE_SECONDS_MAX: f64 = 86_400.0;

/// `shade-load doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done (with or without advice), 1 cannot look or compare, or may not read the \
                  shards, 2 usage, 3 the dataset is damaged, 130 interrupted."
)]
pub struct Doctor {
    /// A packed dataset, or any folder, whose files are then not read. Or the address of a dataset
    /// or of any objects (s3://bucket/prefix, gs://, az://, https://): parts of them are read,
    /// nothing is written. Without it, only the machine is examined.
    pub path: Option<PathBuf>,

    /// How long to read random records of the dataset, in seconds, shared by five depths (six of an
    /// object store); 0 reads none. Give more for stores that take a tenth of a second or more per
    /// read.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = parse_seconds)]
    pub probe_seconds: f64,

    /// Also examine the servers of a tier (valkey://HOST:PORT,HOST:PORT, as with `serve --tier`):
    /// their settings, and whether they are faster than the store. The password comes from
    /// SHADE_TIER_PASSWORD.
    #[arg(long, value_name = "SERVERS")]
    pub tier: Option<Servers>,

    /// Compare, on these very files: what a PyTorch DataLoader gets from this folder of images, and
    /// what shade gets from PATH, the same images packed. Without PATH shade reads the files as
    /// they are. Cold and warm, by turns, each side the same records. Nothing is written to the
    /// folder.
    #[arg(long, value_name = "FOLDER")]
    pub compare: Option<PathBuf>,

    /// With --compare: about how long it takes.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = parse_length, requires = "compare")]
    pub seconds: f64,

    /// With --compare: samples in a batch; fewer where the folder has too few images.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=32768),
          requires = "compare")]
    pub batch_size: u32,

    /// With --compare: both sides decode, resize and crop images to this side, the DataLoader with
    /// torchvision. Without it records are delivered as bytes.
    #[arg(long, value_name = "SIDE", value_parser = clap::value_parser!(u32).range(1..=8192), requires = "compare")]
    pub image_size: Option<u32>,

    /// With --compare: worker processes of the DataLoader. Without it one per core and four per
    /// core are tried, and the faster is compared.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512), requires = "compare")]
    pub workers: Option<u32>,

    /// With --compare: a Python that has shade_load and torch. Default: the one beside this
    /// program, else python3. Where it has no torch, threads that read the files stand in for the
    /// DataLoader.
    #[arg(long, value_name = "PROGRAM", requires = "compare")]
    pub python: Option<PathBuf>,

    /// Print one JSON object instead of text; loader/daemon/src/doctor/REPORT.md describes its
    /// keys.
    #[arg(long)]
    pub json: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| (0.0..=PROBE_SECONDS_MAX).contains(seconds))
        .ok_or_else(|| format!("{text:?} is no probe's length: write seconds, 0 to {PROBE_SECONDS_MAX}"))
}

fn parse_length(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| (1.0..=COMPARE_SECONDS_MAX).contains(seconds))
        .ok_or_else(|| format!("{text:?} is no length: write seconds, 1 to {COMPARE_SECONDS_MAX}"))
}

/// The errors of `shade-load doctor`.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The path does not exist or cannot be reached.
    #[error("cannot look at {}: {source}", path.display())]
    Path {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An object store does not list what it has.
    #[error("cannot look at {address}: {fault}")]
    Store {
        /// The address as given.
        address: String,
        /// What it answers.
        fault: StoreFault,
    },
    /// There is no object at an address.
    #[error("there is nothing at {address}: see that bucket and prefix are right")]
    NothingThere {
        /// The address as given.
        address: String,
    },
    /// The dataset cannot be opened.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// No server of the tier answers. The findings are written.
    #[error("cannot look at the tier: {0}; is a password needed ({PASSWORD_VARIABLE})?")]
    Tier(String),
    /// The probe's reads cannot start.
    #[error("cannot probe: {0}")]
    Reads(#[from] ReadsError),
    /// There is not enough memory for the probe, or no way to catch Ctrl-C.
    #[error("cannot probe: {0}")]
    Probe(io::Error),
    /// The dataset's shards may not be read. The findings are written.
    #[error("cannot probe: {0}")]
    Forbidden(String),
    /// The comparison cannot start, or has failed and said why.
    #[error("cannot compare by {}: {what}", python.display())]
    Compare {
        /// The Python that was asked.
        python: PathBuf,
        /// How it ended.
        what: String,
    },
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Write(#[from] io::Error),
    /// Ctrl-C. The findings so far are written.
    #[error("interrupted")]
    Interrupted,
}

impl DoctorError {
    /// The process's exit code, as `shade-load serve` and `shade-pack` have them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Dataset(error) if error.is_damage() => 3,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_seconds;

    #[test]
    fn seconds_are_numbers_of_a_sane_size() {
        assert_eq!(parse_seconds("0"), Ok(0.0));
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for bad in ["", "-1", "301", "NaN", "3s", "inf"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
