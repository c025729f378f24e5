//! Which Pods each pool selects, kept up to date with every change of a Pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use api::inference::ModelServer;
use cluster::{NamespacedName, metadata_field};
use serde_json::Value;

use super::pool_states::PoolStates;
use crate::{
    endpoint::Endpoint,
    pod::{is_active, model_server, prompt_token_range, ready_address},
};

/// Labels that select Pods. As for a Service, an empty selector selects nothing.
pub(super) type Selector = BTreeMap<String, String>;

/// Which Pods of its namespace are endpoints of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolSelector {
    /// Namespace of the pool.
    pub(super) namespace: String,
    /// Labels of the Pods.
    pub(super) labels: Selector,
    /// Ports: each is an endpoint.
    pub(super) ports: BTreeSet<u16>,
    /// Model server of Pods without a label that states one.
    pub(super) model_server: ModelServer,
}

/// Which Pods each pool selects. Pools are identified by their position.
#[derive(Debug, Default)]
pub(super) struct PodSelection {
    pools: Vec<SelectedPods>,
    /// Pools by namespace and first label of their selector.
    by_label: BTreeMap<String, BTreeMap<(String, String), Vec<usize>>>,
    /// Pools that select a Pod.
    by_pod: BTreeMap<NamespacedName, Vec<usize>>,
}

#[derive(Debug)]
struct SelectedPods {
    selector: PoolSelector,
    /// Endpoints by name of the Pod.
    pods: BTreeMap<String, Endpoints>,
}

/// Endpoints of a pool, or those of one Pod.
#[derive(Debug, Clone, Default)]
pub(super) struct Endpoints {
    /// Ready endpoints.
    pub(super) ready: Vec<Arc<Endpoint>>,
    /// Number of endpoints, ready or not.
    pub(super) count: usize,
}

// === impl PodSelection ===

impl PodSelection {
    /// Returns the Pods that each of `selectors` selects among `pods`.
    pub(super) fn new(
        selectors: impl IntoIterator<Item = PoolSelector>,
        pods: &[Arc<Value>],
        states: &impl PoolStates,
    ) -> Self {
        let pools = selectors.into_iter().map(|selector| SelectedPods { selector, pods: BTreeMap::new() }).collect();
        let mut selection = Self { pools, ..Self::default() };
        for (position, SelectedPods { selector, .. }) in selection.pools.iter().enumerate() {
            let Some((name, value)) = selector.labels.first_key_value() else { continue };
            let by_label = selection.by_label.entry(selector.namespace.clone()).or_default();
            by_label.entry((name.clone(), value.clone())).or_default().push(position);
        }
        for pod in pods {
            selection.update(&NamespacedName::from_object(pod), Some(pod), states);
        }
        selection
    }

    /// Replaces a Pod, or removes it if `pod` is `None`. Returns the pools whose endpoints, or the pools that share them, have changed.
    pub(super) fn update(
        &mut self,
        key: &NamespacedName,
        pod: Option<&Value>,
        states: &impl PoolStates,
    ) -> BTreeSet<usize> {
        let mut changed = BTreeSet::new();
        let selecting = pod.map(|pod| self.selecting_pools(&key.namespace, pod)).unwrap_or_default();
        let old = match selecting.is_empty() {
            true => self.by_pod.remove(key),
            false => self.by_pod.insert(key.clone(), selecting.clone()),
        };
        for position in old.iter().flatten().filter(|position| !selecting.contains(position)) {
            let removed = self.pools.get_mut(*position).and_then(|pool| pool.pods.remove(&key.name));
            changed.extend(removed.map(|_| *position));
        }
        if old.as_deref().unwrap_or_default() != selecting {
            let remaining = old.iter().flatten().filter(|position| selecting.contains(position));
            changed.extend(remaining.copied());
        }
        for (position, pod) in selecting.iter().flat_map(|position| pod.map(|pod| (*position, pod))) {
            let Some(pool) = self.pools.get_mut(position) else { continue };
            let endpoints = endpoints_of(pod, &pool.selector, states);
            if !pool.pods.get(&key.name).is_some_and(|old| old.is_same(&endpoints)) {
                pool.pods.insert(key.name.clone(), endpoints);
                changed.insert(position);
            }
        }
        changed
    }

    /// Returns the endpoints of a pool.
    pub(super) fn endpoints(&self, position: usize) -> Endpoints {
        let pods = || self.pools.get(position).into_iter().flat_map(|pool| pool.pods.values());
        Endpoints {
            ready: pods().flat_map(|pod| &pod.ready).cloned().collect(),
            count: pods().map(|pod| pod.count).sum(),
        }
    }

    /// Returns the other pools that have an endpoint of the pool at `position`.
    pub(super) fn sharing_pools(&self, position: usize) -> BTreeSet<usize> {
        let Some(SelectedPods { selector, pods }) = self.pools.get(position) else { return BTreeSet::new() };
        let shares_port = |other: &usize| {
            *other != position
                && self.pools.get(*other).is_some_and(|pool| !pool.selector.ports.is_disjoint(&selector.ports))
        };
        let selecting = pods.keys().filter_map(|pod| self.by_pod.get(&NamespacedName::new(&selector.namespace, pod)));
        selecting.flatten().copied().filter(shares_port).collect()
    }

    /// Returns the pools that select a Pod; none for a Pod that will not run anymore.
    fn selecting_pools(&self, namespace: &str, pod: &Value) -> Vec<usize> {
        let by_label = self.by_label.get(namespace).filter(|_| is_active(pod));
        let Some(by_label) = by_label else { return Vec::new() };
        let pod_labels = &pod["metadata"]["labels"];
        let labels = labels(pod).into_iter();
        let candidates = labels.filter_map(|label| by_label.get(&label)).flatten().copied();
        let selects = |position: &usize| {
            let selector = self.pools.get(*position).map(|pool| &pool.selector.labels);
            selector.is_some_and(|labels| labels.iter().all(|(key, value)| pod_labels[key] == value.as_str()))
        };
        candidates.filter(selects).collect()
    }
}

// === impl Endpoints ===

impl Endpoints {
    fn is_same(&self, other: &Endpoints) -> bool {
        let is_same = |left: &Endpoint, right: &Endpoint| {
            Arc::ptr_eq(&left.state, &right.state)
                && (left.address, &left.pod, &left.uid, left.prompt_tokens, &left.labels)
                    == (right.address, &right.pod, &right.uid, right.prompt_tokens, &right.labels)
        };
        self.count == other.count
            && self.ready.len() == other.ready.len()
            && self.ready.iter().zip(&other.ready).all(|(left, right)| is_same(left, right))
    }
}

fn endpoints_of(
    pod: &Value,
    PoolSelector { ports, model_server: default_server, .. }: &PoolSelector,
    states: &impl PoolStates,
) -> Endpoints {
    let mut endpoints = Endpoints { ready: Vec::new(), count: ports.len() };
    let Some(ip) = ready_address(pod) else { return endpoints };
    let (labels, uid) = (labels(pod), metadata_field(pod, "uid"));
    endpoints.ready.extend(ports.iter().map(|port| {
        let address = SocketAddr::new(ip, *port);
        let state = states.endpoint(address, uid);
        state.set_model_server(model_server(pod).unwrap_or(*default_server));
        Arc::new(Endpoint {
            address,
            pod: metadata_field(pod, "name").to_owned(),
            uid: uid.to_owned(),
            labels: labels.clone(),
            prompt_tokens: prompt_token_range(pod),
            state,
        })
    }));
    endpoints
}

fn labels(pod: &Value) -> BTreeMap<String, String> {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{endpoint_registry::EndpointRegistry, endpoint_state::EndpointState};
    use crate::{policy::SchedulingPolicy, pool_scheduling::PoolScheduling};

    /// States that are shared like those of a process.
    #[derive(Default)]
    struct States(EndpointRegistry);

    impl PoolStates for States {
        fn endpoint(&self, address: SocketAddr, pod_uid: &str) -> Arc<EndpointState> {
            self.0.state(address, pod_uid)
        }

        fn scheduling(&self, policy: Option<SchedulingPolicy>) -> Arc<PoolScheduling> {
            Arc::new(PoolScheduling::new(policy.unwrap_or_default(), Arc::default()))
        }

        fn default_namespace(&self) -> &'static str {
            "ns"
        }
    }

    fn pod(namespace: &str, name: u8, ip: u8, labels: &Value, is_ready: bool, is_terminating: bool) -> Arc<Value> {
        let ready = if is_ready { "True" } else { "False" };
        let deletion = if is_terminating { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        let metadata = json!({"name": format!("pod-{name}"), "namespace": namespace, "uid": format!("{name}-{ip}"),
            "labels": labels, "deletionTimestamp": deletion});
        Arc::new(json!({"metadata": metadata, "status": {"phase": "Running", "podIP": format!("10.0.0.{ip}"),
            "conditions": [{"type": "Ready", "status": ready}]}}))
    }

    fn selectors() -> Vec<PoolSelector> {
        let labels = [
            json!({}),
            json!({"app": "a"}),
            json!({"app": "b"}),
            json!({"app": "a", "role": "x"}),
            json!({"role": "x"}),
        ];
        let selector = |(labels, namespace): (&Value, &str)| PoolSelector {
            namespace: namespace.to_owned(),
            labels: serde_json::from_value(labels.clone()).unwrap(),
            ports: [8000, 8001].into(),
            model_server: ModelServer::default(),
        };
        ["n", "m"]
            .iter()
            .flat_map(|namespace| labels.iter().map(move |labels| (labels, *namespace)))
            .map(selector)
            .collect()
    }

    fn any_pod() -> impl Strategy<Value = (NamespacedName, Option<Arc<Value>>)> {
        let labels = prop_oneof![
            Just(json!({})),
            Just(json!({"app": "a"})),
            Just(json!({"app": "b", "role": "x"})),
            Just(json!({"app": "a", "role": "x", "other": "y"})),
        ];
        let namespace = prop_oneof![Just("n"), Just("m"), Just("other")];
        (namespace, 0_u8..4, 0_u8..2, labels, 0_u8..6).prop_map(|(namespace, name, ip, labels, state)| {
            let key = NamespacedName::new(namespace, &format!("pod-{name}"));
            (key, (state > 0).then(|| pod(namespace, name, ip, &labels, state > 2, state == 1)))
        })
    }

    proptest! {
        /// After each change, the endpoints equal those of a selection that is built from all Pods, and those of other pools than
        /// the returned ones have not changed.
        #[test]
        fn changes_lead_to_the_same_selection(changes in proptest::collection::vec(any_pod(), 1..30)) {
            let (states, mut pods) = (States::default(), BTreeMap::new());
            let mut selection = PodSelection::new(selectors(), &[], &states);
            for (key, pod) in changes {
                let before: Vec<Endpoints> = (0..selectors().len()).map(|position| selection.endpoints(position)).collect();
                let changed = selection.update(&key, pod.as_deref(), &states);
                match pod {
                    Some(pod) => drop(pods.insert(key, pod)),
                    None => drop(pods.remove(&key)),
                }
                let all: Vec<Arc<Value>> = pods.values().cloned().collect();
                let rebuilt = PodSelection::new(selectors(), &all, &states);
                for (position, before) in before.iter().enumerate() {
                    let endpoints = selection.endpoints(position);
                    prop_assert!(endpoints.is_same(&rebuilt.endpoints(position)));
                    prop_assert!(changed.contains(&position) || endpoints.is_same(before));
                }
            }
        }
    }

    #[test]
    fn status_without_an_effect_changes_no_pool() {
        let states = States::default();
        let first = pod("n", 1, 1, &json!({"app": "a"}), true, false);
        let mut selection = PodSelection::new(selectors(), &[Arc::clone(&first)], &states);
        let mut second = (*first).clone();
        second["status"]["startTime"] = json!("2026-01-01T00:00:00Z");
        let key = NamespacedName::from_object(&first);
        assert!(selection.update(&key, Some(&second), &states).is_empty());
        second["metadata"]["labels"]["zone"] = json!("z");
        assert_eq!(selection.update(&key, Some(&second), &states), [1].into());
        assert_eq!(selection.endpoints(1).ready[0].labels["zone"], "z");
        assert_eq!(selection.update(&key, None, &states), [1].into());
    }
}
