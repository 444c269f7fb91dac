//! The ledger of a training from a bucket whose store fails in every way: each sample of each epoch
//! comes once, with its label and its bytes, and the daemon's memory stays as it is.
//!
//! `SHADE_EPOCHS=1000` plays more epochs than `make test`. What was played is printed at the end:
//! `make chaos` shows it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what was played is told")]

use std::path::Path;
use std::time::{Duration, Instant};

use shade_client::Session;
use shade_tests::{Bucket, Daemon, Packed, Taken, attach, copy, next, sorted_ids, spec, take_epoch};

/// One of them in each epoch, in turn.
const BAD: [&str; ROUND as usize] = [
    "503=0.2",
    "500=0.1 429=0.1 403=0.1 404=0.1",
    "cut=0.3 latency_ms=3",
    "wrong=0.1 flipped=0.1",
    "slow=0.1 latency_ms=1",
    "401=0.1 502=0.1 504=0.1",
    "503=0.05 500=0.05 cut=0.1 flipped=0.05 wrong=0.05 latency_ms=2",
    "",
];
/// Epochs until each of them was in turn.
const ROUND: u32 = 8;
/// Every kind that the server knows.
const KINDS: [&str; 12] =
    ["401", "403", "404", "429", "500", "502", "503", "504", "cut", "flipped", "slow", "wrong"];
/// Epochs after which the daemon has all memory that it needs.
const WARM: u32 = 10;
/// What its memory may grow by later, in KiB: pages of the allocator.
const GROWTH_KIB_MAX: u64 = 8 << 10;

/// What has come so far.
#[derive(Default)]
struct Ledger {
    rows: usize,
    /// The time that each batch was waited for, and its epoch.
    waits: Vec<(Duration, u32)>,
    /// Memory of the daemon after some epochs, in KiB.
    memory: Vec<(u32, u64)>,
}

impl Ledger {
    /// Takes an epoch and compares it with the source.
    fn take(&mut self, packed: &Packed, session: &Session, epoch: u32) {
        session.start_epoch(epoch, 0).unwrap();
        let mut batches: Vec<Taken> = Vec::new();
        let mut asked = Instant::now();
        while let Some(batch) = next(session).unwrap_or_else(|error| panic!("epoch {epoch}: {error}")) {
            self.waits.push((asked.elapsed(), epoch));
            batches.push(copy(&batch));
            asked = Instant::now();
        }
        let ids = sorted_ids(&batches);
        assert!(ids.iter().copied().eq((0..).take(packed.len())), "epoch {epoch}: {ids:?}");
        for batch in &batches {
            assert_eq!((batch.epoch, batch.skipped, batch.substituted), (epoch, 0, 0));
            for ((&id, &label), record) in batch.ids.iter().zip(&batch.labels).zip(&batch.records) {
                let source = &packed.sources[id as usize];
                assert_eq!(label, source.label, "epoch {epoch}: label of sample {id}");
                assert!(*record == source.bytes, "epoch {epoch}: bytes of sample {id}");
            }
        }
        self.rows += ids.len();
    }

    fn tell(&mut self, epochs: u32, told: &str) {
        self.waits.sort_unstable();
        let at = |share: usize| self.waits[(self.waits.len() - 1) * share / 1000].0;
        println!("{epochs} epochs, {} rows, requests and badness: {told}", self.rows);
        let (longest, epoch) = self.waits.last().unwrap();
        let how = BAD[(epoch % ROUND) as usize];
        println!(
            "waits for {} batches: median {:?}, 99 % {:?}, 99.9 % {:?}, longest {longest:?} in epoch {epoch} ({how})",
            self.waits.len(),
            at(500),
            at(990),
            at(999),
        );
        println!("memory of the daemon after epochs, KiB: {:?}", self.memory);
    }
}

fn epochs() -> u32 {
    std::env::var("SHADE_EPOCHS").map_or(2 + ROUND, |text| text.parse().unwrap())
}

/// A kind of badness that is not among those that the server tells.
fn missing(told: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| !told.contains(&format!(" {kind}=")))
}

#[test]
fn no_sample_is_lost_doubled_mislabelled_or_mixed() {
    // More than the least cache holds, so that each epoch reads.
    let packed = Packed::pngs(100, 64);
    let mut bucket = Bucket::of(&packed);
    let daemon = Daemon::start_by(bucket.command("shade-load"), Path::new(Bucket::URL), &[&"--cache", &"0"]);
    let session = attach(&bucket.known_as(), 0, spec(8, 1));
    // So that the store has answered: from then on trouble is waited for.
    take_epoch(&session, 0).unwrap();
    let (mut ledger, least) = (Ledger::default(), epochs());
    let (mut epoch, mut told) = (0, String::new());
    // An epoch may be read while the one before it is taken, so the daemon may miss a kind for some
    // rounds.
    while epoch < least || missing(&told).is_some() {
        epoch += 1;
        assert!(epoch < least + 20 * ROUND, "{:?} does not happen: {told}", missing(&told));
        bucket.be(BAD[(epoch % ROUND) as usize]);
        ledger.take(&packed, &session, epoch);
        if [1, WARM, 100, 500].contains(&epoch) || epoch == least {
            ledger.memory.push((epoch, daemon.kib("VmRSS:")));
        }
        told = bucket.be_told("");
    }
    ledger.tell(epoch, &told);
    assert_eq!(ledger.rows, packed.len() * epoch as usize);
    let warm = ledger.memory.iter().find(|(epoch, _)| *epoch >= WARM);
    if let (Some((_, warm)), Some((_, end))) = (warm, ledger.memory.last()) {
        assert!(end - end.min(warm) <= GROWTH_KIB_MAX, "the daemon's memory grows: {:?}", ledger.memory);
    }
    drop((session, daemon));
}
