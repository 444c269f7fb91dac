//! The core thread: takes in what happened, lets the core decide, carries out what it decided.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use shade_core::{FinalizeOrder, Refusal};
use shade_formats::control::{
    REFUSE_BUSY, REFUSE_DATASET, REFUSE_ENDING, REFUSE_RESOURCES, Reply, Request, Settings,
};
use shade_reads::{Completion, Reads, core_fault};

use super::floods::Floods;
use super::memory::RingRoom;
use super::observer::{Described, Observer};
use super::sessions::Sessions;
use super::settings::Running;
use super::stats::report;
use super::{Action, Core, Event};
use crate::batches::{FillFault, Filled, Workers, finalize};
use crate::control::{Asked, Identity, Message};
use crate::panics::caught;

/// Events taken in before the core acts on them: work by batch, not by call.
const BURST: usize = 1024;
/// How often rings are told that the daemon lives, while there are any.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// How long a private daemon waits for its first rank.
const FIRST_RANK: Duration = Duration::from_secs(30);
/// How long reads may take to come home at the end, and a recorder to take the last of its trace. Nothing aborts an NFS read; the kernel keeps its pages itself.
const STOP: Duration = Duration::from_secs(2);

/// Why the daemon ends.
#[derive(Debug)]
pub(super) enum Stop {
    /// By a signal, or nobody needs it any more.
    Asked,
    /// A thread panicked or gave up.
    Defect(String),
}

/// The running daemon.
pub(super) struct Daemon {
    core: Core,
    reads: Reads,
    workers: Workers,
    sessions: Sessions,
    /// Who takes a trace. It is no rank: a private daemon does not stay for it.
    observer: Option<Observer>,
    described: Described,
    identity: Identity,
    settings: Running,
    linger: Option<Duration>,
    ring_room: RingRoom,
    floods: Floods,
    /// A private daemon that nobody is attached to was asked for this, which it does not have: it
    /// ends, and the next has it.
    gives_way: Option<&'static str>,
    started: Instant,
    /// Since when no rank has been attached, and whether one ever was.
    empty_since: Instant,
    served: bool,
    events: Vec<Event>,
    actions: Vec<Action>,
    /// A batch's column as bytes.
    column: Vec<u8>,
}

impl Daemon {
    pub(super) fn new(
        core: Core,
        reads: Reads,
        workers: Workers,
        described: Described,
        identity: Identity,
        settings: Running,
        ring_room: RingRoom,
    ) -> Self {
        let started = Instant::now();
        let linger = settings.linger();
        Self {
            core,
            reads,
            workers,
            sessions: Sessions::default(),
            observer: None,
            described,
            identity,
            settings,
            linger,
            ring_room,
            floods: Floods::new(started),
            gives_way: None,
            started,
            empty_since: started,
            served: false,
            events: Vec::new(),
            actions: Vec::new(),
            column: Vec::new(),
        }
    }

    /// Runs until told to stop, or until a private daemon is not needed any more.
    ///
    /// # Errors
    /// The text of a panic, of this thread or another: nothing can be trusted to go on. All sessions were told.
    pub(super) fn run(
        mut self,
        completions: &Receiver<Completion>,
        done: &Receiver<Filled>,
        messages: &Receiver<Message>,
        stop: &Receiver<Stop>,
    ) -> Result<(), String> {
        let ended = caught(|| self.serve(completions, done, messages, stop));
        let defect = match ended {
            Ok(Stop::Asked) => None,
            Ok(Stop::Defect(text)) => Some(text),
            Err(text) => Some(format!("a defect of shade-load: its core panicked: {text}")),
        };
        self.stop(defect.as_deref());
        defect.map_or(Ok(()), Err)
    }

    fn serve(
        &mut self,
        completions: &Receiver<Completion>,
        done: &Receiver<Filled>,
        messages: &Receiver<Message>,
        stop: &Receiver<Stop>,
    ) -> Stop {
        let mut beaten = Instant::now();
        loop {
            let wait =
                if self.sessions.is_empty() && self.linger.is_none() { Duration::MAX } else { HEARTBEAT };
            select! {
                recv(completions) -> completion => self.events.extend(completion.ok().map(read)),
                recv(done) -> done => self.events.extend(done.ok().map(filled)),
                recv(messages) -> message => if let Ok(message) = message { self.take(message) },
                recv(stop) -> why => return why.unwrap_or(Stop::Asked),
                default(wait) => {}
            }
            for _ in 0..BURST {
                let completion = completions.try_recv().map(read);
                let rows = done.try_recv().map(filled);
                let message = messages.try_recv();
                if completion.is_err() && rows.is_err() && message.is_err() {
                    break;
                }
                self.events.extend(completion.into_iter().chain(rows));
                if let Ok(message) = message {
                    self.take(message);
                }
            }
            // Before what it has lost: trainers are to hear why, not of single records.
            if let Ok(why) = stop.try_recv() {
                return why;
            }
            self.events.push(Event::Depth(self.reads.depth()));
            self.turn();
            if beaten.elapsed() >= HEARTBEAT {
                beaten = Instant::now();
                self.sessions.beat();
                self.floods.settle(beaten);
            }
            if self.is_unneeded() {
                return Stop::Asked;
            }
        }
    }

    /// The core takes in what has happened, and what that makes happen at once.
    fn turn(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        loop {
            let now_ns = self.now_ns();
            for event in self.events.drain(..) {
                self.core.step(now_ns, event, &mut actions);
            }
            let can_go_on = self.core.advance(now_ns, &mut actions);
            for action in actions.drain(..) {
                self.carry_out(action);
            }
            if self.events.is_empty() && !can_go_on {
                break;
            }
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Accept(session, accepted) => {
                let promised_bytes = self.sessions.promised_bytes();
                let room = self.ring_room.promise(accepted.payload.bytes, promised_bytes);
                self.served |= room.is_ok();
                self.sessions.answer(session, room.map(|()| accepted));
            }
            Action::Refuse(session, refusal) => self.sessions.answer(session, Err(refusal)),
            Action::Read(op) => self.reads.submit(op),
            Action::ReadTogether(ops) => self.reads.submit_together(ops),
            Action::Fill(order) => {
                if let Some(payload) = self.sessions.payload(order.ticket.session) {
                    self.workers.submit(order, payload);
                }
            }
            Action::Finalize(order) => self.finalize(&order),
            Action::Publish(session, descriptor) => self.sessions.publish(session, &descriptor, None),
            Action::PublishError(session, descriptor, text) => {
                self.floods.failed_epoch(&text);
                self.sessions.publish(session, &descriptor, Some(&text));
            }
            Action::State(session, bytes) => self.sessions.send_state(session, &bytes),
            Action::StateLoaded(session) => self.sessions.reply(session, &Reply::StateLoaded),
            Action::Fail(session, text) => self.sessions.reply(session, &Reply::Failed { text }),
            Action::Interrupt(session, text) => self.sessions.reply(session, &Reply::Interrupted { text }),
            Action::Close(session, text) => self.sessions.close(session, &text),
            Action::Trace(line) => {
                if let Some(observer) = &self.observer {
                    observer.take(line);
                }
            }
            Action::Warn(text) => tracing::warn!("{text}"),
            Action::BadRecord(text) => self.floods.bad_record(&text),
        }
    }

    /// Completes a batch.
    fn finalize(&mut self, order: &FinalizeOrder) {
        let ticket = order.ticket;
        let Some(payload) = self.sessions.payload(ticket.session) else { return };
        match finalize(order, &payload, &mut self.column) {
            Ok(()) => self.events.push(Event::Finalized(ticket)),
            // A defect of this program. The session ends loudly rather than wait for a batch that will not come.
            Err(error) => {
                tracing::error!("a batch could not be completed: {error}");
                self.sessions.close(ticket.session, "its batch could not be completed");
            }
        }
    }

    /// Turns a session's news into an event, or answers it at once.
    fn take(&mut self, message: Message) {
        match message {
            Message::Hello { attach, asked, socket, verdict } => match self.judge(&asked) {
                Ok(settings) => {
                    self.sessions.hello(attach.session, socket, verdict, settings);
                    self.events.push(Event::Attach(attach));
                }
                Err(refusal) => {
                    // A session until its thread has told it: a daemon that gives way ends when that has happened.
                    self.sessions.hello(attach.session, socket, verdict, Settings::default());
                    self.sessions.answer(attach.session, Err(refusal));
                }
            },
            Message::Observe { session, socket, pipe, verdict } => {
                // The thread has ended if nobody listens, and then says so itself.
                let _ = verdict.send(self.observe(session, socket, pipe));
            }
            Message::Mapped { session, ring } => {
                self.sessions.mapped(session, *ring);
                self.events.push(Event::Ready(session));
            }
            Message::Released(session) => match self.sessions.released(session) {
                // A doorbell for what an earlier one has told of already.
                Ok(seqs) if seqs.is_empty() => {}
                Ok(seqs) => self.events.push(Event::Released { session, seqs }),
                Err(error) => self.sessions.close(session, &error.to_string()),
            },
            Message::Gone(session) if self.observer.as_ref().is_some_and(|o| o.session == session) => {
                self.observer = None;
                self.events.push(Event::Observe(false));
            }
            Message::Gone(session) => {
                // One that was turned away does not keep a private daemon.
                if self.sessions.forget(session) {
                    self.empty_since = Instant::now();
                }
                self.events.push(Event::Detach(session));
            }
            Message::Request { session, request, state } => self.request(session, *request, state),
        }
    }

    /// Whether a rank finds here what it expects: the content that its dataset has now, and, where nobody would lose
    /// anything by it, the settings that it would have started a daemon with. Gives the settings that there are.
    fn judge(&mut self, asked: &Asked) -> Result<Settings, Refusal> {
        let is_free = self.linger.is_some() && self.sessions.is_empty();
        if asked.content_id != self.identity.content_id {
            if is_free {
                self.gives_way = Some("the dataset's present content");
            }
            let changed = self.identity.other_content(asked.samples, asked.content_id);
            if self.gives_way.is_some() {
                return Err(Refusal { code: REFUSE_ENDING, text: format!("{changed}; it ends now") });
            }
            let advice = if self.linger.is_some() {
                "stop the trainings that are attached to it, and start them again, or name another job with job="
            } else {
                "stop it and start it again"
            };
            return Err(Refusal { code: REFUSE_DATASET, text: format!("{changed}: {advice}") });
        }
        if is_free {
            // No reason to start another: this is only about what comes after it.
            self.linger = self.settings.linger_as(&asked.settings);
        }
        // One that nobody has found yet was started by a rank that is about to come: it stays for it.
        if is_free && self.served && self.settings.differs_from(&asked.settings) {
            self.gives_way = Some("other settings");
        }
        if let Some(what) = self.gives_way {
            let text = format!("this daemon ends: a trainer asked for {what}");
            return Err(Refusal { code: REFUSE_ENDING, text });
        }
        Ok(self.settings.in_words_of(&asked.settings))
    }

    /// Begins a trace, if nobody takes one yet.
    fn observe(&mut self, session: u32, socket: Arc<OwnedFd>, pipe: OwnedFd) -> Result<(), Refusal> {
        if self.observer.is_some() {
            let text = "somebody records a trace of this daemon already: one at a time".to_owned();
            return Err(Refusal { code: REFUSE_BUSY, text });
        }
        let observer = Observer::start(session, socket, pipe, &self.described)
            .map_err(|error| Refusal { code: REFUSE_RESOURCES, text: error.to_string() })?;
        self.observer = Some(observer);
        self.events.push(Event::Observe(true));
        Ok(())
    }

    fn request(&mut self, session: u32, request: Request, state: Vec<u8>) {
        match request {
            Request::StartEpoch { generation, epoch, first_batch } => {
                self.events.push(Event::StartEpoch { session, generation, epoch, first_batch });
            }
            Request::Report { epoch, batch, losses } => {
                self.events.push(Event::Report { session, epoch, batch, losses });
            }
            Request::ReportValidation { score } => {
                self.events.push(Event::Validation { session, score });
            }
            Request::SaveState => self.events.push(Event::SaveState(session)),
            Request::LoadState => self.events.push(Event::LoadState { session, bytes: state }),
            Request::Stats => {
                // Everything this rank said before belongs into the figures.
                self.turn();
                let json = report(&self.core.stats(), &self.reads);
                self.sessions.reply(session, &Reply::Stats { json });
            }
            Request::Hello { .. } | Request::Observe { .. } | Request::Bye => {
                self.sessions.close(session, "a second hello");
            }
        }
    }

    /// Is this a private daemon that nobody needs any more?
    fn is_unneeded(&self) -> bool {
        let Some(linger) = self.linger else { return false };
        let patience = match (self.gives_way.is_some(), self.served) {
            (true, _) => Duration::ZERO,
            (false, true) => linger,
            (false, false) => FIRST_RANK,
        };
        self.sessions.is_empty() && self.core.session_count() == 0 && self.empty_since.elapsed() >= patience
    }

    /// Ends all sessions and waits for reads and workers, though not for a store that has stopped answering.
    fn stop(self, defect: Option<&str>) {
        tracing::debug!("stopping after {:.1} s", self.started.elapsed().as_secs_f64());
        let Self { reads, workers, mut sessions, observer, .. } = self;
        sessions.close_all(defect);
        if let Some(observer) = observer {
            observer.finish(STOP);
        }
        let (ended_in, ended) = crossbeam_channel::bounded::<()>(0);
        let joiner = std::thread::Builder::new().name("shade-stop".into()).spawn(move || {
            drop(reads);
            drop(workers);
            drop(ended_in);
        });
        if joiner.is_err() || ended.recv_timeout(STOP) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
            tracing::warn!("reads are still in flight after {STOP:?}: leaving them to the kernel");
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A read that has ended, as the core is told.
fn read(completion: Completion) -> Event {
    Event::Read(completion.map_fault(core_fault))
}

/// Rows that a worker gives back, as the core is told.
fn filled(done: Filled) -> Event {
    Event::Filled(done.map_fault(FillFault::core_fault))
}
