//! What the ranks of a life do: they come, take batches, compute, report, save and leave.

use rand::RngExt;
use shade_core::driver::Delivery;
use shade_core::{Resumed, SessionId};
use shade_formats::control::{REFUSE_DRAINING, REFUSE_ENDING, Step};
use shade_formats::ring::Descriptor;

use super::super::super::Event;
use super::job::losses;
use super::life::{Act, Life, Who};
use super::machine::Told;
use super::rank::{Asks, Found, GivenBase, Heir, Held, Rank, Stage, Start};
use super::rows::rows;
use super::training::{Given, State};

/// Batches that a trainer has computed and keeps.
const KEPT_MAX: usize = 2;

impl Life {
    /// The rank, unless it is gone or was one of an earlier run.
    pub(super) fn rank(&mut self, who: Who) -> Option<&mut Rank> {
        let training = self.trainings.get_mut(who.training).filter(|training| training.run == who.run)?;
        training.ranks.get_mut(who.rank).filter(|rank| !rank.is_gone)
    }

    /// The same, while its training goes on.
    pub(super) fn rank_here(&mut self, who: Who) -> Option<&mut Rank> {
        let is_here = self.trainings[who.training].state == State::Here;
        self.rank(who).filter(|_| is_here)
    }

    /// The ranks of a training.
    pub(super) fn all(&self, training: usize) -> Vec<Who> {
        let run = self.trainings[training].run;
        (0..self.trainings[training].ranks.len()).map(|rank| Who { training, rank, run }).collect()
    }

    /// The rank that this holds for.
    fn find(&self, is_it: impl Fn(&Rank) -> bool) -> Option<Who> {
        let ranks = (0..self.trainings.len()).flat_map(|training| self.all(training));
        let holds = |who: &Who| {
            let rank = &self.trainings[who.training].ranks[who.rank];
            !rank.is_gone && is_it(rank)
        };
        ranks.into_iter().find(holds)
    }

    /// The rank of a session.
    fn of_session(&self, session: SessionId) -> Option<Who> {
        self.find(|rank| rank.session == Some(session))
    }

    /// All ranks of a training come, each at its time.
    pub(super) fn come(&mut self, nth: usize) {
        self.trainings[nth].come(&mut self.random);
        for who in self.all(nth) {
            let after_ns = self.draw(20);
            self.plan(after_ns, Act::Hello(who));
        }
    }

    /// A rank says hello.
    pub(super) fn hello(&mut self, who: Who) {
        let is_first = |rank: &mut Rank| rank.session.is_none() && rank.heir == Heir::None;
        if !self.rank_here(who).is_some_and(|rank| rank.heir == Heir::Sought || is_first(rank)) {
            return;
        }
        let session = self.next_session();
        let (job, number) =
            (self.trainings[who.training].job.clone(), self.trainings[who.training].ranks[who.rank].number);
        // Before the answer: the daemon may die on the way.
        let before =
            std::mem::replace(&mut self.trainings[who.training].ranks[who.rank].heir, Heir::Greeted(session));
        let answer = self.process().hello(session, &job.name, number, &job.spec, &job.tables);
        let Err(code) = answer else { return };
        self.trainings[who.training].ranks[who.rank].heir = before;
        if code == REFUSE_ENDING {
            // The next daemon takes it.
            let after_ns = self.draw(50);
            return self.plan(after_ns, Act::Hello(who));
        }
        assert_eq!(code, REFUSE_DRAINING);
        self.kill(who.training, true);
    }

    /// Ranks hear what the daemon has told them.
    pub(super) fn hear(&mut self) {
        while let Some(process) =
            self.process.as_mut().filter(|process| !process.driver.world.told.is_empty())
        {
            for told in std::mem::take(&mut process.driver.world.told) {
                match told {
                    Told::Accepted(session) => self.accepted(session),
                    Told::Refused(text) => panic!("a job that the core takes is refused: {text}"),
                    Told::Published(delivery) => self.published(delivery),
                    Told::Base(session, epoch, bytes) => {
                        self.is_given_base(session, GivenBase { epoch, bytes })
                    }
                    Told::State(session, bytes) => self.has_saved(session, bytes),
                    Told::Loaded(session, resumed) => self.has_loaded(session, resumed),
                    Told::Taken(session) => self.seats_are_taken(session),
                    Told::Ended(session, text) => self.is_ended(session, &text),
                }
            }
        }
    }

    fn accepted(&mut self, session: SessionId) {
        self.note(format_args!("session {session} is accepted"));
        let now_ns = self.now_ns;
        let Some(who) = self.find(|rank| rank.heir == Heir::Greeted(session)) else { return };
        let has_seats = self.trainings[who.training].job.seats.is_some();
        let rank = &mut self.trainings[who.training].ranks[who.rank];
        if rank.session.is_some() {
            // What the rank has told its daemon, the successor is told with the hello.
            return if rank.has_told_seats {
                self.tell_seats(who, session)
            } else {
                self.has_found(who, session)
            };
        }
        rank.heir = Heir::None;
        rank.link(now_ns, session);
        if has_seats {
            rank.asks = Some(Asks::Seat);
            self.tell_seats(who, session);
        } else {
            self.is_seated(who);
        }
    }

    fn tell_seats(&mut self, who: Who, session: SessionId) {
        let bytes = self.trainings[who.training].job.seats.clone().unwrap_or_default();
        self.tell(Event::Seat { session, bytes });
    }

    fn seats_are_taken(&mut self, session: SessionId) {
        self.note(format_args!("the seats of session {session} are taken"));
        if let Some(who) = self.find(|rank| rank.heir == Heir::Greeted(session)) {
            return self.has_found(who, session);
        }
        let Some(who) = self.of_session(session) else { return };
        let rank = &mut self.trainings[who.training].ranks[who.rank];
        if rank.asks.take_if(|asks| *asks == Asks::Seat).is_some() {
            rank.has_told_seats = true;
            self.is_seated(who);
        }
    }

    /// The successor of a rank's daemon is there.
    fn has_found(&mut self, who: Who, session: SessionId) {
        self.trainings[who.training].ranks[who.rank].heir = Heir::Found(session);
        let after_ns = self.draw(10);
        self.plan(after_ns, Act::GoOver(who));
    }

    /// A rank has come, and loads its state or begins.
    fn is_seated(&mut self, who: Who) {
        if self.trainings[who.training].saved.is_none() {
            return self.start_epoch(who, 0, 0);
        }
        self.trainings[who.training].ranks[who.rank].asks = Some(Asks::Load);
        self.ask(who);
    }

    /// Asks the daemon, if it lives and knows of what is asked for.
    pub(super) fn ask(&mut self, who: Who) {
        let training = &mut self.trainings[who.training];
        let rank = &mut training.ranks[who.rank];
        let Some((session, asks)) = rank.live_session().zip(rank.asks) else { return };
        match asks {
            Asks::Seat => self.tell_seats(who, session),
            Asks::Load => {
                let bytes = training.saved.as_ref().expect("a state that was saved").bytes.clone();
                self.tell(Event::LoadState { session, strata: 0, bytes });
            }
            Asks::Save { epoch, batch, .. } => {
                let stale = rank.look_for_beginning();
                let is_sent = rank.is_begun(epoch, batch);
                rank.asks = Some(Asks::Save { epoch, batch, is_sent });
                if is_sent {
                    self.tell(Event::SaveState { session, epoch, batch });
                }
                stale.iter().for_each(|descriptor| self.release(who, session, descriptor.seq));
            }
        }
    }

    /// A rank's state is loaded.
    fn has_loaded(&mut self, session: SessionId, resumed: Resumed) {
        self.note(format_args!("session {session} has loaded {resumed:?}"));
        let Some(who) = self.of_session(session) else { return };
        let training = &mut self.trainings[who.training];
        let saved = training.saved.as_ref().expect("a state that was saved").bytes.clone();
        let rank = &mut training.ranks[who.rank];
        assert_eq!(rank.asks.take(), Some(Asks::Load), "a state that nobody asked for");
        rank.begin_anew(saved);
        // Trainers wait for each other, as they do with each batch.
        if training.load(resumed) {
            self.lived.resumed += u64::from(training.is_saved_within());
            for who in self.all(who.training) {
                self.start_epoch(who, resumed.epoch, resumed.first_batch);
            }
        }
    }

    fn start_epoch(&mut self, who: Who, epoch: u32, first_batch: u32) {
        let rank = &mut self.trainings[who.training].ranks[who.rank];
        let (start, session) = (rank.start(epoch, first_batch), rank.live_session());
        if let Some(session) = session {
            self.tell_start(session, start);
        }
        self.give_turn(who, 1);
    }

    pub(super) fn tell_start(&mut self, session: SessionId, start: Start) {
        self.note(format_args!("session {session} asks for {start:?}"));
        let Start { generation, epoch, first_batch, has_taken } = start;
        self.tell(Event::StartEpoch { session, generation, epoch, first_batch, has_taken });
    }

    /// A rank begins its next epoch, perhaps after a validation.
    pub(super) fn start_next(&mut self, who: Who) {
        let Some(rank) = self.rank_here(who) else { return };
        let (epoch, session) = (rank.place.epoch + 1, rank.live_session());
        if who.rank == 0 {
            let score = self.random.random_range(0.0..1.0);
            self.trainings[who.training].ranks[0].redo.say(Step::Validated { score });
            if let Some(session) = session {
                self.tell(Event::Validation { session, score });
            }
        }
        self.start_epoch(who, epoch, 0);
    }

    /// A rank goes on by itself, within this many milliseconds.
    pub(super) fn give_turn(&mut self, who: Who, ms: u64) {
        let rank = &mut self.trainings[who.training].ranks[who.rank];
        if !std::mem::replace(&mut rank.has_turn, true) {
            let after_ns = self.draw(ms);
            self.plan(after_ns, Act::Turn(who));
        }
    }

    fn is_given_base(&mut self, session: SessionId, base: GivenBase) {
        self.note(format_args!("session {session} is given the base of epoch {}", base.epoch));
        let who = self.find(|rank| rank.session == Some(session) || rank.heir == Heir::Found(session));
        let Some(who) = who else { return };
        let rank = &mut self.trainings[who.training].ranks[who.rank];
        assert_eq!(rank.session, Some(session), "a base for a rank that asks for no epoch");
        rank.base = Some(base);
    }

    fn published(&mut self, delivery: Delivery) {
        let Some(who) = self.of_session(delivery.session) else { return };
        let rank = &mut self.trainings[who.training].ranks[who.rank];
        rank.ring.push_back(delivery);
        match rank.asks {
            Some(Asks::Save { is_sent: false, .. }) => self.ask(who),
            Some(_) => {}
            None if rank.place.stage == Stage::Running => self.give_turn(who, 1),
            None => {}
        }
    }

    /// A rank has computed its batch, and takes the next.
    pub(super) fn turn(&mut self, who: Who) {
        let Some(rank) = self.rank_here(who) else { return };
        rank.has_turn = false;
        if rank.asks.is_some() {
            return;
        }
        self.report(who);
        self.may_save(who);
        let Some(rank) = self.rank_here(who) else { return };
        if rank.asks.is_some() || rank.place.stage != Stage::Running {
            return;
        }
        while let Some(found) = self.trainings[who.training].ranks[who.rank].take() {
            match found {
                Found::Stale(Descriptor { seq, .. }) => self.release_own(who, seq),
                Found::Batch(expected, delivery) => return self.take_batch(who, expected, delivery),
                Found::End(descriptor) => return self.take_end(who, descriptor),
                Found::Error(Descriptor { seq, .. }, text) => {
                    assert!(text.contains("the store is gone"), "an epoch failed: {text}");
                    self.release_own(who, seq);
                    return self.doom(who.training);
                }
            }
        }
        let rank = &mut self.trainings[who.training].ranks[who.rank];
        let seq = rank.awaits();
        if let Some(session) = rank.live_session() {
            self.tell(Event::Waits { session, seq });
        }
    }

    fn take_batch(&mut self, who: Who, expected: u32, delivery: Delivery) {
        let Delivery { session, descriptor, .. } = delivery;
        let rows = rows(&delivery);
        let (epoch, batch, skipped) = (descriptor.epoch, descriptor.batch, descriptor.skipped);
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        self.note(format_args!("{who:?} takes batch {batch} of epoch {epoch}: {ids:?}"));
        let training = &mut self.trainings[who.training];
        let rank = &mut training.ranks[who.rank];
        assert_eq!(epoch, rank.place.epoch, "a batch of an epoch that the rank is not in");
        rank.held.push(Held {
            session,
            seq: descriptor.seq,
            generation: descriptor.generation,
            epoch,
            batch,
            ids,
            is_reported: false,
        });
        let given = Given { rank: rank.number, number: batch, rows, skipped };
        training.give(epoch, expected, given);
        self.lived.batches += 1;
        self.lived.taken.push((self.now_ns, session, descriptor.seq));
        self.process.iter_mut().for_each(|process| process.has_delivered = true);
        self.give_turn(who, 30);
    }

    fn take_end(&mut self, who: Who, descriptor: Descriptor) {
        self.note(format_args!("{who:?} is told of the end of epoch {}", descriptor.epoch));
        self.release_own(who, descriptor.seq);
        let training = &mut self.trainings[who.training];
        let &Rank { number, place, .. } = &training.ranks[who.rank];
        let (epoch, expected) = (place.epoch, place.batch);
        assert_eq!(descriptor.epoch, epoch, "the end of an epoch that the rank is not in");
        let is_over = training.end(number, epoch, expected, descriptor.batch);
        let is_last = epoch + 1 == training.job.epochs;
        self.lived.epochs += u64::from(is_over);
        if is_over && is_last {
            self.kill(who.training, true);
        } else if !is_last {
            let after_ns = self.draw(20);
            self.plan(after_ns, Act::Start(who));
        }
    }

    /// A rank reports what it has computed, and releases it, or keeps a little.
    fn report(&mut self, who: Who) {
        let training = &mut self.trainings[who.training];
        let (reports, rank) = (training.reports, &mut training.ranks[who.rank]);
        let session = rank.live_session();
        let mut held = std::mem::take(&mut rank.held);
        for held in held.iter_mut().filter(|held| !held.is_reported) {
            held.is_reported = true;
            let rank = &mut self.trainings[who.training].ranks[who.rank];
            if !reports || !rank.is_current(held) {
                continue;
            }
            let (epoch, batch) = (held.epoch, held.batch);
            let losses = losses(held.ids.iter().copied(), epoch);
            rank.redo.report(epoch, batch, &losses);
            let is_told = rank.may_report(held);
            if let Some(session) = session.filter(|_| is_told) {
                self.tell(Event::Report { session, epoch, batch, losses });
            }
        }
        let kept = self.random.random_range(0..=KEPT_MAX);
        let released = held.len().saturating_sub(kept);
        for held in held.drain(..released) {
            self.release(who, held.session, held.seq);
        }
        self.trainings[who.training].ranks[who.rank].held = held;
    }

    fn release_own(&mut self, who: Who, seq: u64) {
        if let Some(session) = self.trainings[who.training].ranks[who.rank].live_session() {
            self.tell(Event::Released { session, seqs: vec![seq] });
        }
    }

    /// Releases what this session was given: a dead daemon does not hear of it.
    fn release(&mut self, who: Who, session: SessionId, seq: u64) {
        if self.trainings[who.training].ranks[who.rank].live_session() == Some(session) {
            self.tell(Event::Released { session, seqs: vec![seq] });
        }
    }

    /// A rank asks now and then for the state before the first batch that some rank has not been
    /// given.
    fn may_save(&mut self, who: Who) {
        let training = &self.trainings[who.training];
        let is_saving = |rank: &Rank| matches!(rank.asks, Some(Asks::Save { .. }));
        let is_running = training.ranks[who.rank].place.stage == Stage::Running;
        if !is_running || training.ranks.iter().any(is_saving) {
            return;
        }
        let Some(batch) = training.next_batch(who.rank) else { return };
        let epoch = training.ranks[who.rank].place.epoch;
        if self.random.random_bool(0.05) {
            let asks = Asks::Save { epoch, batch, is_sent: false };
            self.trainings[who.training].ranks[who.rank].asks = Some(asks);
            self.ask(who);
        }
    }

    /// A state is there.
    fn has_saved(&mut self, session: SessionId, bytes: Vec<u8>) {
        let Some(who) = self.of_session(session) else { return };
        let training = &mut self.trainings[who.training];
        let asks = training.ranks[who.rank].asks.take();
        let Some(Asks::Save { epoch, batch, is_sent: true }) = asks else {
            panic!("a state that nobody asked for: {asks:?}")
        };
        training.save(epoch, batch, bytes);
        self.note(format_args!("{who:?} has saved batch {batch} of epoch {epoch}"));
        self.give_turn(who, 1);
        // Some are killed soon.
        if self.random.random_bool(0.3) {
            let after_ns = self.draw(60);
            self.plan(after_ns, Act::Kill(who.training));
        }
    }

    fn is_ended(&mut self, session: SessionId, text: &str) {
        self.note(format_args!("session {session} is ended: {text}"));
        let Some(who) = self.of_session(session) else { return };
        let training = &self.trainings[who.training];
        let expects = training.is_doomed || training.state != State::Here;
        assert!(expects, "session {session} of {} is ended: {text}", training.job.name);
    }

    /// A training cannot go on, and is killed soon.
    pub(super) fn doom(&mut self, nth: usize) {
        if !std::mem::replace(&mut self.trainings[nth].is_doomed, true) {
            self.lived.restarts += 1;
            let after_ns = self.draw(300);
            self.plan(after_ns, Act::Kill(nth));
        }
    }

    /// All ranks of a training leave, one after the other, and come back unless it is `for_ever`.
    pub(super) fn kill(&mut self, nth: usize, for_ever: bool) {
        if self.trainings[nth].state != State::Here {
            return;
        }
        self.trainings[nth].state = State::Leaving { for_ever };
        for who in self.all(nth) {
            let after_ns = self.draw(20);
            self.plan(after_ns, Act::Leave(who));
        }
    }

    pub(super) fn leave(&mut self, who: Who) {
        let Some(rank) = self.rank(who) else { return };
        let heir = match rank.heir {
            Heir::Greeted(session) | Heir::Found(session) => Some(session),
            Heir::None | Heir::Sought => None,
        };
        let sessions = [rank.live_session(), heir];
        rank.is_gone = true;
        for session in sessions.into_iter().flatten() {
            self.process.iter_mut().for_each(|process| process.leave(session));
        }
        let training = &mut self.trainings[who.training];
        if !training.ranks.iter().all(|rank| rank.is_gone) {
            return;
        }
        let for_ever = training.state == State::Leaving { for_ever: true };
        training.state = if for_ever { State::Over } else { State::Away };
        if !for_ever {
            let after_ns = self.draw(2000);
            self.plan(after_ns, Act::Come(who.training));
        }
    }
}
