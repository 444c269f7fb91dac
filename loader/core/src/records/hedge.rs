//! Late reads: reported while batches wait for them and, if asked for, hedged.
//!
//! A read of a network file system cannot be cancelled, and a server that restarts answers minutes
//! later. So the core waits for a late read, and says so.

use shade_formats::SampleId;

use super::Records;
use crate::action::Action;
use crate::figures::Figures;
use crate::ids::JobId;
use crate::memory::Memory;
use crate::number::to_u32;
use crate::samples::name_fault;

/// Records read per hedge.
const RECORDS_PER_HEDGE: u64 = 100;
/// Interval at which late reads are looked for.
const LOOK_NS: u64 = 50_000_000;

impl<M: Memory> Records<M> {
    /// Looks for late reads, now and then.
    pub(crate) fn watch(&mut self, now_ns: u64, figures: &mut Figures, actions: &mut Vec<Action<M>>) {
        if now_ns.saturating_sub(self.late_reads.looked_ns) < LOOK_NS {
            return;
        }
        self.late_reads.looked_ns = now_ns;
        self.tell_of_late(now_ns, actions);
        if self.hedges {
            self.hedge(now_ns, figures, actions);
        }
    }

    fn tell_of_late(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let late_ns = self.late_reads.late_ns();
        let age = |submitted_ns: u64| now_ns.saturating_sub(submitted_ns);
        // The store has the oldest; others may still wait in the engine for their turn.
        let oldest_ns = age(self.reading.flights.oldest_since_ns());
        let is_late = oldest_ns >= late_ns;
        let is_old = |submitted_ns: u64| is_late && age(submitted_ns) >= late_ns;
        let late = self.reading.flights.iter().take_while(|flight| is_old(flight.submitted_ns)).count();
        self.late_reads.late = to_u32(late);
        let oldest = self.reading.flights.iter().next().filter(|_| is_late);
        let Some(sample) = oldest.map(|flight| flight.first) else {
            if self.late_reads.tell_at_ns > 0 {
                self.late_reads.tell_at_ns = 0;
                actions.push(Action::Warn("reads are answered again".into()));
            }
            return;
        };
        if oldest_ns < self.late_reads.tell_at_ns {
            return;
        }
        // Told after 5 s, 10 s, 20 s, ...
        self.late_reads.tell_at_ns = 2 * oldest_ns.max(late_ns);
        let what = format!(
            "no answer for {:.1} s ({late} late; nothing is lost, batches wait for the store: is its server up?)",
            oldest_ns as f64 / 1e9
        );
        actions.push(Action::Warn(name_fault(&*self.index, sample, &what)));
    }

    /// Asks a second time, into other blocks, for records that are late compared with others. The
    /// first answer counts; the other one only brings its blocks back.
    fn hedge(&mut self, now_ns: u64, figures: &mut Figures, actions: &mut Vec<Action<M>>) {
        let Some(hedge_ns) = self.late_reads.hedge_ns() else { return };
        let mut late = Vec::new();
        let mut hedges = self.late_reads.hedged;
        for (id, flight) in self.reading.flights.iter_mut() {
            if now_ns.saturating_sub(flight.submitted_ns) < hedge_ns {
                break;
            }
            let more = hedges + u64::from(flight.records);
            if !flight.hedged && more * RECORDS_PER_HEDGE <= self.late_reads.records {
                flight.hedged = true;
                late.push((flight.job, id));
                hedges = more;
            }
        }
        // Each neighbour is a read of its own: what delays one of them must not delay all again.
        let missing = |(job, id)| self.reading.missing(id).into_iter().map(move |sample| (job, sample));
        let late: Vec<(JobId, SampleId)> = late.into_iter().flat_map(missing).collect();
        for (job, sample) in late {
            let Some(op) = self.read_op(sample) else { return };
            self.reading.submitted(job, std::iter::once(sample), true, now_ns);
            self.late_reads.hedged += 1;
            figures.count(job, |counts| counts.hedged += 1);
            actions.push(Action::Read(op));
        }
    }
}
