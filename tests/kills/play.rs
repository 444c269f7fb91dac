//! Loops that train under kills: each takes epochs of its sessions in turn, and notes what it was
//! given.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shade_client::{Batch, FieldsReader, JobSpec, Next, Options, Session};
use shade_tests::copy;

use crate::killer::{Killer, Moment};
use crate::ledger::{Ledger, Mark, rows};

/// Ends a loop that would hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// Why a loop ends that does nothing wrong.
const OTHERS: &str = "another loop has failed";

/// A rank of a job.
#[derive(Clone)]
pub(crate) struct Rank {
    /// The number of its daemon's place.
    pub(crate) place: usize,
    pub(crate) dataset: PathBuf,
    pub(crate) job: String,
    pub(crate) number: u32,
    pub(crate) spec: JobSpec,
    pub(crate) options: Options,
    /// It reports losses of each batch.
    pub(crate) reports: bool,
    /// It reads the extra fields of each batch.
    pub(crate) reads_fields: bool,
}

/// A training loop: an epoch of each of its sessions, again and again, as one that validates after
/// each epoch.
#[derive(Clone)]
pub(crate) struct Loop {
    pub(crate) ranks: Vec<Rank>,
    /// Loops of one course have equally many epochs, as ranks of one job.
    pub(crate) course: usize,
    /// What a batch computes.
    pub(crate) pace: Duration,
}

/// How many epochs loops have.
#[derive(Debug, Default)]
struct Course {
    /// The latest epoch that a loop has begun.
    begun: u32,
    last: Option<u32>,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Played {
    /// By loop and rank.
    pub(crate) ledgers: Vec<Vec<Ledger>>,
    /// The last epoch of each course.
    pub(crate) last: Vec<u32>,
    pub(crate) exceptions: Vec<String>,
    pub(crate) successors: u32,
    /// From nothing to each rank's first batch.
    pub(crate) starts: Vec<Duration>,
}

struct Stage<'a> {
    killer: &'a Killer,
    courses: Vec<Mutex<Course>>,
    has_failed: AtomicBool,
    started: Instant,
}

impl Stage<'_> {
    /// Whether the course has this epoch.
    fn begins(&self, course: usize, epoch: u32) -> bool {
        let mut course = self.courses[course].lock().unwrap_or_else(PoisonError::into_inner);
        if course.last.is_some_and(|last| epoch > last) {
            return false;
        }
        course.begun = course.begun.max(epoch);
        true
    }

    /// No further epoch begins. Returns the last one of each course.
    fn end(&self) -> Vec<u32> {
        let last = |course: &Mutex<Course>| {
            let mut course = course.lock().unwrap();
            let begun = course.begun;
            *course.last.get_or_insert(begun)
        };
        self.courses.iter().map(last).collect()
    }

    fn next(&self, session: &Session) -> Result<Option<Batch>, String> {
        let started = Instant::now();
        loop {
            match session.next(Duration::from_millis(100)).map_err(|error| error.with_causes())? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::EpochEnd => return Ok(None),
                Next::Pending if self.has_failed.load(Ordering::Relaxed) => return Err(OTHERS.to_owned()),
                Next::Pending if started.elapsed() > PATIENCE => {
                    return Err(format!(
                        "no batch within {PATIENCE:?}, from process {}",
                        session.daemon_pid()
                    ));
                }
                Next::Pending => {}
            }
        }
    }
}

/// A rank in its loop.
struct Player<'a> {
    stage: &'a Stage<'a>,
    rank: &'a Rank,
    /// Its number among all ranks.
    number: usize,
    session: Arc<Session>,
    fields: Option<FieldsReader>,
    ledger: Ledger,
    warnings: usize,
}

impl Player<'_> {
    fn epoch(&mut self, epoch: u32, pace: Duration) -> Result<(), String> {
        let killer = self.stage.killer;
        killer.at(self.number, Moment::BeforeEpoch);
        self.session.start_epoch(epoch, 0).map_err(|error| error.with_causes())?;
        killer.at(self.number, Moment::EpochStarted);
        loop {
            killer.at(self.number, Moment::BeforeBatch);
            let daemon = self.session.daemon_pid();
            let Some(batch) = self.stage.next(&self.session)? else { return Ok(()) };
            let (at, successors) = (Instant::now(), self.session.successors());
            self.warnings += std::iter::from_fn(|| self.session.take_warning()).count();
            let taken = copy(&batch);
            let ids: Vec<i64> = taken.ids.iter().map(|&id| id.into()).collect();
            let read = self.fields.as_ref().map(|fields| fields.read(&ids));
            let fields = read.transpose().map_err(|error| error.with_causes())?.unwrap_or_default();
            let rows = rows(&taken, &fields);
            self.ledger.push(Mark { epoch: taken.epoch, number: taken.number, rows, at, successors });
            if self.session.daemon_pid() == daemon {
                self.stage.killer.ranks[self.number].daemon.store(daemon, Ordering::Relaxed);
            }
            if self.rank.reports {
                killer.at(self.number, Moment::BeforeReport);
                let own = u32::try_from(self.rank.spec.plan.seed).unwrap();
                let loss = |&id: &u32| (id * 7919 % 1000) as f32 + ((id + own) * 104_729 % 300) as f32;
                let losses: Vec<f32> = taken.ids.iter().map(loss).collect();
                self.session.report(taken.id, &losses).map_err(|error| error.with_causes())?;
                killer.at(self.number, Moment::Reported);
            }
            if !pace.is_zero() {
                std::thread::sleep(pace);
            }
            killer.at(self.number, Moment::BatchTaken);
        }
    }
}

/// Trains until the killer is done, or the epochs of each course.
pub(crate) fn play(loops: &[Loop], killer: &Killer, epochs: Option<&[u32]>) -> Played {
    let courses = 1 + loops.iter().map(|of| of.course).max().unwrap();
    let course = |course: usize| Mutex::new(Course { begun: 0, last: epochs.map(|last| last[course]) });
    let courses = (0..courses).map(course).collect();
    let stage = Stage { killer, courses, has_failed: AtomicBool::new(false), started: Instant::now() };
    let stage = &stage;
    let mut played = Played::default();
    std::thread::scope(|scope| {
        let mut first = 0;
        let threads: Vec<_> = loops
            .iter()
            .map(|of| {
                let number = first;
                first += of.ranks.len();
                scope.spawn(move || {
                    let ended = run(stage, of, number);
                    if ended.error.is_some() {
                        stage.has_failed.store(true, Ordering::Relaxed);
                        // Others may wait for this one.
                        stage.end();
                        killer.end();
                    }
                    ended
                })
            })
            .collect();
        killer.run();
        played.last = stage.end();
        // Sessions stay until all loops have ended: a rank that has left is waited for.
        let ended: Vec<Ended<'_>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for Ended { players, error } in ended {
            played.exceptions.extend(error.filter(|error| error != OTHERS));
            let mut ledgers = Vec::new();
            for player in players {
                let told = player.warnings + std::iter::from_fn(|| player.session.take_warning()).count();
                let successors = player.session.successors();
                if told != successors as usize {
                    played.exceptions.push(format!("{told} warnings of {successors} successors"));
                }
                played.successors = played.successors.max(successors);
                // A second session of the loop begins an epoch later.
                let first = player.ledger.first().filter(|_| ledgers.is_empty());
                played.starts.extend(first.map(|mark| mark.at - stage.started));
                ledgers.push(player.ledger);
            }
            played.ledgers.push(ledgers);
        }
        killer.ranks.iter().for_each(|rank| drop(rank.session.lock().unwrap().take()));
    });
    played
}

/// A loop's ranks, and why it ended too early.
struct Ended<'a> {
    players: Vec<Player<'a>>,
    error: Option<String>,
}

fn run<'a>(stage: &'a Stage<'a>, of: &'a Loop, first: usize) -> Ended<'a> {
    let mut players = Vec::new();
    for (number, rank) in (first..).zip(&of.ranks) {
        let (spec, options) = (rank.spec.clone(), &rank.options);
        let session = match Session::connect(&rank.dataset, &rank.job, rank.number, spec, options) {
            Ok(session) => Arc::new(session),
            Err(error) => return Ended { players, error: Some(error.with_causes()) },
        };
        *stage.killer.ranks[number].session.lock().unwrap() = Some(Arc::clone(&session));
        let fields = rank.reads_fields.then(|| session.fields(false));
        players.push(Player { stage, rank, number, session, fields, ledger: Vec::new(), warnings: 0 });
    }
    let mut error = None;
    for epoch in 0.. {
        if !stage.begins(of.course, epoch) {
            break;
        }
        error = players.iter_mut().find_map(|player| player.epoch(epoch, of.pace).err());
        if error.is_some() {
            break;
        }
    }
    Ended { players, error }
}
