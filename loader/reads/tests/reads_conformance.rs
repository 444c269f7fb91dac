//! The contract of all engines, past the page cache and through it, and their faults.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says which ways of reading this machine has"
)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::io::Errno;
use shade_dataset::{Address, Mismatch, Uploads, When, changed_ns, shard_path};
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, INDEX_FILE, Index, IndexBuilder, Media, PlacesKind, Shard};
use shade_formats::{SampleId, ShardId};
use shade_job::{EngineChoice, IoMode, StoreModel};
use shade_reads::blocks::{Arena, Blocks, FreeList};
use shade_reads::{
    Completion, Depth, ReadFault, ReadOp, Reads, ReadsConfig, ReadsError, STUCK, ShardWarning, verify,
};

const SHARDS: u32 = 2;
const LENS: [usize; 13] = [0, 1, 511, 512, 513, 4095, 4096, 4097, 7000, 65_536, 100_000, 1_000_000, 37];

/// Where records lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In shards beside the index.
    Packed,
    /// In tars of others, whose last record has no padding; checksums are not known.
    Tars,
    /// Each in a file of its own; checksums are not known.
    Files,
    /// In shards that are objects in a bucket, with the index beside them in a folder.
    Objects,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Packed, Self::Tars, Self::Files, Self::Objects];

    fn places(self) -> Option<PlacesKind> {
        match self {
            Self::Packed | Self::Objects => None,
            Self::Tars => Some(PlacesKind::Tars),
            Self::Files => Some(PlacesKind::Files),
        }
    }
}

/// Records of awkward lengths on disk, and their index: in two shards, or as the kind says.
struct Dataset {
    folder: tempfile::TempDir,
    index: Arc<Index>,
    records: Vec<Vec<u8>>,
    /// Serves the shards of [`Kind::Objects`], until its standard input ends.
    server: Option<Child>,
}

impl Drop for Dataset {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.stdin.take());
            let _ = server.wait();
        }
    }
}

/// A server of the buckets in `folder`, and its address.
fn serve(folder: &Path) -> (Child, String) {
    let programs = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("debug");
    let program = programs.join("shade-test-bucket");
    let mut command = Command::new(&program);
    let pipes = command.arg(folder).arg("anonymous=1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = pipes.spawn().unwrap_or_else(|error| {
        panic!("{}: {error}: run `cargo build --workspace --bins` first", program.display())
    });
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (server, line.trim().to_owned())
}

/// Puts the shards into a bucket, through its server, which then keeps each object's ETag. Says in
/// `folder` where they are.
fn in_bucket(folder: &Path, base: &Path, index: &Index, shards: &[Vec<u8>]) -> Child {
    let (server, address) = serve(base);
    let Ok(Address::Url(url)) = Address::parse(&format!("{address}/data")) else { panic!("{address}") };
    let uploads = Uploads::open(&url).unwrap();
    for (number, bytes) in (0..).map(ShardId).zip(shards) {
        uploads.put(index.shard(number).unwrap().name, bytes.clone(), When::Always).unwrap();
    }
    std::fs::write(folder.join("origin"), format!("shade-origin 1\n{url}\n")).unwrap();
    server
}

/// Appends a record to the bytes of its shard.
fn put(kind: Kind, record: &[u8], shard: ShardId, bytes: &mut Vec<u8>) -> Entry {
    let is_packed = matches!(kind, Kind::Packed | Kind::Objects);
    if kind != Kind::Files {
        bytes.resize(bytes.len().next_multiple_of(512) + 512, 0xee);
    }
    let offset = bytes.len() as u64;
    bytes.extend(record);
    if is_packed {
        bytes.resize(bytes.len().next_multiple_of(512), 0xee);
    }
    let len = u32::try_from(record.len()).unwrap();
    Entry {
        shard,
        offset,
        stored_len: len,
        raw_len: len,
        crc32c: is_packed.then(|| crc32c(record)),
        label: 0,
        width: 0,
        height: 0,
        codec: Codec::None,
        media: Media::Other,
    }
}

impl Dataset {
    fn create() -> Self {
        Self::of(Kind::Packed)
    }

    fn of(kind: Kind) -> Self {
        // In the build folder, as /tmp may be a tmpfs, which has no direct I/O.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut builder = IndexBuilder::new();
        builder.push_class(b"class").unwrap();
        let count = if kind == Kind::Files { LENS.len() * 4 } else { SHARDS as usize };
        let mut shards = vec![Vec::new(); count];
        let mut records = Vec::new();
        let mut entries = Vec::new();
        for number in 0..LENS.len() * 4 {
            let mut record = vec![0; LENS[number % LENS.len()]];
            rng.fill_bytes(&mut record);
            let shard = number % shards.len();
            entries.push(put(kind, &record, ShardId(u32::try_from(shard).unwrap()), &mut shards[shard]));
            records.push(record);
        }
        let base = folder.path().join("base");
        std::fs::create_dir_all(base.join("class")).unwrap();
        std::fs::create_dir_all(base.join("data")).unwrap();
        let mut times = Vec::new();
        for (number, bytes) in shards.iter().enumerate() {
            let (path, name) = match kind {
                Kind::Packed | Kind::Objects => {
                    let name = format!("shard-{number:06}.tar");
                    (folder.path().join(&name), name)
                }
                Kind::Tars => (base.join(format!("class/{number}.tar")), format!("class/{number}.tar")),
                Kind::Files => (base.join(format!("class/{number}")), String::new()),
            };
            if kind != Kind::Objects {
                std::fs::write(&path, bytes).unwrap();
                times.push(changed_ns(&rustix::fs::stat(&path).unwrap()));
            }
            let of_shard = entries.iter().filter(|entry| entry.shard.index() == number).count();
            let shard = Shard {
                name: &name,
                bytes: bytes.len() as u64,
                crc32c: crc32c(bytes),
                records: u32::try_from(of_shard).unwrap(),
            };
            builder.push_shard(shard).unwrap();
        }
        for (number, entry) in entries.iter().enumerate() {
            builder.push_sample(entry, format!("class/{number}").as_bytes()).unwrap();
        }
        if let Some(places) = kind.places() {
            builder.set_places(places, base.as_os_str().as_bytes(), times);
        }
        let index = builder.finish().unwrap();
        std::fs::write(folder.path().join(INDEX_FILE), &index).unwrap();
        let index = Arc::new(Index::open(index).unwrap());
        let server = (kind == Kind::Objects).then(|| in_bucket(folder.path(), &base, &index, &shards));
        Self { folder, index, records, server }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn shard(&self, shard: ShardId) -> PathBuf {
        shard_path(self.path(), &self.index, shard).unwrap()
    }

    fn entry(&self, sample: SampleId) -> Entry {
        self.index.entry(sample).unwrap()
    }

    /// The last sample of this length: far from the shard's start.
    fn sample_of(&self, len: usize) -> SampleId {
        let number = self.records.iter().rposition(|record| record.len() == len).unwrap();
        SampleId(u32::try_from(number).unwrap())
    }
}

/// A dataset being read in one of the ways.
struct Rig {
    reads: Reads,
    completions: Receiver<Completion>,
    arena: Arc<Arena>,
    list: FreeList,
    config: ReadsConfig,
}

impl Rig {
    fn start(dataset: &Dataset, config: ReadsConfig, block_bytes: u32) -> Result<Self, ReadsError> {
        Self::with_room(dataset, config, block_bytes, 8 << 20)
    }

    fn with_room(
        dataset: &Dataset,
        config: ReadsConfig,
        block_bytes: u32,
        arena_bytes: u64,
    ) -> Result<Self, ReadsError> {
        let (arena, mut list) = Arena::create(arena_bytes, block_bytes).unwrap();
        scatter(&mut list, u64::from(block_bytes));
        let arena = Arc::new(arena);
        let (sender, completions) = unbounded();
        let reads = Reads::start(
            dataset.path(),
            Arc::clone(&dataset.index),
            Arc::clone(&arena),
            config,
            sender,
            |why| panic!("{why}"),
        )?;
        Ok(Self { reads, completions, arena, list, config })
    }

    fn op(&mut self, dataset: &Dataset, sample: SampleId) -> ReadOp {
        let entry = dataset.entry(sample);
        let blocks = self.list.take(u64::from(entry.stored_len)).expect("the test holds too many blocks");
        let Entry { shard, offset, stored_len: len, crc32c, .. } = entry;
        ReadOp { flight: 0, sample, shard, offset, len, crc32c, recheck: false, blocks }
    }

    fn bytes(&self, completion: &Completion) -> Vec<u8> {
        self.arena.slices(&completion.op.blocks, completion.op.len).unwrap().flatten().copied().collect()
    }

    /// The next `count` completions.
    fn take(&self, count: usize) -> Vec<Completion> {
        (0..count).map(|_| self.completions.recv().unwrap()).collect()
    }

    /// Reads one record, gives its blocks back, and returns the outcome.
    fn read(&mut self, dataset: &Dataset, sample: SampleId) -> Result<Vec<u8>, ReadFault> {
        let op = self.op(dataset, sample);
        self.reads.submit(op);
        let completion = self.completions.recv().unwrap();
        assert_eq!(completion.op.sample, sample);
        let (bytes, outcome) = (self.bytes(&completion), verify(&completion, &self.arena));
        self.list.give(completion.op.blocks);
        outcome.map(|()| bytes)
    }
}

/// Shuffles the free list, so that records lie in pieces all over the arena.
fn scatter(list: &mut FreeList, block_bytes: u64) {
    let mut blocks: Vec<Blocks> = std::iter::from_fn(|| list.take(block_bytes)).collect();
    blocks.shuffle(&mut ChaCha8Rng::seed_from_u64(2));
    blocks.into_iter().for_each(|blocks| list.give(blocks));
}

fn config(engine: EngineChoice, io: IoMode) -> ReadsConfig {
    ReadsConfig { engine, io, depth: Depth::Fixed(8), store: None, patience: Duration::from_secs(2) }
}

/// A store in virtual time, whose answers come in another order than the requests.
fn store(more: &str) -> StoreModel {
    format!("latency=lognormal:2ms:0.5,clock=virtual{more}").parse().unwrap()
}

fn simulated(more: &str) -> ReadsConfig {
    ReadsConfig { store: Some(store(more)), ..config(EngineChoice::Sim, IoMode::Auto) }
}

fn every_way() -> Vec<ReadsConfig> {
    let mut ways = Vec::new();
    for io in [IoMode::Buffered, IoMode::Direct] {
        ways.push(config(EngineChoice::Uring, io));
        ways.push(config(EngineChoice::Threads, io));
        ways.push(ReadsConfig { io, ..simulated(",bandwidth=100MB,depth=4") });
    }
    ways.push(ReadsConfig { depth: Depth::Auto, ..config(EngineChoice::Auto, IoMode::Auto) });
    ways
}

/// Runs `check` in every way that this machine has; threads through the page cache every machine
/// has.
fn in_every_way(block_bytes: u32, check: impl Fn(&Dataset, &mut Rig)) {
    in_every_way_of(Kind::Packed, block_bytes, check);
}

/// The same, wherever records lie.
fn in_every_way_of_all_kinds(block_bytes: u32, check: impl Fn(&Dataset, &mut Rig)) {
    Kind::ALL.into_iter().for_each(|kind| in_every_way_of(kind, block_bytes, &check));
}

fn in_every_way_of(kind: Kind, block_bytes: u32, check: impl Fn(&Dataset, &mut Rig)) {
    let ways =
        if kind == Kind::Objects { vec![config(EngineChoice::Auto, IoMode::Auto)] } else { every_way() };
    for way in ways {
        let dataset = Dataset::of(kind);
        match Rig::start(&dataset, way, block_bytes) {
            Ok(mut rig) => {
                println!("{}", rig.reads.description());
                check(&dataset, &mut rig);
            }
            Err(error @ (ReadsError::Uring { .. } | ReadsError::Direct { .. })) => {
                assert!(way.engine == EngineChoice::Uring || way.io == IoMode::Direct, "{error}");
                println!("left out: {error}");
            }
            Err(error) => panic!("{way:?}: {error}"),
        }
    }
}

#[test]
fn random_reads_bring_the_exact_bytes_and_the_blocks_back() {
    for block_bytes in [512, 2560, 4096, 16384] {
        in_every_way_of_all_kinds(block_bytes, |dataset, rig| {
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            let depth = 8;
            let (mut submitted, mut back, total) = (0, 0, 300);
            while back < total {
                while submitted < total && submitted - back < depth {
                    let sample = SampleId(rng.random_range(0..dataset.index.len()));
                    let op = rig.op(dataset, sample);
                    rig.reads.submit(op);
                    submitted += 1;
                }
                let completion = rig.completions.recv().unwrap();
                back += 1;
                assert_eq!(completion.outcome, Ok(()));
                let record = &dataset.records[completion.op.sample.index()];
                assert!(rig.bytes(&completion) == *record, "sample {} differs", completion.op.sample);
                rig.list.give(completion.op.blocks);
            }
            assert_eq!(rig.list.free_bytes(), rig.list.total_bytes());
            assert!(rig.completions.is_empty());
        });
    }
}

#[test]
fn thousands_of_reads_beyond_the_depth_all_come_back() {
    in_every_way_of_all_kinds(4096, |dataset, rig| {
        let small: Vec<SampleId> = (0..dataset.index.len())
            .map(SampleId)
            .filter(|&id| dataset.entry(id).stored_len <= 4096)
            .collect();
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..4 {
            for _ in 0..1000 {
                let op = rig.op(dataset, small[rng.random_range(0..small.len())]);
                rig.reads.submit(op);
            }
            for _ in 0..1000 {
                let completion = rig.completions.recv().unwrap();
                assert_eq!(completion.outcome, Ok(()));
                assert!(rig.bytes(&completion) == dataset.records[completion.op.sample.index()]);
                rig.list.give(completion.op.blocks);
            }
        }
        assert_eq!(rig.list.free_bytes(), rig.list.total_bytes());
    });
}

#[test]
fn a_file_that_was_changed_replaced_or_removed_since_it_was_indexed_is_never_read() {
    for kind in [Kind::Tars, Kind::Files] {
        in_every_way_of(kind, 4096, |dataset, rig| {
            let victim = dataset.sample_of(7000);
            let path_of = |sample| dataset.shard(dataset.entry(sample).shard);
            let told = |rig: &mut Rig, sample, why: &str| {
                let fault = rig.read(dataset, sample).unwrap_err();
                let ReadFault::NotAsIndexed { path, why: text } = &fault else { panic!("{fault:?}") };
                assert!(*path == path_of(sample) && text.contains(why), "{fault}");
                assert!(fault.is_not_the_record_s(), "{fault}");
            };
            let path = path_of(victim);
            let was = std::fs::read(&path).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            // In place, while it is open: neither length nor checksum tell.
            assert!(rig.read(dataset, victim).unwrap() == dataset.records[victim.index()]);
            let indexed = dataset.index.changed_ns(dataset.entry(victim).shard);
            // Within a tick of the clock its time stays what it was.
            while Some(changed_ns(&rustix::fs::fstat(&file).unwrap())) == indexed {
                file.write_all_at(&[!was[was.len() - 1]], was.len() as u64 - 1).unwrap();
            }
            told(rig, victim, "time of change differs");
            // Another length; then the old one, at another time.
            std::fs::write(&path, [&was[..], b"more"].concat()).unwrap();
            told(rig, victim, "bytes, the index says");
            std::fs::write(&path, &was).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            told(rig, victim, "time of change differs");
            if kind == Kind::Files {
                let gone = dataset.sample_of(100_000);
                std::fs::remove_file(path_of(gone)).unwrap();
                told(rig, gone, "it is gone");
                let other = dataset.sample_of(65_536);
                assert!(rig.read(dataset, other).unwrap() == dataset.records[other.index()]);
            }
        });
    }
}

#[test]
fn tars_that_changed_are_warned_of_at_the_start_and_files_are_not_looked_at() {
    for kind in [Kind::Tars, Kind::Files] {
        let dataset = Dataset::of(kind);
        let path = dataset.shard(ShardId(0));
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let rig = Rig::start(&dataset, config(EngineChoice::Threads, IoMode::Buffered), 4096).unwrap();
        let expected = [ShardWarning::Changed { path }];
        assert_eq!(rig.reads.warnings(), if kind == Kind::Tars { &expected[..] } else { &[] });
    }
}

#[test]
fn a_changed_byte_is_a_checksum_fault_of_that_record_alone() {
    in_every_way(4096, |dataset, rig| {
        let victim = dataset.sample_of(100_000);
        let entry = dataset.entry(victim);
        let file = std::fs::File::options().write(true).open(dataset.shard(entry.shard)).unwrap();
        let mut record = dataset.records[victim.index()].clone();
        record[99_999] ^= 1;
        file.write_all_at(&record[99_999..], entry.offset + 99_999).unwrap();
        let fault = ReadFault::Checksum(Mismatch { got: crc32c(&record), expected: entry.crc32c.unwrap() });
        assert_eq!(rig.read(dataset, victim), Err(fault));
        for sample in (0..dataset.index.len()).map(SampleId).filter(|&sample| sample != victim) {
            assert!(rig.read(dataset, sample).unwrap() == dataset.records[sample.index()], "sample {sample}");
        }
    });
}

#[test]
fn a_truncated_shard_fails_the_records_behind_its_end_and_no_others() {
    in_every_way(4096, |dataset, rig| {
        assert!(rig.reads.warnings().is_empty());
        let (cut, behind) = (dataset.sample_of(100_000), dataset.sample_of(1_000_000));
        let entry = dataset.entry(cut);
        assert_eq!(dataset.entry(behind).shard.0, 1 - entry.shard.0, "or the test must choose other records");
        let file = std::fs::File::options().write(true).open(dataset.shard(entry.shard)).unwrap();
        file.set_len(entry.offset + 70_001).unwrap();
        assert_eq!(rig.read(dataset, cut), Err(ReadFault::Truncated { got: 70_001, expected: 100_000 }));
        for sample in (0..dataset.index.len()).map(SampleId) {
            let other = dataset.entry(sample);
            let got = rig.read(dataset, sample);
            if other.shard == entry.shard && other.stored_len > 0 && other.offset >= entry.offset {
                assert!(matches!(got, Err(ReadFault::Truncated { .. })), "sample {sample}: {got:?}");
            } else {
                assert!(got.unwrap() == dataset.records[sample.index()], "sample {sample}");
            }
        }
    });
}

#[test]
fn shards_that_are_missing_or_short_at_start_are_warned_of_and_named_when_read() {
    for way in every_way() {
        let dataset = Dataset::create();
        let (missing, short) = (dataset.shard(ShardId(0)), dataset.shard(ShardId(1)));
        let expected = std::fs::metadata(&short).unwrap().len();
        std::fs::remove_file(&missing).unwrap();
        std::fs::File::options().write(true).open(&short).unwrap().set_len(expected - 512).unwrap();
        let Ok(mut rig) = Rig::start(&dataset, way, 4096) else { continue };
        let warnings = rig.reads.warnings();
        assert!(
            matches!(&warnings[0], ShardWarning::Missing { path, .. } if *path == missing),
            "{warnings:?}"
        );
        assert_eq!(warnings[1..], [ShardWarning::Size { path: short, got: expected - 512, expected }]);
        let sample = (0..dataset.index.len()).map(SampleId).find(|&sample| {
            dataset.entry(sample).shard == ShardId(0) && dataset.entry(sample).stored_len > 0
        });
        let fault = rig.read(&dataset, sample.unwrap()).unwrap_err();
        assert_eq!(fault, ReadFault::Missing { path: missing });
        assert!(!fault.is_not_the_record_s(), "what was missing at start is damage that on_error judges");
        assert!(fault.to_string().contains("shard-000000.tar: No such file"), "{fault}");
        let sample = SampleId(1);
        assert_eq!(dataset.entry(sample).shard, ShardId(1));
        assert!(rig.read(&dataset, sample).unwrap() == dataset.records[1]);
    }
}

#[test]
fn a_shard_that_the_index_does_not_have_and_blocks_that_do_not_fit_are_faults() {
    in_every_way(4096, |dataset, rig| {
        let sample = dataset.sample_of(4096);
        let mut op = rig.op(dataset, sample);
        op.shard = ShardId(SHARDS);
        rig.reads.submit(op);
        assert_eq!(rig.completions.recv().unwrap().outcome, Err(ReadFault::UnknownShard));

        let mut op = rig.op(dataset, sample);
        op.len = 4097;
        rig.reads.submit(op);
        assert!(matches!(rig.completions.recv().unwrap().outcome, Err(ReadFault::Memory { .. })));

        let (_other, mut foreign) = Arena::create(1 << 20, 4096).unwrap();
        let mut op = rig.op(dataset, sample);
        op.blocks = foreign.take(4096).unwrap();
        rig.reads.submit(op);
        assert!(matches!(rig.completions.recv().unwrap().outcome, Err(ReadFault::Memory { .. })));
    });
}

#[test]
fn stopping_with_reads_in_flight_brings_every_block_back() {
    in_every_way_of_all_kinds(4096, |dataset, rig| {
        for round in 0..20 {
            let depth = Depth::Fixed([1, 3, 64][(round % 3) as usize]);
            let mut rig = Rig::start(dataset, ReadsConfig { depth, ..rig.config }, 4096).unwrap();
            let mut samples: Vec<SampleId> = (0..dataset.index.len()).map(SampleId).collect();
            samples.shuffle(&mut ChaCha8Rng::seed_from_u64(round));
            samples.truncate(30);
            samples.retain(|&sample| dataset.entry(sample).stored_len < 1_000_000);
            for &sample in &samples {
                let op = rig.op(dataset, sample);
                rig.reads.submit(op);
            }
            let Rig { reads, completions, arena, mut list, .. } = rig;
            drop(reads);
            // The sender is gone with the reads, so this ends.
            let back: Vec<Completion> = completions.iter().collect();
            assert_eq!(back.len(), samples.len());
            for completion in back {
                match completion.outcome {
                    Ok(()) => {
                        let bytes: Vec<u8> = arena
                            .slices(&completion.op.blocks, completion.op.len)
                            .unwrap()
                            .flatten()
                            .copied()
                            .collect();
                        assert!(bytes == dataset.records[completion.op.sample.index()]);
                    }
                    Err(fault) => assert_eq!(fault, ReadFault::Stopped),
                }
                list.give(completion.op.blocks);
            }
            assert_eq!(list.free_bytes(), list.total_bytes());
        }
    });
}

#[test]
fn neighbours_read_together_come_back_one_by_one_with_their_own_bytes() {
    for block_bytes in [512, 4096] {
        in_every_way(block_bytes, |dataset, rig| {
            for shard in 0..SHARDS {
                let mut samples: Vec<SampleId> = (0..dataset.index.len()).map(SampleId).collect();
                samples.retain(|&id| {
                    let entry = dataset.entry(id);
                    entry.shard == ShardId(shard) && (1..=4097).contains(&entry.stored_len)
                });
                samples.sort_by_key(|&id| dataset.entry(id).offset);
                for group in samples.chunk_by(|&a, &b| {
                    let (a, b) = (dataset.entry(a), dataset.entry(b));
                    b.offset - a.offset <= 20_000
                }) {
                    let ops = group.iter().map(|&sample| rig.op(dataset, sample)).collect();
                    rig.reads.submit_together(ops);
                    let mut back = rig.take(group.len());
                    back.sort_by_key(|completion| completion.op.offset);
                    for (completion, sample) in back.into_iter().zip(group) {
                        assert_eq!((completion.op.sample, &completion.outcome), (*sample, &Ok(())));
                        assert!(completion.checked || group.len() == 1);
                        assert!(rig.bytes(&completion) == dataset.records[sample.index()], "sample {sample}");
                        rig.list.give(completion.op.blocks);
                    }
                }
            }
            assert_eq!(rig.list.free_bytes(), rig.list.total_bytes());
        });
    }
}

#[test]
fn a_bad_neighbour_spoils_no_other() {
    in_every_way(4096, |dataset, rig| {
        let (cut, victim) = (dataset.sample_of(7000), dataset.sample_of(4096));
        for shard in [dataset.entry(cut).shard, dataset.entry(victim).shard] {
            let mut samples: Vec<SampleId> = (0..dataset.index.len()).map(SampleId).collect();
            samples.retain(|&id| {
                let entry = dataset.entry(id);
                entry.shard == shard && (1..=7000).contains(&entry.stored_len)
            });
            samples.sort_by_key(|&id| dataset.entry(id).offset);
            // The last stretch of several small records in the shard.
            let near =
                |a: &SampleId, b: &SampleId| dataset.entry(*b).offset - dataset.entry(*a).offset <= 20_000;
            let group = samples.chunk_by(near).rfind(|group| group.len() > 1).unwrap().to_vec();
            let spoilt = dataset.entry(group[0]);
            let file = std::fs::File::options().write(true).open(dataset.shard(shard)).unwrap();
            file.write_all_at(&[!dataset.records[group[0].index()][0]], spoilt.offset).unwrap();
            let end = dataset.entry(group[group.len() - 1]);
            file.set_len(end.offset + 1).unwrap();
            let ops = group.iter().map(|&sample| rig.op(dataset, sample)).collect();
            rig.reads.submit_together(ops);
            for completion in rig.take(group.len()) {
                let sample = completion.op.sample;
                match &verify(&completion, &rig.arena) {
                    Err(ReadFault::Checksum(_)) => assert_eq!(sample, group[0]),
                    Err(ReadFault::Truncated { got: 1, .. }) => assert_eq!(sample, group[group.len() - 1]),
                    other => {
                        assert_eq!(*other, Ok(()), "sample {sample}");
                        assert!(rig.bytes(&completion) == dataset.records[sample.index()], "sample {sample}");
                    }
                }
                rig.list.give(completion.op.blocks);
            }
        }
        assert_eq!(rig.list.free_bytes(), rig.list.total_bytes());
    });
}

#[test]
fn a_record_that_is_wrong_twice_is_told_with_what_became_of_its_shard_s_file() {
    in_every_way(4096, |dataset, rig| {
        let victim = dataset.sample_of(4096);
        let shard = dataset.entry(victim).shard;
        assert!(rig.read(dataset, victim).is_ok(), "the shard is open");
        let recheck_by = |rig: &mut Rig, crc32c| {
            let op = ReadOp { recheck: true, crc32c, ..rig.op(dataset, victim) };
            rig.reads.submit(op);
            let completion = rig.take(1).remove(0);
            rig.list.give(completion.op.blocks);
            (completion.outcome, completion.checked)
        };
        let recheck = |rig: &mut Rig| recheck_by(rig, dataset.entry(victim).crc32c);
        assert_eq!(recheck(rig), (Ok(()), true));
        assert_eq!(
            recheck_by(rig, None),
            (Ok(()), false),
            "nothing was compared: that is left to who knows parts"
        );
        let path = dataset.shard(shard);
        // The open file is as it was; the path names another one.
        let (bytes, new) = (std::fs::read(&path).unwrap(), dataset.path().join("new"));
        std::fs::write(&new, &bytes).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        std::fs::rename(&new, &path).unwrap();
        file.write_all_at(&[!dataset.records[victim.index()][0]], dataset.entry(victim).offset).unwrap();
        let fault = recheck(rig).0.unwrap_err();
        let ReadFault::OtherFile { mismatch, path: of, why, .. } = &fault else { panic!("{fault:?}") };
        assert!(*of == path && Some(mismatch.expected) == dataset.entry(victim).crc32c, "{fault}");
        assert!(why.contains("another file has taken its place"), "{fault}");
        assert!(!fault.is_not_the_record_s(), "what is read is the file that it always was");
    });
}

#[test]
fn records_too_far_apart_for_one_read_come_all_the_same() {
    in_every_way(4096, |dataset, rig| {
        let mut ends: Vec<SampleId> = (0..dataset.index.len()).map(SampleId).collect();
        ends.retain(|&id| dataset.entry(id).shard == ShardId(0) && dataset.entry(id).stored_len > 0);
        ends.sort_by_key(|&id| dataset.entry(id).offset);
        let ops = [ends[0], ends[ends.len() - 1]].map(|sample| rig.op(dataset, sample));
        rig.reads.submit_together(ops.into());
        for completion in rig.take(2) {
            assert_eq!(completion.outcome, Ok(()));
            rig.list.give(completion.op.blocks);
        }
        rig.reads.submit_together(Vec::new());
    });
}

#[test]
fn whatever_befalls_a_read_that_may_be_tried_again_the_bytes_are_right() {
    for faults in
        [",short=60%", ",eintr=30%", ",eagain=30%", ",short=20%,eintr=10%,eagain=10%,eio=1%,estale=5%,seed=3"]
    {
        for io in [IoMode::Buffered, IoMode::Direct] {
            let dataset = Dataset::create();
            let way = ReadsConfig { io, ..simulated(faults) };
            let Ok(mut rig) = Rig::start(&dataset, way, 4096) else { continue };
            let (mut good, mut failed) = (0, 0);
            for round in 0..20 {
                for id in 0..dataset.index.len() {
                    match rig.read(&dataset, SampleId(id)) {
                        Ok(bytes) => {
                            good += 1;
                            assert!(
                                bytes == dataset.records[id as usize],
                                "{faults}: sample {id} in round {round}"
                            );
                        }
                        Err(ReadFault::Failed { tries, .. }) => {
                            failed += 1;
                            assert!(tries > 1 || faults.contains("estale"), "{faults}: {tries} tries");
                        }
                        Err(fault) => panic!("{faults}: sample {id}: {fault}"),
                    }
                }
            }
            assert!(failed * 20 <= good, "{faults}: {failed} failed, {good} did not");
        }
    }
}

#[test]
fn a_store_that_always_fails_fails_after_the_tries_that_the_rules_give() {
    for (fault, errno, tries) in
        [("eio", Errno::IO, 3), ("eintr", Errno::INTR, 9), ("eagain", Errno::AGAIN, 9)]
    {
        let dataset = Dataset::create();
        let mut rig = Rig::start(&dataset, simulated(&format!(",{fault}=100%")), 4096).unwrap();
        let outcome = rig.read(&dataset, dataset.sample_of(4096));
        assert_eq!(outcome, Err(ReadFault::Failed { errno, tries }), "{fault}");
        assert_eq!(
            rig.read(&dataset, dataset.sample_of(0)),
            Ok(Vec::new()),
            "nothing is asked of the store for it"
        );
    }
}

#[test]
fn what_the_store_refuses_is_tried_until_the_patience_is_over_and_then_no_record_s_fault() {
    let patience = Duration::from_secs(60);
    let dataset = Dataset::create();
    let mut rig = Rig::start(&dataset, ReadsConfig { patience, ..simulated(",estale=100%") }, 4096).unwrap();
    let sample = dataset.sample_of(4096);
    let path = dataset.shard(dataset.entry(sample).shard);
    let fault = rig.read(&dataset, sample).unwrap_err();
    assert!(fault.is_not_the_record_s(), "{fault}");
    let text = fault.to_string();
    let ReadFault::Refused { path: of, errno: Errno::STALE, tried } = &fault else { panic!("{fault:?}") };
    assert!(*of == path && *tried >= patience, "{fault}");
    assert!(text.contains("tried for 60 s: is its file system mounted"), "{text}");

    // A shard that was there at the start, and is not when it is first opened.
    let mut rig = Rig::start(&dataset, ReadsConfig { patience, ..simulated("") }, 4096).unwrap();
    let path = dataset.shard(dataset.entry(sample).shard);
    std::fs::remove_file(&path).unwrap();
    let op = rig.op(&dataset, sample);
    rig.reads.submit(op);
    let completion = rig.take(1).remove(0);
    let fault = completion.outcome.unwrap_err();
    let ReadFault::Open { path: of, errno: Errno::NOENT, tried } = &fault else { panic!("{fault:?}") };
    assert!(*of == path && *tried >= patience && fault.is_not_the_record_s(), "{fault}");
    assert!(completion.latency >= patience, "{:?}", completion.latency);
}

#[test]
fn a_shard_that_is_away_for_a_while_costs_time_and_no_record() {
    for way in every_way().into_iter().filter(|way| way.store.is_none()) {
        let dataset = Dataset::create();
        let way = ReadsConfig { patience: Duration::from_secs(60), ..way };
        let Ok(mut rig) = Rig::start(&dataset, way, 4096) else { continue };
        let shards = [ShardId(0), ShardId(1)].map(|shard| dataset.shard(shard));
        let away = dataset.path().join("away");
        std::fs::rename(&shards[0], &away).unwrap();
        for id in 0..dataset.index.len() / 2 {
            let op = rig.op(&dataset, SampleId(id));
            rig.reads.submit(op);
        }
        // All of the other shard come although the first reads wait, more of them than there are
        // places.
        let here = |id: &u32| {
            let entry = dataset.entry(SampleId(*id));
            entry.shard == ShardId(1) || entry.stored_len == 0
        };
        let expected = (0..dataset.index.len() / 2).filter(here).count();
        for completion in rig.take(expected) {
            assert_eq!(completion.outcome, Ok(()));
            assert!(here(&completion.op.sample.0));
            rig.list.give(completion.op.blocks);
        }
        assert!(rig.completions.is_empty());
        std::fs::rename(&away, &shards[0]).unwrap();
        for completion in rig.take(dataset.index.len() as usize / 2 - expected) {
            assert_eq!(completion.outcome, Ok(()));
            assert!(rig.bytes(&completion) == dataset.records[completion.op.sample.index()]);
            rig.list.give(completion.op.blocks);
        }
    }
}

/// Submits a row of reads until one was not disturbed: a virtual clock jumps once nothing is
/// submitted, also where a busy machine takes this thread's turn in the middle of a row.
fn undisturbed(row: impl Fn() -> Result<(), String>) {
    let mut told = Vec::new();
    while let Err(why) = row() {
        told.push(why);
        assert!(told.len() < 10, "{told:#?}");
    }
}

#[test]
fn a_read_that_is_tried_again_later_holds_no_place_until_then() {
    undisturbed(|| {
        let dataset = Dataset::create();
        let way = ReadsConfig { depth: Depth::Fixed(1), ..simulated(",eio=30%,seed=1") };
        let mut rig = Rig::start(&dataset, way, 4096).unwrap();
        let samples: Vec<SampleId> = (0..dataset.index.len())
            .map(SampleId)
            .filter(|&id| (1..=7000).contains(&dataset.entry(id).stored_len))
            .collect();
        for &sample in &samples {
            let op = rig.op(&dataset, sample);
            rig.reads.submit(op);
        }
        // One at a time: whatever failed waits 400 ms at least, in which all others are read.
        let late: Vec<bool> =
            rig.take(samples.len()).iter().map(|back| back.latency >= Duration::from_millis(400)).collect();
        let is_right = late.iter().any(|late| *late) && !late[0] && late.is_sorted();
        is_right.then_some(()).ok_or_else(|| format!("a read waited for another one's wait: {late:?}"))
    });
}

#[test]
fn the_first_reads_of_a_slow_link_have_few_beside_them() {
    undisturbed(|| {
        let dataset = Dataset::create();
        let store: StoreModel = "latency=2ms,bandwidth=20Mbit,clock=virtual".parse().unwrap();
        let way = ReadsConfig { depth: Depth::Auto, store: Some(store), ..simulated("") };
        let mut rig = Rig::start(&dataset, way, 4096).unwrap();
        let sample = dataset.sample_of(100_000);
        let (reads, first_batch) = (60, 20);
        for flight in 0..reads {
            let op = ReadOp { flight, ..rig.op(&dataset, sample) };
            rig.reads.submit(op);
        }
        let back = rig.take(60);
        assert!(back.is_sorted_by_key(|completion| completion.op.flight), "the first are answered first");
        // A read takes 40 ms of the link. Of 16 in flight each waits for 15 others, of 32 it was
        // 31.
        let slowest = back[..first_batch].iter().map(|completion| completion.latency).max().unwrap();
        // 16 in flight brought no more than 8.
        let is_right = slowest <= Duration::from_millis(2 + 16 * 40) && rig.reads.depth() == 8;
        is_right.then_some(()).ok_or_else(|| format!("{slowest:?}, depth {}", rig.reads.depth()))
    });
}

#[test]
fn a_store_without_limits_has_its_depth_after_a_few_latencies() {
    undisturbed(|| {
        let dataset = Dataset::create();
        let store: StoreModel = "latency=50ms,clock=virtual".parse().unwrap();
        let way = ReadsConfig { depth: Depth::Auto, store: Some(store), ..simulated("") };
        let mut rig = Rig::start(&dataset, way, 4096).unwrap();
        let sample = dataset.sample_of(4096);
        for _ in 0..60 {
            let op = rig.op(&dataset, sample);
            rig.reads.submit(op);
        }
        // 8 and 16 of them, each in one latency.
        let back = rig.take(24);
        let depth = rig.reads.depth();
        let is_right = depth >= 32 && back.iter().all(|back| back.latency == Duration::from_millis(50));
        rig.take(36);
        is_right.then_some(()).ok_or_else(|| format!("depth {depth}"))
    });
}

/// Holds a lease on a file until its standard input ends: an open of the file waits.
const LEASE: &str = "import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()";

/// A shard that can be opened only once another process gives up its lease.
#[test]
fn a_read_that_waited_for_its_shard_goes_before_those_that_were_submitted_later() {
    let dataset = Dataset::create();
    let way = ReadsConfig { depth: Depth::Fixed(1), ..config(EngineChoice::Uring, IoMode::Buffered) };
    let Ok(mut rig) = Rig::with_room(&dataset, way, 4096, 96 << 20) else {
        return println!("left out: no io_uring");
    };
    let mut holder = std::process::Command::new("python3");
    holder.args(["-c", LEASE]).arg(dataset.shard(ShardId(0))).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut held = [0; 4];
    if holder.stdout.take().unwrap().read_exact(&mut held).is_err() {
        holder.wait().unwrap();
        return println!("left out: no lease on a file here");
    }
    let other = (0..dataset.index.len())
        .map(SampleId)
        .find(|&id| dataset.entry(id).shard == ShardId(1) && dataset.entry(id).stored_len == 4096)
        .unwrap();
    let waits = (0..dataset.index.len())
        .map(SampleId)
        .find(|&id| dataset.entry(id).shard == ShardId(0) && dataset.entry(id).stored_len == 4096)
        .unwrap();
    let op = rig.op(&dataset, waits);
    rig.reads.submit(op);
    // The queue is kept long: a read at its end waits for all of these, longer than a busy machine
    // takes to go on with a thread.
    let long = 20_000;
    for _ in 0..long {
        let op = rig.op(&dataset, other);
        rig.reads.submit(op);
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let early = rig.completions.len();
    let mut before: usize = 0;
    loop {
        let completion = rig.completions.recv().unwrap();
        let sample = completion.op.sample;
        rig.list.give(completion.op.blocks);
        if sample == waits {
            assert_eq!(completion.outcome, Ok(()));
            break;
        }
        before += 1;
        let op = rig.op(&dataset, other);
        rig.reads.submit(op);
    }
    // It may be among the early ones itself, where this thread had to wait for the processor.
    let later = before.saturating_sub(early);
    assert!(later < long, "{later} reads that were submitted later were answered before");
    rig.take(long);
}

#[test]
fn a_stale_shard_of_a_dataset_that_was_replaced_is_a_changed_dataset() {
    let dataset = Dataset::create();
    let mut rig = Rig::start(&dataset, simulated(",estale=100%"), 4096).unwrap();
    let mut other = IndexBuilder::new();
    other.push_class(b"another").unwrap();
    std::fs::write(dataset.path().join(INDEX_FILE), other.finish().unwrap()).unwrap();
    let fault = rig.read(&dataset, dataset.sample_of(4096)).unwrap_err();
    assert!(matches!(fault, ReadFault::Changed { .. }), "{fault:?}");
    assert!(fault.to_string().contains("shard-00000"), "{fault}");
}

#[test]
fn hours_at_a_stuck_store_pass_at_once_in_virtual_time() {
    let dataset = Dataset::create();
    let mut rig = Rig::start(&dataset, simulated(",stuck=100%"), 4096).unwrap();
    let op = rig.op(&dataset, dataset.sample_of(4096));
    rig.reads.submit(op);
    let completion = rig.take(1).remove(0);
    assert_eq!(completion.outcome, Ok(()));
    assert!(completion.latency >= STUCK, "{:?}", completion.latency);
}

#[test]
fn the_depth_finds_the_slots_of_a_store() {
    let dataset = Dataset::create();
    let store: StoreModel = "latency=lognormal:20ms:0.5,clock=virtual,depth=12".parse().unwrap();
    let way =
        ReadsConfig { store: Some(store), depth: Depth::Auto, ..config(EngineChoice::Sim, IoMode::Auto) };
    let mut rig = Rig::start(&dataset, way, 4096).unwrap();
    let sample = dataset.sample_of(4096);
    for _ in 0..120 {
        for _ in 0..256 {
            let op = rig.op(&dataset, sample);
            rig.reads.submit(op);
        }
        for completion in rig.take(256) {
            rig.list.give(completion.op.blocks);
        }
    }
    assert!((10..=24).contains(&rig.reads.depth()), "depth {} for 12 slots", rig.reads.depth());
}

#[test]
fn a_simulated_store_answers_no_earlier_than_its_latency_and_bandwidth_allow() {
    let dataset = Dataset::create();
    let store: StoreModel = "latency=3ms,bandwidth=20MB".parse().unwrap();
    let config = ReadsConfig { store: Some(store), ..config(EngineChoice::Auto, IoMode::Auto) };
    let mut rig = Rig::start(&dataset, config, 4096).unwrap();
    let description = rig.reads.description();
    assert!(
        description.starts_with("sim (SIMULATED store: latency=3ms,bandwidth=20000000B)"),
        "{description}"
    );
    // An idle store is no faster afterwards.
    std::thread::sleep(Duration::from_millis(20));
    let started = Instant::now();
    let sample = dataset.sample_of(100_000);
    for _ in 0..8 {
        let op = rig.op(&dataset, sample);
        rig.reads.submit(op);
    }
    for number in 1..=8 {
        let completion = rig.completions.recv().unwrap();
        assert_eq!(completion.outcome, Ok(()));
        let link = Duration::from_millis(number * 5);
        assert!(
            started.elapsed() >= Duration::from_millis(3) + link,
            "read {number} after {:?}",
            started.elapsed()
        );
        assert!(completion.latency >= Duration::from_millis(3));
    }
}

#[test]
fn a_simulated_store_and_an_engine_that_reads_for_real_do_not_go_together() {
    let dataset = Dataset::create();
    for engine in [EngineChoice::Uring, EngineChoice::Threads] {
        let config = ReadsConfig { store: Some(store("")), ..config(engine, IoMode::Auto) };
        assert!(matches!(Rig::start(&dataset, config, 4096), Err(ReadsError::RealStore)));
    }
    let rig = Rig::start(&dataset, config(EngineChoice::Sim, IoMode::Auto), 4096).unwrap();
    assert!(
        rig.reads.description().starts_with("sim (SIMULATED store: latency=1ms)"),
        "{}",
        rig.reads.description()
    );
}

#[test]
fn a_depth_out_of_range_is_refused() {
    let dataset = Dataset::create();
    for depth in [0, shade_formats::limits::READS_DEPTH_MAX + 1] {
        let config = ReadsConfig { depth: Depth::Fixed(depth), ..config(EngineChoice::Auto, IoMode::Auto) };
        assert!(matches!(Rig::start(&dataset, config, 4096), Err(ReadsError::Depth { got }) if got == depth));
    }
}

#[test]
fn the_description_is_one_line_that_says_who_reads_and_how_and_why() {
    let dataset = Dataset::create();
    let rig = Rig::start(&dataset, config(EngineChoice::Threads, IoMode::Buffered), 4096).unwrap();
    assert_eq!(rig.reads.description(), "threads (at most 8), buffered: as asked");
    let rig = Rig::start(&dataset, config(EngineChoice::Auto, IoMode::Auto), 4096).unwrap();
    let description = rig.reads.description();
    assert!(
        description.starts_with("uring (") || description.starts_with("threads (at most 8) because "),
        "{description}"
    );
    assert!(description.contains("direct: ") || description.contains("buffered: "), "{description}");
    assert!(!description.contains('\n'));
}
