//! Models that were sent to engines with LoRA adapters. Engines report only adapters with unfinished requests, but keep an
//! adapter loaded until another one needs its slot.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
};

/// The models that each endpoint received last, most recent first, at most one per slot.
#[derive(Debug, Default)]
pub(crate) struct RecentModels {
    by_endpoint: BTreeMap<SocketAddr, VecDeque<String>>,
}

impl RecentModels {
    /// Records that `endpoint` with this number of adapter slots receives a request for `model`.
    pub(crate) fn record(&mut self, endpoint: SocketAddr, model: &str, slots: usize) {
        let models = self.by_endpoint.entry(endpoint).or_default();
        match models.iter().position(|recent| recent == model).and_then(|position| models.remove(position)) {
            Some(model) => models.push_front(model),
            None => models.push_front(model.to_owned()),
        }
        models.truncate(slots);
    }

    /// Returns whether `model` is one of the models that `endpoint` received last.
    pub(super) fn contains(&self, endpoint: SocketAddr, model: &str) -> bool {
        self.by_endpoint.get(&endpoint).is_some_and(|models| models.iter().any(|recent| recent == model))
    }

    /// Removes endpoints for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(SocketAddr) -> bool) {
        self.by_endpoint.retain(|address, _| keep(*address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_keeps_as_many_models_as_it_has_slots() {
        let mut recent = RecentModels::default();
        let endpoint: SocketAddr = ([10, 0, 0, 1], 8000).into();
        for model in ["a", "b", "a", "c"] {
            recent.record(endpoint, model, 2);
        }
        assert_eq!(["a", "b", "c"].map(|model| recent.contains(endpoint, model)), [true, false, true]);
        assert!(!recent.contains(([10, 0, 0, 2], 8000).into(), "a"));
        recent.retain(|address| address != endpoint);
        assert!(!recent.contains(endpoint, "a"));
    }
}
