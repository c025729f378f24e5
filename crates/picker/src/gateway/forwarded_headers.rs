//! Headers that the gateway forwards, in both directions.

use http::{HeaderMap, HeaderName, header};

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

/// Removes hop-by-hop headers, and those of gateways and pickers. `transfer-encoding` overrides a `content-length` (RFC 9112 §6.3).
pub(super) fn remove_unforwarded_headers(headers: &mut HeaderMap) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let connection_headers: Vec<String> =
        connection.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_removed = |name: &str| {
        HOP_BY_HOP_HEADERS.contains(&name)
            || is_control_header(name)
            || connection_headers.iter().any(|other| other == name)
    };
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name.as_str())).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn length_of_a_chunked_message_is_removed() {
        let headers = |names: &[HeaderName]| -> HeaderMap {
            let value = |name: &HeaderName| if name == header::CONTENT_LENGTH { "3" } else { "chunked" };
            names.iter().map(|name| (name.clone(), HeaderValue::from_static(value(name)))).collect()
        };
        let mut message = headers(&[header::CONTENT_LENGTH, header::TRANSFER_ENCODING]);
        remove_unforwarded_headers(&mut message);
        assert_eq!(message, HeaderMap::new());
        let mut message = headers(&[header::CONTENT_LENGTH]);
        remove_unforwarded_headers(&mut message);
        assert_eq!(message, headers(&[header::CONTENT_LENGTH]));
    }

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
        remove_unforwarded_headers(&mut headers);
        let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "accept", "authorization", "x-request-id"]);
    }
}
