//! Credentials of a server: certificate authority, server and client certificates, bearer token.

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::ServeError;
use crate::reviews;

/// Length of the bearer token in bytes, equal to that of the certificates' keys (256 bits).
const TOKEN_BYTES: usize = 32;

/// Certificate authority, the server and client certificates signed by it, and a bearer token; they belong to one
/// server or to one data directory.
pub struct Credentials {
    pub(super) authority: CertificateDer<'static>,
    pub(super) authority_pem: String,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivatePkcs8KeyDer<'static>,
    pub(super) client_pem: String,
    pub(super) client_key_pem: String,
    pub(super) token: String,
}

// === impl Credentials ===

impl Credentials {
    /// Generates a certificate authority, a server certificate for the loopback names of this host, a client
    /// certificate and a token. The key of the authority is discarded, so that no other certificate can be issued.
    ///
    /// # Errors
    /// If the random number generator fails.
    pub fn generate() -> Result<Self, ServeError> {
        let names = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"].map(str::to_owned);
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name = distinguished_name("ostler", None);
        let authority_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);
        let (key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
        let server = leaf_certificate(
            names.to_vec(),
            distinguished_name("kube-apiserver", None),
            ExtendedKeyUsagePurpose::ServerAuth,
        )?;
        let client = leaf_certificate(
            Vec::new(),
            distinguished_name(reviews::USER, Some(reviews::GROUP)),
            ExtendedKeyUsagePurpose::ClientAuth,
        )?;
        let (server, client) = (server.signed_by(&key, &issuer)?, client.signed_by(&client_key, &issuer)?);
        let mut secret = [0; TOKEN_BYTES];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut secret).map_err(rustls::Error::from)?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(secret);
        Ok(Self {
            authority: authority_certificate.der().clone(),
            authority_pem: authority_certificate.pem(),
            certificate: server.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
            client_pem: client.pem(),
            client_key_pem: client_key.serialize_pem(),
            token,
        })
    }
}

fn leaf_certificate(
    names: Vec<String>,
    subject: DistinguishedName,
    usage: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject;
    params.extended_key_usages = vec![usage];
    Ok(params)
}

fn distinguished_name(name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject
}
