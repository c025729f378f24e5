//! Headers that the gateway forwards, in both directions.

use http::{HeaderMap, header};

use crate::control_headers::is_control_header;

/// Headers that belong to one connection (RFC 9110 §7.6.1).
const HOP_BY_HOP_HEADERS: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns `headers` without hop-by-hop headers, and without those of gateways and pickers.
pub(super) fn forwarded_headers(headers: &HeaderMap) -> HeaderMap {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let connection_headers: Vec<String> =
        connection.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let mut forwarded = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let text = name.as_str();
        if !HOP_BY_HOP_HEADERS.contains(&text)
            && !is_control_header(text)
            && !connection_headers.iter().any(|other| other == text)
        {
            // A header may have several values.
            forwarded.append(name, value.clone());
        }
    }
    forwarded
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn removes_hop_by_hop_and_internal_headers() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("x-gateway-destination-endpoint", "10.0.0.1:1"),
            ("x-ostler-pod", "p"),
            ("x-prefiller-host-port", "169.254.169.254:80"),
            ("x-data-parallel-host-port", "169.254.169.254:80"),
            ("x-encoder-hosts-ports", "169.254.169.254:80"),
            ("x-prefiller-url", "http://169.254.169.254"),
            ("x-kv-cache-source-host-port", "169.254.169.254:80"),
            ("x-slo-ttft-ms", "1"),
            ("x-slo-e2e-ms", "1"),
            ("x-llm-d-model-name-rewrite", "other"),
            ("authorization", "Bearer t"),
            ("x-request-id", "abc"),
            ("accept", "a/b"),
            ("accept", "c/d"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let forwarded = forwarded_headers(&headers);
        let names: Vec<&str> = forwarded.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["authorization", "x-request-id", "accept", "accept"]);
    }
}
