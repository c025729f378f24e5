//! Certificate of the webhook: self-signed, rotated before it expires, and shared by replicas through a Secret.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::{Clock, Kind, NamespacedName, Watches, apply_object, create_object, is_managed_by, read_object};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use serde_json::{Value, json};

use super::configuration::{CONFIGURATION_NAME, configuration};
use super::error::WebhookError;
use super::options::WebhookTarget;
use crate::FIELD_MANAGER;

/// Kind of the Secret that contains the shared certificate.
pub(crate) const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");
/// Kind of the webhook configuration.
pub(crate) const CONFIGURATION: Kind = Kind::cluster_scoped(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
/// Annotation of the Secret that contains the expiration time, so that the certificate need not be parsed.
const EXPIRES_ANNOTATION: &str = "ostler.io/expires";
/// Validity of a certificate.
const VALIDITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Maximum clock skew between operator and API server.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(24);
/// Remaining validity at which the certificate is rotated; the previous certificate stays trusted until it expires.
const ROTATION_MARGIN: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Certificate and private key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
    /// When the certificate expires.
    pub expires: Timestamp,
    /// The previous certificate, which other replicas may still use.
    pub previous: Option<String>,
}

/// Keeps the certificate and the webhook configuration up to date.
pub(crate) struct CertificateManager {
    client: Client,
    clock: Arc<dyn Clock>,
    target: WebhookTarget,
    /// The certificate of this process, if no Secret is shared.
    local_certificate: Mutex<Option<Certificate>>,
    /// Whether this process has applied the configuration.
    is_registered: AtomicBool,
}

// === impl Certificate ===

impl Certificate {
    /// Creates a certificate for `hosts` (names or addresses), valid from a day before `now` on because of clock skew.
    ///
    /// # Errors
    /// Returns an error if the key pair cannot be generated.
    pub(crate) fn new(hosts: Vec<String>, now: Timestamp, previous: Option<String>) -> Result<Self, WebhookError> {
        let utc_date = |time: Timestamp| {
            let date = time.to_zoned(TimeZone::UTC).date();
            rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
        };
        let mut parameters = rcgen::CertificateParams::new(hosts)?;
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "ostler admission webhook");
        let after = |duration: SignedDuration| now.checked_add(duration).unwrap_or(now);
        let expires = after(VALIDITY);
        (parameters.not_before, parameters.not_after) = (utc_date(after(-MAX_CLOCK_SKEW)), utc_date(expires));
        let key = rcgen::KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem(), expires, previous })
    }

    /// Returns whether the certificate is due for rotation.
    #[must_use]
    pub(crate) fn is_due_for_rotation(&self, now: Timestamp) -> bool {
        self.expires.duration_since(now) < ROTATION_MARGIN
    }

    /// Returns all certificates that the API server should trust, in PEM.
    #[must_use]
    pub(crate) fn trusted_certificates(&self) -> String {
        format!("{}{}", self.certificate, self.previous.as_deref().unwrap_or_default())
    }

    /// Creates a TLS configuration with this certificate.
    ///
    /// # Errors
    /// Returns an error if certificate or key are malformed.
    pub(crate) fn server_config(&self) -> Result<ServerConfig, WebhookError> {
        let malformed = |_| WebhookError::Secret(CONFIGURATION_NAME.to_owned());
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(malformed)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(malformed)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Returns whether the certificate is valid for all `hosts` and the key belongs to it.
    fn is_usable(&self, hosts: &[String]) -> bool {
        let Ok(certificate) = CertificateDer::from_pem_slice(self.certificate.as_bytes()) else { return false };
        let Ok(certificate) = ParsedCertificate::try_from(&certificate) else { return false };
        let is_valid_for = |host: &String| {
            ServerName::try_from(host.as_str()).is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
        };
        self.server_config().is_ok() && hosts.iter().all(is_valid_for)
    }

    fn from_secret(secret: &Value) -> Option<Self> {
        let decode_entry = |name: &str| {
            let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let expires = secret["metadata"]["annotations"][EXPIRES_ANNOTATION].as_str()?.parse().ok()?;
        let previous = decode_entry("previous.crt").filter(|text| !text.is_empty());
        Some(Self { certificate: decode_entry("tls.crt")?, key: decode_entry("tls.key")?, expires, previous })
    }

    fn to_secret(&self, namespace: &str) -> Value {
        let encode = |text: &str| STANDARD.encode(text);
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": CONFIGURATION_NAME, "namespace": namespace, "annotations": {EXPIRES_ANNOTATION: self.expires.to_string()}},
            "data": {"tls.crt": encode(&self.certificate), "tls.key": encode(&self.key),
                "previous.crt": encode(self.previous.as_deref().unwrap_or_default())},
        })
    }
}

// === impl WebhookTarget ===

impl WebhookTarget {
    /// Returns the host names that the API server uses.
    fn hosts(&self) -> Vec<String> {
        match self {
            Self::Url(address) => vec![address.ip().to_string()],
            Self::Service { namespace, name } => {
                vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")]
            }
        }
    }
}

// === impl CertificateManager ===

impl CertificateManager {
    #[must_use]
    pub(crate) fn new(client: Client, clock: Arc<dyn Clock>, target: WebhookTarget) -> Self {
        Self { client, clock, target, local_certificate: Mutex::default(), is_registered: AtomicBool::new(false) }
    }

    /// Starts the watches of the configuration and of the Secret, if it is shared.
    pub(crate) fn start_watches(&self, watches: &mut Watches) {
        watches.start_named(CONFIGURATION, &NamespacedName::new("", CONFIGURATION_NAME));
        if let WebhookTarget::Service { namespace, .. } = &self.target {
            watches.start_named(SECRET, &NamespacedName::new(namespace, CONFIGURATION_NAME));
        }
    }

    /// Applies the webhook configuration that trusts the current certificate, and returns that certificate.
    ///
    /// Each replica with a URL has its own certificate. The API server calls the one that has started last: the others leave
    /// the configuration alone, so that they do not replace it in turn.
    ///
    /// # Errors
    /// Returns an error if the API server rejects the Secret or the configuration.
    pub(crate) async fn update_certificate(&self) -> Result<Certificate, WebhookError> {
        let certificate = match &self.target {
            WebhookTarget::Url(_) => self.process_certificate()?,
            WebhookTarget::Service { namespace, .. } => self.shared_certificate(namespace).await?,
        };
        let configuration = configuration(&self.target, &certificate.trusted_certificates());
        if self.is_registered.load(Ordering::Relaxed)
            && let Some(live) = read_object(&self.client, CONFIGURATION, "", CONFIGURATION_NAME).await?
            && let Some(url) = url_of_other_replica(&live, &configuration)
        {
            tracing::info!(url, "another operator serves the admission webhook");
            return Ok(certificate);
        }
        apply_object(&self.client, CONFIGURATION, &configuration, FIELD_MANAGER).await?;
        self.is_registered.store(true, Ordering::Relaxed);
        Ok(certificate)
    }

    fn process_certificate(&self) -> Result<Certificate, WebhookError> {
        let now = self.clock.now();
        let mut local_certificate = self.local_certificate.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = local_certificate.as_ref().filter(|current| !current.is_due_for_rotation(now)) {
            return Ok(current.clone());
        }
        let previous = local_certificate.take().map(|before| before.certificate);
        Ok(local_certificate.insert(Certificate::new(self.target.hosts(), now, previous)?).clone())
    }

    /// Returns the certificate of the Secret; creates, rotates or replaces it if necessary. If another replica does so
    /// first, the conflict is returned as an error, and the next attempt reads the certificate of that replica.
    async fn shared_certificate(&self, namespace: &str) -> Result<Certificate, WebhookError> {
        let now = self.clock.now();
        let existing = read_object(&self.client, SECRET, namespace, CONFIGURATION_NAME).await?;
        let hosts = self.target.hosts();
        let current = existing.as_ref().and_then(Certificate::from_secret).filter(|current| current.is_usable(&hosts));
        if let (Some(secret), None) = (&existing, &current) {
            let name = format!("{namespace}/{CONFIGURATION_NAME}");
            if !is_managed_by(secret, FIELD_MANAGER) {
                return Err(WebhookError::Secret(name));
            }
            tracing::warn!(name, "Secret contains no usable certificate, replacing it");
        }
        if let Some(current) = current.as_ref().filter(|current| !current.is_due_for_rotation(now)) {
            return Ok(current.clone());
        }
        let new_certificate = Certificate::new(hosts, now, current.map(|before| before.certificate))?;
        let mut secret = new_certificate.to_secret(namespace);
        match existing {
            Some(old) => {
                secret["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                apply_object(&self.client, SECRET, &secret, FIELD_MANAGER).await?;
            }
            None => create_object(&self.client, SECRET, &secret, FIELD_MANAGER).await?,
        }
        Ok(new_certificate)
    }
}

/// Returns the URL in the live configuration if it is another one than in `desired`. Replicas behind a Service have none.
fn url_of_other_replica<'a>(live: &'a Value, desired: &Value) -> Option<&'a str> {
    let desired = desired["webhooks"][0]["clientConfig"]["url"].as_str()?;
    live["webhooks"][0]["clientConfig"]["url"].as_str().filter(|url| *url != desired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp_of_day(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    #[test]
    fn rotates_long_before_expiration() {
        let certificate = Certificate::new(vec!["127.0.0.1".to_owned()], timestamp_of_day(0), None).unwrap();
        assert!(!certificate.is_due_for_rotation(timestamp_of_day(0)));
        assert!(!certificate.is_due_for_rotation(timestamp_of_day(274)));
        assert!(certificate.is_due_for_rotation(timestamp_of_day(276)));
        certificate.server_config().unwrap();
    }

    #[test]
    fn secret_round_trip_keeps_previous_certificate() {
        let first_certificate = Certificate::new(vec!["a.b.svc".to_owned()], timestamp_of_day(0), None).unwrap();
        let second_certificate = Certificate::new(
            vec!["a.b.svc".to_owned()],
            timestamp_of_day(300),
            Some(first_certificate.certificate.clone()),
        )
        .unwrap();
        assert_eq!(Certificate::from_secret(&second_certificate.to_secret("b")), Some(second_certificate.clone()));
        assert_eq!(Certificate::from_secret(&first_certificate.to_secret("b")), Some(first_certificate.clone()));
        assert_eq!(
            second_certificate.trusted_certificates(),
            format!("{}{}", second_certificate.certificate, first_certificate.certificate)
        );
    }

    #[test]
    fn certificate_of_other_hosts_or_another_key_is_not_usable() {
        let new_certificate = || Certificate::new(vec!["a.b.svc".to_owned()], timestamp_of_day(0), None).unwrap();
        let (hosts, certificate) = (["a.b.svc".to_owned()], new_certificate());
        assert!(certificate.is_usable(&hosts));
        assert!(!certificate.is_usable(&["other.b.svc".to_owned()]));
        assert!(!Certificate { key: new_certificate().key, ..certificate.clone() }.is_usable(&hosts));
        assert!(!Certificate { certificate: "no PEM".to_owned(), ..certificate }.is_usable(&hosts));
    }

    #[test]
    fn only_the_url_of_another_replica_is_left_alone() {
        let url = |port: u16| configuration(&WebhookTarget::Url(([127, 0, 0, 1], port).into()), "PEM");
        let service = WebhookTarget::Service { namespace: "a".to_owned(), name: "b".to_owned() };
        let service = configuration(&service, "PEM");
        assert_eq!(url_of_other_replica(&url(2), &url(1)), Some("https://127.0.0.1:2/validate"));
        assert_eq!(url_of_other_replica(&url(1), &url(1)), None);
        assert_eq!(url_of_other_replica(&service, &url(1)), None);
        assert_eq!(url_of_other_replica(&url(1), &service), None);
        assert_eq!(url_of_other_replica(&json!({"webhooks": [{"clientConfig": {"caBundle": ""}}]}), &url(1)), None);
    }
}
