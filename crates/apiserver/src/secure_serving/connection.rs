//! Time limits of one connection after the TLS handshake.

use std::time::Duration;

use axum::Router;
use http_server::ConnectionLimits;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// kube-apiserver and the connection pools of its clients use the same idle timeout: a shorter one would close connections
/// that clients are about to reuse. A client may stop reading for some minutes: a pager pauses a stream of logs.
const LIMITS: ConnectionLimits = ConnectionLimits {
    first_request_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(90),
    stall_timeout: Duration::from_secs(600),
    max_header_bytes: 408 * 1024,
    max_concurrent_requests: 200,
};

/// Serves the requests of a connection until the client closes it, it has been idle for too long, or `stop`.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    stop: CancellationToken,
) {
    http_server::serve_connection(stream, TowerToHyperService::new(router), LIMITS, stop).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use axum::routing::get;
    use bytes::Bytes;
    use futures::stream;
    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::*;

    const REQUEST: &[u8] = b"GET /once HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// Serves `/once`, and `/watch` and `/logs`, whose responses do not end; `/logs` always has data.
    fn connect() -> DuplexStream {
        let watch = || async { Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()) };
        let line = || Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 4096]));
        let logs = move || async move { Body::from_stream(stream::repeat_with(line)) };
        let router =
            Router::new().route("/once", get(|| async { "ok" })).route("/watch", get(watch)).route("/logs", get(logs));
        let (client, server) = tokio::io::duplex(1024);
        tokio::spawn(serve(server, router, CancellationToken::new()));
        client
    }

    /// Reads until the server closes the connection, and returns the seconds until then.
    async fn seconds_until_closed(client: &mut DuplexStream) -> u64 {
        let start = Instant::now();
        let mut received = Vec::new();
        // A reset counts as closed.
        let _ = client.read_to_end(&mut received).await;
        start.elapsed().as_secs()
    }

    #[rstest]
    #[case::nothing(b"", 10)]
    #[case::half_header(b"GET /once HTTP/1.1\r\nHost: local", 10)]
    #[case::half_preface(b"PRI * HTTP/2.0\r\n", 10)]
    #[case::preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 10)]
    #[case::one_request(REQUEST, 90)]
    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed(#[case] sent: &[u8], #[case] limit: u64) {
        let mut client = connect();
        client.write_all(sent).await.unwrap();
        let seconds = seconds_until_closed(&mut client).await;
        // Closing takes up to five seconds if the client has sent a part of a request.
        assert!((limit..=limit + 5).contains(&seconds), "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_extends_the_idle_time() {
        let mut client = connect();
        for _ in 0..5 {
            client.write_all(REQUEST).await.unwrap();
            let mut received = [0; 1024];
            assert!(client.read(&mut received).await.unwrap() > 0);
            tokio::time::sleep(LIMITS.idle_timeout - Duration::from_secs(1)).await;
        }
        assert_eq!(seconds_until_closed(&mut client).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn watch_is_not_idle() {
        let mut client = connect();
        client.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let hours = Duration::from_secs(4 * 3600);
        assert!(tokio::time::timeout(hours, seconds_until_closed(&mut client)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_stops_reading_is_disconnected() {
        let mut client = connect();
        client.write_all(b"GET /logs HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut received = [0; 1024];
        for _ in 0..3 {
            tokio::time::sleep(LIMITS.stall_timeout - Duration::from_secs(1)).await;
            assert!(client.read(&mut received).await.unwrap() > 0, "a slow client is served");
        }
        tokio::time::sleep(LIMITS.stall_timeout + Duration::from_secs(1)).await;
        client.read_to_end(&mut Vec::new()).await.unwrap();
    }
}
