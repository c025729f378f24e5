//! The gateways that are measured together.

use anyhow::Result;

use super::backends::Backends;
use super::peer::Peer;
use super::{envoy, haproxy, ostler, python_routers, upstream_picker};
use crate::epp::Epp;

/// Whether the program of a gateway could be obtained.
pub(super) enum Availability {
    Running(Peer),
    Unavailable {
        /// Name of the gateway.
        name: &'static str,
    },
}

/// Starts all gateways. Those whose programs cannot be downloaded are unavailable; with `small`, only those are started that
/// have a target or that were downloaded before.
pub(super) fn start_all(backends: &Backends, upstream: Option<&Epp>, small: bool) -> Result<Vec<Availability>> {
    let or_unavailable = |name, peer: Option<Peer>| match peer {
        Some(peer) => Availability::Running(peer),
        None => Availability::Unavailable { name },
    };
    let mut peers = vec![
        or_unavailable(haproxy::NAME, haproxy::start(backends)?),
        or_unavailable(envoy::NAME, envoy::start(backends)?),
        Availability::Running(ostler::start_gateway(backends)?),
        or_unavailable(ostler::PICKER, ostler::start_picker(backends)?),
        or_unavailable(upstream_picker::NAME, start_upstream(backends, upstream)?),
    ];
    if !small {
        peers.push(or_unavailable(python_routers::SGLANG, python_routers::start_sglang(backends)?));
        peers.push(or_unavailable(python_routers::VLLM, python_routers::start_vllm(backends)?));
    }
    for peer in &peers {
        if let Availability::Running(peer) = peer {
            peer.wait_until_ready(backends)?;
        }
    }
    Ok(peers)
}

/// Starts the gateways that can be compared by the engines that they select.
pub(super) fn start_selectors(backends: &Backends, upstream: Option<&Epp>) -> Result<Vec<Peer>> {
    let round_robin = envoy::start(backends)?;
    let selectors = [start_upstream(backends, upstream)?, ostler::start_picker(backends)?];
    let gateway = Some(ostler::start_gateway(backends)?);
    let peers: Vec<Peer> = round_robin.into_iter().chain(selectors.into_iter().flatten()).chain(gateway).collect();
    peers.iter().try_for_each(|peer| peer.wait_until_ready(backends))?;
    Ok(peers)
}

/// Starts the processes that read metrics of the engines.
pub(super) fn start_observers(backends: &Backends, upstream: Option<&Epp>) -> Result<Vec<Peer>> {
    let gateway = Some(ostler::start_gateway(backends)?);
    let pickers = [ostler::start_picker(backends)?, start_upstream(backends, upstream)?];
    Ok(gateway.into_iter().chain(pickers.into_iter().flatten()).collect())
}

fn start_upstream(backends: &Backends, upstream: Option<&Epp>) -> Result<Option<Peer>> {
    upstream.map_or(Ok(None), |picker| upstream_picker::start(backends, picker))
}
