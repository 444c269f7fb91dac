//! Values that a command line has as texts, as a document has them.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// What an option is called that is left to the daemon.
pub(crate) const AUTO: &str = "auto";
/// What an option is called that is not wanted.
const NONE: &str = "none";

/// Bytes: a number, or a text such as "256MiB".
pub(crate) mod bytes {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(*value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        of(&Value::deserialize(deserializer)?)
    }

    pub(super) fn of<E: Error>(value: &Value) -> Result<u64, E> {
        let bytes = value.as_u64().or_else(|| parse_size::parse_size(value.as_str()?.trim()).ok());
        bytes.ok_or_else(|| {
            E::custom(format_args!("got {value}, expected bytes, or a text such as \"256MiB\""))
        })
    }
}

/// Bytes, or "auto".
pub(crate) mod auto_bytes {
    use super::*;

    pub(crate) use super::auto::serialize;

    pub(crate) fn deserialize<'de, T: TryFrom<u64, Error: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if super::auto::is(&value) {
            return Ok(None);
        }
        bytes::of(&value).and_then(|bytes| T::try_from(bytes).map(Some).map_err(D::Error::custom))
    }
}

/// A value, or "auto".
pub(crate) mod auto {
    use super::*;

    pub(super) fn is(value: &Value) -> bool {
        value.is_null() || value == AUTO
    }

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(AUTO),
        }
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if is(&value) { Ok(None) } else { T::deserialize(value).map(Some).map_err(D::Error::custom) }
    }
}

/// What is written as a text, or "none".
pub(crate) mod text {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_str(NONE),
        }
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        match Option::<String>::deserialize(deserializer)? {
            Some(text) if text != NONE => text.parse().map(Some).map_err(D::Error::custom),
            _ => Ok(None),
        }
    }
}

/// Seconds: a number, or a text such as "250ms".
pub(crate) mod seconds {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => parse_time(&text).map(|time| time.as_secs_f64()).map_err(D::Error::custom),
            value => f64::deserialize(value).map_err(D::Error::custom),
        }
    }
}

/// A time: `2ms`, `1.5s`, `250us`, `1min`.
///
/// # Errors
/// The text is none; the error says how to write one.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let error = || format!("{text:?} is no time: write 250us, 2ms, 1.5s or 1min");
    let split = text.find(char::is_alphabetic).ok_or_else(error)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(error()),
    };
    let number: f64 = number.trim().parse().map_err(|_| error())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| error())
}

/// Bytes a second from `100MB` or `1Gbit`.
///
/// # Errors
/// It is no rate, or none at all.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let error = || format!("{text:?} is no rate: write 100MB (bytes a second) or 1Gbit (bits a second)");
    let (size, bits) = match text.trim().strip_suffix("bit") {
        Some(size) => (size, 8),
        None => (text.trim(), 1),
    };
    let rate = parse_size::parse_size(size).map_err(|_| error())? / bits;
    if rate == 0 { Err(error()) } else { Ok(rate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_time("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(parse_time("1.5 s"), Ok(Duration::from_millis(1500)));
        for bad in ["", "2", "ms", "-1s", "2 parsecs"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
