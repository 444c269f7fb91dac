//! Settings of a daemon: the options of `shade-load serve` without their dashes, with values as
//! text.

use super::codec::{Field, Reader, Writer};
use crate::FormatError;
use crate::limits::{SETTING_BYTES_MAX, SETTINGS_MAX};

/// Value of the setting `linger` for a daemon that was started by hand and does not end by itself.
pub const LINGERS_FOR_EVER: &str = "until stopped";

/// Named values, in the order of their sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl Field for Settings {
    fn write(&self, writer: &mut Writer) {
        writer.put(&u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        for (name, value) in &self.0 {
            writer.text(name);
            writer.text(value);
        }
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, FormatError> {
        let at = reader.offset();
        let count: u32 = reader.get(name)?;
        if count > SETTINGS_MAX {
            let expected = format_args!("at most {SETTINGS_MAX} settings");
            return Err(FormatError::new("control message", at, count, expected));
        }
        let pair = |_| Ok((reader.text(SETTING_BYTES_MAX)?, reader.text(SETTING_BYTES_MAX)?));
        (0..count).map(pair).collect::<Result<_, _>>().map(Self)
    }
}

impl FromIterator<(String, String)> for Settings {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}
