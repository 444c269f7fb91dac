//! What a rank keeps for a successor of its daemon, as `redo.rs` of `shade-client` does: the base
//! of its epoch, and what it was given and said since. Here a base is bytes, not a file.

use std::sync::Arc;

use shade_core::BaseVersion;
use shade_formats::control::{RedoRow, Step, redo_to_bytes};

/// See the [module](self).
#[derive(Default)]
pub(super) struct Redo {
    /// States that were loaded.
    loads: u32,
    base: Option<Base>,
    steps: Vec<Step>,
}

/// A base, or the state that was loaded last.
struct Base {
    begun: u32,
    bytes: Arc<Vec<u8>>,
}

/// What a successor is handed.
pub(super) struct HandedOver {
    pub(super) base: Option<(BaseVersion, Vec<u8>)>,
    pub(super) record: Option<Vec<u8>>,
}

impl Redo {
    /// A state was loaded.
    pub(super) fn load(&mut self, bytes: Vec<u8>) {
        self.loads += 1;
        self.base = Some(Base { begun: 0, bytes: Arc::new(bytes) });
        self.steps.clear();
    }

    /// The daemon has given the base of `epoch`: what came before is in it.
    pub(super) fn begin(&mut self, epoch: u32, bytes: Arc<Vec<u8>>) {
        self.base = Some(Base { begun: epoch + 1, bytes });
        let started = self.steps.iter().rposition(|step| *step == Step::Started { epoch });
        let from = started.unwrap_or(self.steps.len());
        let mut at = 0;
        self.steps.retain(|step| {
            at += 1;
            at > from || matches!(step, Step::Delivered { epoch: of, .. } if of + 1 == epoch)
        });
    }

    /// The rank asks for an epoch.
    pub(super) fn start(&mut self, epoch: u32) {
        let last = self.steps.iter().rfind(|step| matches!(step, Step::Started { .. }));
        if last == Some(&Step::Started { epoch }) {
            return;
        }
        if self.base.is_none() {
            let last = self.steps.iter().rposition(|step| matches!(step, Step::Started { .. }));
            drop(self.steps.drain(..last.unwrap_or(0)));
        }
        self.steps.push(Step::Started { epoch });
    }

    /// Whether batches and losses are recorded.
    pub(super) fn records(&self) -> bool {
        self.base.is_some()
    }

    /// The rank was given a batch.
    pub(super) fn deliver(&mut self, epoch: u32, batch: u32, rows: Vec<RedoRow>) {
        if !self.records() {
            return;
        }
        let step = Step::Delivered { epoch, batch, rows };
        let is_it = |known: &&mut Step| matches!(**known, Step::Delivered { epoch: of, batch: number, .. } if (of, number) == (epoch, batch));
        match self.steps.iter_mut().find(is_it) {
            Some(known) => *known = step,
            None => self.steps.push(step),
        }
    }

    /// The rank reports losses.
    pub(super) fn report(&mut self, epoch: u32, batch: u32, losses: &[f32]) {
        if self.records() {
            self.steps.push(Step::Reported { epoch, batch, losses: losses.to_vec() });
        }
    }

    /// The rank says something else.
    pub(super) fn say(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// All that is kept.
    pub(super) fn hand_over(&self) -> HandedOver {
        let base = self
            .base
            .as_ref()
            .map(|Base { begun, bytes }| (BaseVersion { loads: self.loads, begun: *begun }, bytes.to_vec()));
        let is_said = base.is_some() || self.steps.iter().any(|step| !matches!(step, Step::Started { .. }));
        HandedOver { base, record: is_said.then(|| redo_to_bytes(&self.steps)) }
    }
}
