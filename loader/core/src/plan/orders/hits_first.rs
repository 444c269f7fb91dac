//! The order `hits_first`, as SHADE's code has it: the draws of resident samples, then the others,
//! each part shuffled. It is here to compare with: the end of the epoch has only misses.

use super::ordered::Ordered;
use super::shuffled::{list, with_room};
use crate::plan::inputs::Inputs;
use crate::plan::random::Stage;

/// Lists each sample as often as `counts` says.
pub(super) fn hits_first(counts: &[u32], inputs: &Inputs<'_>) -> Ordered {
    let residents = inputs.residents();
    let mut shuffle = inputs.random(Stage::Shuffle);
    let mut ids = with_room(counts);
    list(&mut ids, counts, |sample| residents[sample]);
    let split = ids.len();
    list(&mut ids, counts, |sample| !residents[sample]);
    let (hits, misses) = ids.split_at_mut(split);
    shuffle.shuffle(hits);
    shuffle.shuffle(misses);
    Ordered { ids, split }
}
