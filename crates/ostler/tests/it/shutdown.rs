//! SIGTERM to `ostler operator`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use rustix::process::{Pid, Signal, kill_process};

use crate::session::{Session, ostler};

async fn leases(session: &Session) -> Api<DynamicObject> {
    let file = Kubeconfig::read_from(&session.kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    rustls::crypto::ring::default_provider().install_default().ok();
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    Api::default_namespaced_with(kube::Client::try_from(config).unwrap(), &ApiResource::from_gvk(&kind))
}

/// The next replica leads immediately, instead of waiting until the Lease expires.
#[tokio::test]
async fn terminated_operator_releases_its_lease() {
    let session = Session::start(&[]);
    let leases = leases(&session).await;
    let mut command = ostler(&["operator", "--metrics", "127.0.0.1:0", "--kubeconfig", &session.kubeconfig]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut log = String::new();
    while !log.contains("became leader") {
        assert_ne!(stderr.read_line(&mut log).unwrap(), 0, "{log}");
    }
    let holder = async || leases.get("ostler-operator").await.unwrap().data["spec"]["holderIdentity"].clone();
    assert_ne!(holder().await, "");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    stderr.read_to_string(&mut log).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{log}");
    assert_eq!(holder().await, "", "{log}");
}
