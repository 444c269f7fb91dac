//! A simulated store, as a user describes it: `latency=2ms,bandwidth=1Gbit,depth=32`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::values::{parse_rate, parse_time};

/// The names in the text, for errors.
const PARTS: &str =
    "it has latency, bandwidth, depth, short, eintr, eagain, eio, estale, stuck, clock and seed";

/// A simulated store.
///
/// A read waits for one of the store's slots and takes its latency. Then its bytes pass one link,
/// after those of the reads answered before. Its fate depends only on seed, shard, offset and how
/// often it was tried, not on other reads or timing.
///
/// As text: `latency=2ms,bandwidth=1Gbit,depth=32`, all parts optional: `latency=TIME` or
/// `latency=lognormal:MEDIAN:SIGMA`, `bandwidth=RATE`, `depth=SLOTS`, `seed=N`,
/// `clock=real|virtual`, and shares of reads that come back `short`, with `eintr`, `eagain`, `eio`,
/// `estale`, or are `stuck` for 30 s (`short=1%`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreModel {
    /// Latency of a read once it has a slot.
    pub latency: LatencyModel,
    /// Bytes a second that pass the link; `None` is no limit.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Reads that are served at a time; `None` is no limit.
    pub slots: Option<u32>,
    /// Faults of reads.
    pub faults: FaultShares,
    /// Whether answers are waited for.
    pub clock: ClockModel,
    /// Decides latencies and faults.
    pub seed: u64,
}

/// Latencies of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyModel {
    /// Always the same.
    Fixed(Duration),
    /// Half of the reads stay within `median`; the logarithm varies by `sigma`.
    LogNormal {
        /// The median.
        median: Duration,
        /// Standard deviation of the natural logarithm: 0.5 is a busy network, 1 an object store.
        sigma: f64,
    },
}

/// Shares of the tries, 0 to 1, to which each of these happens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultShares {
    /// It brings fewer bytes than were asked for.
    pub short: f64,
    /// EINTR.
    pub interrupted: f64,
    /// EAGAIN.
    pub again: f64,
    /// EIO.
    pub io: f64,
    /// ESTALE.
    pub stale: f64,
    /// The answer takes 30 s longer.
    pub stuck: f64,
}

/// The clock of a simulated store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockModel {
    /// The machine's: an answer comes when it is due.
    Real,
    /// Its own, which jumps to the next answer: hours of reading pass in seconds.
    Virtual,
}

impl Default for StoreModel {
    /// A near file server: 1 ms for everything.
    fn default() -> Self {
        Self {
            latency: LatencyModel::Fixed(Duration::from_millis(1)),
            bandwidth_bytes_per_s: None,
            slots: None,
            faults: FaultShares::default(),
            clock: ClockModel::Real,
            seed: 0,
        }
    }
}

impl fmt::Display for StoreModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.latency {
            LatencyModel::Fixed(latency) => write!(f, "latency={latency:?}")?,
            LatencyModel::LogNormal { median, sigma } => write!(f, "latency=lognormal:{median:?}:{sigma}")?,
        }
        if let Some(rate) = self.bandwidth_bytes_per_s {
            write!(f, ",bandwidth={rate}B")?;
        }
        if let Some(slots) = self.slots {
            write!(f, ",depth={slots}")?;
        }
        for (name, share) in self.faults.named() {
            if share > 0.0 {
                write!(f, ",{name}={}%", share * 100.0)?;
            }
        }
        if self.clock == ClockModel::Virtual {
            f.write_str(",clock=virtual")?;
        }
        if self.seed == 0 { Ok(()) } else { write!(f, ",seed={}", self.seed) }
    }
}

impl FaultShares {
    fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("short", self.short),
            ("eintr", self.interrupted),
            ("eagain", self.again),
            ("eio", self.io),
            ("estale", self.stale),
            ("stuck", self.stuck),
        ]
    }
}

impl FromStr for StoreModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut model = Self::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                format!("{part:?} is no part of a store: write latency=2ms,bandwidth=1Gbit,depth=32")
            })?;
            let (name, value) = (name.trim(), value.trim());
            match name {
                "latency" => model.latency = parse_latency(value)?,
                "bandwidth" => model.bandwidth_bytes_per_s = Some(parse_rate(value)?),
                "depth" => {
                    model.slots =
                        Some(number(value).filter(|&slots| slots > 0).ok_or("depth must be 1 or more")?)
                }
                "seed" => {
                    model.seed = number(value).ok_or_else(|| format!("seed: {value:?} is no number"))?
                }
                "short" => model.faults.short = parse_share(name, value)?,
                "eintr" => model.faults.interrupted = parse_share(name, value)?,
                "eagain" => model.faults.again = parse_share(name, value)?,
                "eio" => model.faults.io = parse_share(name, value)?,
                "estale" => model.faults.stale = parse_share(name, value)?,
                "stuck" => model.faults.stuck = parse_share(name, value)?,
                "clock" => {
                    model.clock = match value {
                        "real" => ClockModel::Real,
                        "virtual" => ClockModel::Virtual,
                        _ => return Err(format!("clock={value}: write real or virtual")),
                    };
                }
                _ => return Err(format!("a store has no {name:?}: {PARTS}")),
            }
        }
        if model.faults.named().iter().map(|(_, share)| share).sum::<f64>() > 1.0 {
            return Err("the shares of faults are more than 100% together".into());
        }
        Ok(model)
    }
}

/// `2ms`, or `lognormal:2ms:0.5`.
fn parse_latency(text: &str) -> Result<LatencyModel, String> {
    let Some(spread) = text.strip_prefix("lognormal:") else {
        return Ok(LatencyModel::Fixed(parse_time(text)?));
    };
    let error = || format!("latency={text}: write lognormal:MEDIAN:SIGMA, as in lognormal:2ms:0.5");
    let (median, sigma) = spread.split_once(':').ok_or_else(error)?;
    let sigma = sigma.parse().ok().filter(|sigma| (0.0..=5.0).contains(sigma)).ok_or_else(error)?;
    Ok(LatencyModel::LogNormal { median: parse_time(median)?, sigma })
}

/// `0.1%` or `0.001`.
fn parse_share(name: &str, text: &str) -> Result<f64, String> {
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let share =
        digits.trim().parse().map(|share: f64| share / unit).ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{name}={text}: write a share such as 1% or 0.01"))
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(text: &str) -> StoreModel {
        text.parse().unwrap()
    }

    #[test]
    fn all_parts_are_optional_and_understood() {
        let fixed = |ms| LatencyModel::Fixed(Duration::from_millis(ms));
        let model = store("latency=2ms,bandwidth=1Gbit,depth=32");
        assert_eq!(
            (model.latency, model.bandwidth_bytes_per_s, model.slots),
            (fixed(2), Some(125_000_000), Some(32))
        );
        let model = store("latency=lognormal:2ms:0.5,short=1%,eio=0.001,stuck=0.1%,clock=virtual,seed=7");
        assert_eq!(model.latency, LatencyModel::LogNormal { median: Duration::from_millis(2), sigma: 0.5 });
        assert_eq!((model.faults.short, model.faults.io, model.faults.stuck), (0.01, 0.001, 0.001));
        assert_eq!((model.clock, model.seed), (ClockModel::Virtual, 7));
        assert_eq!(store("bandwidth=100MB").latency, fixed(1));
    }

    #[test]
    fn a_store_says_itself_in_words_that_make_it_again() {
        for text in [
            "latency=2ms",
            "latency=lognormal:2ms:0.5,bandwidth=125000000B,depth=32,short=1%,eio=0.5%,clock=virtual,seed=9",
            "latency=250µs,eintr=1%,eagain=2%,estale=3%,stuck=4%",
        ] {
            assert_eq!(store(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_store_is_refused_with_a_hint() {
        for (text, hint) in [
            ("", "latency=2ms"),
            ("2ms", "latency=2ms"),
            ("latency=2", "2ms"),
            ("latency=lognormal:2ms", "lognormal:2ms:0.5"),
            ("latency=lognormal:2ms:-1", "lognormal:2ms:0.5"),
            ("bandwidth=fast", "1Gbit"),
            ("bandwidth=0", "1Gbit"),
            ("depth=0", "1 or more"),
            ("eio=2", "1%"),
            ("eio=60%,short=60%", "100%"),
            ("clock=mine", "real or virtual"),
            ("speed=3", "latency, bandwidth"),
        ] {
            let error = text.parse::<StoreModel>().unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
