//! Whether a rank may attach, and on what terms: the dataset's content, the daemon's settings, the
//! job's name. The core judges the rest. And whether any rank needs the daemon.

use std::time::Duration;

use serde_json::Value;
use shade_core::{Attach, Refusal};
use shade_formats::control::{REFUSE_DATASET, REFUSE_DRAINING, REFUSE_ENDING};

use super::serve::Daemon;
use crate::control::{Asked, Terms};

/// How long a private daemon waits for its first rank.
const FIRST_RANK: Duration = Duration::from_secs(30);

impl Daemon {
    /// Whether no rank needs this daemon any more, and it does not stay for others.
    pub(super) fn is_unneeded(&self) -> bool {
        let patience = match (self.linger, self.had_rank) {
            _ if self.is_drained || self.gives_way.is_some() => Duration::ZERO,
            (None, _) => return false,
            (Some(linger), true) => linger,
            (Some(_), false) => FIRST_RANK,
        };
        self.sessions.is_empty() && self.core.session_count() == 0 && self.empty_since.elapsed() >= patience
    }

    /// Whether the daemon has what a rank expects: the present content of its dataset and, where no
    /// rank would lose anything by a new daemon, the settings.
    pub(super) fn judge(&mut self, attach: &Attach, asked: &Asked) -> Result<Terms, Refusal> {
        let is_free = self.linger.is_some() && self.sessions.is_empty();
        // A rank that starts again, or a validation beside a training, gets what the others have.
        if asked.content_id != self.served.content_id && (is_free || !asked.is_served) {
            if is_free {
                self.gives_way = Some("the dataset's present content");
            }
            let changed = self.served.other_content(asked.samples, asked.content_id);
            if self.gives_way.is_some() {
                return Err(Refusal { code: REFUSE_ENDING, text: format!("{changed}; it ends now") });
            }
            let advice = if self.linger.is_some() {
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
            self.linger = self.settings.linger_as(&asked.settings);
        }
        // A daemon without any rank so far was started by one that is about to attach.
        if is_free_for_training && self.had_rank && self.settings.differs_from(&asked.settings) {
            self.gives_way = Some("other settings");
        }
        if let Some(what) = self.gives_way {
            let text = format!("this daemon ends: a trainer asked for {what}");
            return Err(Refusal { code: REFUSE_ENDING, text });
        }
        let job = self.name(attach, asked)?;
        let settings = Value::Object(self.settings.in_words_of(&asked.settings)).to_string();
        Ok(Terms { job, settings })
    }

    /// The job's name: the one that is asked for, or the next free one.
    fn name(&mut self, attach: &Attach, asked: &Asked) -> Result<String, Refusal> {
        let takes_any = asked.or_free_name && attach.spec.world_size == 1;
        if !takes_any && !self.draining {
            return Ok(attach.job.clone());
        }
        // Ranks that said hello before have their jobs then.
        self.turn();
        let jobs = self.core.jobs();
        let is_taken = |name: &str| jobs.iter().any(|job| job.name == name);
        if self.draining && self.linger.is_some() && jobs.is_empty() {
            let text = "this daemon was drained and ends".to_owned();
            return Err(Refusal { code: REFUSE_ENDING, text });
        }
        // The jobs that are here may still validate.
        if self.draining && attach.spec.admit && (takes_any || !is_taken(&attach.job)) {
            let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
            let text = format!(
                "this daemon (process {}) is drained and takes no new job: start again when the others have left ({}), \
                 or end them with shade-load stop",
                std::process::id(),
                names.join(", ")
            );
            return Err(Refusal { code: REFUSE_DRAINING, text });
        }
        let numbered = (2_u32..).map(|number| format!("{}-{number}", attach.job));
        let mut names = std::iter::once(attach.job.clone()).chain(numbered);
        Ok(names.find(|name| !takes_any || !is_taken(name)).unwrap_or_default())
    }
}
