//! Models that an engine lists at `/v1/models`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;

/// Interval between requests for the list: adapters are loaded and unloaded at any time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of listed models. The models of an engine with more are unknown.
const MAX_MODELS: usize = 10_000;

/// Models that an engine lists; unknown until it has returned a list.
#[derive(Debug, Default)]
pub(crate) struct ServedModels(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    models: Option<Arc<BTreeSet<String>>>,
    requested: Option<Instant>,
}

/// Response to `/v1/models`.
#[derive(Deserialize)]
struct ModelList {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// Returns the models of a response to `/v1/models`; `None` if it contains no model, or more than [`MAX_MODELS`].
pub(crate) fn parse_model_list(response: &[u8]) -> Option<BTreeSet<String>> {
    let list: ModelList = serde_json::from_slice(response).ok()?;
    let is_valid = (1..=MAX_MODELS).contains(&list.data.len());
    is_valid.then(|| list.data.into_iter().map(|model| model.id).collect())
}

// === impl ServedModels ===

impl ServedModels {
    /// Returns whether the list is to be requested now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.lock().requested.is_none_or(|requested| now.saturating_duration_since(requested) >= INTERVAL)
    }

    /// Records the list that was requested at `now`. The last list is retained if the engine returned none, for example because it
    /// is too busy to respond in time.
    pub(crate) fn record(&self, models: Option<BTreeSet<String>>, now: Instant) {
        let mut state = self.lock();
        state.requested = Some(now);
        state.models = models.map(Arc::new).or(state.models.take());
    }

    /// Returns whether the engine may serve `model`: it lists the model, or what it serves is unknown. SGLang serves the adapter
    /// `BASE:ADAPTER` of a listed model, but does not list this name.
    pub(crate) fn may_contain(&self, model: &str) -> bool {
        let state = self.lock();
        let Some(models) = &state.models else { return true };
        models.contains(model) || model.rsplit_once(':').is_some_and(|(base, _)| models.contains(base))
    }

    /// Returns whether the engine lists `model`.
    pub(crate) fn lists(&self, model: &str) -> bool {
        self.lock().models.as_ref().is_some_and(|models| models.contains(model))
    }

    /// Returns the models that the engine lists.
    pub(crate) fn names(&self) -> Arc<BTreeSet<String>> {
        self.lock().models.clone().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::list(r#"{"object":"list","data":[{"id":"b","parent":null},{"id":"a"}]}"#, Some(&["a", "b"][..]))]
    #[case::empty(r#"{"data":[]}"#, None)]
    #[case::error(r#"{"error":{"message":"Unauthorized"}}"#, None)]
    #[case::no_json("<html>", None)]
    fn reads_names_of_models(#[case] response: &str, #[case] expect: Option<&[&str]>) {
        let expect = expect.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(parse_model_list(response.as_bytes()), expect);
    }

    #[test]
    fn long_list_is_unknown() {
        let list = |count| format!(r#"{{"data":[{}]}}"#, vec![r#"{"id":"m"}"#; count].join(","));
        assert_eq!(parse_model_list(list(MAX_MODELS).as_bytes()), Some(["m".to_owned()].into()));
        assert_eq!(parse_model_list(list(MAX_MODELS + 1).as_bytes()), None);
    }

    #[test]
    fn any_model_may_be_served_until_the_engine_lists_its_models() {
        let (models, start) = (ServedModels::default(), Instant::now());
        assert!(models.is_due(start) && models.may_contain("a") && !models.lists("a") && models.names().is_empty());
        models.record(Some(["a".to_owned()].into()), start);
        assert_eq!([start, start + INTERVAL].map(|now| models.is_due(now)), [false, true]);
        let may_contain = || ["a", "b", "a:adapter", "b:adapter"].map(|model| models.may_contain(model));
        assert_eq!(may_contain(), [true, false, true, false]);
        assert_eq!(
            (["a", "b"].map(|model| models.lists(model)), models.names()),
            ([true, false], Arc::new(["a".to_owned()].into()))
        );
        models.record(None, start + INTERVAL);
        assert_eq!(may_contain(), [true, false, true, false], "an engine that does not respond retains its list");
        assert!(!models.is_due(start + INTERVAL));
    }
}
