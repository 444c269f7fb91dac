//! Types of the numbers of a field.

use crate::names::names;

names! {
    /// Type of the numbers of a field, little-endian.
    NumberType, "type of numbers",
    /// One byte each.
    #[default]
    Uint8 = "uint8": "whole numbers of 8 bits, 0 or more",
    Int8 = "int8": "whole numbers of 8 bits",
    Int16 = "int16": "whole numbers of 16 bits",
    Int32 = "int32": "whole numbers of 32 bits",
    Int64 = "int64": "whole numbers of 64 bits",
    Float16 = "float16": "IEEE 754, 16 bits",
    Bfloat16 = "bfloat16": "the upper 16 bits of a float32",
    Float32 = "float32": "IEEE 754, 32 bits",
    Float64 = "float64": "IEEE 754, 64 bits",
}

impl NumberType {
    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::Uint8 | Self::Int8 => 1,
            Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
        }
    }
}
