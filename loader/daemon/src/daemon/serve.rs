//! The core's thread: takes in events, lets the core decide, carries out its actions.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select};
use shade_core::{AsideResult, Attach, FinalizeOrder, Refusal, Resumed, SessionId};
use shade_formats::control::Reply;
use shade_formats::printable::OneLine;
use shade_formats::trace::Header;
use shade_images::caught;
use shade_reads::{Completion, Reads, core_fault};
use shade_tier::Tier;

use super::aside::Aside;
use super::cache_memory::CacheMemory;
use super::lifecycle::{Lifecycle, Present};
use super::log_limits::LogLimits;
use super::memory::RingRoom;
use super::observers::Observers;
use super::sessions::{End, Sessions};
use super::silence::Silence;
use super::{Action, Core, Event};
use crate::batches::{FillFault, FillOrder, Filled, Workers, finalize};
use crate::control::{Asked, Message, Terms, Welcomed};
use crate::signals;

/// Most events taken in before the core acts on them.
const BURST: usize = 1024;
/// Time after which the core's thread sees what else has come, whatever is left to do.
const TURN: Duration = Duration::from_millis(10);
/// Interval of the rings' heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// How long the daemon's end waits for reads, and for a recorder to take the rest of its trace.
/// Nothing aborts an NFS read; the kernel keeps its pages.
const STOP: Duration = Duration::from_secs(2);

/// Why the daemon ends.
#[derive(Debug)]
pub(super) enum Stop {
    /// By a signal, or no rank needs it any more.
    Asked,
    /// By the user's `shade-load stop`.
    Told,
    /// Another daemon takes this one's place.
    Replaced,
    /// A thread panicked or gave up.
    Defect(String),
}

/// What the ranks are told when the user has stopped the daemon.
const TOLD: &str = "it was stopped with shade-load stop; a training that is started again starts a new one";
/// The same where another daemon takes this one's place.
const REPLACED: &str = "another daemon takes its place, by shade-load serve --replace";
/// The same for a signal.
const SIGNALLED: &str = "it was stopped by a signal";

/// What comes to the core's thread.
pub(super) struct Inbox {
    pub(super) completions: Receiver<Completion>,
    pub(super) done: Receiver<Filled>,
    pub(super) tier: Receiver<shade_tier::Event>,
    pub(super) aside: Receiver<AsideResult>,
    pub(super) messages: Receiver<Message>,
    pub(super) stop: Receiver<Stop>,
}

/// The running daemon.
pub(super) struct Daemon {
    pub(super) core: Core,
    pub(super) reads: Reads,
    pub(super) workers: Workers,
    pub(super) aside: Aside,
    /// Set where there is one.
    pub(super) tier: Option<Tier>,
    pub(super) sessions: Sessions,
    pub(super) observers: Observers,
    pub(super) lifecycle: Lifecycle,
    pub(super) cache_memory: CacheMemory,
    ring_room: RingRoom,
    log_limits: LogLimits,
    pub(super) silence: Silence,
    /// Somebody ends it now.
    told_to_stop: Option<Stop>,
    started: Instant,
    pub(super) events: Vec<Event>,
    /// The ranks that have asked for figures.
    pub(super) stats_asked: Vec<SessionId>,
    actions: Vec<Action>,
    /// A batch's column as bytes.
    column: Vec<u8>,
}

/// Threads that work for the core's.
pub(super) struct Helpers {
    pub(super) workers: Workers,
    pub(super) aside: Aside,
}

impl Daemon {
    pub(super) fn new(
        core: Core,
        reads: Reads,
        Helpers { workers, aside }: Helpers,
        trace_header: Header,
        lifecycle: Lifecycle,
        cache_memory: CacheMemory,
    ) -> Self {
        let started = Instant::now();
        Self {
            core,
            reads,
            workers,
            aside,
            tier: None,
            sessions: Sessions::default(),
            observers: Observers::new(trace_header),
            lifecycle,
            ring_room: RingRoom::new(Arc::clone(&cache_memory.arena)),
            cache_memory,
            log_limits: LogLimits::new(started),
            silence: Silence::new(started),
            told_to_stop: None,
            started,
            events: Vec::new(),
            stats_asked: Vec::new(),
            actions: Vec::new(),
            column: Vec::new(),
        }
    }

    /// Runs until stopped, or until a private daemon is not needed any more.
    ///
    /// # Errors
    /// The text of a panic, of this thread or another. All sessions were told.
    pub(super) fn run(mut self, inbox: &Inbox) -> Result<(), String> {
        let ended = caught(|| self.serve(inbox));
        signals::main_ends();
        let ended = match ended {
            Ok(Stop::Asked) => Ok(End::Stopped(SIGNALLED)),
            Ok(Stop::Told) => Ok(End::Stopped(TOLD)),
            Ok(Stop::Replaced) => Ok(End::Replaced(REPLACED)),
            Ok(Stop::Defect(text)) => Err(text),
            Err(text) => Err(format!("a defect of shade-load: its core panicked: {text}")),
        };
        self.stop(ended.as_ref().map_or_else(|text: &String| End::Failed(text), |end| *end));
        ended.map(drop)
    }

    fn serve(&mut self, inbox: &Inbox) -> Stop {
        let Inbox { completions, done, tier, aside, messages, stop } = inbox;
        let mut beaten = Instant::now();
        let mut has_more = false;
        loop {
            let stays = self.lifecycle.settings.linger().is_none();
            let wait = if self.sessions.is_empty() && stays { Duration::MAX } else { HEARTBEAT };
            let wait = wait.min(self.cache_memory.wait_max(HEARTBEAT));
            let wait = if has_more { Duration::ZERO } else { wait };
            let mut first = None;
            select! {
                recv(completions) -> completion => self.events.extend(completion.ok().map(read)),
                recv(done) -> done => self.events.extend(done.ok().map(filled)),
                recv(tier) -> event => self.events.extend(event.ok().map(Event::Tier)),
                recv(aside) -> result => self.events.extend(result.ok().map(Event::Aside)),
                recv(messages) -> message => first = message.ok(),
                recv(stop) -> why => return why.unwrap_or(Stop::Asked),
                default(wait) => {}
            }
            self.silence.begin(Instant::now());
            first.into_iter().for_each(|message| self.take(message));
            for _ in 0..BURST {
                let completion = completions.try_recv().map(read);
                let rows = done.try_recv().map(filled);
                let event = tier.try_recv().map(Event::Tier);
                let message = messages.try_recv();
                if completion.is_err() && rows.is_err() && event.is_err() && message.is_err() {
                    break;
                }
                self.events.extend(completion.into_iter().chain(rows).chain(event));
                if let Ok(message) = message {
                    self.take(message);
                }
            }
            // First, so that trainers hear the reason and not of single records.
            if let Ok(why) = stop.try_recv() {
                return why;
            }
            self.reads.share(self.core.nodes());
            self.events.push(Event::Depth(self.reads.depth()));
            has_more = self.turn();
            self.tell_stats();
            self.cache_memory.give_back(&mut self.core);
            if beaten.elapsed() >= HEARTBEAT {
                beaten = Instant::now();
                self.sessions.beat();
                self.cache_memory.beat();
                self.log_limits.settle(beaten);
            }
            self.silence.end(Instant::now());
            if let Some(stop) = self.told_to_stop.take() {
                return stop;
            }
            let has_sessions = !self.sessions.is_empty() || self.core.session_count() > 0;
            if self.lifecycle.is_unneeded(self.started.elapsed(), has_sessions) {
                return Stop::Asked;
            }
        }
    }

    /// Passes events to the core and carries out its actions, until there is nothing left to do or
    /// [`TURN`] is over. Returns whether there is more to do.
    pub(super) fn turn(&mut self) -> bool {
        let mut actions = std::mem::take(&mut self.actions);
        let begun = Instant::now();
        let has_more = loop {
            let now_ns = self.now_ns();
            for event in self.events.drain(..) {
                self.core.step(now_ns, event, &mut actions);
            }
            let can_go_on = self.core.advance(now_ns, &mut actions);
            for action in actions.drain(..) {
                self.carry_out(action);
            }
            if self.events.is_empty() && !can_go_on {
                break false;
            }
            if begun.elapsed() >= TURN {
                break true;
            }
        };
        self.actions = actions;
        has_more
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Accept(session, accepted) => {
                let promised_bytes = self.sessions.promised_bytes();
                let room = self.ring_room.promise(accepted.payload.bytes, promised_bytes);
                if room.is_ok() {
                    self.lifecycle.admitted();
                }
                self.sessions.answer(session, room.map(|()| accepted));
            }
            Action::Refuse(session, refusal) => {
                self.lifecycle.refused(self.started.elapsed());
                self.sessions.answer(session, Err(refusal));
            }
            Action::Aside(order) => self.aside.order(order),
            Action::Read(op) => self.reads.submit(op),
            Action::ReadTogether(ops) => self.reads.submit_together(ops),
            Action::Tier(order) => {
                if let Some(tier) = &self.tier {
                    tier.order(order);
                }
            }
            Action::Fill(order) => {
                let Some(room) = self.sessions.room(order.ticket.session) else {
                    // Its rank has gone. The core takes the rows back.
                    let FillOrder { ticket, rows, .. } = order;
                    let faults = Vec::new();
                    return self.events.push(filled(Filled {
                        ticket,
                        rows,
                        faults,
                        geometry: Vec::new(),
                        fill_ns: 0,
                    }));
                };
                self.workers.submit(order, room);
            }
            Action::Finalize(order) => self.finalize(&order),
            Action::Publish(session, descriptor) => self.sessions.publish(session, &descriptor, None),
            Action::PublishError(session, descriptor, text) => {
                self.log_limits.failed_epoch(&text);
                self.sessions.publish(session, &descriptor, Some(&text));
            }
            Action::State(session, bytes) => self.sessions.send_state(session, &bytes),
            Action::Base(sessions, epoch, bytes) => match self.aside.base_file(&bytes) {
                Ok(file) => self.sessions.give_base(&sessions, epoch, bytes.len(), &file),
                // The training goes on; only a death of this daemon would end it.
                Err(error) => tracing::warn!(
                    "no memory for the {} bytes that a successor of this daemon needs in epoch {epoch}: {error}",
                    bytes.len()
                ),
            },
            Action::StateLoaded(session, Resumed { epoch, first_batch, batches }) => {
                self.sessions.reply(session, &Reply::StateLoaded { epoch, first_batch, batches });
            }
            Action::Taken(session) => self.sessions.reply(session, &Reply::Taken),
            Action::Fail(session, text) => self.sessions.reply(session, &Reply::Failed { text }),
            Action::Interrupt(session, text) => self.sessions.reply(session, &Reply::Interrupted { text }),
            Action::Close(session, text) => self.sessions.close(session, &text),
            Action::Trace(observer, line) => self.observers.take(observer, line),
            Action::Inform(text) => self.log_limits.ended_epoch(&text),
            Action::Warn(text) => tracing::warn!("{text}"),
            Action::BadRecord(text) => self.log_limits.bad_record(&text),
        }
    }

    /// Completes a batch.
    fn finalize(&mut self, order: &FinalizeOrder) {
        let ticket = order.ticket;
        let Some(payload) = self.sessions.payload(ticket.session) else { return };
        match finalize(order, &payload, &mut self.column) {
            Ok(()) => self.events.push(Event::Finalized(ticket)),
            // A defect of this program. The session ends, as its batch will not come.
            Err(error) => {
                tracing::error!("a batch could not be completed: {error}");
                self.sessions.close(ticket.session, "its batch could not be completed");
            }
        }
    }

    /// Judges a rank that said hello.
    fn greet(
        &mut self,
        mut attach: Box<Attach>,
        asked: &Asked,
        socket: Arc<OwnedFd>,
        verdict: Sender<Result<Welcomed, Refusal>>,
    ) {
        // Ranks that said hello before have their jobs then.
        self.turn();
        let jobs = self.core.jobs().into_iter().map(|job| job.name).collect();
        let present = Present { has_ranks: self.sessions.has_ranks(), jobs };
        match self.lifecycle.judge(&attach, asked, &present) {
            Ok(terms) => {
                attach.job.clone_from(&terms.job);
                self.sessions.hello(attach.session, socket, verdict, terms);
                self.events.push(Event::Attach(attach));
            }
            Err(refusal) => {
                // It counts as a session until its thread has sent the refusal: a daemon that gives
                // way ends only then.
                self.sessions.hello(attach.session, socket, verdict, Terms::default());
                self.sessions.answer(attach.session, Err(refusal));
            }
        }
    }

    /// Turns a session's message into an event, or answers it at once.
    fn take(&mut self, message: Message) {
        match message {
            Message::Hello { attach, asked, socket, verdict } => self.greet(attach, &asked, socket, verdict),
            Message::Observe { session, job, socket, pipe, verdict } => {
                let begun = self.observers.begin(session, &job, socket, pipe);
                if begun.is_ok() {
                    self.events.push(Event::Observe { session, job: Some(job) });
                }
                // Fails only when the thread has ended.
                let _ = verdict.send(begun);
            }
            Message::Status(answer) => {
                self.turn();
                // Fails only when the thread has ended.
                let status = self.status();
                let _ = answer.send(status);
            }
            Message::Held { strata, answer } => {
                self.turn();
                // Fails only when the thread has ended.
                let _ = answer.send(self.core.held(strata).map_err(|error| error.to_string()));
            }
            Message::Drain(answer) => {
                tracing::info!("drained: no new job is taken, as its user asked");
                self.lifecycle.drain();
                // Fails only when the thread has ended.
                let _ = answer.send(());
            }
            Message::Stop { drain: true } => self.lifecycle.drained(),
            Message::Stop { drain: false } => {
                tracing::info!("stopped, as its user asked");
                self.told_to_stop = Some(Stop::Told);
            }
            Message::MayBeReplaced(answer) => {
                // Fails only when the thread has ended.
                let _ = answer.send(self.may_be_replaced());
            }
            Message::Replace => {
                tracing::info!("replaced: another daemon takes this one's place");
                self.told_to_stop = Some(Stop::Replaced);
            }
            Message::Resize { cache, answer } => {
                // Fails only when the thread has ended.
                let _ = answer.send(self.resize(&cache).map_err(|error| error.to_string()));
            }
            Message::Mapped { session, ring } => {
                self.sessions.mapped(session, *ring);
                self.events.push(Event::Ready(session));
            }
            Message::Rung(session) => match self.sessions.rung(session) {
                Ok((seqs, awaited)) => {
                    // None, if an earlier doorbell told of these releases already.
                    if !seqs.is_empty() {
                        self.events.push(Event::Released { session, seqs });
                    }
                    self.events.extend(awaited.map(|seq| Event::Waits { session, seq }));
                }
                Err(error) => self.sessions.close(session, &error.to_string()),
            },
            Message::Gone(session) if self.observers.leave(session) => {
                self.events.push(Event::Observe { session, job: None });
            }
            Message::Gone(session) => {
                // A refused one does not keep a private daemon.
                if self.sessions.forget(session) {
                    self.lifecycle.left(self.started.elapsed());
                }
                self.events.push(Event::Detach(session));
            }
            Message::Request { session, request, state } => self.request(session, *request, state),
        }
    }

    /// Whether another daemon may take this one's place, or which jobs would end.
    fn may_be_replaced(&self) -> Result<(), String> {
        let bound = self.sessions.bound();
        if bound.is_empty() {
            return Ok(());
        }
        let named: Vec<String> =
            bound.iter().map(|(job, why)| format!("job {}: {why}", OneLine(job))).collect();
        Err(format!(
            "process {} has jobs that would end with it ({}): let them end (shade-load drain), and start then",
            std::process::id(),
            named.join("; ")
        ))
    }

    /// Ends all sessions and waits for reads and workers, but not for a store that does not answer.
    fn stop(self, end: End<'_>) {
        tracing::debug!("stopping after {:.1} s", self.started.elapsed().as_secs_f64());
        let Self { reads, workers, tier, mut sessions, observers, .. } = self;
        sessions.close_all(end);
        observers.finish(STOP);
        let (ended_in, ended) = crossbeam_channel::bounded::<()>(0);
        let joiner = std::thread::Builder::new().name("shade-stop".into()).spawn(move || {
            drop(tier);
            drop(reads);
            drop(workers);
            drop(ended_in);
        });
        if joiner.is_err() || ended.recv_timeout(STOP) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
            tracing::warn!("reads are still in flight after {STOP:?}: leaving them to the kernel");
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The core's event for a read that has ended.
fn read(completion: Completion) -> Event {
    Event::Read(completion.map_fault(core_fault))
}

/// The core's event for rows that a worker gives back.
fn filled(done: Filled) -> Event {
    Event::Filled(done.map_fault(FillFault::core_fault))
}
