use std::{fs, path::Path};

use futures::SinkExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rstest::rstest;
use tempfile::TempDir;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tokio_util::codec::{FramedWrite, LengthDelimitedCodec};

use super::*;
use crate::{endpoint_state::EndpointState, peers::MAX_MESSAGE_BYTES, policy::SchedulingPolicy};

const SERVICE: &str = "gateway-peers.ns.svc";

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate for `name` of this authority, and the certificate of `trusted`.
    fn write(&self, name: &str, trusted: &Self, directory: &Path) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        for (file, contents) in
            [("tls.crt", &certificate.pem()), ("tls.key", &key.serialize_pem()), ("ca.crt", &trusted.pem)]
        {
            fs::write(directory.join(file), contents).unwrap();
        }
    }

    /// Returns a loaded certificate for `name`, and the directory of its files.
    fn certificate(&self, name: &str, trusted: &Self) -> (Arc<PeerCertificate>, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        self.write(name, trusted, directory.path());
        let certificate = PeerCertificate::from_directory(directory.path(), SERVICE).unwrap();
        certificate.reload().unwrap();
        (Arc::new(certificate), directory)
    }
}

/// A replica that listens on a port of its own.
struct Replica {
    scheduler: Arc<Scheduler>,
    address: SocketAddr,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Replica {
    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    /// Returns the state of an endpoint that all replicas know.
    fn endpoint(&self) -> Arc<EndpointState> {
        self.scheduler.endpoint_state(([10, 0, 0, 1], 8000).into(), "uid")
    }
}

/// Starts replicas that know all addresses, also their own.
async fn start(count: usize, certificate: &Arc<PeerCertificate>) -> Vec<Replica> {
    let mut listeners = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listeners.push((listener.local_addr().unwrap(), listener));
    }
    let addresses: Vec<SocketAddr> = listeners.iter().map(|(address, _)| *address).collect();
    let start = |(address, listener): (SocketAddr, TcpListener)| {
        let scheduler = Arc::new(Scheduler::new(SchedulingPolicy::default(), 1));
        let replica = ReplicaId { name: address.to_string(), incarnation: 1 };
        let (addresses, shutdown) = (addresses.clone(), CancellationToken::new());
        let look_up = move || std::future::ready(Ok(addresses.clone()));
        let (peers, certificate) = (Arc::clone(&scheduler), Arc::clone(certificate));
        let task = exchange(listener, address, peers, certificate, replica, look_up, shutdown.clone());
        Replica { scheduler, address, shutdown, task: tokio::spawn(task) }
    };
    listeners.into_iter().map(start).collect()
}

async fn wait_until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.unwrap();
}

#[tokio::test]
async fn requests_are_counted_by_peers_until_they_end_or_the_replica_is_killed() {
    let authority = Authority::new();
    let (certificate, _directory) = authority.certificate(SERVICE, &authority);
    let mut replicas = start(3, &certificate).await;
    let endpoints: Vec<_> = replicas.iter().map(Replica::endpoint).collect();
    let requests = || endpoints.iter().map(|endpoint| endpoint.requests()).collect::<Vec<_>>();
    let in_flight = [endpoints[0].begin(100), endpoints[0].begin(100), endpoints[1].begin(100)];
    wait_until(|| requests() == [3, 3, 3]).await;
    assert_eq!(endpoints[2].tokens(), 300);
    drop(in_flight);
    wait_until(|| requests() == [0, 0, 0]).await;
    let _in_flight = endpoints[0].begin(100);
    wait_until(|| requests() == [1, 1, 1]).await;
    replicas.remove(0).stop().await;
    wait_until(|| requests() == [1, 0, 0]).await;
    wait_until(|| replicas[0].scheduler.render_metrics().contains("ostler_peers 1\n")).await;
    assert!(replicas[0].scheduler.outages().is_empty(), "{:?}", replicas[0].scheduler.outages());
}

/// Columns: whether the authority of a peer is the trusted one, and the name in its certificate.
#[rstest]
#[case::replica(true, SERVICE, true)]
#[case::other_authority(false, SERVICE, false)]
#[case::other_name(true, "other.ns.svc", false)]
#[tokio::test]
async fn peers_have_a_certificate_for_the_service(#[case] is_trusted: bool, #[case] name: &str, #[case] expect: bool) {
    let (authority, other) = (Authority::new(), Authority::new());
    let (certificate, _directory) = authority.certificate(SERVICE, &authority);
    // It trusts the authority of the others in any case.
    let (peer, _peer_directory) = if is_trusted { &authority } else { &other }.certificate(name, &authority);
    for (server, client) in [(&certificate, &peer), (&peer, &certificate)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (accepted, connected) = tokio::join!(server.accept(accepted), client.connect(stream));
        assert_eq!(accepted.is_ok() && connected.is_ok(), expect);
    }
}

#[tokio::test]
async fn invalid_messages_are_counted_and_close_the_connection() {
    let authority = Authority::new();
    let (certificate, _directory) = authority.certificate(SERVICE, &authority);
    let replica = start(1, &certificate).await.remove(0);
    for (number, message) in
        [vec![1; 100], vec![2; MAX_MESSAGE_BYTES], vec![3; MAX_MESSAGE_BYTES + 1]].into_iter().enumerate()
    {
        let stream = certificate.connect(TcpStream::connect(replica.address).await.unwrap()).await.unwrap();
        let (mut reader, writer) = tokio::io::split(stream);
        // The last one is longer than permitted.
        let framing = LengthDelimitedCodec::builder().max_frame_length(2 * MAX_MESSAGE_BYTES).new_codec();
        FramedWrite::new(writer, framing).send(Bytes::from(message)).await.unwrap();
        assert!(matches!(reader.read(&mut [0]).await, Ok(0) | Err(_)));
        let line = format!("ostler_peer_rejected_messages_total {}\n", number + 1);
        assert!(replica.scheduler.render_metrics().contains(&line), "{}", replica.scheduler.render_metrics());
    }
    replica.stop().await;
}

#[test]
fn certificate_is_reloaded_and_invalid_files_are_ignored() {
    let (authority, directory) = (Authority::new(), tempfile::tempdir().unwrap());
    let certificate = PeerCertificate::from_directory(directory.path(), SERVICE).unwrap();
    let error = certificate.reload().unwrap_err().to_string();
    assert!(error.contains("tls.crt: "), "{error}");
    authority.write(SERVICE, &authority, directory.path());
    assert!(certificate.reload().unwrap());
    assert!(!certificate.reload().unwrap());
    fs::write(directory.path().join("tls.key"), "invalid").unwrap();
    let error = certificate.reload().unwrap_err().to_string();
    assert!(error.contains("tls.key: "), "{error}");
    assert!(certificate.configs().is_some());
    authority.write(SERVICE, &authority, directory.path());
    assert!(certificate.reload().unwrap());
}
