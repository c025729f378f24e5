//! Use cases: model names of clients and the engine models that serve them.

use std::time::Duration;

use fastrand::Rng;
use smallvec::SmallVec;
use xxhash_rust::xxh64::xxh64;

/// Priority of requests of use cases with an objective. Priorities are those of InferenceObjectives.
pub(crate) const CRITICAL: i32 = 100;

/// Priority of requests of use cases without an objective.
pub(crate) const NONCRITICAL: i32 = 0;

/// Priority of requests without a use case, unless an InferenceObjective states another one.
pub(crate) const IMPLICIT: i32 = -10;

/// A model name that a pool serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseCase {
    /// Model name in client requests.
    pub model_name: String,
    /// Requests with a higher priority leave the queue first, those with the lowest are shed first.
    pub priority: i32,
    /// Whether an InferenceModelRewrite declares it. Its requests wait as those without a use case.
    pub is_rewrite: bool,
    /// Desired end-to-end latency per output token at the 95th percentile.
    pub objective: Option<Duration>,
    /// Weighted target models; if empty, the target is the model name itself.
    pub targets: Vec<TargetModel>,
    /// Creation timestamp (RFC 3339) of the object that declares the use case.
    pub creation_timestamp: String,
    /// Kind, namespace and name of this object.
    pub declared_by: String,
}

/// Target model of an engine with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetModel {
    /// Model name of the engine.
    pub model: String,
    /// Relative share of the requests.
    pub weight: u32,
}

// === impl UseCase ===

impl UseCase {
    /// Returns the use case of a model without a declared use case.
    pub fn implicit(model_name: &str) -> Self {
        Self {
            model_name: model_name.to_owned(),
            priority: IMPLICIT,
            is_rewrite: false,
            objective: None,
            targets: Vec::new(),
            creation_timestamp: String::new(),
            declared_by: String::new(),
        }
    }

    /// Returns whether `model` is one of the target models, whatever its weight.
    pub(crate) fn has_target(&self, model: &str) -> bool {
        match self.targets.is_empty() {
            true => self.model_name == model,
            false => self.targets.iter().any(|target| target.model == model),
        }
    }

    /// Returns the target models with a weight.
    pub(crate) fn weighted_targets(&self) -> impl Iterator<Item = &str> {
        let own = self.targets.is_empty().then_some(self.model_name.as_str());
        let weighted = self.targets.iter().filter(|target| target.weight > 0).map(|target| target.model.as_str());
        own.into_iter().chain(weighted)
    }

    /// Returns a generator that draws the same target for all requests of a session, in all replicas. A changed weight changes the
    /// targets of as many sessions as it must.
    pub(crate) fn session_rng(&self, session: &[u8]) -> Rng {
        Rng::with_seed(xxh64(session, xxh64(self.model_name.as_bytes(), 0)))
    }

    /// Selects the target model of one request at random, with probabilities proportional to the weights, among the targets that
    /// are served. If none of those with a weight is, among all.
    pub fn draw_target(&self, rng: &mut Rng, is_served: impl Fn(&str) -> bool) -> &str {
        let weighted = || self.targets.iter().filter(|target| target.weight > 0);
        let served: SmallVec<[&TargetModel; 8]> = match weighted().nth(1) {
            Some(_) => weighted().filter(|target| is_served(&target.model)).collect(),
            None => SmallVec::new(),
        };
        let candidates = if served.is_empty() { weighted().collect() } else { served };
        let total: u64 = candidates.iter().map(|target| u64::from(target.weight)).sum();
        if total == 0 {
            return &self.model_name;
        }
        let mut remaining = rng.u64(..total);
        for target in candidates {
            match remaining.checked_sub(u64::from(target.weight)) {
                Some(rest) => remaining = rest,
                None => return &target.model,
            }
        }
        &self.model_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn use_case(targets: &[(&str, u32)]) -> UseCase {
        let targets =
            targets.iter().map(|(model, weight)| TargetModel { model: (*model).to_owned(), weight: *weight }).collect();
        UseCase { targets, ..UseCase::implicit("chat") }
    }

    // spec: GW-40
    // spec: GW-51
    #[test]
    fn targets_are_drawn_by_weight() {
        let use_case = use_case(&[("a", 20), ("never", 0), ("b", 80)]);
        let mut rng = Rng::with_seed(7);
        let drawn: Vec<&str> = (0..10_000).map(|_| use_case.draw_target(&mut rng, |_| true)).collect();
        let count = |model| drawn.iter().filter(|drawn| **drawn == model).count();
        assert_eq!(count("never"), 0);
        assert!((1_850..2_150).contains(&count("a")), "{}", count("a"));
        assert_eq!(count("a") + count("b"), 10_000);
    }

    // spec: GW-41
    #[test]
    fn targets_that_are_not_served_are_not_drawn() {
        let (use_case, mut rng) = (use_case(&[("a", 20), ("b", 80), ("c", 100), ("d", 0)]), Rng::with_seed(7));
        let mut count = |served: &[&str], model: &str| {
            let drawn = (0..10_000).map(|_| use_case.draw_target(&mut rng, |target| served.contains(&target)));
            drawn.filter(|drawn| *drawn == model).count()
        };
        assert_eq!((count(&["b"], "b"), count(&["d", "a"], "a")), (10_000, 10_000));
        assert!((1_850..2_150).contains(&count(&["a", "b"], "a")));
        assert!((4_850..5_150).contains(&count(&["d", "x"], "c")), "none is served");
    }

    /// The shares of the targets among 100,000 requests, and among as many sessions, are those of the weights.
    // spec: GW-43
    #[test]
    fn sessions_are_divided_by_weight() {
        let (use_case, mut rng) = (use_case(&[("a", 20), ("b", 80)]), Rng::with_seed(7));
        let mut requests = 0;
        let mut sessions = 0;
        for number in 0..100_000_u32 {
            let draw = || use_case.draw_target(&mut use_case.session_rng(number.to_string().as_bytes()), |_| true);
            assert_eq!(draw(), draw(), "session {number}");
            sessions += u32::from(draw() == "a");
            requests += u32::from(use_case.draw_target(&mut rng, |_| true) == "a");
        }
        assert!((19_500..20_500).contains(&requests) && (19_500..20_500).contains(&sessions), "{requests} {sessions}");
    }

    /// A rollout moves sessions to the new version only, never back.
    // spec: GW-43
    #[test]
    fn more_weight_moves_few_sessions() {
        let shares = [10, 20, 50].map(|weight| use_case(&[("new", weight), ("old", 100 - weight)]));
        for number in 0..10_000_u32 {
            let session = number.to_string();
            let draws = shares
                .each_ref()
                .map(|use_case| use_case.draw_target(&mut use_case.session_rng(session.as_bytes()), |_| true) == "new");
            assert!(draws.is_sorted(), "session {session}: {draws:?}");
        }
    }

    // spec: GW-43
    #[test]
    fn same_seed_draws_same_targets() {
        let use_case = use_case(&[("a", 1), ("b", 1)]);
        let draw = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..32).map(|_| use_case.draw_target(&mut rng, |_| true).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    /// At the end of a rollout, the new version has all requests under the name of the use case.
    // spec: GW-38
    // spec: GW-66
    #[test]
    fn use_case_without_targets_serves_its_own_name() {
        let (finished, without_targets) = (use_case(&[("old", 0), ("chat", 100)]), use_case(&[]));
        for seed in 0..100 {
            let mut rng = Rng::with_seed(seed);
            let unused = rng.clone();
            assert_eq!(without_targets.draw_target(&mut rng, |_| true), "chat");
            assert_eq!(rng, unused, "nothing is drawn");
            assert_eq!(finished.draw_target(&mut rng, |_| true), "chat");
        }
    }
}
