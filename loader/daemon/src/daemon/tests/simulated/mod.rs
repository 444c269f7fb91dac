//! The daemon's life under seeds, without sockets, threads and clocks: what main decides between
//! two events, the core, and the cache's real memory. Around them trainings come, train, validate,
//! save, die and come back, where they were or with other ranks; the store and the tier fail; the
//! cache is resized; the user drains the daemon or stops it. And the daemon is killed, before any
//! of its actions, and its ranks go over to a successor, which begins from nothing.
//!
//! Each seed is another life. A seed that fails is printed, and replayed by `SHADE_SEEDS=SEED cargo
//! test -p shade-load --lib simulated`, with `SHADE_TELL=1` and `-- --nocapture` step by step.
//! `SHADE_SEEDS=1000..9000` plays many.
//!
//! | file | what it has |
//! |---|---|
//! | `life` | the daemons of a life, and what people do at which time |
//! | `trains`, `rank`, `redo` | what ranks do; the rules of their client; what they keep |
//! | `deaths` | a daemon dies: what its ranks do |
//! | `training` | what a training was given, and whether that was promised |
//! | `job`, `undisturbed` | jobs, and what each is given in a life in which nothing happens |
//! | `process`, `machine` | one daemon; its store, tier and workers, and when it dies |
//! | `rows`, `dataset`, `lived` | rows, their dataset, and what came of lives |

mod dataset;
mod deaths;
mod job;
mod life;
mod lived;
mod machine;
mod process;
mod rank;
mod redo;
mod rows;
mod training;
mod trains;
mod undisturbed;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use life::Life;
use lived::Lived;

/// Seeds that each test run plays.
const SEEDS: u64 = 60;
/// Lives after which a long run says how far it is.
const TOLD_EVERY: u64 = 10_000;
/// Failing seeds after which no other is played.
const FAILURES_MAX: usize = 10;

/// `SHADE_SEEDS`: one seed, or FROM..TO.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SHADE_SEEDS") else { return 0..SEEDS };
    let number = |text: &str| text.parse::<u64>().expect("SHADE_SEEDS is a number, or FROM..TO");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

/// Plays lives, as many at once as there are CPUs. Returns what came of them, and the seeds that
/// failed.
fn play(seeds: Range<u64>) -> (Lived, Vec<u64>) {
    let next = AtomicU64::new(seeds.start);
    let came = Mutex::new((Lived::default(), Vec::new()));
    let play_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || came.lock().unwrap().1.len() >= FAILURES_MAX {
                return;
            }
            let life = std::panic::catch_unwind(|| Life::new(seed).live());
            let (lived, failed) = &mut *came.lock().unwrap();
            match life {
                Ok(life) => {
                    lived.add(life);
                    if lived.lives % TOLD_EVERY == 0 {
                        println!("{} lives so far, with {} deaths", lived.lives, lived.deaths);
                    }
                }
                Err(_) => {
                    println!("seed {seed} failed: SHADE_SEEDS={seed} plays it again\n{}", Life::new(seed));
                    failed.push(seed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(play_some))));
    came.into_inner().unwrap()
}

#[test]
fn each_life_of_a_daemon_keeps_its_promises() {
    let begun = Instant::now();
    let (lived, failed) = play(seeds());
    println!("{}", lived.told(begun.elapsed()));
    assert!(failed.is_empty(), "seeds {failed:?}: SHADE_SEEDS=SEED plays one again");
    assert!(lived.epochs > 0, "nobody trained");
    if std::env::var_os("SHADE_SEEDS").is_none() {
        assert!(lived.resumed > 0, "nobody went on in mid-epoch");
        assert!(lived.deaths > 0 && lived.successions > 0, "no daemon was replaced");
    }
}

#[test]
fn equal_seeds_are_equal_lives() {
    for seed in 0..20 {
        assert_eq!(Life::new(seed).live(), Life::new(seed).live(), "seed {seed}");
    }
}
