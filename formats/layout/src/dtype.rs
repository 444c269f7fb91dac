//! The types of an image's values in a batch.

use serde::{Deserialize, Serialize};

/// Type of each value of a batch's images. The numbers are those of a batch's table of views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum Dtype {
    /// Bytes, 0 to 255.
    #[default]
    #[serde(rename = "uint8")]
    Uint8 = 0,
    /// IEEE 754's floats of 2 bytes.
    #[serde(rename = "float16")]
    Float16 = 1,
    /// The upper 2 bytes of a float of 4.
    #[serde(rename = "bfloat16")]
    Bfloat16 = 2,
    /// IEEE 754's floats of 4 bytes.
    #[serde(rename = "float32")]
    Float32 = 3,
}

impl Dtype {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::Uint8, Self::Float16, Self::Bfloat16, Self::Float32];

    /// Each name, with what it is.
    pub const CHOICES: &'static [(&'static str, &'static str)] = &[
        ("uint8", "Bytes, 0 to 255, as they are decoded"),
        ("float16", "Floats of 2 bytes, of which 10 bits are the fraction"),
        ("bfloat16", "Floats of 2 bytes with the range of float32, of which 7 bits are the fraction"),
        ("float32", "Floats of 4 bytes"),
    ];

    /// The name in documents, and in torch.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uint8 => "uint8",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float32 => "float32",
        }
    }

    /// Bytes of one value: 1, 2 or 4.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Uint8 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float32 => 4,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u32 == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_choices_and_tables_have_the_same_types() {
        for (dtype, (name, _)) in Dtype::ALL.into_iter().zip(Dtype::CHOICES) {
            assert_eq!((dtype.as_str(), serde_json::to_value(dtype).unwrap()), (*name, (*name).into()));
            assert_eq!(Dtype::from_code(dtype as u32), Some(dtype));
        }
        assert_eq!((Dtype::ALL.len(), Dtype::from_code(4)), (Dtype::CHOICES.len(), None));
    }
}
