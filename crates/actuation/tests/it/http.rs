//! Calls to a simulated engine, to a requester, and to servers that misbehave.

use std::net::SocketAddr;
use std::time::Duration;

use actuation::{Answer, Call, CallError, CallErrorKind, Request, SleepMode, Target, perform};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

async fn call(address: SocketAddr, request: Request) -> Result<Answer, CallError> {
    let (target, timeout) = (Target::Engine(actuation::EngineId::of_pod("uid")), Duration::from_secs(600));
    let (ip, port) = (address.ip().to_string(), address.port());
    perform(&Call { node: "n".to_owned(), target, ip, port, request, timeout }).await
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Starts a simulated engine.
async fn engine(dev_mode: bool) -> SocketAddr {
    let (listener, address) = listener().await;
    let config = engine::Config { dev_mode, enable_sleep_mode: true, ..engine::Config::new("m") };
    tokio::spawn(engine::serve(listener, config, engine::RequestMemory::default(), CancellationToken::new()));
    address
}

#[tokio::test]
async fn engine_sleeps_and_wakes() {
    let engine = engine(true).await;
    assert_eq!(call(engine, Request::IsSleeping).await, Ok(Answer::Sleeping(false)));
    let completion = call(engine, Request::Verify { completion: true }).await.unwrap();
    assert!(matches!(&completion, Answer::Completion(Some(text)) if !text.is_empty()), "{completion:?}");
    assert_eq!(call(engine, Request::Drain { settle: Duration::ZERO }).await, Ok(Answer::Idle(true)));
    assert_eq!(call(engine, Request::Sleep(SleepMode::Wait)).await, Ok(Answer::Accepted));
    assert_eq!(call(engine, Request::IsSleeping).await, Ok(Answer::Sleeping(true)));
    assert_eq!(call(engine, Request::WakeUp).await, Ok(Answer::Accepted));
    assert_eq!(call(engine, Request::Verify { completion: true }).await, Ok(completion), "the same completion");
    assert_eq!(call(engine, Request::Verify { completion: false }).await, Ok(Answer::Completion(None)));
}

#[tokio::test]
async fn engine_without_sleep_mode() {
    let engine = engine(false).await;
    for request in [Request::IsSleeping, Request::WakeUp, Request::Sleep(SleepMode::Abort)] {
        assert_eq!(call(engine, request).await, Ok(Answer::SleepUnsupported));
    }
}

/// A request that had no effect, and one that may have had it.
#[tokio::test]
async fn failures_are_distinguished() {
    let (closed, address) = listener().await;
    drop(closed);
    let kind = |result: Result<Answer, CallError>| result.unwrap_err().kind;
    assert_eq!(kind(call(address, Request::WakeUp).await), CallErrorKind::NotDelivered);

    let (silent, address) = listener().await;
    tokio::spawn(async move {
        let (mut stream, _) = silent.accept().await.unwrap();
        // The request arrives, and the connection ends without a response.
        stream.read_exact(&mut [0; 4]).await.unwrap();
    });
    assert_eq!(kind(call(address, Request::WakeUp).await), CallErrorKind::NoResponse);

    let (endless, address) = listener().await;
    tokio::spawn(async move {
        let (mut stream, _) = endless.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[").await.unwrap();
        // Until the client closes the connection.
        while stream.write_all(&[b' '; 65536]).await.is_ok() {}
    });
    assert_eq!(kind(call(address, Request::Accelerators).await), CallErrorKind::NoResponse);
}
