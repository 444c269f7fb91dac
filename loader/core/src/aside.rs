//! What takes long with a large dataset, and needs only what is copied into its order, is carried
//! out aside: on another thread, so that the core's thread does not stand still meanwhile. The
//! result is an event.

use crate::training::{DrawOrder, Drawn, LoadOrder, LoadedState, SaveOrder, SavedState};

/// An order to carry out aside.
pub enum AsideOrder {
    /// Draw a plan.
    Draw(Box<DrawOrder>),
    /// Write a saved state.
    Save(Box<SaveOrder>),
    /// Read a saved state.
    Load(Box<LoadOrder>),
}

/// An [`AsideOrder`] that was carried out.
pub enum AsideResult {
    /// A plan was drawn.
    Drawn(Box<Drawn>),
    /// A state was written.
    Saved(SavedState),
    /// A state was read.
    Loaded(Box<LoadedState>),
}

impl AsideOrder {
    /// Carries it out. Equal orders have equal results, on any thread at any time.
    #[must_use]
    pub fn carry_out(self) -> AsideResult {
        match self {
            Self::Draw(order) => AsideResult::Drawn(Box::new(order.carry_out())),
            Self::Save(order) => AsideResult::Saved(order.carry_out()),
            Self::Load(order) => AsideResult::Loaded(Box::new(order.carry_out())),
        }
    }
}
