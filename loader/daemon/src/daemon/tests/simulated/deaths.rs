//! The daemon dies, or is stopped: what becomes of its ranks.
//!
//! All that its process had is dropped. What it had told its ranks lies in their rings and sockets:
//! they go on with it until each has found a successor, at a time of its own. That begins from
//! nothing.

use rand::RngExt;

use super::super::super::Event;
use super::life::{Act, Life, Who};
use super::machine::UnderWay;
use super::process::Process;
use super::rank::{Heir, Rank, Stage};
use super::redo::HandedOver;
use super::training::{State, Training};

impl Life {
    /// The daemon is dead.
    pub(super) fn bury(&mut self) {
        let Some(process) = self.process.take() else { return };
        self.lived.actions += process.driver.world.fate.lived;
        self.note(format_args!("killed before it would {}", process.driver.world.fate.at));
        self.note_death(&process);
        self.deaths_left -= 1;
        drop(process);
        for nth in 0..self.trainings.len() {
            for who in self.all(nth) {
                self.lose(who);
            }
        }
    }

    /// A rank's daemon is gone.
    fn lose(&mut self, who: Who) {
        let is_first_to_go_over = self.random.random_bool(0.5);
        let (now_ns, training) = (self.now_ns, &mut self.trainings[who.training]);
        let is_here = training.state == State::Here;
        let rank = &mut training.ranks[who.rank];
        if rank.is_gone {
            return;
        }
        let heir = std::mem::replace(&mut rank.heir, Heir::None);
        if !is_here {
            rank.is_linked = false;
            return;
        }
        let goes_on = match heir {
            // The first daemon that it finds may die as well: it says hello to the next.
            Heir::Greeted(_) | Heir::None if rank.session.is_none() => return self.say_hello_soon(who),
            // It was told already that it does not go on.
            Heir::None if !rank.is_linked => return,
            Heir::None => rank.note_death(now_ns),
            Heir::Sought => {
                rank.heir = heir;
                return;
            }
            Heir::Found(session) if is_first_to_go_over => {
                rank.succeed(now_ns, session);
                rank.note_death(now_ns)
            }
            Heir::Greeted(_) | Heir::Found(_) => rank.note_heirs_death(),
        };
        if goes_on { self.say_hello_soon(who) } else { self.doom(who.training) }
    }

    /// A rank notices at once, or soon. What it finds in its ring meanwhile, it takes.
    fn say_hello_soon(&mut self, who: Who) {
        let ms = if self.random.random_bool(0.7) { 10 } else { 400 };
        let after_ns = self.draw(ms);
        self.plan(after_ns, Act::Hello(who));
    }

    /// A rank goes over to the successor that it has found.
    pub(super) fn go_over(&mut self, who: Who) {
        let now_ns = self.now_ns;
        let Some(rank) = self.rank_here(who) else { return };
        let Heir::Found(session) = rank.heir else { return };
        let (start, asks) = (rank.succeed(now_ns, session), rank.asks.is_some());
        let HandedOver { base, record } = rank.redo.hand_over();
        let version = base.as_ref().map(|(version, _)| *version);
        let text = format!("session {session} hands over {version:?}, record {}", record.is_some());
        self.lived.successions += 1;
        self.note(format_args!("{text}"));
        if let Some((version, bytes)) = base {
            self.tell(Event::TakeBase { session, version, bytes });
        }
        if let Some(bytes) = record {
            self.tell(Event::TakeRedo { session, bytes });
        }
        if let Some(start) = start {
            self.tell_start(session, start);
        }
        if asks {
            self.ask(who);
        } else if self.trainings[who.training].ranks[who.rank].place.stage == Stage::Running {
            self.give_turn(who, 1);
        }
    }

    /// The user stops the daemon: its ranks are told, and look for no successor.
    pub(super) fn stop(&mut self) {
        let Some(process) = self.process.take() else { return };
        self.lived.actions += process.driver.world.fate.lived;
        drop(process);
        for nth in 0..self.trainings.len() {
            for who in self.all(nth) {
                let rank = &mut self.trainings[who.training].ranks[who.rank];
                let was_there = rank.is_linked || matches!(rank.heir, Heir::Greeted(_) | Heir::Found(_));
                if was_there && !rank.is_gone {
                    (rank.is_linked, rank.heir) = (false, Heir::None);
                    self.doom(nth);
                }
            }
        }
    }

    /// Counts a death, by what was under way.
    fn note_death(&mut self, process: &Process) {
        let fate = &process.driver.world.fate;
        self.lived.deaths += 1;
        self.lived.fruitless += u64::from(!process.has_delivered);
        *self.lived.before.entry(fate.at).or_default() += 1;
        let UnderWay { aside, reads, fills } = process.driver.world.under_way();
        let any = |is_so: &dyn Fn(&Rank) -> bool| {
            let here = self.trainings.iter().filter(|training| training.state == State::Here);
            here.flat_map(|training| &training.ranks).any(is_so)
        };
        let leaves = |training: &Training| matches!(training.state, State::Leaving { .. });
        let amid = [
            ("drawing or saving aside", aside > 0),
            ("reads", reads > 0),
            ("fills", fills > 0),
            ("a resize", process.gives_back()),
            ("a drain", process.lifecycle.is_draining()),
            ("hand-over", any(&|rank| rank.heir != Heir::None)),
            ("the beginning after hand-over", any(&|rank| rank.is_linked && rank.is_unbegun)),
            ("an attach, a question or a load", any(&|rank| rank.session.is_none() || rank.asks.is_some())),
            ("an epoch's end", any(&|rank| rank.place.stage == Stage::Ended)),
            ("a training that leaves", self.trainings.iter().any(leaves)),
        ];
        for (what, _) in amid.into_iter().filter(|(_, is_so)| *is_so) {
            *self.lived.amid.entry(what).or_default() += 1;
        }
    }
}
