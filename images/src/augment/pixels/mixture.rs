//! The mixture of a row with changed copies of it, in the arithmetic of torch.

use multiversion::multiversion;

use super::neighbours::cut;
use crate::{SCRATCH_KEEP_BYTES, scratch, shrink};

/// A step of a mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mix {
    /// The row counts with this share. What follows changes a copy of it.
    Begin(f32),
    /// The copy counts with this share. The next copy is the row again.
    Add(f32),
    /// The mixture becomes the row.
    End,
}

/// Buffers of a mixture.
#[derive(Default)]
pub(super) struct Mixture {
    row: Vec<u8>,
    sums: Vec<f32>,
}

impl Mixture {
    /// Does a step, where `copy` are the planes that are changed.
    pub(super) fn step(&mut self, copy: &mut [u8], step: Mix) {
        let row = scratch(&mut self.row, copy.len());
        match step {
            Mix::Begin(share) => {
                row.copy_from_slice(copy);
                self.sums.clear();
                self.sums.extend(row.iter().map(|&level| f32::from(level) * share));
            }
            Mix::Add(share) => {
                add(&mut self.sums, copy, share);
                copy.copy_from_slice(row);
            }
            // The shares make 1.
            Mix::End => cut(&self.sums, copy),
        }
    }

    /// Frees the buffers if a large image made them grow.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.row);
        if size_of::<f32>() * self.sums.capacity() > SCRATCH_KEEP_BYTES {
            self.sums = Vec::new();
        }
    }
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn add(sums: &mut [f32], copy: &[u8], share: f32) {
    for (sum, &level) in sums.iter_mut().zip(copy) {
        *sum += f32::from(level) * share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_count_by_their_shares_and_begin_as_the_row() {
        let mut mixture = Mixture::default();
        let mut copy = vec![100, 255, 0, 7];
        mixture.step(&mut copy, Mix::Begin(0.5));
        copy.fill(200);
        mixture.step(&mut copy, Mix::Add(0.25));
        assert_eq!(copy, [100, 255, 0, 7]);
        copy.fill(3);
        mixture.step(&mut copy, Mix::Add(0.25));
        mixture.step(&mut copy, Mix::End);
        // Cut, not rounded: 100.75, 178.25, 50.75 and 54.25.
        assert_eq!(copy, [100, 178, 50, 54]);
    }
}
