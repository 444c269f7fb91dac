//! Operations on the pixels of a finished row, or of an image before its geometry, as torchvision's
//! functions of these names do them to a PIL image.
//!
//! ```text
//!   transforms, Draw ─ draws ─▶ Operation ... ─ canvas ─▶ colours, hue, curves,
//!                        └ policies                       neighbours, pillow_blur,
//!                                                          moved, tensors, elastic
//! ```
//!
//! `policies` are RandAugment and TrivialAugmentWide, `auto_augment` is the third, `timm` is timm's
//! RandAugment, `aug_mix` draws chains of a `mixture`. `perspective` finds the numbers of a
//! RandomPerspective. `before` changes decoded images and `workbench` finished rows, each on a
//! `canvas` with a plane for each colour. All three get the same operation, and a loop over bytes
//! of one kind is compiled to wide instructions.
//!
//! Pillow computes in integers or single precision. Where its result depends on how it rounds, the
//! arithmetic here is the same, and so is every pixel. Only the blur may be a grey level off, for
//! torchvision sums its products in another order. `tensors` has the operations of AugMix and
//! `elastic`, for which torchvision makes a tensor of a PIL image: its arithmetic is torch's.

mod aug_mix;
mod auto_augment;
mod before;
mod canvas;
mod colours;
mod curves;
mod draws;
mod elastic;
mod hue;
mod mixture;
mod moved;
mod neighbours;
mod operation;
mod perspective;
mod pillow_blur;
mod policies;
mod tensors;
mod timm;
mod workbench;

pub(super) use before::Before;
pub(super) use workbench::Workbench;
