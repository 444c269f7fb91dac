//! The arguments of `shade-load simulate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};
use shade_formats::limits::JOBS_MAX;
use shade_job::{
    DaemonSpec, Declared, FieldsRead, PlanSpec, Policy, Preset, SpecError, StoreModel, parse_time,
};

use crate::cache_policy::{CachePolicy, cache_policy};
use crate::capacity::CacheSize;
use crate::given::Given;
use crate::nodes_args::NodesArgs;
use crate::sizes::SizeModel;

/// Limit of the epochs of a training.
const EPOCHS_MAX: i64 = 100_000;
/// Limit of the trainings: enough for any interval.
const SEEDS_MAX: i64 = 1000;
/// Limit of the compute time of a sample.
const COMPUTE_MAX: Duration = Duration::from_secs(3600);

/// Samples in a batch, unless given.
pub const BATCH_SIZE: u32 = 64;
/// Policies unless others are given.
pub const POLICIES: [CachePolicy; 3] = [
    CachePolicy::Online(Policy::Lru),
    CachePolicy::Online(Policy::App),
    CachePolicy::Online(Policy::Lookahead),
];

/// Below the options.
const HELP: &str = "\
The daemon's own code decides, but no record is read. With --store time is virtual: eight batches are \
in flight, reads take the time of the store, and losses are reported when their batch is computed. \
`lookahead` then prefetches while the store has nothing else to do; the first use of a prefetched \
record is neither hit nor miss. Without --store nothing takes time: each batch is read, computed and \
reported before the next one is opened. A sample that a batch has twice is read once; the second one \
is a hit. The losses for PADS and APP come from --losses or from a model: they fall by exp(-0.15) an \
epoch, samples differ by a lognormal of sigma 1, reports of one sample by one of 0.5. A list of \
accesses has no losses: all samples have the same score and `app` ranks them by hits. An epoch of a \
list is as many accesses as it has different samples. Without --store each access is a batch of its \
own.

A training recorded by `shade-load trace` has the batches of all ranks in the order in which they were \
opened, its epochs, and the losses that came. As many batches are in flight as in the recording, and \
without --store a batch's reads end when as many batches are open as in the recording. Its plans stay \
as they are, whatever is cached. The result has the daemon's own hits. Its --batch-size is the \
training's.

Columns: hit % counts all accesses, cold misses included; compare with `lru` on the same plan, not with \
other plans. Seen is the share of the dataset ever delivered; max repeat, the largest number of \
accesses of one sample in one epoch. Bytes read and evictions are those of all epochs that count. Waits \
is the share of the time that training waits, as `shade-load top` shows it. --json has more, and the \
wait as a share of compute.

Exit codes: 0 simulated, 1 runtime error, 2 usage, 3 the dataset is damaged, 130 interrupted (with the \
rows that were ready).";

/// `shade-load simulate`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("accesses").required(true).args(["dataset", "samples", "trace"])),
    group(ArgGroup::new("timed").multiple(true).args(["store", "jobs", "nodes", "recommend"])),
    after_help = HELP
)]
pub struct Simulate {
    /// A packed dataset, for its number of samples and their sizes: a folder written by `shade-pack
    /// create`, or the dataset.shade in it. Records are charged in whole blocks, as in the daemon.
    /// Another file, as the first argument, is a --trace.
    pub dataset: Option<PathBuf>,

    /// With a dataset: extra fields that are read and cached with their records: all, or names with
    /// commas between them.
    #[arg(
        long,
        requires = "dataset",
        value_name = "all|NAMES",
        default_value = "none",
        hide_default_value = true
    )]
    pub fields: FieldsRead,

    /// Instead of a dataset: the number of samples.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..i64::from(u32::MAX)))]
    pub samples: Option<u32>,

    /// Instead of a training: one that `shade-load trace` recorded, with its losses and its
    /// samples' sizes; or a list of accesses, one sample id (0 to 4294967295) a line. Blank lines
    /// and comments after a # are ignored. `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "training")]
    pub trace: Option<PathBuf>,

    /// Sizes of the samples: fixed:BYTES, or lognormal:MEDIAN:SIGMA, as in fixed:110KB and
    /// lognormal:110KB:0.5. Without sizes every sample is one unit.
    #[arg(long, value_name = "MODEL", conflicts_with = "dataset")]
    pub sizes: Option<SizeModel>,

    /// Sizes from a file: one number of bytes a line, for sample 0, 1, 2 and so on, or a sample id
    /// and its bytes a line.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dataset", "sizes"])]
    pub sizes_file: Option<PathBuf>,

    /// Without a dataset: numbers of samples in the classes, separated by commas, for --sampler
    /// balanced. They add up to --samples.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', conflicts_with_all = ["dataset", "trace"])]
    pub class_sizes: Vec<u32>,

    /// Policies, separated by commas; each is simulated at each --cache. Plans are permutations
    /// unless --sampler is given.
    #[arg(
        long,
        value_parser = cache_policy(),
        value_name = "POLICIES",
        value_delimiter = ',',
        default_values = POLICIES.map(CachePolicy::name)
    )]
    pub policy: Vec<CachePolicy>,

    /// Sight of `lookahead`, in epochs, but never beyond the epoch's plan, as the next one is not
    /// drawn yet. A list of accesses is known to its end; with `inf` so is a recorded training.
    /// Then `lookahead` is Belady's MIN with bypass, which no policy beats on the same accesses.
    #[arg(long, value_name = "EPOCHS", default_value = "1", value_parser = parse_lookahead)]
    pub lookahead: f64,

    /// Capacities, separated by commas: shares of all samples' bytes (10%) or bytes (8GiB). Without
    /// sizes a number counts samples (1000).
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "5%,10%,20%,40%")]
    pub cache: Vec<CacheSize>,

    /// Samples in a batch.
    #[arg(long, value_name = "N", default_value_t = BATCH_SIZE, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub batch_size: u32,

    /// The first epoch that counts: leave out cold ones. The share of the dataset ever seen counts
    /// all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_epochs: u32,

    /// Simulate the waits of training for this store, too: latency=2ms,bandwidth=1Gbit,depth=32,
    /// all parts optional. Also latency=lognormal:MEDIAN:SIGMA, seed=N, and a share `stuck`.
    #[arg(long, value_name = "STORE")]
    pub store: Option<StoreModel>,

    /// With --store: read neighbours together, as the daemon does. Without a dataset all records
    /// lie in one shard, in the order of their ids; losses do not depend on these.
    #[arg(long, requires = "store")]
    pub coalesce: bool,

    /// With --store: as --package-bytes of `shade-load serve`, with --coalesce.
    #[arg(long, value_name = "auto|SIZE", default_value = "0", requires = "store", value_parser = parse_package_bytes)]
    pub package_bytes: PackageBytes,

    /// Compute time of a sample [default: 1ms/sample, or as measured in a trace of `shade-load
    /// trace`].
    #[arg(long, value_name = "TIME/sample", value_parser = parse_compute, requires = "timed")]
    pub compute: Option<Duration>,

    /// Jobs that train at the same time, 2 to 16. The result is what all of them read together,
    /// over one cache and over caches of their own, each with its share.
    #[arg(long, value_name = "N", conflicts_with_all = ["trace", "losses"],
          value_parser = clap::value_parser!(u32).range(2..=i64::from(JOBS_MAX)))]
    pub jobs: Option<u32>,

    /// The jobs are one group: their plans are coupled, so that they want the same samples at the
    /// same time, each by its own chances.
    #[arg(long, requires = "jobs")]
    pub group: bool,

    /// Speeds of the jobs, separated by commas: 1,1,0.9 makes the third one a tenth slower.
    #[arg(long, value_name = "SPEEDS", value_delimiter = ',', requires = "jobs", value_parser = parse_speed)]
    pub speeds: Vec<f64>,

    /// How alike the jobs find the samples: the correlation of a sample's difficulty in two of
    /// them, 0 to 1.
    #[arg(long, value_name = "R", default_value_t = 0.7, requires = "jobs", value_parser = parse_correlation)]
    pub correlation: f64,

    /// Several nodes.
    #[command(flatten)]
    pub nodes: NodesArgs,

    /// For each policy: the smallest cache that removes 90 % of the stall that caching everything
    /// would remove. Found by bisection, to 1/256 of the data; each step is one more simulation.
    /// Without --store, of a dataset that is trained on now: store, compute time, plans and policy
    /// are those of its daemon and its fastest training.
    #[arg(long)]
    pub recommend: bool,

    /// For --recommend: the socket file of the dataset's daemon, if it was started with one.
    /// Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH", requires = "recommend", conflicts_with = "store")]
    pub socket: Option<PathBuf>,

    /// One JSON object instead of a table: {"rows": [{"policy", "capacity", ...}]}, capacities in
    /// bytes (without sizes: in samples), times in seconds, shares from 0 to 1.
    #[arg(long)]
    pub json: bool,

    /// The training.
    #[command(flatten)]
    pub training: Training,
}

/// The options of a training; a trace has none of them. The names are those of the Loader's
/// options.
// Each field names the group: the derive macro leaves it empty because `plan` is flattened.
#[derive(Debug, Args)]
#[group(id = "training", multiple = true)]
pub struct Training {
    /// Epochs to train.
    #[arg(
        long,
        group = "training",
        value_name = "N",
        default_value_t = 12,
        value_parser = clap::value_parser!(u32).range(1..=EPOCHS_MAX)
    )]
    pub epochs: u32,

    /// Losses of a file instead of the model's: CSV with the columns `sample`, `loss` and, for
    /// several epochs, `epoch` (from 0), rows in any order. An epoch without rows uses the one
    /// before. A sample with several losses in an epoch has their mean. A sample without a loss (no
    /// row, an empty cell or NaN) has the mean of its batch. A batch without any loss is not
    /// reported.
    #[arg(long, group = "training", value_name = "FILE")]
    pub losses: Option<PathBuf>,

    /// Weights for --sampler weighted: one number a line, for sample 0, 1, 2 and so on.
    #[arg(long, group = "training", value_name = "FILE")]
    pub weights: Option<PathBuf>,

    /// Whole systems instead of policies, separated by commas: each has its sampler, policy and
    /// order. --sampler and --order replace those of all systems.
    #[arg(
        long,
        group = "training",
        value_name = "PRESETS",
        value_delimiter = ',',
        value_parser = preset(),
        conflicts_with = "policy"
    )]
    pub preset: Vec<Preset>,

    /// Parameters of the plans.
    #[command(flatten)]
    pub plan: Given<PlanSpec>,

    /// Number of trainings, with seeds from --seed on. The result has their means, and the 95 %
    /// intervals of hit ratio and stall.
    #[arg(
        long,
        group = "training",
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=SEEDS_MAX)
    )]
    pub seeds: u32,
}

impl Simulate {
    /// Whether one read may bring several records.
    pub(super) fn reads_neighbours(&self) -> bool {
        self.coalesce || self.package_bytes != Some(0)
    }
}

impl Training {
    /// The parameters of the plans; sampler and order are those of the default preset unless they
    /// were given.
    pub(super) fn plan(&self) -> PlanSpec {
        self.plan.of(Preset::default())
    }
}

/// Reads a preset's name.
pub fn preset() -> impl TypedValueParser<Value = Preset> {
    let names = Preset::ALL.iter().map(|preset| PossibleValue::new(preset.as_str()).help(preset.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Preset>())
}

/// Reads a number of epochs, or says what to write instead.
fn parse_lookahead(text: &str) -> Result<f64, String> {
    let epochs: Option<f64> = text.parse().ok();
    epochs.filter(|epochs| *epochs >= 0.0).ok_or_else(|| "write a number of epochs, 0 or more".to_owned())
}

/// Bytes that a miss brings along; `None` for the policy's own.
type PackageBytes = Option<u32>;

/// Reads the size of a package as a daemon does.
fn parse_package_bytes(text: &str) -> Result<PackageBytes, SpecError> {
    let mut spec = DaemonSpec::default();
    spec.set("package_bytes", text)?;
    Ok(spec.package_bytes)
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.001..=1000.0).contains(speed));
    speed.ok_or_else(|| format!("{text:?}: a speed is a number from 0.001 to 1000"))
}

fn parse_correlation(text: &str) -> Result<f64, String> {
    let correlation = text.parse().ok().filter(|correlation| (0.0..=1.0).contains(correlation));
    correlation.ok_or_else(|| format!("{text:?}: a correlation is a number from 0 to 1"))
}

/// `1ms/sample` or `1ms`.
fn parse_compute(text: &str) -> Result<Duration, String> {
    let time = text.trim();
    let time = parse_time(time.strip_suffix("/sample").unwrap_or(time))?;
    if time.is_zero() || time > COMPUTE_MAX {
        return Err(format!("{text:?}: a sample takes more than nothing and at most an hour"));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_is_a_time_per_sample() {
        assert_eq!(parse_compute("1ms/sample"), Ok(Duration::from_millis(1)));
        assert_eq!(parse_compute("250us"), Ok(Duration::from_micros(250)));
        for bad in ["", "0ms", "1", "1ms/batch", "2000000s/sample"] {
            assert!(parse_compute(bad).is_err(), "{bad}");
        }
    }
}
