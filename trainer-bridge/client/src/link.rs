//! The link of a session to one daemon: its ring and its socket, and where the rank is.
//!
//! Batches come through the ring, everything else through the socket. Several threads may use both
//! at once. The socket also tells when the daemon is gone. It is checked only when the ring is
//! empty, so all published batches are delivered first.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};
use shade_formats::FormatError;
use shade_formats::control::{Reply, Request};
use shade_formats::ring::{Descriptor, Kind};
use shade_shm::{Consumer, Heard};

use crate::attach::{Attached, Welcome};
use crate::batch::{SessionNumber, Slots};
use crate::deaths::Death;
use crate::dialogue::{Dialogue, GivenBase};
use crate::error::argument;
use crate::fork::{Owner, lock};
use crate::redo::Redo;
use crate::wire::{Received, WireError, wait};
use crate::{Batch, BatchId, ClientError};

/// How long `next` polls the ring before it sleeps: about the cost of waking.
const SPIN: Duration = Duration::from_micros(20);
/// How long a daemon that has told a failure has to hang up, if it is its last. That may take a
/// second on a busy machine.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Pause between two looks whether an epoch has begun.
const BEGINNING_PAUSE: Duration = Duration::from_millis(2);

/// Result of [`Session::next`](crate::Session::next).
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Batch),
    /// The epoch has no further batch.
    EpochEnd,
    /// No batch yet: the wait timed out, a signal came, or the daemon is being replaced. Call
    /// again.
    Pending,
}

/// A rank attached to one daemon.
#[derive(Debug)]
pub(crate) struct Link {
    owner: Owner,
    pub(crate) welcome: Welcome,
    pub(crate) slots: Arc<Slots>,
    ring: Mutex<Ring>,
    pub(crate) dialogue: Dialogue,
    /// All links of the session have one. Locked while `ring` is, or alone.
    redo: Arc<Mutex<Redo>>,
    /// The first generation that this daemon delivers: batches of those before are its
    /// predecessors'.
    begins_at: u32,
    /// A daemon that ends by a failure, and not only its session, is gone for the session.
    is_replaced: bool,
}

/// Where a rank is in its epochs.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    generation: u32,
    /// The first generation since a state was loaded, after which batches have other samples.
    first_generation: u32,
    /// The epoch that was started last.
    pub(crate) epoch: u32,
    /// Its first batch that is not delivered.
    pub(crate) batch: u32,
    /// Epochs that the rank has started, with all daemons: it wraps.
    pub(crate) starts: u32,
    delivery: Delivery,
}

#[derive(Debug)]
struct Ring {
    consumer: Consumer,
    place: Place,
    /// A descriptor that was looked at and not taken.
    ahead: Option<Descriptor>,
    /// A successor that has not published anything yet: it may not have begun the epoch.
    is_unbegun: bool,
    /// Nothing of this generation was taken: a base may have come before it.
    is_unheard: bool,
    /// A batch of this generation was taken.
    has_taken: bool,
    /// The daemon has not closed its end of the doorbells.
    has_doorbell: bool,
    /// A successor delivers from here on.
    is_superseded: bool,
    /// The rank has waited for what this daemon did not give it yet.
    is_awaited: bool,
    /// The daemon has told a failure, and has until then to hang up.
    hangs_up_until: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Delivery {
    NotStarted,
    Running,
    Ended,
    Failed(String),
}

/// Why `sleep` returned.
#[derive(Debug, Default)]
struct Woken {
    found: Option<Next>,
    /// The daemon sent a message or hung up.
    spoken_to: bool,
    /// A signal came. The caller handles it: Python raises KeyboardInterrupt.
    interrupted: bool,
}

impl Place {
    /// Before the first epoch.
    const BEGINNING: Self = Self {
        generation: 0,
        first_generation: 0,
        epoch: 0,
        batch: 0,
        starts: 0,
        delivery: Delivery::NotStarted,
    };

    /// An epoch starts.
    fn start(&mut self, generation: u32, epoch: u32, batch: u32) {
        (self.generation, self.epoch, self.batch) = (generation, epoch, batch);
        self.starts = self.starts.wrapping_add(1);
        self.delivery = Delivery::Running;
    }

    /// The generation of the next start.
    fn next_generation(&self) -> Result<u32, ClientError> {
        self.generation.checked_add(1).ok_or_else(|| {
            argument("generation", self.generation, "a new session after 2^32 starts of an epoch")
        })
    }

    /// No epoch was started.
    pub(crate) fn is_before_the_first(&self) -> bool {
        matches!(self.delivery, Delivery::NotStarted)
    }

    /// No epoch was started since a state was loaded.
    pub(crate) fn is_before_what_was_loaded(&self) -> bool {
        self.generation < self.first_generation
    }
}

impl Link {
    /// The first link of a rank's session.
    pub(crate) fn new(owner: Owner, attached: Attached, redo: Arc<Mutex<Redo>>, is_replaced: bool) -> Self {
        Self::at(owner, attached, redo, Place::BEGINNING, is_replaced)
    }

    fn at(owner: Owner, attached: Attached, redo: Arc<Mutex<Redo>>, place: Place, is_replaced: bool) -> Self {
        let Attached { welcome, slots, consumer, dialogue } = attached;
        let begins_at = place.generation;
        let (ahead, is_unbegun) = (None, place.generation > 0);
        let ring = Ring {
            consumer,
            place,
            ahead,
            is_unbegun,
            is_unheard: true,
            has_taken: false,
            has_doorbell: true,
            is_superseded: false,
            is_awaited: false,
            hangs_up_until: None,
        };
        let (slots, ring) = (Arc::new(slots), Mutex::new(ring));
        Self { owner, welcome, slots, ring, dialogue, redo, begins_at, is_replaced }
    }

    /// Puts the link to a successor of this one's daemon in the place of this one, where it is now.
    ///
    /// The rank hands over what it has kept, and asks for its epoch from its next batch on, also if
    /// that is none: until every rank here has asked for it, or is further on, the others wait.
    pub(crate) fn succeeded_by(
        &self,
        mut attached: Attached,
        current: &Mutex<Arc<Self>>,
    ) -> Result<Arc<Self>, ClientError> {
        // Both until the successor is there: what happens meanwhile is in the record, or after it.
        let mut ring = lock(&self.ring);
        let mut redo = lock(&self.redo);
        if let Some(GivenBase { epoch, file }) = self.dialogue.take_base() {
            redo.begin(epoch, file);
        }
        ring.is_superseded = true;
        let mut place = ring.place.clone();
        attached.slots.session = self.session_number();
        let has_start = !place.is_before_the_first() && !place.is_before_what_was_loaded();
        if has_start {
            place.generation = place.next_generation()?;
        }
        let (generation, epoch, first_batch) = (place.generation, place.epoch, place.batch);
        let link = Arc::new(Self::at(self.owner, attached, Arc::clone(&self.redo), place, true));
        // Batches taken before the first start here tell the daemon that it is a successor.
        let request = Request::StartEpoch { generation, epoch, first_batch, has_taken: true };
        let start = || if has_start { link.dialogue.tell("start_epoch", &request) } else { Ok(()) };
        match redo.hand_over(&link.dialogue).and_then(|()| start()) {
            // It is gone as well, which the next call finds.
            Ok(()) | Err(ClientError::DaemonGone { .. }) => {}
            Err(error) => return Err(error),
        }
        *lock(current) = Arc::clone(&link);
        Ok(link)
    }

    fn session_number(&self) -> SessionNumber {
        self.slots.session
    }

    /// Where the rank is.
    pub(crate) fn place(&self) -> Place {
        lock(&self.ring).place.clone()
    }

    /// Tells the daemon that the rank's job would end with it.
    pub(crate) fn tell_bound(&self) {
        let why = "survive is off".to_owned();
        // A daemon that is gone need not know.
        let _ = self.dialogue.tell("bound", &Request::Bound { why });
    }

    /// What is known of the daemon's death.
    pub(crate) fn death(&self) -> Death {
        let ring = lock(&self.ring);
        let (epoch, batch, is_awaited) = (ring.place.epoch, ring.place.batch, ring.is_awaited);
        Death { epoch, batch, is_awaited, working: ring.consumer.working(self.welcome.content.samples) }
    }

    /// Bytes that the daemon's cache was given while it ran, if it was.
    pub(crate) fn cache_was_given(&self) -> Option<u64> {
        lock(&self.ring).consumer.resized().ok().flatten()
    }

    /// Starts an epoch.
    pub(crate) fn start_epoch(&self, epoch: u32, first_batch: u32) -> Result<(), ClientError> {
        let mut ring = lock(&self.ring);
        let generation = ring.place.next_generation()?;
        let has_taken = ring.has_taken;
        let request = Request::StartEpoch { generation, epoch, first_batch, has_taken };
        self.dialogue.tell("start_epoch", &request)?;
        ring.start(generation, epoch, first_batch);
        lock(&self.redo).start(epoch);
        Ok(())
    }

    /// Notes the start of an epoch, which a successor will be told. False if there is one already.
    pub(crate) fn note_start(&self, epoch: u32, first_batch: u32) -> Result<bool, ClientError> {
        let mut ring = lock(&self.ring);
        if ring.is_superseded {
            return Ok(false);
        }
        let generation = ring.place.next_generation()?;
        ring.start(generation, epoch, first_batch);
        lock(&self.redo).start(epoch);
        Ok(true)
    }

    /// See [`Session::next_since`](crate::Session::next_since).
    pub(crate) fn next(&self, since: Option<u32>, wait_most: Duration) -> Result<Next, ClientError> {
        let mut ring = lock(&self.ring);
        if since.is_some_and(|start| start != ring.place.starts) {
            return Err(ClientError::AnotherStart);
        }
        if ring.is_superseded {
            return Err(self.dialogue.gone());
        }
        match &ring.place.delivery {
            Delivery::NotStarted => return Err(ClientError::NotStarted),
            Delivery::Ended => return Ok(Next::EpochEnd),
            Delivery::Failed(text) => return Err(ClientError::Record { text: text.clone() }),
            Delivery::Running => {}
        }
        let started = Instant::now();
        loop {
            if let Some(next) = self.take_spinning(&mut ring, started, wait_most.min(SPIN))? {
                return Ok(next);
            }
            ring.is_awaited = true;
            let left = wait_most.saturating_sub(started.elapsed());
            // Received earlier, or by another thread that waited for an answer.
            if self.fault(&mut ring, left)? {
                return Ok(Next::Pending);
            }
            let woken = self.sleep(&mut ring, left)?;
            if let Some(next) = woken.found {
                return Ok(next);
            }
            if woken.spoken_to {
                let heard = self.dialogue.listen();
                // The daemon published batches before its message or end: they come first.
                if let Some(next) = self.take(&mut ring)? {
                    return Ok(next);
                }
                // The reason comes before the hang-up.
                if self.fault(&mut ring, wait_most.saturating_sub(started.elapsed()))? {
                    return Ok(Next::Pending);
                }
                heard?;
            }
            if woken.interrupted || left.is_zero() {
                return Ok(Next::Pending);
            }
        }
    }

    /// Waits until a successor has begun the epoch in which the rank is, as it is asked for a state
    /// in the middle of it: before, it knows of no such batch.
    pub(crate) fn await_beginning(&self, epoch: u32, most: Duration) -> Result<(), ClientError> {
        let started = Instant::now();
        loop {
            let mut ring = lock(&self.ring);
            // Where a state was loaded, nobody has asked for an epoch since.
            let is_asked_for = ring.place.epoch == epoch && !ring.place.is_before_what_was_loaded();
            if !ring.is_unbegun || !is_asked_for {
                return Ok(());
            }
            while let Some(descriptor) = ring.poll()? {
                if descriptor.generation >= ring.place.generation {
                    (ring.ahead, ring.is_unbegun) = (Some(descriptor), false);
                    return Ok(());
                }
                self.slots.release(&descriptor);
            }
            drop(ring);
            self.dialogue.listen()?;
            let waited = started.elapsed();
            if waited >= most {
                let request = "save_state, as not every rank has found it yet";
                return Err(ClientError::Timeout { pid: self.welcome.pid, request, waited });
            }
            std::thread::sleep(BEGINNING_PAUSE);
        }
    }

    /// Fails with what has ended the epoch, or with a failure that the daemon has told; or with its
    /// end, if that was its last word. Waits up to `most` for that: whether it may come yet.
    fn fault(&self, ring: &mut Ring, most: Duration) -> Result<bool, ClientError> {
        // Never a daemon's last word, so nothing is waited for.
        self.dialogue.interruption()?;
        if self.is_replaced && self.dialogue.has_failed() {
            let until = *ring.hangs_up_until.get_or_insert_with(|| Instant::now() + LAST_WORDS);
            let left = until.saturating_duration_since(Instant::now());
            if !self.dialogue.hangs_up_within(left.min(most)) && most < left {
                return Ok(true);
            }
        }
        ring.hangs_up_until = None;
        self.dialogue.fault().map_err(|error| self.as_end(error))?;
        Ok(false)
    }

    /// A failure that was a daemon's last words is its end, where daemons are replaced.
    pub(crate) fn as_end(&self, error: ClientError) -> ClientError {
        let is_failure = matches!(error, ClientError::Failed { .. });
        if is_failure && self.is_replaced && self.dialogue.hangs_up_within(Duration::ZERO) {
            return self.dialogue.gone();
        }
        error
    }

    /// Time since the daemon's last sign of life.
    pub(crate) fn heartbeat_age(&self) -> Result<Option<Duration>, ClientError> {
        let beat_ns = lock(&self.ring).consumer.heartbeat_ns()?;
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        Ok((beat_ns != 0).then(|| now.saturating_sub(Duration::from_nanos(beat_ns))))
    }

    /// Refuses losses that are not those of a batch's first rows.
    pub(crate) fn check_report(&self, id: BatchId, losses: &[f32]) -> Result<(), ClientError> {
        let BatchId { session, generation, epoch, batch, rows } = id;
        let named = format_args!("batch {batch} of epoch {epoch}");
        if session != self.slots.session {
            let got = format_args!("{named} of another session, such as a validation or another dataset");
            return Err(argument("batch", got, "one that this session has delivered"));
        }
        if generation < lock(&self.ring).place.first_generation {
            let got = format_args!("{named} of before a state was loaded");
            return Err(argument("batch", got, "one that was delivered since"));
        }
        if losses.len() > rows as usize {
            let got = format_args!("{} values for a batch of {rows}", losses.len());
            return Err(argument("losses", got, format_args!("at most {rows}")));
        }
        Ok(())
    }

    /// Reports losses that were checked, and are in the record.
    pub(crate) fn report(&self, id: BatchId, losses: &[f32], redo: &Redo) -> Result<(), ClientError> {
        let BatchId { generation, epoch, batch, .. } = id;
        if generation < self.begins_at && !redo.records() {
            // A predecessor has delivered it, for a job that needs no losses.
            return Ok(());
        }
        self.dialogue.tell("report", &Request::Report { epoch, batch, losses: losses.to_vec() })
    }

    /// Asks for a state to be loaded, whose bytes are in `file`; batches of before are of another
    /// plan then.
    pub(crate) fn load<T>(
        &self,
        request: &Request,
        file: OwnedFd,
        accept: impl Fn(Received) -> Result<T, Reply>,
    ) -> Result<T, ClientError> {
        // Both, so that no successor is told of half of it.
        let mut ring = lock(&self.ring);
        if ring.is_superseded {
            return Err(self.dialogue.gone());
        }
        let mut redo = lock(&self.redo);
        let resumed = self.dialogue.ask("load_state", request, Some(&file), accept)?;
        // A base that came before is of an epoch that the state ends, and nobody has asked for
        // another one since.
        drop(self.dialogue.take_base());
        redo.load(file);
        let place = &mut ring.place;
        place.first_generation = place.generation.saturating_add(1);
        Ok(resumed)
    }

    /// Polls the ring for up to `most` from `started` on.
    fn take_spinning(
        &self,
        ring: &mut Ring,
        started: Instant,
        most: Duration,
    ) -> Result<Option<Next>, ClientError> {
        loop {
            let next = self.take(ring)?;
            if next.is_some() || started.elapsed() >= most {
                return Ok(next);
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps until the ring or the socket has news, for at most `most`; if that is zero, only
    /// checks the socket: the daemon is not told of a wait that is none, as it hears of one wait
    /// for each descriptor, and the next one may be real.
    fn sleep(&self, ring: &mut Ring, most: Duration) -> Result<Woken, ClientError> {
        if most.is_zero() {
            let mut fds = [PollFd::new(self.dialogue.socket(), PollFlags::IN)];
            let interrupted = matches!(wait(&mut fds, most), Err(WireError::Interrupted));
            let [socket] = fds;
            return Ok(Woken { found: None, spoken_to: !socket.revents().is_empty(), interrupted });
        }
        let is_news = ring.consumer.wait_begin()?;
        // The recheck that `Consumer::wait_begin` requires.
        let found = self.take(ring);
        let mut woken = Woken::default();
        if let Ok(None) = found {
            // It counts what the trainer waits for.
            if is_news {
                self.slots.ring_daemon();
            }
            let mut fds = [
                PollFd::new(self.dialogue.socket(), PollFlags::IN),
                PollFd::new(&self.slots.doorbell, PollFlags::IN),
            ];
            // A daemon that has closed its end of the doorbells can only hang up.
            let sources = if ring.has_doorbell { &mut fds[..] } else { &mut fds[..1] };
            woken.interrupted = matches!(wait(sources, most), Err(WireError::Interrupted));
            let [socket, _] = fds;
            woken.spoken_to = !socket.revents().is_empty();
        }
        ring.consumer.wait_end()?;
        // Silenced before the ring is checked again: a publication in between rings anew.
        ring.has_doorbell = matches!(self.slots.doorbell.answer(), Ok(Heard::Peer));
        woken.found = found?;
        Ok(woken)
    }

    /// Takes the next descriptor of this generation, if it is there.
    fn take(&self, ring: &mut Ring) -> Result<Option<Next>, ClientError> {
        while let Some(descriptor) = ring.poll()? {
            if descriptor.generation < ring.place.generation {
                self.slots.release(&descriptor);
                continue;
            }
            if descriptor.generation > ring.place.generation {
                let expected = format_args!("at most {}", ring.place.generation);
                return Err(FormatError::new("ring generation", 0, descriptor.generation, expected).into());
            }
            if ring.is_unheard {
                // It is not lost with an error.
                ring.ahead = Some(descriptor);
                self.hear_before_the_first()?;
                ring.ahead = None;
            }
            (ring.is_unbegun, ring.is_unheard, ring.is_awaited) = (false, false, false);
            return self.open_descriptor(ring, descriptor).map(Some);
        }
        Ok(None)
    }

    /// Takes what the daemon has said before the first batch of an epoch: the base, if it gives
    /// any, and what has ended the epoch before. Whether the daemon is gone is told with the
    /// batches that follow.
    fn hear_before_the_first(&self) -> Result<(), ClientError> {
        match self.dialogue.listen_all() {
            Ok(()) | Err(ClientError::DaemonGone { .. }) => {}
            Err(error) => return Err(error),
        }
        if let Some(GivenBase { epoch, file }) = self.dialogue.take_base() {
            lock(&self.redo).begin(epoch, file);
        }
        self.dialogue.interruption()
    }

    fn open_descriptor(&self, ring: &mut Ring, descriptor: Descriptor) -> Result<Next, ClientError> {
        match descriptor.kind {
            Kind::Batch => {
                ring.has_taken = true;
                ring.place.batch = descriptor.batch.saturating_add(1);
                let batch = Batch::new(&self.slots, descriptor)?;
                let mut redo = lock(&self.redo);
                if redo.records() {
                    let Descriptor { epoch, batch: number, .. } = *batch.descriptor();
                    redo.deliver(epoch, number, batch.redo_rows()?);
                }
                Ok(Next::Batch(batch))
            }
            Kind::EpochEnd => {
                ring.place.delivery = Delivery::Ended;
                self.slots.release(&descriptor);
                Ok(Next::EpochEnd)
            }
            Kind::Error => {
                // `Descriptor::check` has limited the length.
                let mut text = vec![0; usize::try_from(descriptor.len).unwrap_or(0)];
                let read = self.slots.payload.read(descriptor.offset, &mut text);
                self.slots.release(&descriptor);
                read?;
                let text = String::from_utf8_lossy(&text).into_owned();
                ring.place.delivery = Delivery::Failed(text.clone());
                Err(ClientError::Record { text })
            }
        }
    }
}

impl Ring {
    fn start(&mut self, generation: u32, epoch: u32, first_batch: u32) {
        self.place.start(generation, epoch, first_batch);
        (self.has_taken, self.is_unbegun, self.is_unheard) = (false, false, true);
    }

    fn poll(&mut self) -> Result<Option<Descriptor>, ClientError> {
        match self.ahead.take() {
            Some(descriptor) => Ok(Some(descriptor)),
            None => Ok(self.consumer.poll()?),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A forked child only closes its copies of the descriptors; the owner says goodbye.
        if self.owner.is_here() {
            self.dialogue.bye();
        }
    }
}
