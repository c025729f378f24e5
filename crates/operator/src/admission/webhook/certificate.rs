//! The webhook's certificate: self-signed, made anew long before it ends, shared by replicas through a Secret.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::{Clock, Kind, direct};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use super::{NAME, Target, WebhookError, configuration};
use crate::MANAGER;

/// Where replicas share the certificate.
pub(crate) const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");
/// What the cluster is told to ask.
pub(crate) const CONFIGURATION: Kind = Kind::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
/// Annotation of the Secret: when its certificate ends, so that nobody needs to parse one.
const EXPIRES: &str = "ostler.io/expires";
/// How long a certificate is good for.
const LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How far behind the cluster's clock may be.
const SKEW: SignedDuration = SignedDuration::from_hours(24);
/// How long before its end another is made: the old one stays trusted for as long.
const MARGIN: SignedDuration = SignedDuration::from_hours(90 * 24);

/// A certificate with its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub certificate: String,
    pub key: String,
    pub expires: Timestamp,
    /// The one before, which other replicas may still show.
    pub previous: Option<String>,
}

/// Keeps certificate and configuration in step.
pub struct Keeper {
    client: Client,
    clock: Arc<dyn Clock>,
    target: Target,
    /// Where no Secret is shared.
    own: Mutex<Option<Certificate>>,
}

// === impl Certificate ===

impl Certificate {
    /// A new one for `hosts` (names or addresses), good from a day before `now` on: clocks differ.
    ///
    /// # Errors
    /// When the machine has no randomness to give.
    pub fn new(hosts: Vec<String>, now: Timestamp, previous: Option<String>) -> Result<Self, WebhookError> {
        let day = |at: Timestamp| {
            let date = at.to_zoned(TimeZone::UTC).date();
            rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
        };
        let mut parameters = rcgen::CertificateParams::new(hosts)?;
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "ostler admission webhook");
        let later = |duration: SignedDuration| now.checked_add(duration).unwrap_or(now);
        let expires = later(LIFE);
        (parameters.not_before, parameters.not_after) = (day(later(-SKEW)), day(expires));
        let key = rcgen::KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem(), expires, previous })
    }

    /// Whether it is time for another.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.expires.duration_since(now) < MARGIN
    }

    /// Every certificate that the cluster should trust.
    #[must_use]
    pub fn trusted(&self) -> String {
        format!("{}{}", self.certificate, self.previous.as_deref().unwrap_or_default())
    }

    /// TLS with this certificate.
    ///
    /// # Errors
    /// When it is none.
    pub fn server_config(&self) -> Result<ServerConfig, WebhookError> {
        let unusable = |_| WebhookError::Secret(NAME.to_owned());
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(unusable)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(unusable)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn from_secret(secret: &Value) -> Option<Self> {
        let part = |name: &str| {
            let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let expires = secret["metadata"]["annotations"][EXPIRES].as_str()?.parse().ok()?;
        let previous = part("previous.crt").filter(|text| !text.is_empty());
        Some(Self { certificate: part("tls.crt")?, key: part("tls.key")?, expires, previous })
    }

    fn to_secret(&self, namespace: &str) -> Value {
        let part = |text: &str| STANDARD.encode(text);
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": NAME, "namespace": namespace, "annotations": {EXPIRES: self.expires.to_string()}},
            "data": {"tls.crt": part(&self.certificate), "tls.key": part(&self.key),
                "previous.crt": part(self.previous.as_deref().unwrap_or_default())},
        })
    }
}

// === impl Target ===

impl Target {
    /// The names that the cluster calls us by.
    fn hosts(&self) -> Vec<String> {
        match self {
            Self::Url(address) => vec![address.ip().to_string()],
            Self::Service { namespace, name } => {
                vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")]
            }
        }
    }
}

// === impl Keeper ===

impl Keeper {
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>, target: Target) -> Self {
        Self { client, clock, target, own: Mutex::default() }
    }

    /// The certificate to show from now on, after the cluster was told to trust it.
    ///
    /// # Errors
    /// What the cluster refuses.
    pub async fn care(&self) -> Result<Certificate, WebhookError> {
        let certificate = match &self.target {
            Target::Url(_) => self.of_process()?,
            Target::Service { namespace, .. } => self.shared(namespace).await?,
        };
        let configuration = configuration(&self.target, &certificate.trusted());
        direct::apply(&self.client, CONFIGURATION, &configuration, MANAGER).await?;
        Ok(certificate)
    }

    fn of_process(&self) -> Result<Certificate, WebhookError> {
        let now = self.clock.now();
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = own.as_ref().filter(|current| !current.is_due(now)) {
            return Ok(current.clone());
        }
        let previous = own.take().map(|before| before.certificate);
        Ok(own.insert(Certificate::new(self.target.hosts(), now, previous)?).clone())
    }

    /// The Secret's certificate; the replica that finds none, or an old one, makes it. Another may be first: a conflict
    /// is an error here, and the next round reads what the other wrote.
    async fn shared(&self, namespace: &str) -> Result<Certificate, WebhookError> {
        let now = self.clock.now();
        let found = direct::read(&self.client, SECRET, namespace, NAME).await?;
        let current = match &found {
            Some(secret) => {
                let broken = || WebhookError::Secret(format!("{namespace}/{NAME}"));
                Some(Certificate::from_secret(secret).ok_or_else(broken)?)
            }
            None => None,
        };
        if let Some(current) = current.as_ref().filter(|current| !current.is_due(now)) {
            return Ok(current.clone());
        }
        let next = Certificate::new(self.target.hosts(), now, current.map(|before| before.certificate))?;
        let mut secret = next.to_secret(namespace);
        match found {
            Some(old) => {
                secret["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                direct::apply(&self.client, SECRET, &secret, MANAGER).await?;
            }
            None => direct::create(&self.client, SECRET, &secret, MANAGER).await?,
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    #[test]
    fn a_certificate_is_replaced_long_before_it_ends() {
        let certificate = Certificate::new(vec!["127.0.0.1".to_owned()], at(0), None).unwrap();
        assert!(!certificate.is_due(at(0)));
        assert!(!certificate.is_due(at(274)));
        assert!(certificate.is_due(at(276)));
        certificate.server_config().unwrap();
    }

    #[test]
    fn it_survives_the_secret_with_the_one_before_it() {
        let first = Certificate::new(vec!["a.b.svc".to_owned()], at(0), None).unwrap();
        let second = Certificate::new(vec!["a.b.svc".to_owned()], at(300), Some(first.certificate.clone())).unwrap();
        assert_eq!(Certificate::from_secret(&second.to_secret("b")), Some(second.clone()));
        assert_eq!(Certificate::from_secret(&first.to_secret("b")), Some(first.clone()));
        assert_eq!(second.trusted(), format!("{}{}", second.certificate, first.certificate));
    }
}
