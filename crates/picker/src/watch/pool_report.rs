//! Logs what affects the requests for an InferencePool: its watch writes no status.

use api::Code;
use cluster::NamespacedName;

use crate::{code, index::PoolIndex};

/// What was logged last about an InferencePool. Only changes are logged.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PoolReport {
    is_missing: bool,
    /// Optional kinds that are absent or may not be listed.
    unavailable_kinds: Vec<String>,
    /// Why use cases are inactive.
    inactive_use_cases: Vec<String>,
    /// Number of use cases, and whether other models are served.
    use_cases: (usize, bool),
}

// === impl PoolReport ===

impl PoolReport {
    /// Returns the report of `pool`.
    fn new(pool: &NamespacedName, index: &PoolIndex, unavailable_kinds: Vec<String>) -> Self {
        let conditions = index.use_case_conditions.values().flatten();
        let reasons = [code::MODEL_NAME_CONFLICT, code::INVALID_WEIGHTS].map(Code::as_str);
        let inactive = conditions.filter(|condition| reasons.contains(&condition.reason.as_str()));
        let found = index.pools.iter().find(|found| found.key == *pool);
        Self {
            is_missing: found.is_none(),
            unavailable_kinds,
            inactive_use_cases: inactive.map(|condition| condition.message.clone()).collect(),
            use_cases: found.map_or((0, true), |found| (found.use_cases.len(), found.allows_implicit_use_cases)),
        }
    }

    /// Logs what has changed.
    pub(super) fn update(&mut self, pool: &NamespacedName, index: &PoolIndex, unavailable_kinds: Vec<String>) {
        let old = std::mem::replace(self, Self::new(pool, index, unavailable_kinds));
        if self.is_missing && !old.is_missing {
            tracing::warn!(%pool, "InferencePool not found, waiting for it");
        }
        if self.unavailable_kinds != old.unavailable_kinds && !self.unavailable_kinds.is_empty() {
            let kinds = self.unavailable_kinds.join(", ");
            tracing::warn!(%pool, kinds, "these kinds are absent or may not be listed: their use cases have no effect");
        }
        for message in self.inactive_use_cases.iter().filter(|message| !old.inactive_use_cases.contains(message)) {
            tracing::warn!(%pool, "{message}");
        }
        let (use_cases, serves_other_models) = self.use_cases;
        if self.use_cases != old.use_cases {
            tracing::info!(%pool, use_cases, serves_other_models, "use cases changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::Condition;

    use super::*;
    use crate::{kinds::USE_CASE, snapshot::tests::pool, use_case::UseCase};

    #[test]
    fn contains_what_affects_requests() {
        let key = NamespacedName::new("ns", "p");
        let mut index = PoolIndex::default();
        let expect = PoolReport { is_missing: true, use_cases: (0, true), ..PoolReport::default() };
        assert_eq!(PoolReport::new(&key, &index, Vec::new()), expect);
        let mut pool = pool(key.clone(), Vec::new());
        pool.use_cases.insert("m".to_owned(), UseCase::implicit("m"));
        index.pools = vec![Arc::new(pool)];
        let condition = |reason, message: &str| Condition::new("Accepted", false, reason, message);
        let conditions = vec![condition(code::MODEL_NAME_CONFLICT, "a conflict"), condition(code::POOL_NOT_FOUND, "x")];
        index.use_case_conditions = [((USE_CASE, key.clone()), conditions)].into();
        let expect = PoolReport {
            is_missing: false,
            unavailable_kinds: vec!["backendpools".to_owned()],
            inactive_use_cases: vec!["a conflict".to_owned()],
            use_cases: (1, false),
        };
        assert_eq!(PoolReport::new(&key, &index, vec!["backendpools".to_owned()]), expect);
    }
}
