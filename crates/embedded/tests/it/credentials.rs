//! Who is let in: the certificate or the token of the kubeconfig, and nobody without.

use embedded::serve::{Credentials, kubeconfig, serve};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use rstest::rstest;
use tokio_util::sync::CancellationToken;

#[rstest]
#[case::both(&[], true)]
#[case::certificate(&["token"], true)]
#[case::token(&["client-certificate-data", "client-key-data"], true)]
#[case::nothing(&["token", "client-certificate-data", "client-key-data"], false)]
#[tokio::test]
async fn a_certificate_or_a_token_opens(#[case] without: &[&str], #[case] opens: bool) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let credentials = Credentials::generate().unwrap();
    let text = kubeconfig(&credentials, &format!("https://{}", listener.local_addr().unwrap()));
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (server, stop) = (crate::server(), stop.clone());
        async move { serve(server, listener, &credentials, stop).await }
    });
    let kept = |line: &&str| !without.iter().any(|field| line.trim_start().starts_with(&format!("{field}:")));
    let mut text = text.lines().filter(kept).collect::<Vec<_>>().join("\n");
    if !opens {
        text = text.replace("  user:\ncontexts", "  user: {}\ncontexts");
    }
    let file = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    config.proxy_url = None;
    let client = kube::Client::try_from(config).unwrap();
    let answer = Api::<Namespace>::all(client).list(&ListParams::default()).await;
    match answer {
        Ok(list) => assert!(opens && list.items.len() == 4),
        Err(kube::Error::Api(status)) => assert!(!opens && status.code == 401, "{status:?}"),
        Err(other) => panic!("{other:?}"),
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}
