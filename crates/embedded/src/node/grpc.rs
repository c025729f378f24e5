//! One question of the gRPC health protocol (`grpc.health.v1.Health/Check`): a message with one string, answered by one
//! number. Written by hand: a client library would bring code generation for these two messages.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::ports::Network;

/// The answer's length; it is a few bytes.
const LARGEST: usize = 4096;
const SERVING: u64 = 1;
const UNIMPLEMENTED: &str = "12";

/// Asks for the health of `service`, of the whole server when it is empty.
///
/// # Errors
/// Why it is not healthy.
pub(super) async fn check(network: &dyn Network, address: SocketAddr, service: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: health rpc to {address} failed: {error}");
    let stream = network.connect(address).await;
    let stream = stream.map_err(|error| format!("timeout: failed to connect service {address:?}: {error}"))?;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|e| failed(&e))?;
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.33")
        .body(Full::new(question(service)))
        .map_err(|error| failed(&error))?;
    let ask = async {
        let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LARGEST).collect().await.map_err(|error| failed(&error))?;
        refusal(&head.headers).map_or(Ok(()), Err)?;
        body.trailers().and_then(refusal).map_or(Ok(()), Err)?;
        verdict(&body.to_bytes())
    };
    // The connection only has to be driven: how it ends, the answer tells.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        answer = ask => answer,
        never = drive => match never {},
    }
}

/// `HealthCheckRequest`: field 1 is the name of the service. In front, as of every gRPC message, its length.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(1 << 3 | 2);
        varint(&mut message, service.len());
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put(message);
    frame.freeze()
}

fn varint(out: &mut BytesMut, mut number: usize) {
    while number >= 0x80 {
        out.put_u8(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    out.put_u8(u8::try_from(number).unwrap_or_default());
}

/// What `grpc-status` says when it is not 0.
fn refusal(headers: &HeaderMap) -> Option<String> {
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

/// `HealthCheckResponse`: field 1 is the status.
fn verdict(body: &[u8]) -> Result<(), String> {
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
    use crate::ports::Loopback;

    /// A server that answers once with these bytes and this `grpc-status`; it checks what it was asked.
    async fn server(body: &'static [u8], status: &'static str) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| async move {
                assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                let asked = request.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(&asked[..], b"\0\0\0\0\x04\x0a\x02db");
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", status.parse().unwrap());
                let frames = [Frame::data(Bytes::from_static(body)), Frame::trailers(trailers)];
                let frames = futures::stream::iter(frames.map(Ok::<_, Infallible>));
                Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            http.serve_connection(TokioIo::new(stream), answer).await.ok();
        });
        address
    }

    #[rstest]
    #[case::serving(b"\0\0\0\0\x02\x08\x01", "0", None)]
    #[case::not_serving(b"\0\0\0\0\x02\x08\x02", "0", Some("service unhealthy (responded with \"NOT_SERVING\")"))]
    #[case::says_nothing(b"\0\0\0\0\0", "0", Some("service unhealthy (responded with \"UNKNOWN\")"))]
    #[case::no_such_service(
        b"",
        "12",
        Some("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ")
    )]
    #[tokio::test]
    async fn health(#[case] body: &'static [u8], #[case] status: &'static str, #[case] expect: Option<&str>) {
        let address = server(body, status).await;
        assert_eq!(check(&Loopback, address, "db").await, expect.map_or(Ok(()), |why| Err(why.to_owned())));
    }
}
