//! Whether a rank may attach, and on what terms: the dataset's content, the daemon's settings, the
//! job's name. The core judges the rest. And whether any rank needs the daemon.

use std::time::Duration;

use serde_json::Value;
use shade_core::{Attach, Refusal};
use shade_formats::control::{REFUSE_DATASET, REFUSE_DRAINING, REFUSE_ENDING};

use super::settings::Running;
use crate::control::{Asked, ServedDataset, Terms};

/// How long a private daemon waits for its first rank.
const FIRST_RANK: Duration = Duration::from_secs(30);

/// See the [module](self). Times are those since the daemon began.
pub(super) struct Lifecycle {
    pub(super) served: ServedDataset,
    pub(super) settings: Running,
    /// What a rank asked a private daemon for that has no rank attached and does not have it: this
    /// daemon ends, and the next has it.
    gives_way: Option<&'static str>,
    draining: bool,
    /// Who drains it has been told, so it ends when the last rank has left.
    is_drained: bool,
    /// A rank was ever attached, or refused: the one that has started this daemon need not be
    /// waited for.
    had_rank: bool,
    /// Since when no rank is attached.
    empty_since: Duration,
}

/// Who is there when a rank says hello.
pub(super) struct Present {
    /// Ranks, without those that were refused.
    pub(super) has_ranks: bool,
    /// Names of the jobs.
    pub(super) jobs: Vec<String>,
}

impl Lifecycle {
    pub(super) fn new(served: ServedDataset, settings: Running) -> Self {
        Self {
            served,
            settings,
            gives_way: None,
            draining: false,
            is_drained: false,
            had_rank: false,
            empty_since: Duration::ZERO,
        }
    }

    /// A rank was accepted.
    pub(super) fn admitted(&mut self) {
        self.had_rank = true;
    }

    /// A rank was refused. It may come again, and ask for something else.
    pub(super) fn refused(&mut self, now: Duration) {
        if !self.had_rank {
            (self.had_rank, self.empty_since) = (true, now);
        }
    }

    /// An admitted rank has left.
    pub(super) fn left(&mut self, now: Duration) {
        self.empty_since = now;
    }

    /// No new job is taken from now on.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether it takes no new job.
    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Who drains it was told.
    pub(super) fn drained(&mut self) {
        self.is_drained = true;
    }

    /// Whether no rank needs this daemon any more, and it does not stay for others.
    pub(super) fn is_unneeded(&self, now: Duration, has_sessions: bool) -> bool {
        let patience = match (self.settings.linger(), self.had_rank) {
            _ if self.is_drained || self.gives_way.is_some() => Duration::ZERO,
            (None, _) => return false,
            (Some(linger), true) => linger,
            (Some(_), false) => FIRST_RANK,
        };
        !has_sessions && now.saturating_sub(self.empty_since) >= patience
    }

    /// Whether the daemon has what a rank expects: the present content of its dataset and, where no
    /// rank would lose anything by a new daemon, the settings.
    pub(super) fn judge(
        &mut self,
        attach: &Attach,
        asked: &Asked,
        present: &Present,
    ) -> Result<Terms, Refusal> {
        let is_private = self.settings.linger().is_some();
        let is_free = is_private && !present.has_ranks;
        // A rank that starts again, or a validation beside a training, gets what the others have.
        if asked.content_id != self.served.content_id && (is_free || !asked.is_served) {
            if is_free {
                self.gives_way = Some("the dataset's present content");
            }
            let changed = self.served.other_content(asked.samples, asked.content_id);
            if self.gives_way.is_some() {
                return Err(Refusal { code: REFUSE_ENDING, text: format!("{changed}; it ends now") });
            }
            let advice = if is_private {
                "stop the trainings that are attached to it and start them again, or give this one a daemon of its \
                 own with Daemon(socket=\"...\")"
            } else {
                "stop it and start it again"
            };
            return Err(Refusal { code: REFUSE_DATASET, text: format!("{changed}: {advice}") });
        }
        // A validation takes the daemon that it finds: the cache that a training left there waits
        // for the next epoch, or for the next training.
        let is_free_for_training = is_free && attach.spec.admit;
        if is_free_for_training {
            // No reason to start another daemon: this matters only after the rank has left.
            self.settings.linger_as(&asked.settings);
        }
        // A daemon without any rank so far was started by one that is about to attach.
        let lacks_fields = is_free && !self.settings.reads(&attach.spec.fields);
        let is_another = is_free_for_training && self.settings.differs_from(&asked.settings);
        if self.had_rank && (is_another || lacks_fields) {
            self.gives_way = Some("other settings");
        }
        if let Some(what) = self.gives_way {
            let text = format!("this daemon ends: a trainer asked for {what}");
            return Err(Refusal { code: REFUSE_ENDING, text });
        }
        let job = self.name(attach, asked, &present.jobs)?;
        let settings = Value::Object(self.settings.in_words_of(&asked.settings)).to_string();
        Ok(Terms { job, settings })
    }

    /// The job's name: the one that is asked for, or the next free one.
    fn name(&self, attach: &Attach, asked: &Asked, jobs: &[String]) -> Result<String, Refusal> {
        let takes_any = asked.or_free_name && attach.spec.world_size == 1;
        let is_taken = |name: &String| jobs.contains(name);
        if self.draining && self.settings.linger().is_some() && jobs.is_empty() {
            let text = "this daemon was drained and ends".to_owned();
            return Err(Refusal { code: REFUSE_ENDING, text });
        }
        // The jobs that are here may still validate.
        if self.draining && attach.spec.admit && (takes_any || !is_taken(&attach.job)) {
            let text = format!(
                "this daemon (process {}) is drained and takes no new job: start again when the others have left ({}), \
                 or end them with shade-load stop",
                std::process::id(),
                jobs.join(", ")
            );
            return Err(Refusal { code: REFUSE_DRAINING, text });
        }
        let numbered = (2_u32..).map(|number| format!("{}-{number}", attach.job));
        let mut names = std::iter::once(attach.job.clone()).chain(numbered);
        Ok(names.find(|name| !takes_any || !is_taken(name)).unwrap_or_default())
    }
}
