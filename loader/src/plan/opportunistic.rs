//! The order `opportunistic`, after DeepIO: each sample is drawn from what is in memory at the time.
//!
//! Memory begins with the draws of residents. Each draw that is delivered is replaced by the next of the others, which
//! stream in by sample id from a random one on. So a draw comes the earlier the earlier it was read, and the less memory
//! there is, the less random the order: `entropy` measures it. Every draw comes once.

use shade_formats::SampleId;

use super::random::Random;

/// Lists each sample as often as `counts` says. Without residents there is no memory to draw from: a plain shuffle.
pub(super) fn opportunistic(counts: &[u32], resident: &[bool], random: &mut Random) -> Vec<SampleId> {
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
    use crate::plan::random::Stage;

    #[test]
    fn residents_come_early_and_everything_once() {
        let resident: Vec<bool> = (0..1000).map(|id| id % 10 == 0).collect();
        let mut random = Random::new(1, 1, Stage::Opportune);
        let ids = opportunistic(&[1; 1000], &resident, &mut random);
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
        let ids = opportunistic(&[2, 0, 1], &[false; 3], &mut random);
        assert_eq!(ids.len(), 3);
        assert_eq!(opportunistic(&[], &[], &mut random), []);
    }
}
