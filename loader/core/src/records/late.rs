//! Late reads: reported while batches wait for them.
//!
//! A read of a network file system cannot be cancelled, and a server that restarts answers minutes
//! later. So the core waits for a late read, and says so. It asks no second time: that brought
//! nothing (decision 034).

use super::Records;
use crate::action::Action;
use crate::memory::Memory;
use crate::number::to_u32;
use crate::samples::name_fault;

/// Interval at which late reads are looked for.
const LOOK_NS: u64 = 50_000_000;

impl<M: Memory> Records<M> {
    /// Looks for late reads, now and then.
    pub(crate) fn watch(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if now_ns.saturating_sub(self.late_reads.looked_ns) < LOOK_NS {
            return;
        }
        self.late_reads.looked_ns = now_ns;
        self.tell_of_late(now_ns, actions);
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
}
