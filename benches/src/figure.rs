//! One row of the result: a quantity over several runs, beside its budget or its rival.

use serde::{Serialize, Serializer};

/// What a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Ns,
    Ms,
    NsPerAccess,
    NsPerRecord,
    UsPerRecord,
    RecordsPerSecond,
    SamplesPerSecond,
    FilesPerSecond,
    PerFile,
    BytesPerSample,
    Percent,
}

impl Unit {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Ms => "ms",
            Self::NsPerAccess => "ns/access",
            Self::NsPerRecord => "ns/record",
            Self::UsPerRecord => "us/record",
            Self::RecordsPerSecond => "records/s",
            Self::SamplesPerSecond => "samples/s",
            Self::FilesPerSecond => "files/s",
            Self::PerFile => "per file",
            Self::BytesPerSample => "B/sample",
            Self::Percent => "%",
        }
    }

    /// MB (10^6 bytes) a second for records of `bytes` each. None where the unit is no rate.
    fn mb_per_s(self, value: f64, bytes: f64) -> Option<f64> {
        match self {
            Self::Ns
            | Self::Ms
            | Self::NsPerAccess
            | Self::PerFile
            | Self::BytesPerSample
            | Self::Percent => None,
            Self::NsPerRecord => Some(bytes * 1e3 / value),
            Self::UsPerRecord => Some(bytes / value),
            Self::RecordsPerSecond | Self::SamplesPerSecond | Self::FilesPerSecond => {
                Some(bytes * value / 1e6)
            }
        }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) unit: Unit,
    /// Number of runs.
    runs: usize,
    /// The median as MB of stored records a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mb_per_s: Option<f64>,
    /// What the median should not exceed, in the row's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<f64>,
    /// Name of the row to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rival: Option<String>,
    /// This row's median over that row's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
}

impl Figure {
    /// A row over `runs` values, at least one.
    pub(crate) fn new(name: impl Into<String>, unit: Unit, mut runs: Vec<f64>) -> Self {
        let median = median(&mut runs);
        let at = |end: Option<&f64>| end.copied().unwrap_or(f64::NAN);
        Self {
            name: name.into(),
            median,
            min: at(runs.first()),
            max: at(runs.last()),
            unit,
            runs: runs.len(),
            mb_per_s: None,
            budget: None,
            rival: None,
            ratio: None,
        }
    }

    /// Adds the row's rate in bytes, for records of `bytes` on average.
    pub(crate) fn of_bytes(self, bytes: f64) -> Self {
        Self { mb_per_s: self.unit.mb_per_s(self.median, bytes), ..self }
    }

    pub(crate) fn with_budget(self, budget: f64) -> Self {
        Self { budget: Some(budget), ..self }
    }

    pub(crate) fn beside(self, rival: &Self) -> Self {
        Self { rival: Some(rival.name.clone()), ratio: Some(self.median / rival.median), ..self }
    }

    /// Compares with a rival. The budget is `times` its median.
    pub(crate) fn within(self, times: f64, rival: &Self) -> Self {
        self.with_budget(times * rival.median).beside(rival)
    }
}

/// The middle value, or the mean of the two middle ones. Sorts `values`.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
    if values.len().is_multiple_of(2) {
        f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
    } else {
        at(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, Unit};

    #[test]
    fn a_row_sums_up_its_runs() {
        let odd = Figure::new("a", Unit::UsPerRecord, vec![4.0, 1.0, 2.0]).of_bytes(500.0);
        assert_eq!((odd.min, odd.median, odd.max, odd.mb_per_s), (1.0, 2.0, 4.0, Some(250.0)));
        let even = Figure::new("b", Unit::SamplesPerSecond, vec![3e6, 1e6]).of_bytes(500.0).beside(&odd);
        assert_eq!((even.median, even.mb_per_s, even.rival.as_deref()), (2e6, Some(1000.0), Some("a")));
        assert_eq!(even.ratio, Some(1e6));
        assert!(Figure::new("c", Unit::Ns, Vec::new()).median.is_nan());
        let held = Figure::new("d", Unit::Ns, vec![3.0]).within(1.5, &odd);
        assert_eq!((held.budget, held.ratio), (Some(3.0), Some(1.5)));
    }
}
