//! What a job's ranks say while the plan of its due epoch is drawn waits until it is there. So they
//! see an epoch that begins at once, however long the drawing takes. Where nodes pool their scores,
//! reports wait from the moment when a rank asks for the epoch.

use crate::brain::Core;
use crate::event::{Event, SessionId};
use crate::ids::JobId;
use crate::memory::Memory;

impl<M: Memory> Core<M> {
    /// The job whose plan the event waits for.
    pub(super) fn waits_for_plan(&self, event: &Event<M>) -> Option<JobId> {
        let session = postponed_of(event)?;
        let job = self.training.job_of(session)?;
        if matches!(event, Event::Report { .. }) && self.training.waits_for_pool(session) {
            return Some(job.id());
        }
        // A rank tells its seats with its hello, before it hands over anything: others wait for it.
        let is_awaited = matches!(event, Event::Seat { .. }) && job.is_gathering();
        (job.is_postponed() && !is_awaited).then_some(job.id())
    }

    /// Whether what this session says has to wait until its job's plan is drawn.
    #[must_use]
    pub fn is_postponed(&self, session: SessionId) -> bool {
        self.training.job_of(session).is_some_and(|job| job.is_postponed())
    }

    /// The next event that was postponed and need not wait any more.
    pub(super) fn next_postponed(&mut self) -> Option<Event<M>> {
        let at = self.postponed.iter().position(|(_, event)| self.waits_for_plan(event).is_none())?;
        Some(self.postponed.remove(at).1)
    }

    /// What a session reported and was postponed, before it goes. The rest of what it said is of no
    /// use any more.
    pub(super) fn postponed_reports(&mut self, session: SessionId) -> Vec<Event<M>> {
        let of_session = self.postponed.extract_if(.., |(_, event)| postponed_of(event) == Some(session));
        let waits = self.training.waits_for_pool(session);
        let is_report = |event: &Event<M>| match event {
            Event::Report { .. } => !waits,
            Event::Validation { .. } => true,
            _ => false,
        };
        of_session.map(|(_, event)| event).filter(is_report).collect()
    }
}

/// The session of an event that waits until its job's plan is drawn.
fn postponed_of<M: Memory>(event: &Event<M>) -> Option<SessionId> {
    match event {
        Event::StartEpoch { session, .. }
        | Event::Report { session, .. }
        | Event::Validation { session, .. }
        | Event::SaveState { session, .. }
        | Event::LoadState { session, .. }
        | Event::TellScores { session, .. }
        | Event::TakeScores { session, .. }
        | Event::Seat { session, .. }
        | Event::Plan(session, ..)
        | Event::Importance(session, _) => Some(*session),
        Event::Attach(_)
        | Event::Ready(_)
        | Event::Detach(_)
        | Event::TakeBase { .. }
        | Event::TakeRedo { .. }
        | Event::Aside(_)
        | Event::Depth(_)
        | Event::Read(_)
        | Event::Tier(_)
        | Event::Filled(_)
        | Event::Finalized(_)
        | Event::Waits { .. }
        | Event::Released { .. }
        | Event::Resize { .. }
        | Event::Observe { .. } => None,
    }
}
