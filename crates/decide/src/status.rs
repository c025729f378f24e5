//! The bounded form of a decision for the status of a service.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::decision::{AcceleratorCandidate, ClassEvaluation, Decision, RuntimeCandidate};
use crate::rank_reason::{ClassRankReason, OUTRANKED, RuntimeRankReason};
use crate::reason::{RecordedReason, RuntimeRejection, Warning};

/// Maximum number of compatible runtimes besides the selected one, and of ranked classes of the detailed runtime.
const MAX_RUNNERS_UP: usize = 10;
/// Maximum number of rejected runtimes, and of rejected classes of the detailed runtime.
const MAX_REJECTIONS: usize = 20;
const MAX_WARNINGS: usize = 20;
/// Maximum number of characters of a message.
const MAX_MESSAGE: usize = 512;

impl Decision {
    /// Returns the decision with at most 10 runners-up, 20 rejections and 20 warnings, and counts of what is omitted. The
    /// selected runtime, or the closest one of an infeasible decision, lists its classes; all other runtimes list only
    /// the class that they would use.
    #[must_use]
    pub fn for_status(&self) -> Self {
        // Counts of an already bounded decision are retained, so that the conversion is idempotent.
        let mut omitted = self.omitted;
        let (mut runners_up, mut rejections) = (0, 0);
        let mut candidates = Vec::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            let is_detailed = candidate.selected || !self.feasible && index == 0;
            let (count, max, omitted_count) = if candidate.rejected.is_some() {
                (&mut rejections, MAX_REJECTIONS, &mut omitted.rejections)
            } else {
                (&mut runners_up, MAX_RUNNERS_UP, &mut omitted.runners_up)
            };
            if !candidate.selected {
                *count += 1;
                if *count > max {
                    *omitted_count += 1;
                    continue;
                }
            }
            candidates.push(if is_detailed {
                with_classes(candidate, &mut omitted.classes)
            } else {
                summary(candidate)
            });
        }
        omitted.warnings += self.warnings.len().saturating_sub(MAX_WARNINGS);
        let warnings = self.warnings.iter().take(MAX_WARNINGS);
        let warnings = warnings.map(|warning| Warning { message: truncate(&warning.message), ..warning.clone() });
        Self { message: truncate(&self.message), candidates, warnings: warnings.collect(), omitted, ..self.clone() }
    }
}

fn with_classes(candidate: &RuntimeCandidate, omitted: &mut usize) -> RuntimeCandidate {
    let (ranked, mut rejected): (Vec<_>, Vec<_>) =
        candidate.accelerators.iter().partition(|class| class.rank.is_some());
    if rejected.len() > MAX_REJECTIONS {
        sort_by_code_frequency(&mut rejected);
    }
    *omitted += ranked.len().saturating_sub(MAX_RUNNERS_UP) + rejected.len().saturating_sub(MAX_REJECTIONS);
    let classes = ranked.into_iter().take(MAX_RUNNERS_UP).chain(rejected.into_iter().take(MAX_REJECTIONS));
    RuntimeCandidate { accelerators: classes.map(truncate_class).collect(), ..summary(candidate) }
}

/// Sorts rejections with rare codes first, because one excluded class is more informative than fifty classes without
/// nodes.
fn sort_by_code_frequency(rejected: &mut [&AcceleratorCandidate]) {
    let mut frequencies: BTreeMap<&str, usize> = BTreeMap::new();
    for class in rejected.iter() {
        *frequencies.entry(class.evaluation.code()).or_default() += 1;
    }
    rejected.sort_by_key(|class| frequencies.get(class.evaluation.code()).copied());
}

fn summary(candidate: &RuntimeCandidate) -> RuntimeCandidate {
    let best_classes = candidate.accelerators.iter().filter(|class| class.rank == Some(1)).take(2);
    let rejected = candidate.rejected.as_ref();
    let outranked = candidate.outranked.as_ref();
    RuntimeCandidate {
        runtime: candidate.runtime.clone(),
        scope: candidate.scope,
        rank: candidate.rank,
        selected: candidate.selected,
        accelerators: best_classes.map(truncate_class).collect(),
        rejected: rejected.map(|rejection| RuntimeRejection::Recorded(recorded(rejection.code(), rejection))),
        rank_basis: candidate.rank_basis.clone(),
        outranked: outranked.map(|reason| RuntimeRankReason::Recorded(recorded(OUTRANKED, reason))),
    }
}

fn truncate_class(class: &AcceleratorCandidate) -> AcceleratorCandidate {
    let outranked = class.outranked.as_ref();
    AcceleratorCandidate {
        evaluation: ClassEvaluation::Recorded(recorded(class.evaluation.code(), &class.evaluation)),
        outranked: outranked.map(|reason| ClassRankReason::Recorded(recorded(OUTRANKED, reason))),
        ..class.clone()
    }
}

fn recorded(code: &str, reason: &impl Display) -> RecordedReason {
    RecordedReason { code: code.to_owned(), message: truncate(&reason.to_string()) }
}

fn truncate(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
    }
}
