//! The formats of boxes.

use crate::names::names;

names! {
    /// What the four numbers of a box are, in pixels: torchvision's formats of these names.
    BoxFormat, "format of boxes",
    /// Left, top, right and bottom.
    #[default]
    Xyxy = "xyxy": "left, top, right and bottom",
    Xywh = "xywh": "left, top, width and height",
    Cxcywh = "cxcywh": "the middle's two places, width and height",
}
