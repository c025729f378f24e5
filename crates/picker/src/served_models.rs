//! Models that an engine lists at `/v1/models`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;
use xxhash_rust::xxh64::xxh64;

/// Interval between requests for the list: adapters are loaded and unloaded at any time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of listed models. The models of an engine with more are unknown.
const MAX_MODELS: usize = 10_000;

/// Models that an engine lists; unknown until it has returned a list.
#[derive(Debug, Default)]
pub(crate) struct ServedModels {
    listed: RwLock<Option<ListedModels>>,
    requested: Mutex<Option<Instant>>,
}

/// A list of models.
#[derive(Debug)]
struct ListedModels {
    names: Arc<BTreeSet<String>>,
    /// Hashes of the names, sorted.
    hashes: Vec<u64>,
}

/// Hashes by which the lists of all endpoints are searched for one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelHashes {
    name: u64,
    /// Of the base model in `BASE:ADAPTER`, otherwise of the name: SGLang serves the adapters of a listed model under such names,
    /// but does not list them.
    base: u64,
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
        self.requested().is_none_or(|requested| now.saturating_duration_since(requested) >= INTERVAL)
    }

    /// Records the list that was requested at `now`. The last list is retained if the engine returned none, for example because it
    /// is too busy to respond in time.
    pub(crate) fn record(&self, models: Option<BTreeSet<String>>, now: Instant) {
        *self.requested() = Some(now);
        if let Some(models) = models {
            *self.listed.write().unwrap_or_else(PoisonError::into_inner) = Some(ListedModels::new(models));
        }
    }

    /// Returns whether the engine may serve a model: it lists the model, or what it serves is unknown.
    pub(crate) fn may_contain(&self, model: ModelHashes) -> bool {
        let listed = self.listed();
        let Some(listed) = &*listed else { return true };
        listed.contains(model.name) || listed.contains(model.base)
    }

    /// Returns whether the engine lists `model`.
    pub(crate) fn lists(&self, model: &str) -> bool {
        self.listed().as_ref().is_some_and(|listed| listed.names.contains(model))
    }

    /// Returns the models that the engine lists.
    pub(crate) fn names(&self) -> Arc<BTreeSet<String>> {
        self.listed().as_ref().map(|listed| Arc::clone(&listed.names)).unwrap_or_default()
    }

    fn listed(&self) -> RwLockReadGuard<'_, Option<ListedModels>> {
        self.listed.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn requested(&self) -> MutexGuard<'_, Option<Instant>> {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ListedModels ===

impl ListedModels {
    fn new(names: BTreeSet<String>) -> Self {
        let mut hashes: Vec<u64> = names.iter().map(|name| hash(name)).collect();
        hashes.sort_unstable();
        Self { names: Arc::new(names), hashes }
    }

    fn contains(&self, name: u64) -> bool {
        self.hashes.binary_search(&name).is_ok()
    }
}

// === impl ModelHashes ===

impl ModelHashes {
    /// Returns the hashes of `model`.
    pub(crate) fn new(model: &str) -> Self {
        let base = model.rsplit_once(':').map_or(model, |(base, _)| base);
        Self { name: hash(model), base: hash(base) }
    }
}

fn hash(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
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
        assert!(
            models.is_due(start)
                && models.may_contain(ModelHashes::new("a"))
                && !models.lists("a")
                && models.names().is_empty()
        );
        models.record(Some(["a".to_owned()].into()), start);
        assert_eq!([start, start + INTERVAL].map(|now| models.is_due(now)), [false, true]);
        let may_contain =
            || ["a", "b", "a:adapter", "b:adapter"].map(|model| models.may_contain(ModelHashes::new(model)));
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
