//! What takes long with a large dataset is done in slices, one with each `advance`: the table of
//! importance that the cache goes by is made, the uses in sight are told, residents are ranked by
//! both, and leave a cache that has become smaller. So other events never wait for all of it.
//!
//! Meanwhile the cache goes on by what it had before.

use crate::brain::Core;
use crate::memory::Memory;

impl<M: Memory> Core<M> {
    /// Does a slice of what is due. Returns whether the next `advance` has more to do, whatever
    /// else happens.
    pub(super) fn do_slice(&mut self, now_ns: u64) -> bool {
        if self.training.jobs().are_aggregating() && self.go_on_weighing() {
            return true;
        }
        if let Some(job) = self.looks_ahead_due.pop() {
            self.look_ahead(job, now_ns);
            return true;
        }
        if self.look_on() || self.records.rank_on(self.training.jobs().importance()) {
            return true;
        }
        self.records.evict_surplus(self.training.jobs(), &mut self.figures);
        self.records.has_slices_left()
    }

    /// A job has begun or ended, or its table is another: all residents are ranked anew.
    pub(super) fn weigh_jobs(&mut self) {
        self.training.weigh_jobs();
        self.go_on_weighing();
    }

    /// Makes a slice of the table of importance. Ranks residents once it is whole. Returns whether
    /// there is more to do.
    fn go_on_weighing(&mut self) -> bool {
        if self.training.go_on_weighing() {
            return true;
        }
        self.records.rank_anew(self.training.jobs().importance());
        false
    }
}
