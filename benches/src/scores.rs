//! CPU time of a node's core to begin an epoch by importance that other nodes are told of, and to
//! take what they tell. Both are on the thread that also serves batches.

use std::sync::Arc;

use shade_core::{Action, Attach, Core, Event};
use shade_formats::control::{Member, OfStratum, Scores};
use shade_job::{Decode, JobSpec, PlanSpec, Policy, Sampler, Tables, strata_for};
use shade_reads::blocks::{Arena, FreeList};

use crate::cpu_time::timed;
use crate::equal::{BLOCK_BYTES, Equal};
use crate::figure::{Figure, Unit};
use crate::job::{core_config, go_on, job};
use crate::result::Result;

/// Nodes, each with one rank.
const NODES: u32 = 8;
/// What an epoch by importance delivers of a hundred samples.
const DELIVERED: u32 = 63;
/// What a sample may take of a message.
const BYTES_PER_SAMPLE: f64 = 1.6;

/// For datasets of `samples` samples.
pub(crate) fn run(samples: u32, runs: u32) -> Result<Vec<Figure>> {
    let strata = strata_for(1, NODES, samples);
    let (_, free) = Arena::create(u64::from(BLOCK_BYTES) * 64, BLOCK_BYTES)?;
    let config = core_config(0, Policy::Lookahead, 1, BLOCK_BYTES);
    let mut core = Core::<FreeList>::new(Arc::new(Equal(samples)), free, config);
    let plan = PlanSpec { sampler: Sampler::Pads, strata, ..PlanSpec::default() };
    let spec = JobSpec { plan, world_size: NODES, ranks_here: 1, ..job(Decode::Raw) };
    let attach = Attach {
        session: 0,
        job: "scores".to_owned(),
        rank: 0,
        spec,
        tables: Tables::default(),
        survives: false,
    };
    let mut actions = Vec::new();
    core.step(0, Event::Attach(Box::new(attach)), &mut actions);
    core.step(0, Event::Ready(0), &mut actions);
    let (mut begun, mut taken, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for epoch in 0..runs {
        let (session, generation, first_batch, has_taken) = (0, epoch + 1, 0, epoch > 0);
        let start = Event::StartEpoch { session, generation, epoch, first_batch, has_taken };
        let (time, ()) = timed(|| {
            core.step(0, start, &mut actions);
            go_on(&mut core, &mut actions);
        });
        begun.push(time.as_secs_f64() * 1e3);
        actions.clear();
        core.step(0, Event::TellScores { session: 0, epoch }, &mut actions);
        let own = told(&mut actions, samples)?;
        let others: Vec<Vec<u8>> = (1..NODES).map(|node| of_node(node, &own, samples)).collect();
        bytes.push(others.iter().map(Vec::len).sum::<usize>() as f64 / f64::from(samples));
        let (time, ()) = timed(|| {
            for bytes in others {
                core.step(0, Event::TakeScores { session: 0, bytes }, &mut actions);
            }
        });
        taken.push(time.as_secs_f64() * 1e3);
        if let Some(Action::Fail(_, text)) = actions.iter().find(|action| matches!(action, Action::Fail(..)))
        {
            return Err(text.clone().into());
        }
    }
    let millions = f64::from(samples) / 1e6;
    let name = |what: &str| format!("scores, one of {NODES} nodes {what}, {millions:.3} million samples");
    Ok(vec![
        Figure::new(name("draws an epoch and tells"), Unit::Ms, begun),
        Figure::new(name("takes what the others tell"), Unit::Ms, taken),
        Figure::new(name("is told"), Unit::BytesPerSample, bytes).with_budget(BYTES_PER_SAMPLE),
    ])
}

/// What the node tells.
fn told(actions: &mut Vec<Action<FreeList>>, samples: u32) -> Result<Scores> {
    match actions.drain(..).find(|action| matches!(action, Action::State(..))) {
        Some(Action::State(_, bytes)) => Ok(Scores::from_bytes(&bytes, samples)?),
        _ => Err("void: the node tells nothing".into()),
    }
}

/// What another node tells after an epoch by importance.
fn of_node(node: u32, own: &Scores, samples: u32) -> Vec<u8> {
    let member = |at: u32| {
        let delivered = (at * 41 + node) % 100 < DELIVERED;
        Member { delivered, score: delivered.then_some(7) }
    };
    let of = (node..own.strata).step_by(NODES as usize).map(|stratum| OfStratum {
        stratum,
        list_crc32c: stratum,
        members: (0..(samples - stratum).div_ceil(own.strata)).map(member).collect(),
    });
    Scores { of: of.collect(), ..own.clone() }.to_bytes()
}
