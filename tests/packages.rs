//! Packages, with a daemon on a mounted store: each row is the one that the plan says, and the
//! store has fewer reads. Where nothing can be mounted the tests say so and pass.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use shade_client::{JobSpec, PlanSpec, Sampler};
use shade_tests::{Daemon, FaultyStore, Packed, Taken, attach, eventually, spec, stats, take_epoch};

const EPOCHS: u32 = 8;
/// Room for so few batches that next to none of their records are neighbours.
const RING_BYTES: u64 = 64 << 10;

/// What a training took, and what its daemon counted.
struct Trained {
    taken: Vec<Taken>,
    reads: u64,
    misses: u64,
    exchanged: u64,
}

/// Trains over a store that counts reads, with losses that rise with the id.
fn train(packed: &Packed, policy: &str, sampler: Sampler, package_bytes: &str) -> Option<Trained> {
    let store = FaultyStore::mount(&packed.dataset)?;
    let daemon = Daemon::start(
        store.path(),
        &[&"--cache", &"20%", &"--depth", &"8", &"--policy", &policy, &"--package-bytes", &package_bytes],
    );
    let plan = PlanSpec { sampler, ..PlanSpec::default() };
    let session = attach(store.path(), 0, JobSpec { plan, ring_bytes: RING_BYTES, ..spec(4, 1) });
    let before = store.read();
    let mut taken = Vec::new();
    for epoch in 0..EPOCHS {
        for batch in take_epoch(&session, epoch).unwrap() {
            let losses: Vec<f32> = batch.ids.iter().map(|&id| id as f32).collect();
            session.report(batch.id, &losses).unwrap();
            taken.push(batch);
        }
    }
    // The next epoch's first batches may be filled already.
    eventually("no read is in flight", || stats(&session)["reads_submitted"].as_u64() == Some(0));
    let reads = store.read() - before;
    let counts = &stats(&session)["total"];
    let counted = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(reads as u64, counted("reads"), "each read is one operation of the store");
    drop(daemon);
    Some(Trained {
        taken,
        reads: counted("reads"),
        misses: counted("misses"),
        exchanged: counted("exchanged"),
    })
}

fn assert_like_sources(packed: &Packed, taken: &[Taken]) {
    for batch in taken {
        for (at, &id) in batch.ids.iter().enumerate() {
            let source = &packed.sources[id as usize];
            assert!(batch.labels[at] == source.label && batch.records[at] == source.bytes, "sample {id}");
        }
    }
}

fn sorted(taken: &[Taken], epoch: u32) -> Vec<u32> {
    let of = taken.iter().filter(|batch| batch.epoch == epoch);
    let mut ids: Vec<u32> = of.flat_map(|batch| batch.ids.clone()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn permutations_are_whole_and_the_store_has_fewer_reads() {
    let packed = Packed::pngs(300, 16);
    for policy in ["lookahead", "quiver"] {
        let trained = |bytes| train(&packed, policy, Sampler::Uniform, bytes);
        let (Some(before), Some(after)) = (trained("0"), trained("16KiB")) else { return };
        let taken = after.taken;
        assert_like_sources(&packed, &taken);
        for epoch in 0..EPOCHS {
            assert!(
                sorted(&taken, epoch).into_iter().eq((0..).take(packed.len())),
                "{policy}, epoch {epoch}"
            );
        }
        // How many fewer depends on the store: lookahead prefetches while it is idle, and what is
        // asked for together is coalesced without packages, too.
        let (reads, before) = (after.reads, before.reads);
        assert!(reads * 5 < before * 4, "{policy}: {reads} reads, {before} without packages");
    }
}

#[test]
fn icache_exchanges_what_packages_bring_and_delivers_nothing_twice() {
    let packed = Packed::pngs(300, 16);
    let trained = |bytes| train(&packed, "icache", Sampler::Iis, bytes);
    let (Some(before), Some(after)) = (trained("0"), trained("auto")) else { return };
    let taken = after.taken;
    assert_like_sources(&packed, &taken);
    for epoch in 0..EPOCHS {
        assert!(sorted(&taken, epoch).windows(2).all(|pair| pair[0] < pair[1]), "epoch {epoch}");
    }
    assert!(sorted(&taken, 6).into_iter().eq((0..).take(packed.len())), "the seventh epoch has all");
    // Not the reads: how many of them are coalesced without packages depends on the store's pace.
    let (some, few) = (after.exchanged, before.exchanged);
    assert!(some > 4 * few, "{some} exchanged, {few} without packages");
    let (misses, before) = (after.misses, before.misses);
    assert!(misses * 20 < before * 19, "{misses} misses, {before} without packages");
}
