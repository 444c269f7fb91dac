//! The pack options that shape a dataset's bytes: as the index records them, as later commands read
//! them back, and as part of what identifies a piece of work.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Map;
use shade_formats::SampleId;
use shade_formats::shard::{MEMBER_HEADER_BYTES, padded_len};
use xxhash_rust::xxh3::Xxh3;

use crate::catalogue::{Catalogue, FieldContent};
use crate::config::{Compression, Layout};
use crate::error::Error;
use crate::pack::{Format, Transform};
use crate::plan::PackPlan;
use crate::source::{Source, SourceKind};

/// The program and its version, as datasets record them.
pub(crate) const TOOL: &str = concat!("shade-pack ", env!("CARGO_PKG_VERSION"));

/// What the options of a subset say of shards that are those of another dataset.
pub(crate) const LINKED: &str = "linked";

/// Entries among a dataset's options that are no options.
const BESIDES_OPTIONS: [&str; 4] = ["plan", "appended", "merged", "subset"];

/// Everything that determines the bytes, besides the samples of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackOptions {
    tool: String,
    /// The kind of source. The first datasets do not record that it was an ImageFolder.
    #[serde(default)]
    pub(crate) source: SourceKind,
    shuffle: bool,
    seed: Option<u64>,
    shard_bytes: u64,
    compress: String,
    /// Another version of zstd may write other bytes for the same record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    zstd: Option<String>,
    /// How images were transformed; none if their bytes were kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) transform: Option<Transform>,
    /// Whether records are followed by `.cls` members.
    #[serde(default)]
    pub(crate) cls: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    exclude: Vec<String>,
    /// Names of pairs, and how their files are called: `*` stands for the image's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) pairs: BTreeMap<String, String>,
    /// Whether annotations of COCO's form gave fields.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) coco: bool,
}

/// A piece of work: sources and options. It has the same id in every run.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) id: String,
}

impl PackOptions {
    /// The options of packing `catalogue`, which `source` was listed as.
    pub(crate) fn new(source: &Source, catalogue: &Catalogue, layout: &Layout) -> Result<Self, Error> {
        let pairs = catalogue.pairs.iter().map(|pair| (pair.name.clone(), pair.files.clone()));
        let compresses = layout.compression != Compression::None;
        Ok(Self {
            tool: TOOL.to_owned(),
            source: source.kind()?,
            shuffle: layout.shuffle.is_some(),
            seed: layout.shuffle,
            shard_bytes: layout.shard_bytes,
            compress: layout.compression.to_string(),
            zstd: compresses.then(|| zstd::zstd_safe::version_string().to_owned()),
            transform: layout.transform,
            cls: layout.cls,
            exclude: source.selection.patterns().to_vec(),
            pairs: pairs.collect(),
            coco: source.coco.is_some(),
        })
    }

    /// The options of a dataset and of all that were merged or appended to it, as far as they can
    /// be read.
    pub(crate) fn all(options: &str) -> Vec<Self> {
        let mut found = Vec::new();
        let mut ahead: Vec<serde_json::Value> = serde_json::from_str(options).into_iter().collect();
        while let Some(value) = ahead.pop() {
            for parts in ["appended", "merged"] {
                let parts = value.get(parts).and_then(serde_json::Value::as_array);
                ahead.extend(parts.into_iter().flatten().rev().cloned());
            }
            ahead.extend(value.get("subset").and_then(|subset| subset.get("of")).cloned());
            found.extend(serde_json::from_value(value));
        }
        found
    }

    /// Whether some shards are those of another dataset, with samples that this one has not.
    pub(crate) fn has_foreign_shards(options: &str) -> bool {
        let mut ahead: Vec<serde_json::Value> = serde_json::from_str(options).into_iter().collect();
        while let Some(value) = ahead.pop() {
            if value.pointer("/subset/shards").is_some_and(|shards| shards == LINKED) {
                return true;
            }
            let merged = value.get("merged").and_then(serde_json::Value::as_array);
            ahead.extend(merged.into_iter().flatten().cloned());
        }
        false
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout {
            shard_bytes: self.shard_bytes,
            shuffle: self.seed.filter(|_| self.shuffle),
            transform: self.transform,
            compression: self.compress.parse().unwrap_or_default(),
            cls: self.cls,
        }
    }

    /// How images were transformed, in the words of the command line; `None` if their bytes were
    /// kept.
    pub(crate) fn transform_text(&self) -> Option<String> {
        let Transform { format, resize_short, max_side, filter, quality, restart_markers } = self.transform?;
        // Unit variants serialise to their names.
        let name = |value: serde_json::Result<serde_json::Value>| {
            value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let mut text = format!("--format {}", name(serde_json::to_value(format)));
        if format == Format::Jpeg {
            text += &format!(" --quality {quality}");
        }
        for (option, pixels) in [("--resize-short", resize_short), ("--max-side", max_side)] {
            if let Some(pixels) = pixels {
                text += &format!(" {option} {pixels}");
            }
        }
        if resize_short.is_some() || max_side.is_some() {
            text += &format!(" --filter {}", name(serde_json::to_value(filter)));
        }
        if restart_markers {
            text += " --restart-markers";
        }
        Some(text)
    }

    pub(crate) fn stores_pixels(&self) -> bool {
        self.transform.is_some_and(|transform| transform.format == Format::Raw)
    }

    /// The version of zstd that these options were made for, if this program has another.
    pub(crate) fn other_zstd(&self) -> Option<&str> {
        self.zstd.as_deref().filter(|version| *version != zstd::zstd_safe::version_string())
    }

    /// The text for an index, with the id of the plan if there is one.
    pub(crate) fn text(&self, plan_id: Option<&str>) -> serde_json::Value {
        // Plain fields always serialise, to an object.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let (Some(object), Some(plan_id)) = (value.as_object_mut(), plan_id) {
            object.insert("plan".to_owned(), plan_id.into());
        }
        value
    }

    /// Names of the options that differ from `options`, those of a dataset.
    pub(crate) fn others_than(&self, options: &str) -> Vec<String> {
        let (own, other) =
            (self.text(None), serde_json::from_str(options).unwrap_or(serde_json::Value::Null));
        // Both ways: an option at its default may have no entry.
        let names = [&own, &other].into_iter().filter_map(serde_json::Value::as_object).flat_map(Map::keys);
        let names: BTreeSet<&String> =
            names.filter(|name| !BESIDES_OPTIONS.contains(&name.as_str())).collect();
        names.into_iter().filter(|name| own.get(name) != other.get(name)).cloned().collect()
    }

    pub(crate) fn plan(&self, catalogue: &Catalogue) -> PackPlan {
        let member = |bytes: u64| padded_len(bytes).saturating_add(MEMBER_HEADER_BYTES as u64);
        let bytes = |id: SampleId| {
            let Some(sample) = catalogue.sample(id) else { return 0 };
            let fields = catalogue.fields(id).map(|field| member(field.content.bytes()));
            let cls = if self.cls { member(1) } else { 0 };
            fields.fold(member(sample.bytes.into()).saturating_add(cls), u64::saturating_add)
        };
        let seed = if self.shuffle { self.seed } else { None };
        PackPlan::new(catalogue.len(), bytes, seed, self.shard_bytes)
    }

    /// Identifies the plan: options, and each sample's path, label, length and fields. Times of
    /// files do not count, so that a copy of a source is the same source.
    pub(crate) fn plan_id(&self, catalogue: &Catalogue) -> String {
        let mut hash = Xxh3::new();
        self.hash(&mut hash, catalogue);
        format!("{:032x}", hash.digest128())
    }

    /// The plan's id in an index's options.
    pub(crate) fn plan_id_in(options: &str) -> Option<String> {
        let value: serde_json::Value = serde_json::from_str(options).ok()?;
        Some(value.get("plan")?.as_str()?.to_owned())
    }

    fn hash(&self, hash: &mut Xxh3, catalogue: &Catalogue) {
        hash.update(self.text(None).to_string().as_bytes());
        for class in &catalogue.classes {
            put(hash, class.as_bytes());
        }
        for (id, sample) in (0u32..).map(SampleId).zip(catalogue.samples()) {
            put(hash, sample.path.as_bytes());
            hash.update(&sample.label.to_le_bytes());
            hash.update(&sample.bytes.to_le_bytes());
            for field in catalogue.fields(id) {
                put(hash, field.name.as_bytes());
                match field.content {
                    FieldContent::Inline(content) => put(hash, content),
                    FieldContent::Stored { bytes, .. } | FieldContent::File { bytes, .. } => {
                        hash.update(&bytes.to_le_bytes());
                    }
                }
            }
        }
    }
}

/// How fields lie in a shard. Shards of another layout are those of other work.
const FIELDS_LAYOUT: u8 = 2;

impl Work {
    /// The work of packing these sources with these options. A source file that is written to makes
    /// other work of it.
    pub(crate) fn of<'a>(parts: impl Iterator<Item = (&'a PackOptions, &'a Catalogue)>) -> Self {
        let mut hash = Xxh3::new();
        for (options, catalogue) in parts {
            options.hash(&mut hash, catalogue);
            for (id, sample) in (0u32..).map(SampleId).zip(catalogue.samples()) {
                hash.update(&sample.changed_ns.to_le_bytes());
                hash.update(&sample.offset.to_le_bytes());
                for field in catalogue.fields(id) {
                    hash.update(&[FIELDS_LAYOUT]);
                    if let FieldContent::File { changed_ns, .. } = field.content {
                        hash.update(&changed_ns.to_le_bytes());
                    }
                }
            }
        }
        Self { id: format!("{:016x}", hash.digest()) }
    }
}

/// Hashes the length, too, so that two texts are never taken for one.
fn put(hash: &mut Xxh3, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}
