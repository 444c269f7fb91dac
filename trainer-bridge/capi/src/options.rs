//! The options of `shade_open`: one JSON object with the names of Python's `Loader`, `Plan` and
//! `Daemon`.
//!
//! Settings of the daemon that are not given are left to it, so a daemon that runs already is taken
//! as it is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use shade_client::{
    JobSpec, Launch, Options, Sampler, Settings, Subset, Tables, WeightTable, content, image_size,
};
use shade_job::{FieldsRead, IoMode, Preset, strata_for};

use crate::fault::Fault;

/// The program, unless the environment names another.
const PROGRAM: &str = "shade-load";
const PROGRAM_VARIABLE: &str = "SHADE_LOAD_BIN";
/// How long to wait for a daemon, seconds.
const TIMEOUT_S: f64 = 300.0;
/// Suffix of the job that validates beside a job that trains.
const VALIDATION_SUFFIX: &str = ".eval";

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
    let mut given: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| Fault::usage(format!("options: {error}")))?;
    if !given.contains_key("batch_size") {
        return Err(Fault::usage("options: batch_size is missing"));
    }
    let place = place(&mut given, |name| std::env::var(name).ok())?;
    let mut daemon = Daemon::read(taken(&mut given, "daemon")?.unwrap_or_default())?;
    // A null is no argument: the preset's counts.
    let cache = given.remove("cache").filter(|cache| !cache.is_null());
    daemon.settings.extend(cache.map(|cache| ("cache".to_owned(), cache)));
    let preset: Option<Preset> = taken(&mut given.clone(), "preset")?;
    let preset = preset.unwrap_or_default();
    daemon.settings.entry("policy").or_insert_with(|| preset.policy().as_str().into());
    if let Some(cache) = preset.cache() {
        daemon.settings.entry("cache").or_insert_with(|| cache.to_string().into());
    }
    let tables = given.get_mut("plan").and_then(Value::as_object_mut).map(tables).transpose()?;
    let tables = tables.unwrap_or_default();
    let has_strata =
        given.get("plan").and_then(|plan| plan.get("strata")).is_some_and(|strata| !strata.is_null());
    given.insert("world_size".to_owned(), place.world_size.into());
    given.insert("ring_bytes".to_owned(), daemon.ring_bytes.into());
    let mut spec = JobSpec::from_arguments(given, || image_size(dataset))
        .map_err(|error| Fault::usage(error.to_string()))?;
    tables.name_in(&mut spec.plan);
    if place.ranks_here != place.world_size {
        spec.ranks_here = place.ranks_here;
        if !has_strata && spec.plan.drawn_whole().is_none() {
            // Made from what every rank knows alike.
            spec.plan.strata = strata_for(1, place.world_size, content(dataset)?.samples);
        }
    }
    if (spec.plan.sampler == Sampler::Weighted) != tables.weights.is_some() {
        return Err(Fault::usage("plan: weights: give them with the sampler \"weighted\", and only then"));
    }
    if !spec.fields.is_empty() {
        let read: FieldsRead = taken(&mut daemon.settings, "fields")?.unwrap_or_default();
        let read = read.with(spec.fields.iter().map(|(name, _)| name));
        daemon.settings.insert("fields".to_owned(), read.to_string().into());
    }
    let suffix = if spec.admit { "" } else { VALIDATION_SUFFIX };
    let job = format!("{}{suffix}", daemon.job.as_deref().unwrap_or("default"));
    let options = daemon.into_options(dataset, place.world_size)?;
    let buffered = options.settings.spec().io == IoMode::Buffered;
    Ok(Wanted { job, rank: place.rank, spec, tables, buffered, options })
}

/// Takes an option.
fn taken<T: serde::de::DeserializeOwned>(
    given: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, Fault> {
    let value = given.remove(name).filter(|value| !value.is_null());
    let value = value.map(serde_json::from_value).transpose();
    value.map_err(|error| Fault::usage(format!("{name}: {error}")))
}

/// Where a rank is.
struct Place {
    rank: u32,
    /// Ranks of the training.
    world_size: u32,
    /// Ranks of the training on this node.
    ranks_here: u32,
}

/// A rank's place: given, or the environment's, else rank 0 of 1.
fn place(given: &mut Map<String, Value>, variable: impl Fn(&str) -> Option<String>) -> Result<Place, Fault> {
    let number = |name: &str| -> Result<Option<u32>, Fault> {
        let text = variable(name);
        let number = text.as_deref().map(str::parse).transpose();
        number.map_err(|error| Fault::usage(format!("{name} in the environment: {error}")))
    };
    let here: Option<u32> = taken(given, "ranks_here")?;
    let (rank, world_size, here) = match (taken(given, "rank")?, taken(given, "world_size")?) {
        (Some(rank), Some(world_size)) => {
            // Another launcher has other ranks on this node.
            let told = |name: &str| variable(name).and_then(|text| text.parse::<u32>().ok());
            let is_whole = told("WORLD_SIZE") == Some(world_size);
            (rank, world_size, here.or_else(|| told("LOCAL_WORLD_SIZE").filter(|_| is_whole)))
        }
        (None, None) => match (number("RANK")?, number("WORLD_SIZE")?) {
            (Some(rank), Some(world_size)) => (rank, world_size, here.or(number("LOCAL_WORLD_SIZE")?)),
            _ => (0, 1, here),
        },
        _ => return Err(Fault::usage("rank, world_size: give both or neither")),
    };
    Ok(Place { rank, world_size, ranks_here: here.unwrap_or(world_size) })
}

/// The tables that a plan has: the job's samples, a list of ids, and their weights.
fn tables(plan: &mut Map<String, Value>) -> Result<Tables, Fault> {
    let wrong = |error: &dyn std::fmt::Display| Fault::usage(format!("plan: {error}"));
    let ids: Option<Vec<u32>> = taken(plan, "indices")?;
    let weights: Option<Vec<f64>> = taken(plan, "weights")?;
    Ok(Tables {
        subset: ids.map(Subset::new).transpose().map_err(|error| wrong(&error))?,
        weights: weights
            .map(|weights| WeightTable::new(weights.into_iter()))
            .transpose()
            .map_err(|error| wrong(&error))?,
    })
}

/// The fields of `Daemon`.
struct Daemon {
    job: Option<String>,
    socket: Option<PathBuf>,
    timeout: Duration,
    ring_bytes: u64,
    survive: bool,
    deaths_max: Option<u32>,
    /// All others.
    settings: Map<String, Value>,
}

impl Daemon {
    fn read(mut fields: Map<String, Value>) -> Result<Self, Fault> {
        let named = std::env::var_os("SHADE_SOCKET").filter(|socket| !socket.is_empty()).map(PathBuf::from);
        fields.retain(|_, value| !value.is_null());
        let timeout: Option<f64> = taken(&mut fields, "timeout")?;
        let timeout = Duration::try_from_secs_f64(timeout.unwrap_or(TIMEOUT_S));
        Ok(Self {
            job: taken(&mut fields, "job")?,
            socket: taken(&mut fields, "socket")?.or(named),
            timeout: timeout.map_err(|error| Fault::usage(format!("daemon: timeout: {error}")))?,
            survive: taken(&mut fields, "survive")?.unwrap_or(true),
            deaths_max: taken(&mut fields, "deaths_max")?,
            ring_bytes: fields.remove("ring").map_or(Ok(0), |ring| bytes("ring", &ring))?,
            settings: fields,
        })
    }

    /// How to find the daemon, or start one with these settings: as Python does.
    fn into_options(self, dataset: &Path, world_size: u32) -> Result<Options, Fault> {
        let settings = Settings::new(self.settings);
        let settings = settings.map_err(|error| Fault::usage(format!("daemon: {error}")))?;
        let binary = std::env::var_os(PROGRAM_VARIABLE).filter(|named| !named.is_empty());
        let binary = binary.unwrap_or_else(|| PROGRAM.into());
        let launch = Launch::new(binary.into(), dataset, self.socket.as_deref(), &settings);
        Ok(Options {
            or_free_name: self.job.is_none() && world_size == 1,
            socket: self.socket,
            launch: Some(launch),
            timeout: self.timeout,
            settings,
            survive: self.survive,
            deaths_max: self.deaths_max.unwrap_or(Options::default().deaths_max),
        })
    }
}

/// Bytes, or a text such as "256MiB".
fn bytes(name: &str, value: &Value) -> Result<u64, Fault> {
    let bytes = value.as_u64().or_else(|| parse_size::parse_size(value.as_str()?).ok());
    bytes.ok_or_else(|| Fault::usage(format!("daemon: {name}: got {value}, expected bytes or \"256MiB\"")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shade_job::Framing;

    fn wanted(text: &str) -> Result<Wanted, String> {
        read(text, Path::new("/d")).map_err(|fault| fault.text)
    }

    #[test]
    fn the_loaders_names_make_the_loaders_job() {
        let text = r#"{"batch_size": 8, "seed": 7, "preset": "clairvoyant", "cache": "8GiB",
            "decode": [{"Resize": {"size": 40}}, {"RandomCrop": {"size": [32, 24], "padding": 4}},
                       {"RandomHorizontalFlip": {}}],
            "plan": {"rep": 2.0, "tail": "drop", "group": null}, "rank": 1, "world_size": 2,
            "daemon": {"job": "a", "ring": 5000, "decode_once": "1MiB", "linger": 2}}"#;
        let Wanted { job, rank, spec, options, .. } = wanted(text).unwrap();
        assert_eq!((job.as_str(), rank, spec.world_size, spec.batch_size), ("a", 1, 2, 8));
        assert_eq!((spec.plan.sampler, spec.plan.seed, spec.ring_bytes), (Sampler::Pads, 7, 8192));
        let output = spec.output().unwrap();
        let [images] = output.views() else { panic!("{output:?}") };
        assert_eq!((images.height, images.width, images.flip, images.grey), (32, 24, 0.5, false));
        assert_eq!(images.framing, Framing::Random { short: 40, padding: 4, before: 0 });
        let launch = options.launch.unwrap();
        assert_eq!(launch.args.join(" ".as_ref()), *"serve /d --private --detach");
        let settings = "--cache 8589934592 --decode-once 1048576 --linger 2.0s";
        assert_eq!(launch.settings.options().join(" "), settings);
        assert!(!options.or_free_name);
    }

    #[test]
    fn a_null_is_no_argument() {
        let settings = |cache: &str| {
            let text = format!(r#"{{"batch_size": 1, "preset": "shade", "cache": {cache}}}"#);
            wanted(&text).unwrap().options.settings.options().join(" ")
        };
        let preset = wanted(r#"{"batch_size": 1, "preset": "shade"}"#).unwrap().options.settings;
        assert_eq!(settings("null"), preset.options().join(" "));
        assert_ne!(settings("\"30%\""), preset.options().join(" "));
    }

    #[test]
    fn a_node_s_ranks_are_given_or_the_launcher_s() {
        let ranks_here = |text: &str, launcher: [&str; 3]| {
            let mut given = serde_json::from_str(text).unwrap();
            let value = |name: &str| {
                let at = ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"].iter().position(|known| *known == name);
                Some(launcher[at?].to_owned()).filter(|value| !value.is_empty())
            };
            let Place { rank, world_size, ranks_here } = place(&mut given, value).unwrap();
            (rank, world_size, ranks_here)
        };
        let of_16 = ["9", "16", "8"];
        assert_eq!(ranks_here("{}", of_16), (9, 16, 8));
        assert_eq!(ranks_here(r#"{"rank": 9, "world_size": 16}"#, of_16), (9, 16, 8));
        assert_eq!(ranks_here(r#"{"rank": 9, "world_size": 16, "ranks_here": 4}"#, of_16), (9, 16, 4));
        // The launcher's are another training's.
        assert_eq!(ranks_here(r#"{"rank": 1, "world_size": 2}"#, of_16), (1, 2, 2));
        assert_eq!(ranks_here(r#"{"rank": 1, "world_size": 2}"#, ["", "x", "y"]), (1, 2, 2));
        assert_eq!(ranks_here("{}", ["", "", ""]), (0, 1, 1));
    }

    #[test]
    fn indices_are_a_list_of_sample_ids() {
        let tables = |text| wanted(text).unwrap().tables;
        let subset = tables(r#"{"batch_size": 1, "plan": {"indices": [9, 2]}}"#).subset.unwrap();
        assert_eq!(subset.ids(), [2, 9]);
        assert!(tables(r#"{"batch_size": 1, "plan": {"indices": null}}"#).is_empty());
    }

    #[test]
    fn weights_come_with_the_sampler_weighted() {
        let wanted = wanted(
            r#"{"batch_size": 1, "plan": {"sampler": "weighted", "weights": [1, 0, 2.5], "indices": [2, 0]}}"#,
        );
        let Wanted { spec, tables, .. } = wanted.unwrap();
        let weights = tables.weights.unwrap();
        assert_eq!((weights.weights().len(), spec.plan.weights_digest), (3, weights.digest()));
        assert_eq!(spec.plan.subset_digest, tables.subset.unwrap().digest());
    }

    #[test]
    fn a_validation_is_a_job_of_its_own() {
        let Wanted { job, spec, .. } = wanted(r#"{"batch_size": 1, "train": false}"#).unwrap();
        assert_eq!(
            (job.as_str(), spec.admit, spec.plan.sampler),
            ("default.eval", false, Sampler::Sequential)
        );
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (text, part) in [
            ("{}", "batch_size"),
            (r#"{"batch_size": 0}"#, "batch_size"),
            (r#"{"batch_size": 1, "sampler": "pads"}"#, "sampler"),
            (r#"{"batch_size": 1, "plan": {"rep": 0.5}}"#, "rep"),
            (r#"{"batch_size": 1, "plan": {"indices": [1, -1]}}"#, "indices: invalid value"),
            (r#"{"batch_size": 1, "plan": {"indices": [2, 2]}}"#, "plan: indices is 2, twice"),
            (r#"{"batch_size": 1, "plan": {"sampler": "weighted"}}"#, "weights"),
            (r#"{"batch_size": 1, "train": false, "plan": {"sampler": "pads"}}"#, "sampler: got pads"),
            (r#"{"batch_size": 1, "daemon": {"depht": 1}}"#, "depht"),
            (r#"{"batch_size": 1, "daemon": {"ring": "much"}}"#, "ring"),
            (r#"{"batch_size": 1, "preset": "best"}"#, "preset"),
            (r#"{"batch_size": 1, "rank": 0}"#, "world_size"),
            (r#"{"batch_size": 1, "exact": true}"#, "exact"),
            (r#"{"batch_size": 1, "dtype": "bfloat16"}"#, "dtype: got \"bfloat16\", but raw records"),
            (
                r#"{"batch_size": 1, "image_size": 8, "normalize": [[0.5], [0.5]]}"#,
                "normalize: got [[0.5],[0.5]]",
            ),
            (r#"{"batch_size": 1, "decode": [{"Resize": {"size": 8}}]}"#, "CenterCrop"),
            (r#"{"batch_size": 1, "decode": [{"Blur": {}}]}"#, "Blur"),
            (r#"{"batch_size": 1, "decode": [[{"CenterCrop": {"size": 8}}], {"Grayscale": {}}]}"#, "decode"),
            (r#"{"batch_size": 1, "decode": [[]]}"#, "decode: it has no Resize and no crop, and "),
            (r#"{"batch_size": 1, "decode": [{"Pad": {"padding": 1}}]}"#, "CenterCrop"),
        ] {
            let error = wanted(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
