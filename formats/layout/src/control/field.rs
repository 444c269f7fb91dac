//! The place of a value in a message. Messages are declared once, field by field
//! ([`coded`]), and are written and read in that order.

use super::codec::{Coded, Field, Reader, Writer, flag};
use crate::FormatError;

macro_rules! numbers {
    ($($number:ty)+) => {
        $(impl Field for $number {
            fn write(&self, writer: &mut Writer) {
                writer.bytes(&self.to_le_bytes());
            }

            fn read(reader: &mut Reader<'_>, _name: &'static str) -> Result<Self, FormatError> {
                reader.array().map(Self::from_le_bytes)
            }
        })+
    };
}

numbers! { u8 u16 u32 u64 u128 f32 f64 }

impl Field for bool {
    fn write(&self, writer: &mut Writer) {
        u8::from(*self).write(writer);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, FormatError> {
        reader.choice(name, flag)
    }
}

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    fn write(&self, writer: &mut Writer) {
        self.iter().for_each(|value| value.write(writer));
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, FormatError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::read(reader, name)?;
        }
        Ok(values)
    }
}

/// A value with its length before it, which has a limit.
pub(super) trait Bounded: Sized {
    fn write(&self, writer: &mut Writer);
    fn read(reader: &mut Reader<'_>, most: usize) -> Result<Self, FormatError>;
}

impl Bounded for String {
    fn write(&self, writer: &mut Writer) {
        writer.text(self);
    }

    fn read(reader: &mut Reader<'_>, most: usize) -> Result<Self, FormatError> {
        reader.text(most)
    }
}

impl Bounded for Vec<u32> {
    fn write(&self, writer: &mut Writer) {
        writer.array_of(self);
    }

    fn read(reader: &mut Reader<'_>, most: usize) -> Result<Self, FormatError> {
        Ok(reader.fours(most)?.iter().map(|value| u32::from_le_bytes(*value)).collect())
    }
}

impl Bounded for Vec<f32> {
    fn write(&self, writer: &mut Writer) {
        writer.numbers(self);
    }

    fn read(reader: &mut Reader<'_>, most: usize) -> Result<Self, FormatError> {
        Ok(reader.fours(most)?.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }
}

/// In other values they begin with their code.
impl<T: Coded<Code = u8>> Field for T {
    fn write(&self, writer: &mut Writer) {
        self.code().write(writer);
        self.write_fields(writer);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, FormatError> {
        let (at, code) = (reader.offset(), u8::read(reader, name)?);
        Self::read_fields(code, reader)?.ok_or_else(|| FormatError::new(name, at, code, "a known code"))
    }
}

/// Declares an enum with its codes: `code => Kind { field: Type, .. }`. `Type [MOST]` is a value
/// with its length, refused over the limit; `String [cut MOST]` is a text for people, which is cut
/// to it.
macro_rules! coded {
    ($(#[$meta:meta])* pub enum $name:ident: $code:ty {
        $($(#[$kind_meta:meta])* $kind_code:literal => $kind:ident
            $({ $($(#[$field_meta:meta])* $field:ident: $type:ty $([$($limit:tt)+])?),+ $(,)? })?),+ $(,)?
    }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$kind_meta])* $kind $({ $($(#[$field_meta])* $field: $type),+ })?),+
        }

        impl $crate::control::codec::Coded for $name {
            type Code = $code;

            fn code(&self) -> $code {
                match self { $(Self::$kind { .. } => $kind_code),+ }
            }

            fn write_fields(&self, writer: &mut $crate::control::codec::Writer) {
                match self {
                    $(Self::$kind $({ $($field),+ })? => {
                        $($($crate::control::field::write_field!(writer $field $($($limit)+)?);)+)?
                    })+
                }
            }

            fn read_fields(
                code: $code,
                reader: &mut $crate::control::codec::Reader<'_>,
            ) -> Result<Option<Self>, $crate::FormatError> {
                Ok(Some(match code {
                    $($kind_code => Self::$kind $({
                        $($field: $crate::control::field::read_field!(reader $field $($($limit)+)?)),+
                    })?,)+
                    _ => return Ok(None),
                }))
            }
        }
    };
}

macro_rules! write_field {
    ($writer:ident $field:ident) => {
        $crate::control::codec::Field::write($field, $writer)
    };
    ($writer:ident $field:ident cut $most:expr) => {
        $writer.short_text($field, $most)
    };
    ($writer:ident $field:ident $most:expr) => {
        $crate::control::field::Bounded::write($field, $writer)
    };
}

macro_rules! read_field {
    ($reader:ident $field:ident) => {
        $crate::control::codec::Field::read($reader, stringify!($field))?
    };
    ($reader:ident $field:ident cut $most:expr) => {
        $crate::control::field::Bounded::read($reader, $most)?
    };
    ($reader:ident $field:ident $most:expr) => {
        $crate::control::field::Bounded::read($reader, $most)?
    };
}

pub(super) use {coded, read_field, write_field};
