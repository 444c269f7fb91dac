//! Four trainings of a sweep, in a group: each delivers its own draws, and what several of them
//! want is read once.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use shade_client::{JobSpec, PlanSpec, Sampler};
use shade_job::group_digest;
use shade_tests::{Daemon, Packed, Taken, attach_to, copy, eventually, next, spec, stats};

const JOBS: u32 = 4;
const EPOCHS: u32 = 4;
/// How long the trainers compute a batch.
const BATCH: Duration = Duration::from_millis(16);
/// Batches by which a trainer may be ahead of the others: on a busy machine, too, none is behind by
/// a large share of an epoch.
const AHEAD_MAX: u32 = 2;

/// What a job read in its last two epochs, and what it was given.
struct Trained {
    read: u64,
    taken: Vec<Taken>,
}

/// Trains jobs side by side with a cache of a fifth.
fn sweep(packed: &Packed, group: u64) -> Vec<Trained> {
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%"]);
    let start = Barrier::new(JOBS as usize);
    let begun = [const { AtomicU32::new(0) }; JOBS as usize];
    let train = |job: u32| {
        let plan = PlanSpec { sampler: Sampler::Pads, seed: u64::from(job), group, ..PlanSpec::default() };
        // Rings of a few batches, so that the trainers set the pace and not the store.
        let spec = JobSpec { plan, ring_bytes: 256 << 10, ..spec(16, 1) };
        let session = attach_to(&packed.dataset, &format!("job-{job}"), 0, spec).unwrap();
        let read = || {
            let total = stats(&session)["total"].clone();
            total["reads"].as_u64().unwrap() + total["coalesced"].as_u64().unwrap()
        };
        start.wait();
        let (mut before, mut taken) = (0, Vec::new());
        for epoch in 0..EPOCHS {
            if epoch == EPOCHS - 2 {
                before = read();
            }
            session.start_epoch(epoch, 0).unwrap();
            while let Some(batch) = next(&session).unwrap() {
                let copied = copy(&batch);
                let mine = begun[job as usize].fetch_add(1, Ordering::Relaxed);
                eventually("the others are nearly as far", || {
                    begun.iter().all(|others| others.load(Ordering::Relaxed) + AHEAD_MAX >= mine)
                });
                std::thread::sleep(BATCH);
                // Alike in all jobs, with a part of their own.
                let loss = |&id: &u32| (id * 7919 % 1000) as f32 + ((id + job) * 104_729 % 300) as f32;
                let losses: Vec<f32> = copied.ids.iter().map(loss).collect();
                session.report(copied.id, &losses).unwrap();
                taken.push(copied);
            }
        }
        Trained { read: read() - before, taken }
    };
    let trained = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS).map(|job| scope.spawn(move || train(job))).collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect()
    });
    drop(daemon);
    trained
}

#[test]
fn a_sweep_reads_each_sample_once_and_each_job_has_its_own_draws() {
    let packed = Packed::pngs(200, 24);
    let samples = packed.len() as u64;
    let datasets =
        |trained: &[Trained]| trained.iter().map(|job| job.read).sum::<u64>() as f64 / 2.0 / samples as f64;
    let (coupled, independent) = (sweep(&packed, group_digest("sweep")), sweep(&packed, 0));
    for job in coupled.iter().chain(&independent) {
        for epoch in 0..EPOCHS {
            let of = || job.taken.iter().filter(|taken| taken.epoch == epoch);
            assert_eq!(of().map(|taken| taken.ids.len() as u64).sum::<u64>(), samples);
            for taken in of() {
                for (&id, &label) in taken.ids.iter().zip(&taken.labels) {
                    assert_eq!(packed.sources[id as usize].label, label, "sample {id}");
                }
            }
        }
    }
    let ids = |job: &Trained| {
        let of = job.taken.iter().filter(|taken| taken.epoch == EPOCHS - 1);
        of.flat_map(|taken| taken.ids.clone()).collect::<Vec<_>>()
    };
    assert_ne!(ids(&coupled[0]), ids(&coupled[1]), "each draws by its own losses");
    // 0.58 and 1.85 in the simulator, where all are equally fast.
    let (coupled, independent) = (datasets(&coupled), datasets(&independent));
    assert!(coupled < 1.0, "{coupled} datasets an epoch in a group, {independent} without");
    assert!(coupled < 0.7 * independent, "{coupled} datasets an epoch in a group, {independent} without");
}
