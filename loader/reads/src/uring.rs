//! The io_uring engine: one thread that submits READV straight into blocks and judges what
//! completes.
//!
//! The thread waits in the kernel for completions and, through a poll of the [`Bell`], for new
//! reads. A flight moves into a slot of the table when its read is submitted and out when its
//! completion is seen: in between the kernel owns its blocks, and nothing here touches them.
//! Nothing cancels a read; stopping waits for the last completion.
#![expect(unsafe_code, reason = "the kernel writes through raw pointers until it says that it is done")]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;
use shade_dataset::OpenShard;

use crate::bell::Bell;
use crate::blocks::BlocksError;
use crate::flight::{Engine, Flight, Shared, Step};
use crate::op::{Completion, deliver};
use crate::opener::{Opened, Opener};
use crate::resumed::Resumed;
use crate::ring_setup::set_up;

/// Marks the completion of the bell's poll.
const POLL: u64 = u64::MAX;
/// Bytes of neighbours that are copied apart before new reads are submitted again: 100 to 200 µs,
/// so that the store is not idle for long.
const APART_BYTES: u64 = 1024 * 1024;
/// Wait before the ring is entered again when the kernel is short of memory.
const SHORTAGE_WAIT: Duration = Duration::from_millis(1);

/// The engine, seen from outside its thread.
pub(super) struct Uring {
    /// Closed when the engine is dropped.
    queue: Option<Sender<Flight>>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    setup: &'static str,
}

impl Uring {
    /// Starts the thread and its ring.
    ///
    /// # Errors
    ///
    /// What forbids io_uring here, with the reason (see `availability`) and the step that failed.
    pub(super) fn start(shared: &Arc<Shared>, completions: &Sender<Completion>) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        // Unbounded, yet bounded by the arena: every flight owns blocks of it.
        let (queue, flights) = crossbeam_channel::unbounded();
        let (tell, told) = crossbeam_channel::bounded(1);
        let mut uring = Self { queue: Some(queue), bell: Arc::clone(&bell), thread: None, setup: "" };
        let (shared, completions) = (Arc::clone(shared), completions.clone());
        // The ring belongs to the thread that makes it (IORING_SETUP_SINGLE_ISSUER).
        let buffered = !shared.files.is_direct();
        let body = move || match set_up(shared.gate.most(), buffered) {
            Ok((ring, setup)) => {
                let (back, opened) = crossbeam_channel::unbounded();
                let opener = match Opener::start(&shared, &back, &bell, &completions) {
                    Ok(opener) => opener,
                    Err(error) => return drop(tell.send(Err(error))),
                };
                // The opener's clones of the sender end with it: then this queue has an end.
                drop(back);
                let _ = tell.send(Ok(setup));
                Worker::new(ring, shared, completions, bell, flights, opener, opened).run();
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        };
        uring.thread = Some(std::thread::Builder::new().name("shade-uring".into()).spawn(body)?);
        uring.setup = told.recv().map_err(io::Error::other)??;
        Ok(uring)
    }
}

impl Engine for Uring {
    fn submit(&self, flight: Flight) {
        if let Some(queue) = &self.queue {
            // The thread listens as long as the engine lives.
            let _ = queue.send(flight);
            self.bell.ring_if_waited();
        }
    }

    fn description(&self) -> String {
        format!("uring ({})", self.setup)
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.bell.stop();
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A read that the kernel has. Its blocks, its file (both the flight's) and its iovecs stay alive
/// and untouched until the completion.
struct Submitted {
    flight: Flight,
    iovecs: Vec<libc::iovec>,
}

/// The reads that the kernel has, by the number that their completions carry.
struct Table {
    slots: Vec<Option<Submitted>>,
    free: Vec<usize>,
    shared: Arc<Shared>,
    completions: Sender<Completion>,
}

impl Table {
    fn new(shared: Arc<Shared>, completions: Sender<Completion>) -> Self {
        let depth = shared.gate.most() as usize;
        Self { slots: (0..depth).map(|_| None).collect(), free: (0..depth).collect(), shared, completions }
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn remove(&mut self, slot: u64) -> Option<Flight> {
        let slot = usize::try_from(slot).ok()?;
        let submitted = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(submitted.flight)
    }
}

impl Drop for Table {
    /// Reads are left only after a panic or a failed ring. Memory that the kernel may still write
    /// to is then leaked and never reused, and the reads fail.
    fn drop(&mut self) {
        for lost in self.slots.iter_mut().filter_map(Option::take) {
            Box::leak(Box::new((lost.iovecs, Arc::clone(&self.shared))));
            deliver(&self.completions, lost.flight.lose(Instant::now(), &self.shared));
        }
    }
}

/// The engine, seen from inside its thread.
struct Worker {
    // Dropped before the table, so that a panic leaves no ring that still takes reads.
    ring: IoUring,
    table: Table,
    shared: Arc<Shared>,
    completions: Sender<Completion>,
    /// Records to deliver at once, so that the core's thread is woken once.
    done: Vec<Completion>,
    bell: Arc<Bell>,
    polled: bool,
    queue: Receiver<Flight>,
    opener: Opener,
    opened: Receiver<Opened>,
    /// Flights that go before those of the queue: they were submitted earlier.
    first: Resumed,
}

impl Worker {
    fn new(
        ring: IoUring,
        shared: Arc<Shared>,
        completions: Sender<Completion>,
        bell: Arc<Bell>,
        queue: Receiver<Flight>,
        opener: Opener,
        opened: Receiver<Opened>,
    ) -> Self {
        let table = Table::new(Arc::clone(&shared), completions.clone());
        Self {
            ring,
            table,
            shared,
            completions,
            done: Vec::new(),
            bell,
            polled: false,
            queue,
            opener,
            opened,
            first: Resumed::default(),
        }
    }

    fn run(mut self) {
        let mut ended = Ok(());
        while ended.is_ok() && !(self.bell.stopping() && self.table.len() == 0) {
            self.begin();
            deliver(&self.completions, self.done.drain(..));
            ended = self.enter();
            self.reap();
        }
        if let Err(error) = ended {
            // Reads submitted after this do not come back.
            (self.shared.on_failure)(format!("no more records can be read: io_uring_enter: {error}"));
        }
        // A closed ring takes no more reads; after a failure the table ends its reads as failed.
        deliver(&self.completions, self.done.drain(..));
        let Self { ring, table, shared, completions, queue, mut opener, opened, first, .. } = self;
        drop(ring);
        drop(table);
        let unopened = opener.take_waiting();
        drop(opener);
        let unopened = opened.into_iter().flat_map(|opened| opened.flights).chain(unopened);
        let unread = first.into_flights().chain(unopened).chain(queue);
        deliver(&completions, unread.flat_map(|flight| flight.stop(Instant::now(), &shared)));
    }

    /// Begins as many flights as there is room for, and goes on with those whose wait is over.
    fn begin(&mut self) {
        if self.bell.stopping() {
            return;
        }
        // One look at the clock for all that begin now: one per read shows in the profile of small
        // records.
        let now = Instant::now();
        while let Ok(opened) = self.opened.try_recv() {
            self.opener.ended(&opened).into_iter().for_each(|flight| self.first.push(flight));
            for flight in opened.flights {
                self.first.push_later(now + opened.wait, flight);
            }
        }
        self.first.end_waits(now);
        while self.shared.gate.has_room() {
            let Some(mut flight) = self.first.pop().or_else(|| self.queue.try_recv().ok()) else {
                return;
            };
            if flight.needs_open(&self.shared) {
                self.opener.submit(flight);
                continue;
            }
            flight.begin(now, &self.shared);
            let step = flight.next(now, &self.shared);
            self.follow(step);
        }
    }

    /// Does what a flight asks for; after that it is the kernel's, waits, or was delivered.
    fn follow(&mut self, step: Step) {
        match step {
            Step::Done(completion) => self.done.push(completion),
            Step::Landed(done, again) => {
                self.done.extend(done);
                again.into_iter().for_each(|flight| self.first.push(flight));
            }
            Step::Wait(flight, wait) => self.first.push_later(Instant::now() + wait, flight),
            Step::Read(mut flight, file, offset) => match iovecs(&mut flight, &self.shared) {
                Ok(iovecs) => self.read(flight, iovecs, &file, offset),
                Err(error) => {
                    let step = flight.misfit(error, Instant::now(), &self.shared);
                    self.follow(step);
                }
            },
        }
    }

    /// Gives a read to the kernel.
    fn read(&mut self, flight: Flight, iovecs: Vec<libc::iovec>, file: &OpenShard, offset: u64) {
        let Some(slot) = self.table.free.pop() else {
            // Not reached while the gate is asked first; waiting is correct in any case.
            return self.wait(flight, Duration::ZERO);
        };
        // At most 1,024 (UIO_MAXIOV); Linux itself limits one read to 2 GiB.
        let count = u32::try_from(iovecs.len()).unwrap_or(u32::MAX);
        let entry = opcode::Readv::new(Fd(file.fd().as_raw_fd()), iovecs.as_ptr(), count)
            .offset(offset)
            .build()
            .user_data(slot as u64);
        if let Some(place) = self.table.slots.get_mut(slot) {
            *place = Some(Submitted { flight, iovecs });
        }
        if self.push(&entry).is_err()
            && let Some(flight) = self.table.remove(slot as u64)
        {
            self.wait(flight, SHORTAGE_WAIT);
        }
    }

    /// Tries a read again later, without a place of the gate's.
    fn wait(&mut self, mut flight: Flight, wait: Duration) {
        flight.pause(&self.shared);
        self.first.push_later(Instant::now() + wait, flight);
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), squeue::PushError> {
        // SAFETY: what the entry points to outlives the operation. A READV's blocks, iovecs and
        // descriptor are in the table (put there before this call, moved as handles only: the
        // iovecs' heap memory and the arenas' stay where they are) until its completion is reaped,
        // and `Table::drop` leaks what a failed ring leaves behind. While there, no reference to
        // the blocks' bytes is made: only `Flight` makes them, and it is reached by removing it.
        // The poll's descriptor belongs to `bell`, which `self` holds.
        unsafe { self.ring.submission().push(entry) }
    }

    /// Submits what was pushed and waits, unless there is something to do already.
    fn enter(&mut self) -> io::Result<()> {
        if !self.polled {
            let bell = Fd(self.bell.raw_fd());
            // POLLIN is 1, whatever the width of its type.
            let entry = opcode::PollAdd::new(bell, 1).build().user_data(POLL);
            self.polled = self.push(&entry).is_ok();
        }
        let room = self.shared.gate.has_room();
        if room {
            self.bell.before_wait();
        }
        let queued = !self.queue.is_empty() || self.first.len() > 0 || !self.opened.is_empty();
        let more = room && queued && !self.bell.stopping();
        let want = usize::from(self.ring.completion().is_empty() && !more);
        let timeout = self.first.next_wait().filter(|_| !self.bell.stopping()).map(Timespec::from);
        let result = match &timeout {
            Some(timeout) => {
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(timeout))
            }
            None => self.ring.submitter().submit_and_wait(want),
        };
        self.bell.after_wait();
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    std::thread::sleep(SHORTAGE_WAIT);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    /// Takes completions, judges them and delivers what is done.
    fn reap(&mut self) {
        let mut apart_bytes = 0;
        let now = Instant::now();
        while apart_bytes < APART_BYTES {
            let Some(completion) = self.ring.completion().next() else { return };
            if completion.user_data() == POLL {
                self.bell.silence();
                self.polled = false;
                continue;
            }
            let Some(flight) = self.table.remove(completion.user_data()) else { continue };
            let result = u32::try_from(completion.result())
                .map_err(|_| Errno::from_raw_os_error(completion.result().saturating_neg()));
            let len = flight.len();
            match flight.after(result.map(u64::from), now, &self.shared) {
                Step::Read(flight, ..) | Step::Wait(flight, _) if self.bell.stopping() => {
                    self.done.extend(flight.stop(Instant::now(), &self.shared));
                }
                step => {
                    if matches!(step, Step::Landed(..)) {
                        apart_bytes += u64::from(len);
                    }
                    self.follow(step);
                }
            }
        }
    }
}

/// Where the missing bytes of a flight go, for the kernel.
fn iovecs(flight: &mut Flight, shared: &Shared) -> Result<Vec<libc::iovec>, BlocksError> {
    let slices = flight.buffers(shared)?;
    Ok(slices
        .map(|slice| libc::iovec { iov_base: slice.as_mut_ptr().cast(), iov_len: slice.len() })
        .collect())
}
