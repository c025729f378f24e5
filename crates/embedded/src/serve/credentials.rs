//! The authority of one server, what it signed, and the token.

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::ServeError;
use crate::reviews;

/// 256 bits, as much as the certificate's key has.
const TOKEN_BYTES: usize = 32;

/// An authority, what it signed for the server and for one client, and a bearer token; of one server, or of one
/// [data directory](crate::data_directory::DataDirectory).
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
    /// Makes a new authority, a certificate for the names of this machine itself only, one for its user, and a token.
    /// The authority's key is forgotten: nobody else gets a certificate.
    ///
    /// # Errors
    /// When the machine has no randomness to give.
    pub fn generate() -> Result<Self, ServeError> {
        let names = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"].map(str::to_owned);
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name = named("ostler", None);
        let authority_key = KeyPair::generate()?;
        let made = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);
        let (key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
        let server = leaf(names.to_vec(), named("kube-apiserver", None), ExtendedKeyUsagePurpose::ServerAuth)?;
        let client = leaf(Vec::new(), named(reviews::USER, Some(reviews::GROUP)), ExtendedKeyUsagePurpose::ClientAuth)?;
        let (server, client) = (server.signed_by(&key, &issuer)?, client.signed_by(&client_key, &issuer)?);
        let mut secret = [0; TOKEN_BYTES];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut secret).map_err(rustls::Error::from)?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(secret);
        Ok(Self {
            authority: made.der().clone(),
            authority_pem: made.pem(),
            certificate: server.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
            client_pem: client.pem(),
            client_key_pem: client_key.serialize_pem(),
            token,
        })
    }
}

fn leaf(
    names: Vec<String>,
    subject: DistinguishedName,
    usage: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject;
    params.extended_key_usages = vec![usage];
    Ok(params)
}

fn named(name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject
}
