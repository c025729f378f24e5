//! The decision as status carries it: bounded, however many runtimes and classes there are.

use std::collections::BTreeMap;

use crate::decision::ClassEvaluation;
use crate::decision::{AcceleratorCandidate, Decision, RuntimeCandidate};
use crate::rank_reason::{ClassRankReason, RuntimeRankReason};
use crate::reason::{RecordedReason, RuntimeRejection, Warning};

/// Compatible runtimes kept beside the selected one.
const RUNNERS_UP: usize = 10;
/// Rejected runtimes kept, the nearest first; also rejected classes of the one runtime whose classes are kept.
const REJECTIONS: usize = 20;
const WARNINGS: usize = 20;
/// Characters of one sentence.
const SENTENCE: usize = 512;

impl Decision {
    /// Winner, up to 10 runners-up, up to 20 rejections, counts of the rest. The winner keeps its classes, or the nearest
    /// runtime where nothing won; the others keep the class that they would get.
    #[must_use]
    pub fn for_status(&self) -> Self {
        // What was left out before stays counted: shortening twice is shortening once.
        let mut omitted = self.omitted;
        let (mut runners_up, mut rejections) = (0, 0);
        let mut candidates = Vec::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            let detailed = candidate.selected || !self.feasible && index == 0;
            let (count, most, left_out) = if candidate.rejected.is_some() {
                (&mut rejections, REJECTIONS, &mut omitted.rejections)
            } else {
                (&mut runners_up, RUNNERS_UP, &mut omitted.runners_up)
            };
            if !candidate.selected {
                *count += 1;
                if *count > most {
                    *left_out += 1;
                    continue;
                }
            }
            candidates.push(if detailed { with_classes(candidate, &mut omitted.classes) } else { brief(candidate) });
        }
        omitted.warnings += self.warnings.len().saturating_sub(WARNINGS);
        let warnings = self.warnings.iter().take(WARNINGS);
        Self {
            message: cut(&self.message),
            candidates,
            warnings: warnings.map(|one| Warning { code: one.code.clone(), message: cut(&one.message) }).collect(),
            omitted,
            ..self.clone()
        }
    }
}

fn with_classes(candidate: &RuntimeCandidate, omitted: &mut usize) -> RuntimeCandidate {
    let (ranked, mut rejected): (Vec<_>, Vec<_>) = candidate.accelerators.iter().partition(|one| one.rank.is_some());
    if rejected.len() > REJECTIONS {
        rarest_first(&mut rejected);
    }
    *omitted += ranked.len().saturating_sub(RUNNERS_UP) + rejected.len().saturating_sub(REJECTIONS);
    let kept = ranked.into_iter().take(RUNNERS_UP).chain(rejected.into_iter().take(REJECTIONS));
    RuntimeCandidate { accelerators: kept.map(shortened).collect(), ..brief(candidate) }
}

/// The one class that is excluded tells more than the fifty that have no nodes.
fn rarest_first(rejected: &mut [&AcceleratorCandidate]) {
    let mut number: BTreeMap<&str, usize> = BTreeMap::new();
    for one in rejected.iter() {
        *number.entry(one.evaluation.code()).or_default() += 1;
    }
    rejected.sort_by_key(|one| number.get(one.evaluation.code()).copied());
}

fn brief(candidate: &RuntimeCandidate) -> RuntimeCandidate {
    let best = candidate.accelerators.iter().filter(|one| one.rank == Some(1)).take(2);
    let rejected =
        candidate.rejected.as_ref().map(|rejection| RuntimeRejection::Recorded(told(rejection.code(), rejection)));
    RuntimeCandidate {
        runtime: candidate.runtime.clone(),
        scope: candidate.scope,
        rank: candidate.rank,
        selected: candidate.selected,
        accelerators: best.map(shortened).collect(),
        rejected,
        rank_basis: candidate.rank_basis.clone(),
        outranked: candidate
            .outranked
            .as_ref()
            .map(|step| RuntimeRankReason::Recorded(told(crate::rank_reason::OUTRANKED, step))),
    }
}

fn shortened(one: &AcceleratorCandidate) -> AcceleratorCandidate {
    AcceleratorCandidate {
        evaluation: ClassEvaluation::Recorded(told(one.evaluation.code(), &one.evaluation)),
        outranked: one
            .outranked
            .as_ref()
            .map(|step| ClassRankReason::Recorded(told(crate::rank_reason::OUTRANKED, step))),
        ..one.clone()
    }
}

fn told(code: &str, what: &impl std::fmt::Display) -> RecordedReason {
    RecordedReason { code: code.to_owned(), message: cut(&what.to_string()) }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SENTENCE) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
