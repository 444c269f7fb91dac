//! Reads that take too long: told to the user while batches wait, and, if wanted, asked for a second time.
//!
//! Nothing cancels a read of a network file system, and a server that restarts answers minutes later. So a late read is
//! waited for, and said to be.

use shade_formats::SampleId;

use crate::access::read_op;
use crate::action::Action;
use crate::counts::ReadLatency;
use crate::latency::Latencies;
use crate::machine::Core;
use crate::memory::Memory;

/// A read is late after this long at least: servers that fail over take seconds.
const LATE_NS_MIN: u64 = 5_000_000_000;
/// ... and after so many times what 99 of 100 reads take.
const LATE_FACTOR: u64 = 8;
/// A read is hedged after so many times what 99 of 100 take.
const HEDGE_FACTOR: u64 = 3;
/// ... but not before: what is this fast needs no hedge.
const HEDGE_NS_MIN: u64 = 20_000_000;
/// One hedge per this many records read.
const RECORDS_PER_HEDGE: u64 = 100;
/// How often late reads are looked for.
const LOOK_NS: u64 = 50_000_000;

/// What is known about late reads.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    pub(super) latencies: Latencies,
    looked_ns: u64,
    /// The age at which the user is told again; 0 while nothing is late.
    tell_at_ns: u64,
    /// Reads that are late now.
    pub(super) late: u32,
    /// Records asked for, hedges left out: what hedges are counted against.
    pub(super) records: u64,
    pub(super) hedged: u64,
}

impl Stalls {
    /// What reads take.
    pub(super) fn latency(&self) -> Option<ReadLatency> {
        let us = |quantile| Some(self.latencies.quantile_ns(quantile)? as f64 / 1e3);
        Some(ReadLatency { p50_us: us(0.5)?, p99_us: us(0.99)? })
    }

    /// After how long a read is late, ns.
    fn late_ns(&self) -> u64 {
        LATE_NS_MIN.max(LATE_FACTOR * self.latencies.quantile_ns(0.99).unwrap_or(0))
    }

    /// After how long a read is asked for again, ns; `None` while that is not known.
    fn hedge_ns(&self) -> Option<u64> {
        Some(HEDGE_NS_MIN.max(HEDGE_FACTOR * self.latencies.quantile_ns(0.99)?))
    }
}

impl<M: Memory> Core<M> {
    /// Looks for late reads, now and then.
    pub(super) fn watch_reads(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if now_ns.saturating_sub(self.stalls.looked_ns) < LOOK_NS {
            return;
        }
        self.stalls.looked_ns = now_ns;
        self.tell_of_late(now_ns, actions);
        if self.config.hedge {
            self.hedge(now_ns, actions);
        }
    }

    fn tell_of_late(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let late_ns = self.stalls.late_ns();
        let age = |submitted_ns: u64| now_ns.saturating_sub(submitted_ns);
        // The oldest is the store's to answer; others may still wait in the engine for their turn.
        let oldest_ns = age(self.reading.oldest_since_ns());
        let is_late = oldest_ns >= late_ns;
        let is_old = |submitted_ns: u64| is_late && age(submitted_ns) >= late_ns;
        let late = self.reading.flights().take_while(|flying| is_old(flying.submitted_ns)).count();
        self.stalls.late = u32::try_from(late).unwrap_or(u32::MAX);
        let oldest = self.reading.flights().next().filter(|_| is_late);
        let Some((sample, age_ns)) = oldest.map(|flying| (flying.first, oldest_ns)) else {
            if self.stalls.tell_at_ns > 0 {
                self.stalls.tell_at_ns = 0;
                actions.push(Action::Warn("reads are answered again".into()));
            }
            return;
        };
        if age_ns < self.stalls.tell_at_ns {
            return;
        }
        // Told after 5 s, 10 s, 20 s, ...
        self.stalls.tell_at_ns = 2 * age_ns.max(late_ns);
        let what = format!(
            "no answer for {:.1} s ({late} late; nothing is lost, batches wait for the store: is its server up?)",
            age_ns as f64 / 1e9
        );
        actions.push(Action::Warn(self.name_fault(sample, &what)));
    }

    /// Asks once more, into other blocks, for records that are late by the measure of the others. The first answer
    /// counts; the other brings its blocks back when it comes.
    fn hedge(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let Some(hedge_ns) = self.stalls.hedge_ns() else { return };
        let mut late = Vec::new();
        let mut hedges = self.stalls.hedged;
        for (flight, flying) in self.reading.flights_mut() {
            if now_ns.saturating_sub(flying.submitted_ns) < hedge_ns {
                break;
            }
            let more = hedges + u64::from(flying.records);
            if !flying.hedged && more * RECORDS_PER_HEDGE <= self.stalls.records {
                flying.hedged = true;
                late.push(flight);
                hedges = more;
            }
        }
        // Neighbours are asked for one by one: what keeps one of them must not keep the others again.
        let late: Vec<SampleId> = late.into_iter().flat_map(|flight| self.reading.missing(flight)).collect();
        for sample in late {
            let Some(entry) = self.index.entry(sample) else { continue };
            let Some(blocks) = self.free.take(u64::from(entry.stored_len)) else { return };
            let flight = self.reading.next_flight();
            self.reading.submitted(std::iter::once(sample), true, now_ns);
            self.stalls.hedged += 1;
            if let Some(job) = &mut self.job {
                job.count(|counts| counts.hedged += 1);
            }
            actions.push(Action::Read(read_op(
                flight,
                sample,
                &entry,
                self.reading.is_doubted(sample),
                blocks,
            )));
        }
    }
}
