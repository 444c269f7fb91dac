//! An index that points at images gives the very batches of the packed dataset; a file that was
//! changed is an error and never other pixels.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use shade_client::{Content, Decode, Field, FieldsReader, JobSpec, OnError, Order, Sampler};
use shade_formats::SampleId;
use shade_formats::index::{INDEX_FILE, Index};
use shade_tests::{
    Daemon, Packed, Source, Taken, all_ranks, attach, attach_by, jpeg, png, program, spec, take_epoch,
    take_with_losses, webdataset,
};

fn shade_pack(command: &str, source: &Path, out: &Path) {
    let output =
        Command::new(program("shade-pack")).args([command, "-q"]).args([source, out]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A source, packed and indexed.
struct Both {
    packed: PathBuf,
    index: PathBuf,
}

impl Both {
    fn of(source: &Path, beside: &Path) -> Self {
        let both = Self { packed: beside.join("packed"), index: beside.join("index") };
        shade_pack("create", source, &both.packed);
        shade_pack("index", source, &both.index);
        both
    }

    fn datasets(&self) -> [&Path; 2] {
        [&self.packed, &self.index]
    }
}

/// Images as files, and as members of three tars with fields before and behind them.
fn sources() -> (Packed, [PathBuf; 2]) {
    let images = Packed::mixed(33);
    let tars = images.beside("tars");
    fs::create_dir(&tars).unwrap();
    for (number, some) in images.sources.chunks(40).enumerate() {
        fs::write(tars.join(format!("{number}.tar")), webdataset(some)).unwrap();
    }
    let folder = images.images.clone();
    (images, [folder, tars])
}

/// Ids, labels, weights, flags, records and pixels of a batch.
type Rows = (Vec<u32>, Vec<u32>, Vec<f32>, Vec<u32>, Vec<Vec<u8>>, Vec<u8>);

/// Batches as far as they may not differ: when reads end is no matter.
fn seen(batches: Vec<Taken>) -> Vec<Rows> {
    let row = |batch: Taken| {
        let Taken { ids, labels, weights, flags, records, pixels, .. } = batch;
        (ids, labels, weights, flags, records, pixels)
    };
    batches.into_iter().map(row).collect()
}

#[test]
fn every_sampler_and_order_gives_the_batches_of_the_packed_dataset() {
    let (_images, sources) = sources();
    for source in sources {
        let beside = tempfile::tempdir().unwrap();
        let both = Both::of(&source, beside.path());
        // Without residents all of them follow from seed and losses alone.
        let daemons = both.datasets().map(|dataset| Daemon::start(dataset, &[&"--cache", &"0"]));
        let plans = Sampler::ALL.iter().map(|sampler| (*sampler, Order::Shuffled));
        let orders = Order::ALL.iter().map(|order| (Sampler::Pads, *order));
        for (number, (sampler, order)) in plans.chain(orders).enumerate() {
            let [packed, index] = both.datasets().map(|dataset| {
                let session = attach_by(dataset, &format!("job-{number}"), sampler, order);
                seen(take_with_losses(&session).concat())
            });
            assert!(!packed.is_empty() && packed == index, "{sampler:?} {order:?} {}", source.display());
        }
        drop(daemons);
    }
}

#[test]
fn decoded_and_augmented_pixels_are_the_same_with_any_engine() {
    let (_images, sources) = sources();
    for source in sources {
        let beside = tempfile::tempdir().unwrap();
        let both = Both::of(&source, beside.path());
        let job = JobSpec { decode: Decode::cover(24, 24), ..spec(8, 2) };
        for more in [["--engine", "auto"], ["--engine", "threads"], ["--io", "buffered"], ["--cache", "20%"]]
        {
            let [packed, index] = both.datasets().map(|dataset| {
                let daemon = Daemon::start(dataset, &[&more[0], &more[1]]);
                let ranks = all_ranks(dataset, job.clone(), |_, session| {
                    seen([0, 1].map(|epoch| take_epoch(session, epoch).unwrap()).concat())
                });
                drop(daemon);
                ranks
            });
            assert!(packed == index, "{more:?} {}", source.display());
        }
    }
}

#[test]
fn fields_of_tars_are_those_of_the_packed_dataset() {
    let (_images, [_, tars]) = sources();
    let beside = tempfile::tempdir().unwrap();
    let both = Both::of(&tars, beside.path());
    let [packed, index] = both.datasets().map(|dataset| {
        let index = Index::open(fs::read(dataset.join(INDEX_FILE)).unwrap()).unwrap();
        let all: Vec<i64> = (0..i64::from(index.len())).collect();
        FieldsReader::new(dataset, Content::of(&index), true).read(&all).unwrap()
    });
    assert!(
        packed.iter().flatten().any(|Field { name, bytes }| name == "txt" && bytes.starts_with(b"caption"))
    );
    assert!(packed == index);
}

#[test]
fn a_file_that_changed_is_an_error_whatever_on_error_says() {
    let files: Vec<Source> = (0..20u32)
        .map(|number| {
            let bytes =
                if number % 2 == 0 { png(20, 20, number.into()) } else { jpeg(20, 20, number.into()) };
            Source { path: format!("cat/{number:02}.png"), label: 0, bytes }
        })
        .collect();
    let images = Packed::of(files);
    let index = images.beside("index");
    shade_pack("index", &images.images, &index);
    let daemon = Daemon::start(&index, &[]);
    let job = JobSpec { on_error: OnError::Substitute, ..spec(4, 1) };
    let session = attach(&index, 0, job);
    let victim = images.images.join("cat/07.png");
    fs::write(&victim, png(21, 21, 99)).unwrap();
    let told = take_epoch(&session, 0).unwrap_err().to_string();
    assert!(told.contains("cat/07.png is not the file that was indexed"), "{told}");
    assert!(told.contains("start again with a new index"), "{told}");
    assert!(told.contains(victim.to_str().unwrap()), "the real path: {told}");
    drop((session, daemon));
    // What is indexed now is what is there now.
    let now = images.beside("now");
    shade_pack("index", &images.images, &now);
    let daemon = Daemon::start(&now, &[]);
    let batches = take_epoch(&attach(&now, 0, spec(4, 1)), 0).unwrap();
    let row = batches.iter().find_map(|batch| {
        let at = batch.ids.iter().position(|id| *id == 7)?;
        Some(batch.records[at].clone())
    });
    assert!(row.unwrap() == fs::read(&victim).unwrap());
    drop(daemon);
}

#[test]
fn a_damaged_byte_of_a_tar_is_never_delivered_with_its_fields() {
    let (images, [_, tars]) = sources();
    let index = images.beside("index");
    let mut command = Command::new(program("shade-pack"));
    assert!(command.args(["index", "-q", "--checksums"]).args([&tars, &index]).status().unwrap().success());
    // One sample's, in a file that looks as it did.
    let file = fs::File::options().write(true).open(tars.join("0.tar")).unwrap();
    let changed = file.metadata().unwrap().modified().unwrap();
    let opened = Index::open(fs::read(index.join(INDEX_FILE)).unwrap()).unwrap();
    let last = opened.entry(SampleId(7)).unwrap();
    file.write_all_at(b"damage", last.offset + u64::from(last.stored_len) - 6).unwrap();
    file.set_modified(changed).unwrap();
    let daemon = Daemon::start(&index, &[&"--fields", &"all"]);
    let session = attach(&index, 0, spec(4, 1));
    let told = take_epoch(&session, 0).unwrap_err().to_string();
    assert!(told.contains("checksum mismatch") && told.contains("sample 7"), "{told}");
    drop((session, daemon));
}

#[test]
fn a_tier_needs_checksums() {
    let images = Packed::mixed(3);
    let index = images.beside("index");
    shade_pack("index", &images.images, &index);
    let output = Command::new(program("shade-load"))
        .args(["serve", "--tier", "valkey://127.0.0.1:1"])
        .arg(&index)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--tier needs the checksum") && told.contains("--checksums"), "{told}");
}

#[test]
fn the_index_names_real_files() {
    let (images, [folder, _]) = sources();
    let index = images.beside("index");
    shade_pack("index", &folder, &index);
    let index = Index::open(fs::read(index.join(INDEX_FILE)).unwrap()).unwrap();
    for (number, source) in (0..).zip(&images.sources) {
        let shard = index.shard(index.entry(SampleId(number)).unwrap().shard).unwrap();
        assert!(fs::read(folder.join(shard.name)).unwrap() == source.bytes);
    }
}
