//! `--part i/n`: the share of one of several machines.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most parts of one pack: a shard each, and a dataset has no more.
pub(crate) const PARTS_MAX: u32 = shade_formats::limits::SHARDS_MAX;

/// Part `number` of `count`, counted from 0. It has every `count`-th shard, or class, from `number`
/// on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Part {
    number: u32,
    count: u32,
}

/// Why a text is no part.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartFault {
    /// It has another form.
    #[error("'{0}' is not NUMBER/COUNT, such as 0/4")]
    Text(String),
    /// There cannot be this number of parts.
    #[error("there are 1 to {PARTS_MAX} parts, not {0}")]
    Count(u32),
    /// Counted from 1, perhaps.
    #[error("parts are counted from 0: the last of {count} is {}/{count}, there is no {number}/{count}", count - 1)]
    Number {
        /// The part's number.
        number: u32,
        /// The number of parts.
        count: u32,
    },
}

impl Part {
    /// The only part.
    pub const WHOLE: Self = Self { number: 0, count: 1 };

    pub(crate) fn new(number: u32, count: u32) -> Result<Self, PartFault> {
        match () {
            () if count == 0 || count > PARTS_MAX => Err(PartFault::Count(count)),
            () if number >= count => Err(PartFault::Number { number, count }),
            () => Ok(Self { number, count }),
        }
    }

    pub(crate) fn number(self) -> u32 {
        self.number
    }

    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// Whether the shard, or class, at this position is in it.
    pub(crate) fn has(self, position: usize) -> bool {
        position % self.count as usize == self.number as usize
    }

    /// The part of `count` that has this position.
    pub(crate) fn of(position: usize, count: u32) -> Option<Self> {
        let number = position.checked_rem(count as usize)?;
        Self::new(u32::try_from(number).ok()?, count).ok()
    }
}

impl FromStr for Part {
    type Err = PartFault;

    fn from_str(text: &str) -> Result<Self, PartFault> {
        let wrong = || PartFault::Text(text.to_owned());
        let (number, count) = text.split_once('/').ok_or_else(wrong)?;
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !plain(number) || !plain(count) {
            return Err(wrong());
        }
        Self::new(number.parse().map_err(|_| wrong())?, count.parse().map_err(|_| wrong())?)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl TryFrom<String> for Part {
    type Error = PartFault;

    fn try_from(text: String) -> Result<Self, PartFault> {
        text.parse()
    }
}

impl From<Part> for String {
    fn from(part: Part) -> Self {
        part.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_from_zero() {
        assert_eq!("3/4".parse(), Part::new(3, 4));
        for text in ["4/4", "0/0", "1", "a/4", "-1/4", "+1/4", "1/4/4", "", "/", "0/99999999", "1 /4"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
        let fault = "4/4".parse::<Part>().unwrap_err().to_string();
        assert!(fault.contains("the last of 4 is 3/4"), "{fault}");
    }

    #[test]
    fn every_position_is_in_one_part() {
        for count in [1u32, 2, 3, 7, 40] {
            for position in 0..100 {
                let parts: Vec<Part> = (0..count).map(|number| Part::new(number, count).unwrap()).collect();
                let with: Vec<&Part> = parts.iter().filter(|part| part.has(position)).collect();
                assert_eq!(with, [&Part::of(position, count).unwrap()]);
            }
        }
    }
}
