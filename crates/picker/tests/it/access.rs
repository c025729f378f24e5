//! Access to the gateway: API keys and TLS.

use std::{fs, path::Path, sync::Arc};

use picker::{ApiKeys, GatewayOptions, ServingCertificate};
use rstest::rstest;
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;

use crate::gateway_fixture::{HttpResponse, engine_config, get, pool, receive, start_with_options};

const BODY: &str = r#"{"model":"chat","prompt":"x","max_tokens":1}"#;

/// Returns keys for all models (`key-all`), and for another model than `chat` (`key-other`).
fn api_keys(directory: &Path) -> GatewayOptions {
    fs::write(directory.join("all"), "key-all\n").unwrap();
    fs::write(directory.join("other"), "key-other\nother\n").unwrap();
    let api_keys = Some(Arc::new(ApiKeys::from_directory(directory).unwrap()));
    GatewayOptions { api_keys, ..GatewayOptions::default() }
}

fn request(method: &str, path: &str, header: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}content-length: {length}\r\n\r\n{body}"
    )
}

async fn send(gateway: std::net::SocketAddr, text: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    receive(stream).await
}

#[rstest]
#[case::no_key("", 401, Some("invalid_api_key"), 401)]
#[case::wrong_key("authorization: Bearer key\r\n", 401, Some("invalid_api_key"), 401)]
#[case::key_of_all_models("authorization: Bearer key-all\r\n", 200, None, 200)]
#[case::key_in_the_header_of_anthropic("x-api-key: key-all\r\n", 200, None, 200)]
#[case::key_of_another_model("authorization: Bearer key-other\r\n", 404, Some("model_not_found"), 404)]
#[tokio::test]
async fn api_keys_give_access_to_models(
    #[case] header: &str,
    #[case] status: u16,
    #[case] code: Option<&str>,
    #[case] model_status: u16,
) {
    let directory = tempfile::tempdir().unwrap();
    let fixture = start_with_options(vec![engine_config(&["chat"])], api_keys(directory.path())).await;
    let response = send(fixture.gateway, &request("POST", "/v1/completions", header, BODY)).await;
    assert_eq!((response.status(), response.json()["error"]["code"].as_str()), (status, code), "{}", response.body);
    assert_eq!(response.header("www-authenticate"), (status == 401).then_some("Bearer"));
    let model = send(fixture.gateway, &request("GET", "/v1/models/chat", header, "")).await;
    assert_eq!(model.status(), model_status);
    let models = send(fixture.gateway, &request("GET", "/v1/models", header, "")).await;
    match status {
        401 => assert_eq!(models.status(), 401),
        _ => assert_eq!(models.json()["data"].as_array().map(Vec::len), Some(usize::from(status == 200))),
    }
    assert_eq!(get(fixture.gateway, "/readyz").await.status(), 503, "probes need no key");
}

#[tokio::test]
async fn engine_does_not_receive_the_api_key() {
    let directory = tempfile::tempdir().unwrap();
    let engine = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = start_with_options(Vec::new(), api_keys(directory.path())).await;
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &[engine.local_addr().unwrap()], &[])]);
    let mut client = TcpStream::connect(fixture.gateway).await.unwrap();
    let headers = "x-api-key: key-all\r\nauthorization: Bearer key-all\r\n";
    client.write_all(request("POST", "/v1/completions", headers, BODY).as_bytes()).await.unwrap();
    loop {
        let mut received = Vec::new();
        let (mut connection, _) = engine.accept().await.unwrap();
        while !received.windows(4).any(|window| window == b"\r\n\r\n") {
            connection.read_buf(&mut received).await.unwrap();
        }
        let head = String::from_utf8_lossy(&received).into_owned();
        // The gateway also scrapes the metrics of the engine.
        if head.starts_with("POST") {
            assert!(!head.contains("key-all"), "{head}");
            break;
        }
    }
}

#[tokio::test]
async fn gateway_serves_https() {
    let directory = tempfile::tempdir().unwrap();
    let generated = rcgen::generate_simple_self_signed(vec!["gateway".to_owned()]).unwrap();
    fs::write(directory.path().join("tls.crt"), generated.cert.pem()).unwrap();
    fs::write(directory.path().join("tls.key"), generated.signing_key.serialize_pem()).unwrap();
    let certificate = Some(Arc::new(ServingCertificate::from_directory(directory.path()).unwrap()));
    let options = GatewayOptions { certificate, ..GatewayOptions::default() };
    let fixture = start_with_options(vec![engine_config(&["chat"])], options).await;

    let mut plain = TcpStream::connect(fixture.gateway).await.unwrap();
    plain.write_all(request("GET", "/livez", "", "").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.ok();
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(generated.cert.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    for (protocols, expected) in [(vec!["h2", "http/1.1"], "h2"), (vec!["http/1.1"], "http/1.1")] {
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(fixture.gateway).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config.clone()));
        let mut stream = connector.connect("gateway".try_into().unwrap(), stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(expected.as_bytes()));
        if expected == "http/1.1" {
            stream.write_all(request("POST", "/v1/completions", "", BODY).as_bytes()).await.unwrap();
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.ok();
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with("HTTP/1.1 200") && text.contains(&json!("chat").to_string()), "{text}");
        }
    }
}
