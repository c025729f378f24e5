//! The gateway routes to the endpoints that exist.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use apimachinery::{condition, object};
use serde_json::Value;

use crate::invariant::Invariant;
use crate::process::Process;
use crate::world::World;

const BACKEND_POOLS: &str = "backendpools.inference.networking.x-k8s.io";
const INFERENCE_POOLS: &str = "inferencepools.inference.networking.k8s.io";

/// Each gateway has exactly the pools that exist, with their ready Pods, and the status of each BackendPool counts them.
pub(crate) struct Gateway;

// === impl Invariant for Gateway ===

impl Invariant for Gateway {
    fn name(&self) -> &'static str {
        "the gateway routes to the ready Pods"
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        let mut pools = world.server().list(BACKEND_POOLS);
        let names: BTreeSet<String> = pools.iter().map(|pool| object::name(pool).to_owned()).collect();
        // A BackendPool replaces an InferencePool of the same name.
        let mut inference_pools = world.server().list(INFERENCE_POOLS);
        inference_pools.retain(|pool| !names.contains(object::name(pool)));
        pools.extend(inference_pools);
        for snapshot in world.processes().iter().filter_map(Process::pools) {
            let names: BTreeSet<&str> = snapshot.pools.keys().map(|key| key.name.as_str()).collect();
            let expected: BTreeSet<&str> = pools.iter().map(|pool| object::name(pool)).collect();
            if names != expected {
                return Err(format!("the gateway has the pools {names:?}, {expected:?} exist"));
            }
            for pool in &pools {
                let routed = snapshot.pools.iter().filter(|(key, _)| key.name == object::name(pool));
                let routed = routed.flat_map(|(_, pool)| &pool.ready_endpoints).map(|endpoint| endpoint.address);
                check_pool(world, pool, &routed.collect())?;
            }
        }
        Ok(())
    }
}

/// Checks the endpoints and the status of a pool.
fn check_pool(world: &World, pool: &Value, routed: &BTreeSet<SocketAddr>) -> Result<(), String> {
    let name = object::name(pool);
    let expected = ready_endpoints(world, pool);
    if *routed != expected {
        return Err(format!("pool {name} has the endpoints {routed:?}, ready are {expected:?}"));
    }
    match pool["status"]["readyEndpoints"].as_u64() {
        _ if pool["kind"] == "InferencePool" => Ok(()),
        Some(count) if count == expected.len() as u64 => Ok(()),
        count => Err(format!("the status of pool {name} counts {count:?} endpoints, ready are {expected:?}")),
    }
}

fn ready_endpoints(world: &World, pool: &Value) -> BTreeSet<SocketAddr> {
    let is_selected = |pod: &Value| {
        let selector = &pool["spec"]["selector"];
        let labels = selector.get("matchLabels").unwrap_or(selector);
        let mut selector = labels.as_object().into_iter().flatten();
        selector.all(|(label, value)| object::label(pod, label) == value.as_str())
    };
    let port = |port: &Value| port.as_u64().or(port["number"].as_u64());
    let ports = || pool["spec"]["targetPorts"].as_array().into_iter().flatten().filter_map(port);
    let mut pods = world.server().list("pods");
    pods.retain(|pod| is_selected(pod) && condition::is_true(pod, "Ready") && !object::is_deleting(pod));
    let addresses = pods.iter().filter_map(|pod| pod["status"]["podIP"].as_str()?.parse::<IpAddr>().ok());
    let endpoints = |ip| ports().filter_map(move |port| Some(SocketAddr::new(ip, u16::try_from(port).ok()?)));
    addresses.flat_map(endpoints).collect()
}
