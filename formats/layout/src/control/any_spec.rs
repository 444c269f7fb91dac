//! Any specification of a job, for tests of messages that carry one.

use proptest::prelude::*;

use super::{Framing, ImageSpec, JobSpec, OnError, Order, Output, PlanSpec, Sampler, Tail};

fn choice<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![
        Just(Framing::Cover),
        Just(Framing::Stretch),
        any::<u32>().prop_map(|short| Framing::Center { short }),
        any::<(u32, u32)>().prop_map(|(short, padding)| Framing::Random { short, padding }),
        any::<([f64; 2], [f64; 2])>().prop_map(|(scale, ratio)| Framing::RandomResized { scale, ratio }),
    ]
}

prop_compose! {
    fn images()(
        height: u32, width: u32, framing in framing(), flip: f64, channels_last: bool, exact: bool,
    ) -> ImageSpec {
        ImageSpec { height, width, framing, flip, channels_last, exact }
    }
}

fn output() -> impl Strategy<Value = Output> {
    prop_oneof![
        Just(Output::Raw),
        images().prop_map(Output::Decoded),
        any::<bool>().prop_map(|channels_last| Output::Ragged { channels_last }),
    ]
}

prop_compose! {
    pub(super) fn any_spec()(
        sampler in choice(Sampler::ALL), order in choice(Order::ALL), tail in choice(Tail::ALL),
        on_error in choice(OnError::ALL), seed: u64, rep: f64, hit_cap: f64, explore: f64, cover: u32,
        echo: f64, prune_and_whole: (f64, u32), pace: bool, draw_ahead: bool, bad_max: f64,
        numbers: (u32, u32, u64), output in output(),
    ) -> JobSpec {
        JobSpec {
            plan: PlanSpec {
                sampler,
                order,
                seed,
                rep,
                hit_cap,
                cover,
                explore,
                echo,
                prune: prune_and_whole.0,
                whole_from: prune_and_whole.1,
                pace,
                draw_ahead,
            },
            batch_size: numbers.0,
            world_size: numbers.1,
            tail,
            output,
            on_error,
            bad_max,
            ring_bytes: numbers.2,
        }
    }
}
