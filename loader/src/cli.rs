//! What the command line says. Every option: meaning, unit, default, when to change it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cache::Policy;
use crate::core::Capacity;
use crate::reads::{EngineChoice, IoMode};

/// Serves training batches from a packed dataset: reads single records with io_uring, keeps in memory what the coming
/// epochs will use, and hands batches to the trainers of this machine through shared memory.
#[derive(Debug, Parser)]
#[command(name = "shade-load", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The daemon's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve one dataset to the ranks of this machine until stopped. Python starts it by itself when none runs.
    Serve(Serve),
}

/// `shade-load serve`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 stopped as asked, 1 runtime error, 2 usage, 3 the dataset is damaged.")]
pub struct Serve {
    /// The dataset: a folder written by `shade-pack create`, or the dataset.shade in it.
    pub dataset: PathBuf,

    /// Memory for the cache: bytes (8GiB) or a share of the dataset (20%). A hard limit. More is always better, up to
    /// the dataset's size; leave room for the trainers.
    #[arg(long, value_name = "SIZE", default_value = "20%")]
    pub cache: Capacity,

    /// Who stays in the cache: `app` keeps the samples of highest importance, `lru` the latest used (what a page
    /// cache does; for comparison).
    #[arg(long, value_enum, default_value = "app")]
    pub policy: PolicyName,

    /// Reads in flight at most. Raise it for distant storage: depth = wanted records per second x latency.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,

    /// Threads that copy or decode records. Default: the machine's cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub workers: Option<u16>,

    /// How records are read: `uring` (io_uring), `threads` (preadv), or `auto`: io_uring where the kernel and the
    /// container allow it. A log line says which and why.
    #[arg(long, value_enum, default_value = "auto")]
    pub engine: EngineName,

    /// `direct` bypasses the page cache, `buffered` uses it, `auto` asks the file system.
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoName,

    /// SIMULATION: delay each read by this much (2ms), to stand in for a remote store on a laptop.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub store_delay: Option<Duration>,

    /// SIMULATION: let reads pass at this rate only (100MB for bytes a second, 1Gbit for bits).
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    pub store_bandwidth: Option<u64>,

    /// Listen on a socket file (mode 0600) instead of the abstract name that belongs to dataset and job; to share a
    /// daemon between containers, mount the file's folder into them.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// The job this daemon serves: a name that tells apart trainings on the same dataset.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub job: String,

    /// Started by a trainer: say on stdout when ready, and end once the last rank has left.
    #[arg(long)]
    pub private: bool,

    /// With --private: how long to stay after the last rank has left, so that a restarted trainer finds its cache.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "3s")]
    pub linger: Duration,
}

/// Names of the cache policies.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the names say it; --help describes them")]
pub enum PolicyName {
    App,
    Lru,
}

/// Names of the read engines.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the names say it; --help describes them")]
pub enum EngineName {
    Auto,
    Uring,
    Threads,
}

/// Names of the I/O modes.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the names say it; --help describes them")]
pub enum IoName {
    Auto,
    Direct,
    Buffered,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::App => Self::App,
            PolicyName::Lru => Self::Lru,
        }
    }
}

impl From<EngineName> for EngineChoice {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Auto => Self::Auto,
            EngineName::Uring => Self::Uring,
            EngineName::Threads => Self::Threads,
        }
    }
}

impl From<IoName> for IoMode {
    fn from(name: IoName) -> Self {
        match name {
            IoName::Auto => Self::Auto,
            IoName::Direct => Self::Direct,
            IoName::Buffered => Self::Buffered,
        }
    }
}

/// `2ms`, `1.5s`, `250us`, `1min`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let error = || format!("{text:?} is no time: write 250us, 2ms, 1.5s or 1min");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(error()),
    };
    let number: f64 = number.trim().parse().map_err(|_| error())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| error())
}

/// Bytes a second from `100MB` or `1Gbit`.
fn parse_bandwidth(text: &str) -> Result<u64, String> {
    let error = || format!("{text:?} is no rate: write 100MB (bytes a second) or 1Gbit (bits a second)");
    let (size, bits) = match text.trim().strip_suffix("bit") {
        Some(size) => (size, 8),
        None => (text.trim(), 1),
    };
    let rate = parse_size::parse_size(size).map_err(|_| error())? / bits;
    if rate == 0 { Err(error()) } else { Ok(rate) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::{Cli, parse_bandwidth, parse_duration};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_and_rates() {
        assert_eq!(parse_duration("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_bandwidth("1Gbit"), Ok(125_000_000));
        assert_eq!(parse_bandwidth("100MB"), Ok(100_000_000));
        for bad in ["", "2", "ms", "-1s", "2 parsecs"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        for bad in ["", "fast", "0"] {
            assert!(parse_bandwidth(bad).is_err(), "{bad}");
        }
    }
}
