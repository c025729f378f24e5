//! A client for the gRPC health protocol (`grpc.health.v1.Health/Check`): the request contains one string, and the
//! response one enum value. It is implemented here because a client library would require generated code for these two
//! messages.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::network::Network;

/// Maximum size of a response in bytes. Valid responses have fewer than ten.
const MAX_RESPONSE_BYTES: usize = 4096;
const SERVING: u64 = 1;
const UNIMPLEMENTED: &str = "12";

/// Checks the health of `service`, or of the whole server when it is empty.
///
/// # Errors
/// The kubelet's error message for an unhealthy service.
pub(crate) async fn check(network: &dyn Network, address: SocketAddr, service: &str) -> Result<(), String> {
    let error_message = |error: &dyn std::fmt::Display| format!("error: health rpc to {address} failed: {error}");
    let stream = network.connect(address).await;
    let stream = stream.map_err(|error| format!("timeout: failed to connect service {address:?}: {error}"))?;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|e| error_message(&e))?;
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.33")
        .body(Full::new(encode_request(service)))
        .map_err(|error| error_message(&error))?;
    let health_check = async {
        let response = sender.send_request(request).await.map_err(|error| error_message(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(|error| error_message(&error))?;
        grpc_error(&parts.headers).map_or(Ok(()), Err)?;
        body.trailers().and_then(grpc_error).map_or(Ok(()), Err)?;
        parse_response(&body.to_bytes())
    };
    // If the connection fails, the pending response returns the error.
    let drive_connection = async {
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        response = health_check => response,
        never = drive_connection => match never {},
    }
}

/// Encodes a `HealthCheckRequest`, whose field 1 is the service name, with the length prefix of gRPC messages.
fn encode_request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(1 << 3 | 2);
        put_varint(&mut message, service.len());
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put(message);
    frame.freeze()
}

fn put_varint(buffer: &mut BytesMut, mut number: usize) {
    while number >= 0x80 {
        buffer.put_u8(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    buffer.put_u8(u8::try_from(number).unwrap_or_default());
}

/// Returns the message for a `grpc-status` other than 0.
fn grpc_error(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let status = text("grpc-status").filter(|status| *status != "0")?;
    let message = text("grpc-message").unwrap_or_default();
    Some(match status {
        UNIMPLEMENTED => {
            format!("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}")
        }
        _ => format!("error: health rpc failed: status {status}: {message}"),
    })
}

/// Parses a `HealthCheckResponse`, whose field 1 is the status.
fn parse_response(body: &[u8]) -> Result<(), String> {
    let message = body.get(5..).unwrap_or_default();
    let status = match message {
        [tag, status, ..] if *tag == 1 << 3 => u64::from(*status),
        _ => 0,
    };
    let name = match status {
        SERVING => return Ok(()),
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "UNKNOWN",
    };
    Err(format!("service unhealthy (responded with {name:?})"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use hyper::service::service_fn;
    use rstest::rstest;

    use super::*;
    use crate::network::TcpNetwork;

    /// Starts a server that responds once with this body and `grpc-status`, and checks the request.
    async fn start_server(body: &'static [u8], status: &'static str) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let response = service_fn(move |request: Request<hyper::body::Incoming>| async move {
                assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                let request_body = request.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(&request_body[..], b"\0\0\0\0\x04\x0a\x02db");
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", status.parse().unwrap());
                let frames = [Frame::data(Bytes::from_static(body)), Frame::trailers(trailers)];
                let frames = futures::stream::iter(frames.map(Ok::<_, Infallible>));
                Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.serve_connection(TokioIo::new(stream), response).await.ok();
        });
        address
    }

    #[rstest]
    #[case::serving(b"\0\0\0\0\x02\x08\x01", "0", None)]
    #[case::not_serving(b"\0\0\0\0\x02\x08\x02", "0", Some("service unhealthy (responded with \"NOT_SERVING\")"))]
    #[case::empty_response(b"\0\0\0\0\0", "0", Some("service unhealthy (responded with \"UNKNOWN\")"))]
    #[case::no_such_service(
        b"",
        "12",
        Some("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ")
    )]
    #[tokio::test]
    async fn reports_health_status(
        #[case] body: &'static [u8],
        #[case] status: &'static str,
        #[case] expect: Option<&str>,
    ) {
        let address = start_server(body, status).await;
        assert_eq!(check(&TcpNetwork, address, "db").await, expect.map_or(Ok(()), |message| Err(message.to_owned())));
    }
}
