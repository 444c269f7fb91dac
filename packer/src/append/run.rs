//! Packs what is new behind what is there.

use std::path::{Path, PathBuf};
use std::time::Instant;

use shade_formats::index::Index;

use super::leftovers::{discard, unfinished};
use super::news::News;
use super::numbers::{first_key, first_shard};
use super::report::Appended;
use crate::assemble::{Assembled, Assembly, Packed};
use crate::claim::Claim;
use crate::config::{Effort, Layout, OnBad};
use crate::create::refuse_bad;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::merge::options_of;
use crate::options::{Options, Work};
use crate::pack::{Packing, Recipe, choose_zstd, clean, clean_unfinished};
use crate::progress::{Progress, Shown};
use crate::publish::sync_dir;
use crate::report::megabytes_per_second;
use crate::source::Source;
use crate::times::Times;
use crate::workers::Workers;

/// What to append.
#[derive(Clone, Debug)]
pub struct AppendConfig {
    /// What is appended; only read.
    pub source: Source,
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// How new records are made and laid out.
    pub layout: Layout,
    /// What happens at a sample that cannot be packed.
    pub on_bad: OnBad,
    /// How much of the machine may be used.
    pub effort: Effort,
    /// Whether what an earlier run left unfinished is thrown away instead of finished.
    pub restart: bool,
}

/// The layout that a dataset asks for by its own options; create's defaults if it has none.
///
/// # Errors
/// Its parts were transformed in different ways, and `is_said` does not say that the caller knows how: usage.
pub fn layout_of(dataset: &Path, is_said: bool) -> Result<Option<Layout>, Error> {
    let dataset = Dataset::open(dataset)?;
    let all = Options::all(dataset.index.options());
    let Some(first) = all.first() else { return Ok(None) };
    if !is_said && all.iter().any(|options| options.transform != first.transform) {
        let dir = dataset.dir.display();
        let text = format!("{dir} has images that were transformed in different ways: say which by --format");
        return Err(Error::Usage(text));
    }
    Ok(Some(first.layout()))
}

/// Appends what is new.
///
/// # Errors
/// A sample has the path of one in the dataset, but another class or length (another time is told in
/// the report); the dataset cannot be opened or is being changed by another command; see
/// [`Source::scan`] and [`Packing::run`] for the others. The dataset is then what it was, and
/// complete shards are kept for the next run.
pub fn append(config: &AppendConfig, shown: Shown, stop: &Stop) -> Result<Appended, Error> {
    let start = Instant::now();
    let claim = Claim::take(&config.dataset);
    let dataset = Dataset::open(&config.dataset)?;
    let _claim = claim?;
    let readers = Workers::start(config.effort.in_flight)?;
    let listing = Progress::start(shown, "listing", 0, 0);
    let mut listed = readers.install(|| config.source.scan(&listing, stop))?;
    listing.finish();
    listed.bad.sort_by(|a, b| a.path.cmp(&b.path));
    refuse_bad(&listed.bad, config.on_bad)?;
    let times = Times::read(&config.dataset)?;
    let mut news = News::of(&dataset, &times, &listed)?;
    let mut appended = Appended {
        dataset: config.dataset.clone(),
        source: config.source.path.clone(),
        content_id: dataset.index.content_id().to_string(),
        samples: dataset.index.len(),
        skipped: news.skipped,
        changes: std::mem::take(&mut news.changes),
        bad: std::mem::take(&mut listed.bad),
        ..Appended::default()
    };
    drop(listed);
    let dir = &config.dataset;
    if config.restart {
        discard(&dataset, None)?;
    }
    if news.catalogue.is_empty() {
        // An earlier run may have been killed between its index and the end.
        clean(dir)?;
        appended.unchanged = true;
        return refuse_listed(config, appended);
    }
    let progress = Progress::start(shown, "appending", news.catalogue.len().into(), news.catalogue.bytes());
    let (assembled, packed) = pack(config, (&dataset, &times), &news, &readers, &progress, stop)
        .map_err(|source| unfinished(source, &dataset))?;
    progress.finish();
    appended.bad.extend(packed.bad);
    if config.on_bad == OnBad::List && !appended.bad.is_empty() {
        discard(&dataset, None)?;
    }
    appended = refuse_listed(config, appended)?;
    stop.check().map_err(|source| unfinished(source, &dataset))?;
    commit(config, &assembled)?;
    let index = Index::open(assembled.index).map_err(|source| Error::Index { path: dir.clone(), source })?;
    appended.appended = index.len() - dataset.index.len();
    appended.samples = index.len();
    appended.content_id = index.content_id().to_string();
    appended.shards = index.shard_count().saturating_sub(dataset.index.shard_count()) as usize;
    appended.new_classes = news.new_classes;
    (appended.bytes, appended.source_bytes) = (packed.bytes, packed.source_bytes);
    appended.seconds = start.elapsed().as_secs_f64();
    appended.mb_per_s = megabytes_per_second(progress.bytes_of_this_run(), appended.seconds);
    Ok(appended)
}

/// Packs what is new; gives the index of all.
fn pack(
    config: &AppendConfig,
    (dataset, times): (&Dataset, &Times),
    news: &News,
    readers: &Workers,
    progress: &Progress,
    stop: &Stop,
) -> Result<(Assembled, Packed), Error> {
    let (dir, layout, catalogue) = (&config.dataset, &config.layout, &news.catalogue);
    let fault = |source| Error::Index { path: dir.clone(), source };
    let options = Options::new(&config.source, layout)?;
    let plan = options.plan(catalogue);
    let work = Work::of([(&options, catalogue)].into_iter());
    // The same source appended to another state of the dataset is other work.
    let id = format!("{}-{}", work.id, dataset.index.content_id());
    discard(dataset, Some(&id))?;
    clean_unfinished(dir)?;
    let mut recipe = Recipe { transform: layout.transform, zstd: None, cls: layout.cls };
    recipe.zstd = readers.install(|| choose_zstd(catalogue, &recipe, layout.compression, stop))?.zstd;
    let packing = Packing {
        catalogue,
        plan: &plan,
        recipe: &recipe,
        id: &id,
        folder: dir,
        first_shard: first_shard(dataset),
        first_key: first_key(dataset, catalogue)?,
        on_bad: config.on_bad,
        effort: config.effort,
        progress,
        stop,
    };
    packing.run(readers)?;
    let old: Vec<&[u8]> =
        (0..dataset.index.class_count()).filter_map(|n| dataset.index.class_name(n)).collect();
    let new = news.new_classes.iter().map(String::as_bytes);
    let mut assembly = Assembly::new(old.iter().copied().chain(new)).map_err(fault)?;
    let labels: Vec<u32> = (0..dataset.index.class_count()).collect();
    let name = |shard| dataset.index.shard(shard).map_or("", |shard| shard.name).to_owned();
    assembly.add_index((&dataset.index, times), &labels, name).map_err(fault)?;
    let packed = assembly.add_packed(&packing)?;
    let plan_id = options.plan_id(catalogue);
    let options = options_with(dataset, options.text(Some(&plan_id)));
    Ok((assembly.finish(&options).map_err(fault)?, packed))
}

/// Puts the new index in the old one's place, once the shards it names are safe.
fn commit(config: &AppendConfig, assembled: &Assembled) -> Result<(), Error> {
    let (dir, sync) = (&config.dataset, config.effort.sync);
    if sync {
        sync_dir(dir)?;
    }
    assembled.write(dir, sync)?;
    if sync {
        sync_dir(dir)?;
    }
    clean(dir)
}

/// The options of the dataset with those of what was appended.
fn options_with(dataset: &Dataset, new: serde_json::Value) -> serde_json::Value {
    let tool = concat!("shade-pack ", env!("CARGO_PKG_VERSION"));
    let mut options = match options_of(dataset) {
        object @ serde_json::Value::Object(_) => object,
        other => serde_json::json!({ "tool": tool, "merged": [other] }),
    };
    if let Some(object) = options.as_object_mut() {
        // It is not the dataset of that plan any more.
        object.remove("plan");
        let appended = object.entry("appended").or_insert_with(|| serde_json::json!([]));
        match appended.as_array_mut() {
            Some(appended) => appended.push(new),
            None => *appended = serde_json::json!([new]),
        }
    }
    options
}

fn refuse_listed(config: &AppendConfig, appended: Appended) -> Result<Appended, Error> {
    if config.on_bad == OnBad::List && !appended.bad.is_empty() {
        return Err(Error::AllBad { bad: appended.bad });
    }
    Ok(appended)
}
