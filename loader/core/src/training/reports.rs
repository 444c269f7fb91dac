//! Whether losses came, from one plan to the next: a plan goes by importance only if some did.

/// Reports of a job, by plans.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    /// A loss came since the current plan began.
    has_come: bool,
    /// A loss came before the current plan began, and the plan went by it.
    had_come: bool,
    /// A rank has taken a batch of the current plan, as far as it has told.
    is_plan_used: bool,
    /// None came in the epoch before the current one, although the sampler draws by losses.
    are_missing: bool,
    /// The user was warned of it.
    has_warned: bool,
}

impl Reports {
    /// Those of a state: whether a loss came since its plan began.
    pub(super) fn restore(&mut self, has_come: bool) {
        *self = Self { has_come, has_warned: self.has_warned, ..Self::default() };
    }

    /// Those of a plan that has just begun, by losses that came before it or not.
    pub(super) fn go_on(&mut self, had_come: bool) {
        (self.has_come, self.had_come) = (false, had_come);
    }

    /// A loss has come.
    pub(super) fn come(&mut self) {
        self.has_come = true;
    }

    /// Whether one has come since the current plan began.
    pub(super) fn have_come(&self) -> bool {
        self.has_come
    }

    /// Whether the current plan goes by losses that came before it.
    pub(super) fn had_come(&self) -> bool {
        self.had_come
    }

    /// Whether none came in the epoch before the current one, although the sampler needs them.
    pub(super) fn are_missing(&self) -> bool {
        self.are_missing
    }

    /// A rank has taken batches of the current plan, or may have.
    pub(super) fn use_plan(&mut self) {
        self.is_plan_used = true;
    }

    /// Whether the next plan will go by losses, if no more come: see [`end_plan`](Self::end_plan).
    pub(super) fn will_have_come(&self) -> bool {
        self.has_come || (!self.is_plan_used && self.had_come)
    }

    /// The current plan ends, and the next one goes by what has come. An epoch of which nothing was
    /// taken has no losses to report: then those before it still count. Returns whether the user is
    /// to be warned, once, that a sampler that goes `by_losses` misses them.
    pub(super) fn end_plan(&mut self, by_losses: bool, has_plan: bool) -> bool {
        let mut warns = false;
        if std::mem::take(&mut self.is_plan_used) {
            self.are_missing = by_losses && !self.has_come;
            warns = self.are_missing && has_plan && !self.has_warned;
            self.has_warned |= warns;
        } else {
            self.has_come |= self.had_come;
        }
        self.had_come = std::mem::take(&mut self.has_come);
        warns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_goes_by_the_losses_of_the_last_one_that_was_used() {
        let mut reports = Reports::default();
        reports.use_plan();
        assert!(!reports.will_have_come());
        reports.come();
        assert!(reports.will_have_come());
        assert!(!reports.end_plan(true, true) && reports.had_come() && !reports.have_come());
        // Nobody took a batch of the next plan: its losses are those of the one before.
        assert!(reports.will_have_come());
        assert!(!reports.end_plan(true, true) && reports.had_come() && !reports.are_missing());
        reports.use_plan();
        assert!(reports.end_plan(true, true) && !reports.had_come() && reports.are_missing());
        // The user is warned once.
        reports.use_plan();
        assert!(!reports.end_plan(true, true) && reports.are_missing());
        reports.restore(true);
        assert!(reports.have_come() && !reports.had_come() && !reports.are_missing());
        reports.restore(false);
        reports.use_plan();
        assert!(!reports.end_plan(true, true), "it was warned before the state was loaded");
    }

    #[test]
    fn a_sampler_that_needs_no_loss_misses_none() {
        let mut reports = Reports::default();
        reports.use_plan();
        assert!(!reports.end_plan(false, true) && !reports.are_missing());
    }
}
