//! Which use of its sample each position of a group's plan is.

use std::mem::replace;

use shade_formats::SampleId;

/// By position of a plan: which use of its sample it is, counted from 0. Empty if no sample comes
/// twice. An exchange does not change it: only samples that come once change places.
#[derive(Debug, Default)]
pub(super) struct UseNumbers(Vec<u16>);

impl UseNumbers {
    /// The numbers of a plan over `samples` samples.
    pub(super) fn of(ids: &[SampleId], samples: u32) -> Self {
        let mut counts = vec![0_u16; samples as usize];
        let number = |id: &SampleId| {
            let count = counts.get_mut(id.index())?;
            Some(replace(count, count.saturating_add(1)))
        };
        let numbers: Vec<u16> = ids.iter().map(number).map(Option::unwrap_or_default).collect();
        Self(if numbers.iter().any(|&number| number > 0) { numbers } else { Vec::new() })
    }

    /// The number at a position.
    pub(super) fn at(&self, position: u32) -> u16 {
        self.0.get(position as usize).copied().unwrap_or(0)
    }
}
