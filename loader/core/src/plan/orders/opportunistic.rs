//! The order `opportunistic`, after DeepIO: each sample is drawn from what is in memory at the
//! time.
//!
//! Memory begins with the draws of residents. Each delivered draw is replaced by the next of the
//! others, which stream in by sample id from a random one on. So a draw that is read earlier comes
//! earlier, and the less memory there is, the less random is the order: `entropy` measures it.
//! Every draw comes once.

use shade_formats::SampleId;

use super::ordered::Ordered;
use crate::plan::inputs::Inputs;
use crate::plan::random::{Random, Stage};

/// Lists each sample as often as `counts` says.
pub(super) fn opportunistic(counts: &[u32], inputs: &Inputs<'_>) -> Ordered {
    list(counts, inputs.residents(), &mut inputs.random(Stage::Opportune)).into()
}

/// The draws in this order. Without residents there is no memory to draw from: then it is a
/// shuffle.
fn list(counts: &[u32], resident: &[bool], random: &mut Random) -> Vec<SampleId> {
    let (mut memory, mut stream) = (Vec::new(), Vec::new());
    for ((id, &count), &resident) in (0..).map(SampleId).zip(counts).zip(resident) {
        let draws = std::iter::repeat_n(id, count as usize);
        if resident { memory.extend(draws) } else { stream.extend(draws) }
    }
    if memory.is_empty() {
        random.shuffle(&mut stream);
        return stream;
    }
    let from = random.position(stream.len());
    stream.rotate_left(from);
    let mut ids = Vec::with_capacity(memory.len() + stream.len());
    for next in stream {
        let drawn = random.position(memory.len());
        if let Some(place) = memory.get_mut(drawn) {
            ids.push(std::mem::replace(place, next));
        }
    }
    random.shuffle(&mut memory);
    ids.append(&mut memory);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residents_come_early_and_everything_once() {
        let resident: Vec<bool> = (0..1000).map(|id| id % 10 == 0).collect();
        let mut random = Random::new(1, 1, Stage::Opportune);
        let ids = list(&[1; 1000], &resident, &mut random);
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq((0..1000).map(SampleId)));
        // A resident waits for 100 deliveries on average, of 1000.
        let late = ids.iter().skip(500).filter(|id| resident[id.index()]).count();
        assert!(late <= 5, "{late} residents in the second half");
    }

    #[test]
    fn nothing_resident_is_a_shuffle() {
        let mut random = Random::new(1, 1, Stage::Opportune);
        let ids = list(&[2, 0, 1], &[false; 3], &mut random);
        assert_eq!(ids.len(), 3);
        assert_eq!(list(&[], &[], &mut random), []);
    }
}
