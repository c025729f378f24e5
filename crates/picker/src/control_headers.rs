//! Headers by which gateways, pickers and engines exchange endpoints. Clients must not set them.

use std::net::SocketAddr;

use crate::policy::SchedulingResult;

/// Metadata key, and header, of the endpoint that served a request.
pub(crate) const SERVED_ENDPOINT_KEY: &str = "x-gateway-destination-endpoint-served";

/// Header with the endpoint to which the decoder sends the prompt first.
const PREFILL_ENDPOINT_HEADER: &str = "x-prefiller-host-port";

/// Header with the selected engine, if one port of a Pod forwards requests to all of its engines.
const DATA_PARALLEL_ENDPOINT_HEADER: &str = "x-data-parallel-host-port";

/// Prefix of all control headers, which few other headers have.
const COMMON_PREFIX: &str = "x-";

/// Prefixes of control headers.
const CONTROL_HEADER_PREFIXES: [&str; 4] = ["x-gateway-", "x-llm-d-", "x-ostler-", "x-slo-"];

/// Known control headers. A proxy may be configured not to send all headers to the picker, so the picker removes these in any
/// case.
pub(crate) const CONTROL_HEADERS: [&str; 20] = [
    PREFILL_ENDPOINT_HEADER,
    DATA_PARALLEL_ENDPOINT_HEADER,
    "x-encoder-hosts-ports",
    "x-kv-cache-source-host-port",
    "x-prefiller-url",
    "x-llm-d-prefiller-host-port",
    "x-llm-d-encoder-hosts-ports",
    "x-llm-d-kv-cache-source-host-port",
    SERVED_ENDPOINT_KEY,
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-objective",
    "x-llm-d-inference-objective",
    "x-gateway-inference-fairness-id",
    "x-llm-d-inference-fairness-id",
    "x-gateway-model-name-rewrite",
    "x-llm-d-model-name-rewrite",
    "x-slo-ttft-ms",
    "x-llm-d-slo-ttft-ms",
    "x-slo-tpot-ms",
    "x-llm-d-slo-tpot-ms",
];

/// Returns whether a header, in lower case, is removed from requests of clients: an engine sends requests to the addresses in
/// some of them.
pub(crate) fn is_control_header(name: &str) -> bool {
    name.starts_with(COMMON_PREFIX)
        && (CONTROL_HEADERS.contains(&name) || CONTROL_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// Returns the address to which requests for an endpoint are sent: with the port that forwards to all engines of its Pod, if
/// there is one.
pub(crate) fn destination(mut endpoint: SocketAddr, primary_port: Option<u16>) -> SocketAddr {
    endpoint.set_port(primary_port.unwrap_or(endpoint.port()));
    endpoint
}

/// Returns the headers that the engine needs to serve a request.
pub(crate) fn engine_headers(
    result: &SchedulingResult,
    primary_port: Option<u16>,
) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let selected = result.endpoint.address;
    let data_parallel = Some((DATA_PARALLEL_ENDPOINT_HEADER, selected));
    let data_parallel = data_parallel.filter(|_| destination(selected, primary_port) != selected);
    let prefill = result.prefill_endpoint.as_ref().map(|endpoint| (PREFILL_ENDPOINT_HEADER, endpoint.address));
    data_parallel.into_iter().chain(prefill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_headers_are_recognized() {
        let names = CONTROL_HEADERS.into_iter().chain(CONTROL_HEADER_PREFIXES);
        assert!(names.into_iter().all(is_control_header));
        assert!(!["x-request-id", "authorization"].into_iter().any(is_control_header));
    }
}
