//! Scheduling profile: filters, weighted scorers and a picker.

use std::cmp::Ordering;

use fastrand::Rng;

use crate::{
    candidate::Candidate,
    endpoint::Endpoint,
    filter::{Filter, Labels},
    scheduling_request::SchedulingRequest,
    score::{
        Scorer,
        cost::{self, Cost},
        least_loaded,
        state::SchedulerState,
    },
};

/// Scores that differ by at most this fraction of the total weight count as equal. Metrics are slightly outdated: without
/// the tolerance an insignificant difference would send all requests to one endpoint until the next scrape.
const SCORE_TOLERANCE: f64 = 0.01;

/// Filters, weighted scorers and a picker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Profile {
    /// A candidate must pass all filters.
    pub(crate) filters: Vec<Filter>,
    /// Scorers with their weights.
    pub(crate) scorers: Vec<(Scorer, f64)>,
    /// How endpoints are picked by score.
    pub(crate) picker: Picker,
    /// Maximum number of returned endpoints: the selected endpoint and fallbacks.
    pub(crate) max_endpoints: usize,
}

/// How endpoints are picked by score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Picker {
    /// Lowest cost in tokens, independent of the scores. Only one endpoint is returned.
    LeastCost,
    /// Highest score; among equal scores the least loaded endpoint.
    MaxScore,
    /// Random endpoint, independent of the scores.
    Random,
    /// Random endpoint, with a probability proportional to its score.
    WeightedRandom,
}

/// Why an endpoint is selected only if all candidates have this disadvantage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disadvantage {
    /// The last scrape could not connect to the endpoint. It has no queue and would be rated best.
    Unreachable,
    /// The endpoint is intended for prompts of another size.
    OtherPromptSize,
}

/// How a profile rates an endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rating {
    /// Cost in tokens; the lowest one is selected.
    Cost(Cost),
    /// Weighted sum of the scores; the highest one is selected, unless the picker draws.
    Score(f64),
    /// Another endpoint without this disadvantage is selected.
    Disadvantage(Disadvantage),
}

// === impl Disadvantage ===

impl Disadvantage {
    /// All disadvantages, the most important first.
    const ALL: [Self; 2] = [Self::Unreachable, Self::OtherPromptSize];

    fn applies(self, request: &SchedulingRequest<'_>, candidate: &Candidate<'_>) -> bool {
        match self {
            Self::Unreachable => candidate.is_unreachable,
            Self::OtherPromptSize => !candidate.endpoint.prompt_tokens.contains(request.prompt_tokens()),
        }
    }
}

// === impl Profile ===

impl Profile {
    /// Returns whether scraped metrics influence the selection.
    pub(crate) fn reads_metrics(&self) -> bool {
        self.picker == Picker::LeastCost || !self.scorers.is_empty()
    }

    /// Returns the endpoints to try in order, among `candidates` that pass the filters.
    pub(crate) fn pick<'a>(
        &self,
        request: &SchedulingRequest<'_>,
        mut candidates: Vec<&'a Candidate<'a>>,
        state: &SchedulerState,
        rng: &mut Rng,
    ) -> Vec<&'a Candidate<'a>> {
        drop(remove_disadvantaged(request, &mut candidates));
        if self.picker == Picker::LeastCost {
            return cost::least_cost(request, &candidates, state, rng).into_iter().collect();
        }
        let totals = self.total_scores(request, &candidates, state);
        let mut scored: Vec<(&Candidate, f64)> = candidates.into_iter().zip(totals).collect();
        let tolerance = SCORE_TOLERANCE * self.scorers.iter().map(|(_, weight)| weight).sum::<f64>();
        match self.picker {
            Picker::LeastCost | Picker::MaxScore => sort_by_score(&mut scored, tolerance, rng),
            Picker::Random => rng.shuffle(&mut scored),
            Picker::WeightedRandom => pick_weighted_random(&mut scored, rng),
        }
        scored.into_iter().take(self.max_endpoints.max(1)).map(|(candidate, _)| candidate).collect()
    }

    /// Returns how [`Self::pick`] rates `candidates`, in no particular order.
    pub(crate) fn ratings<'a>(
        &self,
        request: &SchedulingRequest<'_>,
        mut candidates: Vec<&'a Candidate<'a>>,
        state: &SchedulerState,
    ) -> Vec<(&'a Candidate<'a>, Rating)> {
        let removed = remove_disadvantaged(request, &mut candidates);
        let removed = removed.into_iter().map(|(candidate, reason)| (candidate, Rating::Disadvantage(reason)));
        let ratings: Vec<Rating> = match self.picker {
            Picker::LeastCost => {
                candidates.iter().map(|candidate| Rating::Cost(Cost::new(request, candidate, state))).collect()
            }
            Picker::MaxScore | Picker::Random | Picker::WeightedRandom => {
                self.total_scores(request, &candidates, state).into_iter().map(Rating::Score).collect()
            }
        };
        candidates.into_iter().zip(ratings).chain(removed).collect()
    }

    /// Returns whether an endpoint with these labels passes all filters.
    pub(crate) fn matches_labels(&self, labels: &Labels) -> bool {
        self.filters.iter().all(|filter| filter.matches(labels))
    }

    fn total_scores(
        &self,
        request: &SchedulingRequest<'_>,
        candidates: &[&Candidate],
        state: &SchedulerState,
    ) -> Vec<f64> {
        let mut totals = vec![0.0; candidates.len()];
        for (scorer, weight) in &self.scorers {
            let scores = scorer.scores(request, candidates, state);
            totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
        }
        totals
    }
}

/// Removes and returns the candidates with a disadvantage that others do not have.
fn remove_disadvantaged<'a>(
    request: &SchedulingRequest<'_>,
    candidates: &mut Vec<&'a Candidate<'a>>,
) -> Vec<(&'a Candidate<'a>, Disadvantage)> {
    let mut removed = Vec::new();
    for reason in Disadvantage::ALL {
        if candidates.iter().any(|candidate| !reason.applies(request, candidate)) {
            candidates.retain(|candidate| {
                let applies = reason.applies(request, candidate);
                if applies {
                    removed.push((*candidate, reason));
                }
                !applies
            });
        }
    }
    removed
}

/// Sorts by score, then by the tokens in flight. Among the scores within `tolerance` of the highest, the less loaded of two
/// randomly drawn endpoints comes first.
fn sort_by_score(scored: &mut [(&Candidate, f64)], tolerance: f64, rng: &mut Rng) {
    // Loads change concurrently: read each one once.
    let key = |(candidate, total): &(&Candidate, f64)| {
        (*total, candidate.endpoint.state.tokens(), candidate.endpoint.address)
    };
    let mut keyed: Vec<_> = scored.iter().map(|entry| (key(entry), *entry)).collect();
    keyed.sort_by(|((left_total, left_load, left_address), _), ((right_total, right_load, right_address), _)| {
        let by_total: Ordering = right_total.total_cmp(left_total);
        by_total.then(left_load.cmp(right_load)).then(left_address.cmp(right_address))
    });
    scored.iter_mut().zip(keyed).for_each(|(slot, (_, entry))| *slot = entry);
    let Some((_, highest)) = scored.first().copied() else { return };
    let equal = scored.iter().take_while(|(_, total)| *total >= highest - tolerance);
    let equal: Vec<&Endpoint> = equal.map(|(candidate, _)| &**candidate.endpoint).collect();
    let selected = least_loaded::least_loaded(&equal, rng).map(|endpoint| endpoint.address);
    if let Some(index) = scored.iter().position(|(candidate, _)| Some(candidate.endpoint.address) == selected) {
        scored[..=index].rotate_right(1);
    }
}

/// Moves one candidate to the front, drawn with a probability proportional to its score; sorts the others by score.
fn pick_weighted_random(scored: &mut [(&Candidate, f64)], rng: &mut Rng) {
    sort_by_score(scored, 0.0, rng);
    let sum: f64 = scored.iter().map(|(_, total)| total.max(0.0)).sum();
    let mut remaining = rng.f64() * sum;
    let selected_index = scored.iter().position(|(_, total)| {
        remaining -= total.max(0.0);
        remaining < 0.0
    });
    if let Some(index) = selected_index {
        scored[..=index].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{candidate::tests::candidate, engine_metrics::EngineMetrics};

    fn candidate_with_queue(number: u8, waiting: f64) -> Candidate<'static> {
        candidate(number, Some((EngineMetrics { waiting: Some(waiting), ..EngineMetrics::default() }, 0)))
    }

    fn profile(picker: Picker) -> Profile {
        Profile { filters: Vec::new(), scorers: vec![(Scorer::Queue, 1.0)], picker, max_endpoints: 3 }
    }

    fn pick_names(profile: &Profile, candidates: &[Candidate<'_>], rng: &mut Rng) -> Vec<String> {
        let request = SchedulingRequest::new("m");
        profile
            .pick(&request, candidates.iter().collect(), &SchedulerState::default(), rng)
            .iter()
            .map(|candidate| candidate.endpoint.pod.clone())
            .collect()
    }

    #[test]
    fn endpoints_are_ordered_by_score() {
        let candidates = [
            candidate_with_queue(1, 9.0),
            candidate_with_queue(2, 0.0),
            candidate_with_queue(3, 3.0),
            candidate_with_queue(4, 6.0),
        ];
        let names = pick_names(&profile(Picker::MaxScore), &candidates, &mut Rng::with_seed(0));
        assert_eq!(names, ["pod-2", "pod-3", "pod-4"]);
    }

    #[test]
    fn equal_scores_are_decided_by_load() {
        let candidates = [candidate_with_queue(1, 0.0), candidate_with_queue(2, 0.0)];
        let mut rng = Rng::with_seed(1);
        let first = |rng: &mut Rng| pick_names(&profile(Picker::MaxScore), &candidates, rng)[0].clone();
        let pod_1_count = (0..400).filter(|_| first(&mut rng) == "pod-1").count();
        assert!((120..280).contains(&pod_1_count), "{pod_1_count}");
        let _busy = candidates[0].endpoint.state.begin(100);
        assert!((0..50).all(|_| first(&mut rng) == "pod-2"));
    }

    #[test]
    fn insignificant_score_differences_are_ignored() {
        let candidate_with_cache_usage = |number, usage| {
            candidate(number, Some((EngineMetrics { kv_cache_usage: Some(usage), ..EngineMetrics::default() }, 0)))
        };
        let profile = Profile { scorers: vec![(Scorer::KvCache, 100.0)], ..profile(Picker::MaxScore) };
        let mut rng = Rng::with_seed(1);
        let first = |candidates: &[Candidate], rng: &mut Rng| pick_names(&profile, candidates, rng)[0].clone();
        let candidates = [candidate_with_cache_usage(1, 0.500), candidate_with_cache_usage(2, 0.501)];
        let _busy = candidates[0].endpoint.state.begin(100);
        assert!((0..50).all(|_| first(&candidates, &mut rng) == "pod-2"));
        let candidates = [candidate_with_cache_usage(1, 0.50), candidate_with_cache_usage(2, 0.52)];
        let _busy = candidates[0].endpoint.state.begin(100);
        assert!((0..50).all(|_| first(&candidates, &mut rng) == "pod-1"));
    }

    #[test]
    fn weighted_random_picks_in_proportion_to_scores() {
        let candidates = [candidate_with_queue(1, 0.0), candidate_with_queue(2, 3.0), candidate_with_queue(3, 4.0)];
        let mut rng = Rng::with_seed(5);
        let drawn: Vec<String> = (0..1_000)
            .map(|_| pick_names(&profile(Picker::WeightedRandom), &candidates, &mut rng)[0].clone())
            .collect();
        let count = |pod: &str| drawn.iter().filter(|drawn| *drawn == pod).count();
        assert!((740..860).contains(&count("pod-1")), "{}", count("pod-1"));
        assert_eq!(count("pod-3"), 0);
    }

    #[test]
    fn unreachable_endpoint_is_picked_only_as_last_resort() {
        let mut candidates = [candidate_with_queue(1, 0.0), candidate_with_queue(2, 9.0)];
        candidates[0].is_unreachable = true;
        let mut rng = Rng::with_seed(0);
        assert_eq!(pick_names(&profile(Picker::MaxScore), &candidates, &mut rng), ["pod-2"]);
        candidates[1].is_unreachable = true;
        assert_eq!(pick_names(&profile(Picker::MaxScore), &candidates, &mut rng), ["pod-1", "pod-2"]);
    }

    #[test]
    fn endpoints_match_all_filters() {
        let filter = |allow_missing| Filter::Label {
            label: "role".to_owned(),
            values: vec!["decode".to_owned()],
            allow_missing,
        };
        let labels = |role: &str| Labels::from([("role".to_owned(), role.to_owned())]);
        for (allow_missing, expect) in [(false, [false, true, false]), (true, [false, true, true])] {
            let profile = Profile { filters: vec![filter(true), filter(allow_missing)], ..profile(Picker::MaxScore) };
            let matches =
                [labels("prefill"), labels("decode"), Labels::new()].map(|labels| profile.matches_labels(&labels));
            assert_eq!(matches, expect);
        }
    }
}
