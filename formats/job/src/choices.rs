//! The choices of a job and of a daemon, by the names that every front end uses.

use crate::names::names;

names! {
    /// How an epoch's samples are drawn.
    Sampler, "sampler",
    #[default]
    Uniform = "uniform": "A permutation: each sample once",
    Pads = "pads": "By importance, with repetition (SHADE's PADS)",
    Iis = "iis":
        "Without samples of low importance, which are left out before they are read (iCACHE's importance sampling)",
    Cis = "cis":
        "As many samples as `iis` are trained on, the others only forwarded: all are delivered, those with weight 0 \
         (computing-bound importance sampling)",
    Sequential = "sequential":
        "Each sample once, in the order of the samples: for validation. Orders and pacing do not apply",
    Replacement = "replacement":
        "Uniform draws with replacement: as many repeats as `pads`, without importance",
    Echo = "echo": "Each sample that is read comes several times in an epoch (data echoing)",
    Infobatch = "infobatch":
        "A share of the samples of low loss is left out, and the rest of them weighted (InfoBatch)",
    Seta = "seta":
        "Three of five groups of samples, which are grouped by their losses, others each epoch (SeTa)",
    Weighted = "weighted": "By a table with a weight for each sample, which the user gives",
    Balanced = "balanced": "By 1 / number of samples of the class: all classes are equally frequent",
}

impl Sampler {
    /// Whether it draws by the losses that trainers report.
    #[must_use]
    pub fn is_by_importance(self) -> bool {
        matches!(self, Self::Pads | Self::Iis | Self::Cis | Self::Infobatch | Self::Seta)
    }
}

names! {
    /// In which order a plan is delivered.
    Order, "order",
    #[default]
    Shuffled = "shuffled": "A seeded global shuffle",
    HitsFirst = "hits_first":
        "Residents first, as published; for reproduction, as it starves the GPU at the epoch's end",
    Spaced = "spaced": "Repeats of a sample some batches apart (gap), so that a small cache serves them",
    Opportunistic = "opportunistic":
        "Drawn from what is in memory while the rest streams in (DeepIO); for comparison, as it is less random",
}

impl Order {
    /// Whether it goes by what is cached when the plan is drawn.
    #[must_use]
    pub fn asks_for_residents(self) -> bool {
        matches!(self, Self::HitsFirst | Self::Opportunistic)
    }
}

names! {
    /// What happens to an epoch's last samples when they do not fill a batch on every rank.
    Tail, "tail",
    #[default]
    Drop = "drop": "They are left out",
    Pad = "pad": "The batch is filled up with rows flagged as padding",
    Even = "even": "The last batch is shorter, equally on every rank",
}

names! {
    /// What happens when a record cannot be read or decoded.
    OnError, "on_error",
    #[default]
    Raise = "raise": "The epoch ends with an error that names it",
    Skip = "skip": "The batch goes without it",
    Substitute = "substitute": "Another sample stands in, flagged",
}

names! {
    /// Which decoder decodes JPEGs. Pixels are the same.
    JpegDecoder, "jpeg",
    #[default]
    Auto = "auto": "shade's own decoder for baseline JPEGs, libjpeg-turbo for all others",
    Turbo = "turbo": "libjpeg-turbo for all",
}

names! {
    /// What reads.
    EngineChoice, "engine",
    #[default]
    Auto = "auto": "io_uring, or threads where that is not available",
    Uring = "uring": "io_uring, or an error",
    Threads = "threads": "preadv in threads, each with one read at a time; at most 128",
    Sim = "sim": "The simulator: real bytes, read from the page cache, when a simulated store answers",
}

names! {
    /// Past the page cache or through it.
    IoMode, "io",
    #[default]
    Auto = "auto":
        "Direct wherever a trial read brings the same bytes so, unless the file system asks for an alignment that \
         shards do not have",
    Direct = "direct": "Past the page cache, or an error where the file system's alignment rules it out",
    Buffered = "buffered": "Through the page cache: where memory beside the cache should act as a second one",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_strange_ones_are_refused_with_the_choice() {
        assert!(Sampler::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(Order::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(Tail::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(OnError::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        let error = "Pads".parse::<Sampler>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "sampler \"Pads\" is unknown: use uniform, pads, iis, cis, sequential, replacement, echo, infobatch, \
             seta, weighted or balanced"
        );
    }
}
