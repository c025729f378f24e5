//! Target models of use cases that no engine serves.

use std::collections::{BTreeMap, BTreeSet};

use cluster::Condition;

use crate::{code, snapshot::Snapshot};

/// Condition type of use cases with a target model that no engine of their pools lists; it exists only while it is true.
pub const TARGET_NOT_SERVED: &str = "TargetNotServed";

/// Maximum number of target models that a message lists.
const MAX_TARGETS: usize = 3;

/// Returns the conditions about target models with a weight that no engine of their pools lists, by the object that declares the use
/// cases. Engines whose models are unknown, and pools without engines, may serve any model.
pub(crate) fn unserved_targets(snapshot: &Snapshot) -> BTreeMap<String, Condition> {
    let mut is_served: BTreeMap<(&str, &str, &str), bool> = BTreeMap::new();
    for pool in snapshot.pools.values() {
        for use_case in pool.use_cases.values() {
            for target in use_case.weighted_targets() {
                let may_serve = !pool.is_serving() || pool.may_serve(target);
                *is_served.entry((&use_case.declared_by, &use_case.model_name, target)).or_default() |= may_serve;
            }
        }
    }
    let unserved = is_served.into_iter().filter(|(_, is_served)| !is_served).map(|(target, _)| target);
    let mut by_object: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (object, model, target) in unserved {
        by_object.entry(object.to_owned()).or_default().insert(format!("`{target}` of model `{model}`"));
    }
    by_object.into_iter().map(|(object, targets)| (object, condition(&targets))).collect()
}

fn condition(targets: &BTreeSet<String>) -> Condition {
    let listed: Vec<&str> = targets.iter().take(MAX_TARGETS).map(String::as_str).collect();
    let omitted = targets.len().saturating_sub(MAX_TARGETS);
    let more = if omitted > 0 { format!(" and {omitted} more") } else { String::new() };
    let message = format!("No engine of the pools lists target model {}{more}.", listed.join(", "));
    Condition::new(TARGET_NOT_SERVED, true, code::TARGET_NOT_LISTED, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::NamespacedName;
    use rstest::rstest;
    use tokio::time::Instant;

    use super::*;
    use crate::{
        endpoint::tests::endpoint,
        snapshot,
        use_case::{TargetModel, UseCase},
    };

    /// Columns: models that the engine of each pool lists (`None` if they are unknown), weighted targets, and the message.
    #[rstest]
    #[case::served(&[Some("base v1")], &[("v1", 1)], None)]
    #[case::missing(&[Some("base")], &[("v1", 1)], Some("No engine of the pools lists target model `v1` of model `chat`."))]
    #[case::without_weight(&[Some("base")], &[("base", 1), ("v1", 0)], None)]
    #[case::served_by_another_pool(&[Some("base"), Some("v1")], &[("v1", 1)], None)]
    #[case::unknown(&[Some("base"), None], &[("v1", 1)], None)]
    #[case::no_engine(&[], &[("v1", 1)], None)]
    #[case::model_name(&[Some("base")], &[], Some("No engine of the pools lists target model `chat` of model `chat`."))]
    #[case::many(
        &[Some("base")],
        &[("a", 1), ("b", 1), ("c", 1), ("d", 1)],
        Some("No engine of the pools lists target model `a` of model `chat`, `b` of model `chat`, `c` of model `chat` and 1 more.")
    )]
    fn targets_that_no_engine_lists_are_reported(
        #[case] listed: &[Option<&str>],
        #[case] targets: &[(&str, u32)],
        #[case] expect: Option<&str>,
    ) {
        let targets: Vec<TargetModel> =
            targets.iter().map(|(model, weight)| TargetModel { model: (*model).to_owned(), weight: *weight }).collect();
        let use_case = UseCase { targets, declared_by: "LLMUseCaseSet ns/s".to_owned(), ..UseCase::implicit("chat") };
        let pool = |(number, listed): (u8, Option<&Option<&str>>)| {
            let endpoints = listed.map(|models| {
                let endpoint = endpoint(number);
                let models = models.map(|models| models.split(' ').map(str::to_owned).collect());
                endpoint.state.served_models.record(models, Instant::now());
                Arc::new(endpoint)
            });
            let pool = snapshot::tests::pool(
                NamespacedName::new("ns", &format!("p{number}")),
                endpoints.into_iter().collect(),
            );
            Arc::new(snapshot::Pool { use_cases: [("chat".to_owned(), use_case.clone())].into(), ..pool })
        };
        let pools = match listed {
            [] => vec![pool((0, None))],
            listed => (0..).zip(listed.iter().map(Some)).map(pool).collect(),
        };
        let conditions = unserved_targets(&Snapshot::new(pools, "ns"));
        assert_eq!(conditions.get("LLMUseCaseSet ns/s").map(|condition| condition.message.as_str()), expect);
    }
}
