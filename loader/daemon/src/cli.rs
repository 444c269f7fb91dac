//! The command line. Every option has its meaning, unit, default, and when to change it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use parse_size::parse_size;
use shade_core::{Capacity, DECODED_BYTES, PackageBytes};
use shade_images::JpegDecoder;
use shade_job::{Policy, Preset};
use shade_reads::{Depth, EngineChoice, IoMode, READS_DEPTH_MAX, StoreModel, parse_time};
use shade_simulate::{Simulate, parse_lookahead, preset};
use shade_tier::Servers;

use crate::ask::{Drain, Resize, Status, Stop};
use crate::doctor::Doctor;
use crate::export::Export;
pub use crate::names::default_socket;
use crate::names::{CACHE_DEFAULT, engine, io, jpeg, policy};
use crate::report::Report;
use crate::top::Top;
use crate::trace::Trace;

/// Serves training batches from a packed dataset: reads single records with io_uring, keeps in
/// memory what the coming epochs will use, and hands batches to the trainers of this machine
/// through shared memory.
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
    /// Serve one dataset to all trainings on this machine until stopped. Python starts it by itself
    /// when none runs.
    Serve(Box<Serve>),
    /// Say what this machine and the mount of a dataset mean for shade, and what to change.
    Doctor(Doctor),
    /// Say what policies and capacities would do for a training or a trace, without reading a
    /// record.
    Simulate(Box<Simulate>),
    /// Record what the daemon of a running training serves, for `simulate --trace`, `report` and
    /// Perfetto.
    Trace(Trace),
    /// List your daemons on this machine and their jobs.
    Status(Status),
    /// Watch your daemons: whether trainings wait, for what, and what to do about it.
    Top(Top),
    /// Give the same counters to Prometheus: one exporter a node.
    Export(Export),
    /// Draw a recorded training as a page: whether it waited, for what, what to do about it, hits,
    /// losses and coverage.
    Report(Report),
    /// End a daemon now; its trainings get an error that says so.
    Stop(Stop),
    /// Let a daemon take no new job, and end once its trainings have.
    Drain(Drain),
    /// Give the cache of a running daemon another size.
    Resize(Resize),
}

/// `shade-load serve`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 stopped as asked, 1 runtime error, 2 usage, 3 the dataset is damaged.")]
pub struct Serve {
    /// The dataset: a folder written by `shade-pack create`, or the dataset.shade in it.
    pub dataset: PathBuf,

    /// Memory for the cache, a hard limit: bytes (8GiB) or a share of the dataset (20%). More is
    /// better, up to the dataset's size; leave room for the trainers. More than this machine or its
    /// control group has is refused.
    #[arg(long, value_name = "SIZE", default_value = CACHE_DEFAULT)]
    pub cache: Capacity,

    /// The system whose cache policy to use. Its sampler and order belong to the job:
    /// `Loader(preset=...)` asks for all three. Keep the default: `clairvoyant` has
    /// the same policy, and the others are for comparison.
    #[arg(long, value_parser = preset(), default_value_t)]
    pub preset: Preset,

    /// Which records stay in the cache, instead of the preset's policy. On plans by importance, all
    /// others hit far less often than `lookahead`; on permutations `app`, `topc`, `static` and
    /// `quiver` hit as often, which is the cache's share of the dataset.
    #[arg(long, value_parser = policy())]
    pub policy: Option<Policy>,

    /// How far `lookahead` sees into the plan, in epochs. 1: the rest of the epoch, or a whole one
    /// where plans are drawn ahead. 0: nothing, which makes it `app`.
    #[arg(long, value_name = "EPOCHS", default_value = "1", value_parser = parse_lookahead)]
    pub lookahead: f64,

    /// Bytes of a shard that a miss brings along in the same read, as far as the cache would keep
    /// them: 0, or up to 256KiB. `auto`: 64KiB with the policy `icache`, where they stand in for
    /// other samples, else 0. For records of a few KB, where the store's operations are the limit
    /// and not its bandwidth.
    #[arg(long, value_name = "auto|SIZE", default_value = "auto")]
    pub package_bytes: PackageBytes,

    /// Servers of a Valkey or Redis Cluster as a second level behind the cache:
    /// valkey://HOST:PORT,HOST:PORT, or rediss:// for TLS. Some of them are enough. The password
    /// comes from SHADE_TIER_PASSWORD, the user from valkey://USER@HOST. For a store that is slower
    /// than the memory of other machines; `doctor --tier` says whether it is. A server that is gone
    /// costs hits, never an error.
    #[arg(long, value_name = "SERVERS")]
    pub tier: Option<Servers>,

    /// With --tier: memory of all its servers that this daemon may fill, in bytes (64GiB). `auto`
    /// is nine tenths of their maxmemory. Give each node its part where several share the servers.
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = parse_tier_cache)]
    pub tier_cache: TierCache,

    /// Reads in flight: `auto` finds the number that the store gains from (4 to 256), a number is
    /// fixed. Give one to leave a share of the store to others: depth = wanted records per second x
    /// latency.
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_depth)]
    pub depth: Depth,

    /// Request records again that are far later than the others, for 1 in 100 reads at most. For
    /// stores of which some servers stall now and then.
    #[arg(long)]
    pub hedge: bool,

    /// Threads that copy or decode records. Default: one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub workers: Option<u16>,

    /// Memory for decoded rows that jobs of a group share (Plan(group=...)), used while there are
    /// such jobs: bytes or 256MiB. The first job decodes a row, the others copy it. 0 decodes it
    /// for each of them. Raise it if jobs of a group drift apart by more than the window.
    #[arg(long, value_name = "SIZE", default_value_t = DECODED_BYTES, value_parser = |text: &str| parse_size(text))]
    pub decode_once: u64,

    /// What decodes JPEGs. Pixels are the same. Use `turbo` to rule out shade's own decoder as the
    /// cause of a problem; a photograph then takes about 1.6 times as long.
    #[arg(long, value_parser = jpeg(), default_value = "auto")]
    pub jpeg: JpegDecoder,

    /// How records are read: `uring` (io_uring), `threads` (preadv), or `auto`: io_uring where the
    /// kernel and the container allow it. A log line says which and why. `sim` reads from the
    /// simulated --store.
    #[arg(long, value_parser = engine(), default_value = "auto")]
    pub engine: EngineChoice,

    /// `direct` bypasses the page cache, `buffered` uses it, `auto` is direct where a trial read
    /// works.
    #[arg(long, value_parser = io(), default_value = "auto")]
    pub io: IoMode,

    /// SIMULATION: read as from this store, in place of a remote one on a laptop or to try out
    /// faults: latency=2ms,bandwidth=1Gbit,depth=32. Also latency=lognormal:MEDIAN:SIGMA, seed=N,
    /// clock=virtual (answers are not waited for), and shares of reads that fail: short, eintr,
    /// eagain, eio, estale, stuck (eio=0.1%).
    #[arg(long, value_name = "STORE")]
    pub store: Option<StoreModel>,

    /// Listen on a socket file (mode 0600) instead of the abstract name that belongs to the
    /// dataset. To share a daemon between containers, mount the file's folder into each of them and
    /// the dataset at the same path, and run them as the same user. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// For a daemon that a trainer starts: tell on stdout when ready, and end once the last rank
    /// has left.
    #[arg(long)]
    pub private: bool,

    /// With --private: start the daemon as no process's child, in a session of its own, and return.
    /// So no launcher that cleans up after one rank ends the daemon of all.
    #[arg(long, requires = "private")]
    pub detach: bool,

    /// The process that wanted a detached daemon; its job may resize the cache.
    #[arg(long, value_name = "PID", requires = "private", hide = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub started_by: Option<i32>,

    /// With --private: how long to stay after the last rank has left, so that a restarted trainer
    /// finds its cache.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "3s")]
    pub linger: Duration,
}

/// Bytes of the tier that a daemon may fill; `None` for `auto`.
pub type TierCache = Option<u64>;

/// `auto` or bytes.
fn parse_tier_cache(text: &str) -> Result<TierCache, parse_size::Error> {
    if text == "auto" { Ok(None) } else { parse_size(text).map(Some) }
}

/// `auto` or a number.
fn parse_depth(text: &str) -> Result<Depth, String> {
    if text == "auto" {
        return Ok(Depth::Auto);
    }
    let depth = text.parse().ok().filter(|depth| (1..=READS_DEPTH_MAX).contains(depth));
    depth.map(Depth::Fixed).ok_or_else(|| format!("write auto or a number from 1 to {READS_DEPTH_MAX}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Cli, parse_depth};
    use shade_reads::Depth;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn depths() {
        assert_eq!(parse_depth("auto"), Ok(Depth::Auto));
        assert_eq!(parse_depth("1024"), Ok(Depth::Fixed(1024)));
        for bad in ["", "0", "1025", "-1", "many"] {
            assert!(parse_depth(bad).is_err(), "{bad}");
        }
    }
}
