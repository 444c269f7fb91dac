//! The options of `shade_open`: one JSON object with the names of Python's `Loader`, `Plan` and
//! `Daemon`.
//!
//! Settings of the daemon that are not given are left to it, so a daemon that runs already is taken
//! as it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use shade_client::{JobSpec, Launch, Options, PlanSpec, Sampler, Subset, Tables, Tail};
use shade_formats::control::{Preset, group_digest};
use shade_formats::limits::PAYLOAD_ALIGN_BYTES;

use crate::fault::Fault;
use crate::transforms::{Size, output};

/// The program, unless the environment names another.
const PROGRAM: &str = "shade-load";
const PROGRAM_VARIABLE: &str = "SHADE_LOAD_BIN";
/// Suffix of the job that validates beside a job that trains.
const VALIDATION_SUFFIX: &str = ".eval";
/// Fields of `Plan` that the job has, and not its plan.
const OF_THE_JOB: [&str; 3] = ["tail", "on_error", "bad_max"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    batch_size: Value,
    image_size: Option<Size>,
    decode: Option<Value>,
    #[serde(default)]
    channels_last: bool,
    #[serde(default)]
    exact: bool,
    #[serde(default = "yes")]
    train: bool,
    cache: Option<Value>,
    #[serde(default)]
    seed: u64,
    rank: Option<u32>,
    world_size: Option<u32>,
    preset: Option<String>,
    #[serde(default)]
    plan: Map<String, Value>,
    #[serde(default)]
    daemon: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// All that a rank attaches with.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) job: String,
    pub(crate) rank: u32,
    pub(crate) spec: JobSpec,
    pub(crate) tables: Tables,
    pub(crate) options: Options,
    /// Read the dataset's own files through the page cache.
    pub(crate) buffered: bool,
}

/// Reads the options for a dataset in this folder, which is canonical.
pub(crate) fn read(text: &str, dataset: &Path) -> Result<Wanted, Fault> {
    let given: Given =
        serde_json::from_str(text).map_err(|error| Fault::usage(format!("options: {error}")))?;
    let preset = given.preset.as_deref().unwrap_or_default();
    let preset: Preset = if preset.is_empty() { Ok(Preset::default()) } else { preset.parse() }
        .map_err(|error| Fault::usage(format!("preset: {error}")))?;
    let (rank, world_size) = ranks(given.rank, given.world_size)?;
    let mut daemon = Daemon::read(given.daemon)?;
    daemon.settings.extend(given.cache.map(|cache| ("cache", plain(&cache))));
    if !daemon.settings.iter().any(|(name, _)| *name == "policy") {
        daemon.settings.push(("policy", preset.policy().as_str().to_owned()));
    }
    let mut fields = given.plan;
    let tables = tables(fields.remove("indices"))?;
    let mut spec = plan(fields, preset, given.train)?;
    set(&mut spec, "batch_size", given.batch_size)?;
    spec.plan.seed = given.seed;
    spec.world_size = world_size;
    spec.admit = given.train;
    spec.ring_bytes = daemon.ring_bytes;
    spec.output = output(given.image_size, given.decode, given.channels_last, given.exact)?;
    let suffix = if given.train { "" } else { VALIDATION_SUFFIX };
    let job = format!("{}{suffix}", daemon.job.as_deref().unwrap_or("default"));
    let buffered = daemon.settings.iter().any(|(name, value)| *name == "io" && value == "buffered");
    Ok(Wanted { job, rank, spec, tables, buffered, options: daemon.into_options(dataset, world_size) })
}

/// Rank and world size: given, or the environment's, else 0 of 1.
fn ranks(rank: Option<u32>, world_size: Option<u32>) -> Result<(u32, u32), Fault> {
    match (rank, world_size) {
        (Some(rank), Some(world_size)) => return Ok((rank, world_size)),
        (None, None) => {}
        _ => return Err(Fault::usage("rank, world_size: give both or neither")),
    }
    let number = |name: &str| -> Result<Option<u32>, Fault> {
        let text = std::env::var(name).ok();
        let number = text.as_deref().map(str::parse).transpose();
        number.map_err(|error| Fault::usage(format!("{name} in the environment: {error}")))
    };
    let (Some(rank), Some(world_size)) = (number("RANK")?, number("WORLD_SIZE")?) else { return Ok((0, 1)) };
    if number("LOCAL_WORLD_SIZE")?.is_some_and(|here| here != world_size) {
        let text = format!(
            "WORLD_SIZE={world_size}: this interface is for the ranks of one node; use Python for several"
        );
        return Err(Fault::usage(text));
    }
    Ok((rank, world_size))
}

/// The job's samples: a list of ids, or all of the dataset.
fn tables(indices: Option<Value>) -> Result<Tables, Fault> {
    let Some(indices) = indices.filter(|indices| !indices.is_null()) else { return Ok(Tables::default()) };
    let ids: Vec<u32> = serde_json::from_value(indices)
        .map_err(|error| Fault::usage(format!("plan: indices: {error}, expected a list of sample ids")))?;
    let subset = Subset::new(ids).map_err(|error| Fault::usage(format!("plan: {error}")))?;
    Ok(subset.into())
}

/// The job of these fields of `Plan`.
fn plan(fields: Map<String, Value>, preset: Preset, trains: bool) -> Result<JobSpec, Fault> {
    // As in `Plan`. The other defaults are the job's own.
    let mut spec = JobSpec { tail: Tail::Even, ..JobSpec::default() };
    spec.plan.sampler = preset.sampler();
    spec.plan.order = preset.order();
    let mut group = preset.is_group().then(|| preset.as_str().to_owned());
    let mut has_sampler = false;
    for (name, value) in fields {
        let is_parameter = name != "seed" && PlanSpec::PARAMETERS.iter().any(|known| known.name == name);
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            ("group", Value::String(name)) => group = Some(name),
            (name, value) if is_parameter || OF_THE_JOB.contains(&name) => {
                has_sampler |= name == "sampler";
                set(&mut spec, name, value)?;
            }
            (name, _) => return Err(Fault::usage(format!("plan: there is no {name:?} here"))),
        }
    }
    if spec.plan.sampler == Sampler::Weighted {
        return Err(Fault::usage("plan: sampler: \"weighted\" needs weights, which this interface has not"));
    }
    if trains {
        spec.plan.group = group.map_or(0, |name| group_digest(&name));
    } else {
        if has_sampler && spec.plan.sampler != Sampler::Sequential {
            return Err(Fault::usage(
                "plan: sampler: with \"train\": false each sample comes once, in order",
            ));
        }
        // The other fields say how a training draws.
        spec.plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    }
    Ok(spec)
}

/// Gives one field of a job another value.
fn set(spec: &mut JobSpec, name: &str, value: Value) -> Result<(), Fault> {
    JobSpec::check_field(name, value.clone()).map_err(|error| Fault::usage(error.to_string()))?;
    let wrong = |error: serde_json::Error| Fault::usage(format!("{name}: {error}"));
    let mut fields = serde_json::to_value(*spec).map_err(wrong)?;
    if let Some(fields) = fields.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
    *spec = serde_json::from_value(fields).map_err(wrong)?;
    Ok(())
}

/// The fields of `Daemon`.
struct Daemon {
    job: Option<String>,
    socket: Option<PathBuf>,
    timeout: Duration,
    ring_bytes: u64,
    /// Options of `shade-load serve`, and their values.
    settings: Vec<(&'static str, String)>,
}

impl Daemon {
    fn read(fields: Map<String, Value>) -> Result<Self, Fault> {
        let socket = std::env::var_os("SHADE_SOCKET").filter(|socket| !socket.is_empty()).map(PathBuf::from);
        let (job, timeout) = (None, Duration::from_secs(300));
        let mut daemon = Self { job, socket, timeout, ring_bytes: 0, settings: Vec::new() };
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            daemon.set(&name, &value)?;
        }
        Ok(daemon)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), Fault> {
        let setting = match name {
            "job" => {
                self.job = Some(plain(value));
                return Ok(());
            }
            "socket" => {
                self.socket = Some(PathBuf::from(plain(value)));
                return Ok(());
            }
            "timeout" => {
                self.timeout = seconds(name, value)?;
                return Ok(());
            }
            "ring" => {
                let bytes = bytes(name, value)?.checked_next_multiple_of(PAYLOAD_ALIGN_BYTES);
                self.ring_bytes = bytes.ok_or_else(|| Fault::usage("daemon: ring: too large"))?;
                return Ok(());
            }
            "hedge" if *value == Value::Bool(false) => return Ok(()),
            "hedge" if *value == Value::Bool(true) => ("hedge", "yes".to_owned()),
            "hedge" => {
                return Err(Fault::usage(format!("daemon: hedge: got {value}, expected true or false")));
            }
            "linger" => ("linger", format!("{:.3}s", seconds(name, value)?.as_secs_f64())),
            "tier_cache" => ("tier-cache", bytes(name, value)?.to_string()),
            "decode_once" => ("decode-once", bytes(name, value)?.to_string()),
            "package_bytes" => ("package-bytes", plain(value)),
            "policy" => ("policy", plain(value)),
            "lookahead" => ("lookahead", plain(value)),
            "tier" => ("tier", plain(value)),
            "depth" => ("depth", plain(value)),
            "workers" => ("workers", plain(value)),
            "jpeg" => ("jpeg", plain(value)),
            "engine" => ("engine", plain(value)),
            "io" => ("io", plain(value)),
            "store" => ("store", plain(value)),
            _ => return Err(Fault::usage(format!("daemon: there is no {name:?}"))),
        };
        self.settings.push(setting);
        Ok(())
    }

    /// How to find the daemon, or start one with these settings: as Python does.
    fn into_options(self, dataset: &Path, world_size: u32) -> Options {
        let binary = std::env::var_os(PROGRAM_VARIABLE).filter(|named| !named.is_empty());
        let mut args: Vec<OsString> =
            vec!["serve".into(), dataset.into(), "--private".into(), "--detach".into()];
        for (name, value) in &self.settings {
            args.push(format!("--{name}").into());
            if *name != "hedge" {
                args.push(value.into());
            }
        }
        if let Some(socket) = &self.socket {
            args.extend(["--socket".into(), socket.into()]);
        }
        let launch = Launch { binary: binary.unwrap_or_else(|| PROGRAM.into()).into(), args };
        let own = |(name, value): (&str, String)| (name.to_owned(), value);
        Options {
            or_free_name: self.job.is_none() && world_size == 1,
            socket: self.socket,
            launch: Some(launch),
            timeout: self.timeout,
            settings: self.settings.into_iter().map(own).collect(),
        }
    }
}

/// A value as a command line has it. The daemon checks it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn seconds(name: &str, value: &Value) -> Result<Duration, Fault> {
    let time = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| Fault::usage(format!("daemon: {name}: got {value}, expected seconds")))
}

/// Bytes, or a text such as "256MiB".
fn bytes(name: &str, value: &Value) -> Result<u64, Fault> {
    let bytes = value.as_u64().or_else(|| parse_size::parse_size(value.as_str()?).ok());
    bytes.ok_or_else(|| Fault::usage(format!("daemon: {name}: got {value}, expected bytes or \"256MiB\"")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shade_client::{Framing, ImageSpec};

    fn wanted(text: &str) -> Result<Wanted, String> {
        read(text, Path::new("/d")).map_err(|fault| fault.text)
    }

    #[test]
    fn the_loaders_names_make_the_loaders_job() {
        let text = r#"{"batch_size": 8, "seed": 7, "preset": "clairvoyant", "cache": "8GiB",
            "decode": [{"Resize": {"size": 40}}, {"RandomCrop": {"size": [32, 24], "padding": 4}},
                       {"RandomHorizontalFlip": {}}],
            "plan": {"rep": 2.0, "tail": "drop", "group": null}, "rank": 1, "world_size": 2,
            "daemon": {"job": "a", "ring": 5000, "decode_once": "1MiB", "hedge": true, "linger": 2}}"#;
        let Wanted { job, rank, spec, options, .. } = wanted(text).unwrap();
        assert_eq!((job.as_str(), rank, spec.world_size, spec.batch_size), ("a", 1, 2, 8));
        assert_eq!((spec.plan.sampler, spec.plan.seed, spec.ring_bytes), (Sampler::Pads, 7, 8192));
        let [images] = spec.output.views() else { panic!("{:?}", spec.output) };
        assert_eq!((images.height, images.width, images.flip, images.grey), (32, 24, 0.5, false));
        assert_eq!(images.framing, Framing::Random { short: 40, padding: 4 });
        let args = options.launch.unwrap().args;
        let expected = "serve /d --private --detach --decode-once 1048576 --hedge --linger 2.000s --cache 8GiB --policy \
                        lookahead";
        assert_eq!(args.join(" ".as_ref()), *expected);
        assert!(!options.or_free_name);
    }

    #[test]
    fn indices_are_a_list_of_sample_ids() {
        let tables = |text| wanted(text).unwrap().tables;
        let subset = tables(r#"{"batch_size": 1, "plan": {"indices": [9, 2]}}"#).subset.unwrap();
        assert_eq!(subset.ids(), [2, 9]);
        assert!(tables(r#"{"batch_size": 1, "plan": {"indices": null}}"#).is_empty());
    }

    #[test]
    fn a_list_of_lists_makes_views() {
        let text = r#"{"batch_size": 8, "exact": true,
            "decode": [[{"CenterCrop": {"size": 8}}, {"RandomHorizontalFlip": {"p": 1}}],
                       [{"Resize": {"size": [4, 5]}}, {"Grayscale": {}}]]}"#;
        let spec = wanted(text).unwrap().spec;
        let first = ImageSpec {
            framing: Framing::Center { short: 0 },
            flip: 1.0,
            exact: true,
            ..ImageSpec::cover(8, 8)
        };
        let second =
            ImageSpec { framing: Framing::Stretch, exact: true, grey: true, ..ImageSpec::cover(4, 5) };
        assert_eq!(spec.output.views(), [first, second]);
    }

    #[test]
    fn a_validation_is_a_job_of_its_own() {
        let Wanted { job, spec, .. } = wanted(r#"{"batch_size": 1, "train": false}"#).unwrap();
        assert_eq!((job.as_str(), spec.admit), ("default.eval", false));
        let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
        assert_eq!(spec.plan, plan);
        // What says how a training draws does nothing.
        for text in [
            r#"{"order": "hits_first", "rep": 3.0, "pace": true, "mix": 0.5, "draw_ahead": true}"#,
            r#"{"strata": 8, "group": "sweep", "cover": 1, "explore": 0.5, "echo": 3.0}"#,
        ] {
            let text = format!(r#"{{"batch_size": 1, "train": false, "preset": "deepio", "plan": {text}}}"#);
            assert_eq!(wanted(&text).unwrap().spec.plan, plan, "{text}");
        }
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (text, part) in [
            ("{}", "batch_size"),
            (r#"{"batch_size": 0}"#, "batch_size"),
            (r#"{"batch_size": 1, "sampler": "pads"}"#, "sampler"),
            (r#"{"batch_size": 1, "plan": {"seed": 1}}"#, "seed"),
            (r#"{"batch_size": 1, "plan": {"rep": 0.5}}"#, "rep"),
            (r#"{"batch_size": 1, "plan": {"indices": [1, -1]}}"#, "plan: indices: invalid value"),
            (r#"{"batch_size": 1, "plan": {"indices": [2, 2]}}"#, "plan: indices is 2, twice"),
            (r#"{"batch_size": 1, "plan": {"sampler": "weighted"}}"#, "weights"),
            (r#"{"batch_size": 1, "train": false, "plan": {"sampler": "pads"}}"#, "train"),
            (r#"{"batch_size": 1, "daemon": {"depht": 1}}"#, "depht"),
            (r#"{"batch_size": 1, "daemon": {"ring": "much"}}"#, "ring"),
            (r#"{"batch_size": 1, "preset": "best"}"#, "preset"),
            (r#"{"batch_size": 1, "rank": 0}"#, "world_size"),
            (r#"{"batch_size": 1, "exact": true}"#, "exact"),
            (r#"{"batch_size": 1, "decode": [{"Resize": {"size": 8}}]}"#, "CenterCrop"),
            (r#"{"batch_size": 1, "decode": [{"Blur": {}}]}"#, "Blur"),
            (r#"{"batch_size": 1, "decode": [[{"CenterCrop": {"size": 8}}], {"Grayscale": {}}]}"#, "decode"),
            (r#"{"batch_size": 1, "decode": [[]]}"#, "decode"),
            (r#"{"batch_size": 1, "decode": [{"Grayscale": {}}]}"#, "CenterCrop"),
        ] {
            let error = wanted(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
