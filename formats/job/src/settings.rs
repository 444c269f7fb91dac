//! How a daemon runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shade_formats::limits::{READS_DEPTH_MAX, SETTINGS_BYTES_MAX, SPAN_BYTES_MAX};

use crate::declared::{declared, with_field};
use crate::values::{auto, auto_bytes, bytes, seconds, text};
use crate::{
    Capacity, Declared, EngineChoice, FieldsRead, IoMode, JpegDecoder, Parameter, Policy, Servers, SpecError,
    StoreModel,
};

/// `linger` of a daemon that was started by hand and does not end by itself.
pub const LINGERS_FOR_EVER: &str = "until stopped";

/// Limit of `decode_once` by default. 1,700 images of 224 x 224 pixels: seconds of a training.
pub const DECODED_BYTES: u64 = 256 << 20;

/// Bytes that a miss brings along with the policy `icache` where none are given.
const ICACHE_PACKAGE_BYTES: u32 = 64 * 1024;

declared! {
    /// How a daemon runs: what all its jobs have in common.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct DaemonSpec {
        /// Memory for the cache, a hard limit: bytes (8GiB) or a share of the dataset (20%). `auto`
        /// is the whole dataset, or half of the memory that is free when the daemon starts if that
        /// is less; 20% for the presets of papers. More is better, up to the dataset's size; leave
        /// room for the trainers. More than this machine or its control group has is refused.
        #[serde(with = "auto")]
        cache: Option<Capacity> = None, as "cache auto|SIZE";

        /// Which records stay in the cache, instead of the preset's policy. On plans by importance,
        /// all others hit far less often than `lookahead`; on permutations `app`, `topc`, `static`
        /// and `quiver` hit as often, which is the cache's share of the dataset.
        policy: Policy = Policy::Lookahead, of Policy, as "policy POLICY";

        /// How far `lookahead` sees into the plan, in epochs. 1: the rest of the epoch, or a whole
        /// one where plans are drawn ahead. 0: nothing, which makes it `app`.
        lookahead: f64 = 1.0, in 0.0 to (f64::MAX) in_words "a number of epochs, 0 or more", as "lookahead EPOCHS";

        /// Extra fields that are read with their records and kept in the cache beside them, for
        /// jobs that ask for them: `all`, or names with commas between them, as caption,mask.png.
        /// What else a sample has is not read, as far as it lies behind these.
        fields: FieldsRead = FieldsRead::None, as "fields all|NAMES";

        /// Bytes of a shard that a miss brings along in the same read, as far as the cache would
        /// keep them: 0, or up to 256KiB. `auto`: 64KiB with the policy `icache`, where they stand
        /// in for other samples, else 0. For records of a few KB, where the store's operations are
        /// the limit and not its bandwidth.
        #[serde(with = "auto_bytes")]
        package_bytes: Option<u32> = None, in 0 to SPAN_BYTES_MAX, as "package-bytes auto|SIZE";

        /// Servers of a Valkey or Redis Cluster as a second level behind the cache:
        /// valkey://HOST:PORT,HOST:PORT, or rediss:// for TLS. Some of them are enough. The
        /// password comes from SHADE_TIER_PASSWORD, the user from valkey://USER@HOST. For a store
        /// that is slower than the memory of other machines; `doctor --tier` says whether it is. A
        /// server that is gone costs hits, never an error.
        #[serde(with = "text")]
        tier: Option<Servers> = None, as "tier SERVERS";

        /// With --tier: memory of all its servers that this daemon may fill, in bytes (64GiB).
        /// `auto` is nine tenths of their maxmemory. Give each node its part where several share
        /// the servers.
        #[serde(with = "auto_bytes")]
        tier_cache: Option<u64> = None, as "tier-cache auto|SIZE";

        /// Reads in flight: `auto` finds the number that the store gains from (4 to 256, from an
        /// object store to 4096), a number up to 4096 is fixed. Give one to leave a share of the
        /// store to others: depth = wanted records per second x latency.
        #[serde(with = "auto")]
        depth: Option<u32> = None, in 1 to READS_DEPTH_MAX, as "depth auto|N";

        /// Threads that copy or decode records, up to 512. `auto`: one per core.
        #[serde(with = "auto")]
        workers: Option<u16> = None, in 1 to 512, as "workers auto|N";

        /// Memory for decoded rows that jobs of a group share (Plan(group=...)), used while there
        /// are such jobs: bytes or 256MiB. The first job decodes a row, the others copy it. 0
        /// decodes it for each of them. Raise it if jobs of a group drift apart by more than the
        /// window.
        #[serde(with = "bytes")]
        decode_once: u64 = DECODED_BYTES, as "decode-once SIZE";

        /// What decodes JPEGs. Pixels are the same. Use `turbo` to rule out shade's own decoder as
        /// the cause of a problem; a photograph then takes about 1.6 times as long.
        jpeg: JpegDecoder = JpegDecoder::Auto, of JpegDecoder, as "jpeg DECODER";

        /// How records are read. A log line says which engine `auto` is, and why.
        engine: EngineChoice = EngineChoice::Auto, of EngineChoice, as "engine ENGINE";

        /// Whether records are read past the page cache.
        io: IoMode = IoMode::Auto, of IoMode, as "io MODE";

        /// SIMULATION: read as from this store, in place of a remote one on a laptop or to try out
        /// faults: latency=2ms,bandwidth=1Gbit,depth=32. Also latency=lognormal:MEDIAN:SIGMA,
        /// seed=N, clock=virtual (answers are not waited for), and shares of reads that fail:
        /// short, eintr, eagain, eio, estale, stuck (eio=0.1%).
        #[serde(with = "text")]
        store: Option<StoreModel> = None, as "store STORE";

        /// With --private: how long to stay after the last rank has left, so that a restarted
        /// trainer finds its cache; a year at most.
        #[serde(with = "seconds")]
        linger: f64 = 3.0, in 0.0 to 31_536_000.0, as "linger TIME";
    }
}

impl Declared for DaemonSpec {
    const WHAT: &'static str = "daemon";
    const PARAMETERS: &'static [Parameter] = Self::DECLARED;

    fn validate(&self) -> Result<(), SpecError> {
        self.check_ranges()
    }
}

impl DaemonSpec {
    /// Bytes that a miss brings along with `policy`, where `asked` were asked for.
    #[must_use]
    pub fn package_bytes_of(asked: Option<u32>, policy: Policy) -> u32 {
        asked.unwrap_or(if policy == Policy::Icache { ICACHE_PACKAGE_BYTES } else { 0 })
    }

    /// Every setting, canonical.
    #[must_use]
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            other => unreachable!("settings are an object: {other:?}"),
        }
    }
}

/// Some settings of a daemon, canonical: those that were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(Map<String, Value>);

impl Settings {
    /// Reads a document.
    ///
    /// # Errors
    /// It is longer than [`SETTINGS_BYTES_MAX`], no JSON object, or has what is no setting.
    pub fn from_text(text: &str) -> Result<Self, SpecError> {
        if text.len() > SETTINGS_BYTES_MAX {
            let expected = format_args!("at most {SETTINGS_BYTES_MAX}");
            return Err(SpecError::new("length of the settings", text.len(), expected));
        }
        let given = serde_json::from_str(text);
        Self::new(
            given.map_err(|error| SpecError::told("daemon", format!("the daemon's settings: {error}")))?,
        )
    }

    /// Settings by name; a null is the default.
    ///
    /// # Errors
    /// There is no such setting, or it cannot have this value.
    pub fn new(given: Map<String, Value>) -> Result<Self, SpecError> {
        let defaults = DaemonSpec::default().to_map();
        let mut spec = DaemonSpec::default();
        for (name, value) in &given {
            let default = if value.is_null() { defaults.get(name) } else { None };
            spec = with_field(&spec, DaemonSpec::DECLARED, name, default.unwrap_or(value))?;
        }
        spec.validate()?;
        let mut settings = spec.to_map();
        settings.retain(|name, _| given.contains_key(name));
        Ok(Self(settings))
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Its document.
    #[must_use]
    pub fn to_text(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    /// The settings that were given, and the defaults of all others.
    #[must_use]
    pub fn spec(&self) -> DaemonSpec {
        match serde_json::from_value(Value::Object(self.0.clone())) {
            Ok(spec) => spec,
            Err(error) => unreachable!("settings were read before: {error}"),
        }
    }

    /// The options of `shade-load serve` that say so, without those that say the default.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        let defaults = DaemonSpec::default().to_map();
        let mut options = Vec::new();
        for parameter in DaemonSpec::DECLARED {
            let given = self.get(parameter.name).filter(|given| defaults.get(parameter.name) != Some(given));
            let Some(given) = given else { continue };
            let option = format!("--{}", parameter.option());
            if let Some(text) = given.as_str().filter(|text| text.starts_with('-')) {
                // As a word of its own it would be another option.
                options.push(format!("{option}={text}"));
                continue;
            }
            options.push(option);
            match given {
                Value::String(text) => options.push(text.clone()),
                _ if parameter.name == "linger" => options.push(format!("{given}s")),
                _ => options.push(given.to_string()),
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn settings(given: Value) -> Result<Settings, String> {
        let Value::Object(given) = given else { panic!("{given}") };
        Settings::new(given).map_err(|error| error.to_string())
    }

    #[test]
    fn the_same_settings_have_the_same_words() {
        for (given, canonical) in [
            (json!({"cache": "0.5MiB"}), json!({"cache": 524_288})),
            (json!({"cache": " 20 %"}), json!({"cache": "20%"})),
            (json!({"cache": null}), json!({"cache": "auto"})),
            (
                json!({"depth": null, "workers": "auto", "tier": null}),
                json!({"depth": "auto", "tier": "none", "workers": "auto"}),
            ),
            (json!({"lookahead": 1}), json!({"lookahead": 1.0})),
            (json!({"fields": true}), json!({"fields": "all"})),
            (json!({"fields": "b, a"}), json!({"fields": "a,b"})),
            (json!({"linger": "250ms"}), json!({"linger": 0.25})),
            (
                json!({"package_bytes": "64KiB", "tier_cache": "1GiB"}),
                json!({"package_bytes": 65_536, "tier_cache": 1 << 30}),
            ),
            (json!({"decode_once": "1MiB"}), json!({"decode_once": 1 << 20})),
            (json!({"store": "latency=2000us"}), json!({"store": "latency=2ms"})),
            (json!({"tier": "redis://a"}), json!({"tier": "valkey://a:6379"})),
        ] {
            let settings = settings(given.clone()).unwrap();
            assert_eq!(settings.to_text(), canonical.to_string(), "{given}");
            assert_eq!(Settings::from_text(&settings.to_text()).unwrap(), settings);
        }
    }

    #[test]
    fn what_is_no_setting_is_refused_by_name() {
        for (given, parts) in [
            (json!({"depht": 1}), ["depht", "no such field"]),
            (json!({"depth": 0}), ["depth is 0", "1 to 4096"]),
            (json!({"depth": 4097}), ["depth is 4097", "1 to 4096"]),
            (json!({"depth": "many"}), ["depth: got \"many\"", "a whole number"]),
            (json!({"workers": 513}), ["workers is 513", "1 to 512"]),
            (json!({"workers": 1.5}), ["workers: got 1.5", "a whole number, or \"auto\""]),
            (json!({"lookahead": -1}), ["lookahead is -1", "0 or more"]),
            (json!({"linger": 1e9}), ["linger is 1000000000", "31536000"]),
            (json!({"linger": "soon"}), ["linger: ", "250us"]),
            (json!({"fields": 1}), ["fields: got 1", "names of fields"]),
            (json!({"fields": "a/b"}), ["fields: ", "caption,mask.png"]),
            (json!({"package_bytes": 300_000}), ["package_bytes is 300000", "262144"]),
            (json!({"tier_cache": "much"}), ["tier_cache: ", "256MiB"]),
            (json!({"decode_once": -1}), ["decode_once: ", "256MiB"]),
            (json!({"cache": 20}), ["cache: got 20", "\"20%\" of the dataset"]),
            (json!({"engine": 3}), ["engine: got 3", "one of \"auto\", \"uring\""]),
            (json!({"io": "odd"}), ["io: ", "buffered"]),
            (json!({"jpeg": "best"}), ["jpeg: ", "turbo"]),
            (json!({"policy": "best"}), ["policy: ", "lookahead"]),
            (json!({"store": "latncy=2ms"}), ["store: ", "latency, bandwidth"]),
            (json!({"tier": "valkey://me:hunter2@a"}), ["tier: ", "SHADE_TIER_PASSWORD"]),
        ] {
            let error = settings(given).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)) && !error.contains("hunter2"), "{error}");
        }
        for text in ["", "[]", "{", "{\"cache\": \"20%\", \"cache\"}"] {
            assert!(Settings::from_text(text).is_err(), "{text}");
        }
        let long = format!("{{\"store\": \"{}\"}}", " ".repeat(SETTINGS_BYTES_MAX));
        assert!(Settings::from_text(&long).unwrap_err().to_string().contains("length"));
    }

    #[test]
    fn options_leave_out_what_is_the_default() {
        let options = |given| settings(given).unwrap().options().join(" ");
        assert_eq!(options(json!({})), "");
        let defaults = Value::Object(DaemonSpec::default().to_map());
        assert_eq!(options(defaults), "");
        let every = json!({
            "cache": "8GiB", "policy": "lru", "lookahead": 0.25, "fields": "mask,caption", "package_bytes": "16KiB",
            "tier": "valkey://cache-0,cache-1:7000", "tier_cache": "1GiB", "depth": 8, "workers": 2,
            "decode_once": 0, "jpeg": "turbo", "engine": "threads", "io": "buffered",
            "store": "latency=2ms,bandwidth=1Gbit", "linger": 0.5,
        });
        assert_eq!(
            options(every),
            "--cache 8589934592 --policy lru --lookahead 0.25 --fields caption,mask --package-bytes 16384 --tier \
             valkey://cache-0:6379,cache-1:7000 --tier-cache 1073741824 --depth 8 --workers 2 --decode-once 0 \
             --jpeg turbo --engine threads --io buffered --store latency=2ms,bandwidth=125000000B --linger 0.5s"
        );
    }

    /// Any values of all settings.
    fn any_spec() -> impl Strategy<Value = DaemonSpec> {
        let cache = prop::option::of(prop_oneof![
            (101..=u64::MAX).prop_map(Capacity::Bytes),
            (0..=1_000_000u32).prop_map(|share| Capacity::Share(f64::from(share) / 1e6)),
        ]);
        let reads = (
            prop::option::of(1..=4096u32),
            prop::sample::select(vec!["none", "all", "all,", "-a,b.c"])
                .prop_map(|text| text.parse().unwrap()),
            prop::option::of(1..=512u16),
            prop::sample::select(EngineChoice::ALL),
            prop::sample::select(IoMode::ALL),
        );
        let sizes = (prop::option::of(0..=SPAN_BYTES_MAX), any::<Option<u64>>(), any::<u64>());
        let rest = (
            prop::sample::select(Policy::ALL),
            0.0..9.0,
            prop::sample::select(JpegDecoder::ALL),
            0..=31_536_000_000_u64,
        );
        (cache, reads, sizes, rest).prop_map(
            |(
                cache,
                (depth, fields, workers, engine, io),
                (package_bytes, tier_cache, decode_once),
                (policy, lookahead, jpeg, linger_ms),
            )| {
                let linger = linger_ms as f64 / 1e3;
                let tier = Some("valkey://a:1".parse().unwrap());
                let store = Some("latency=250us,eio=1%".parse().unwrap());
                DaemonSpec {
                    cache,
                    fields,
                    depth,
                    workers,
                    engine,
                    io,
                    package_bytes,
                    tier_cache,
                    decode_once,
                    policy,
                    lookahead,
                    jpeg,
                    linger,
                    tier,
                    store,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_strangers_send_is_settings_or_an_error(
            text in ".{0,60}",
            name in prop::sample::select(DaemonSpec::DECLARED).prop_map(|parameter| parameter.name),
            number in any::<f64>(),
            whole in any::<i64>(),
        ) {
            for value in [json!(text), json!(number), json!(whole), json!([text]), json!(null)] {
                let document = json!({ name: value }).to_string();
                if let Ok(settings) = Settings::from_text(&document) {
                    prop_assert_eq!(Settings::from_text(&settings.to_text()), Ok(settings.clone()));
                    prop_assert_eq!(settings.spec().validate(), Ok(()));
                }
            }
            let _ = Settings::from_text(&text);
        }

        #[test]
        fn options_set_what_the_document_says(spec in any_spec()) {
            let settings = Settings::new(spec.to_map()).unwrap();
            let text = |cache: Option<Capacity>| cache.map(|cache| cache.to_string());
            let same_share = |a, b| text(a) == text(b);
            let read = settings.spec();
            prop_assert!(same_share(read.cache, spec.cache));
            prop_assert_eq!(DaemonSpec { cache: spec.cache, ..read }, spec.clone());
            let mut from_options = DaemonSpec::default();
            let mut options = settings.options().into_iter();
            while let Some(option) = options.next() {
                let (option, text) = match option.split_once('=') {
                    Some((option, text)) => (option.to_owned(), text.to_owned()),
                    None => (option, options.next().unwrap()),
                };
                let name = option.trim_start_matches("--").replace('-', "_");
                from_options.set(&name, &text).unwrap();
            }
            prop_assert!(same_share(from_options.cache, spec.cache));
            prop_assert_eq!(DaemonSpec { cache: spec.cache, ..from_options }, spec);
        }
    }
}
