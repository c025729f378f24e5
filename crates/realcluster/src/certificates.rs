//! A certificate authority for the API server, the administrator and the webhooks.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// Directory with `ca.crt`, and `NAME.crt` and `NAME.key` for each NAME of [`Certificates::generate`].
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    directory: PathBuf,
    address: Ipv4Addr,
}

// === impl Certificates ===

impl Certificates {
    /// Generates the certificates `apiserver` and `webhook` for `address`, the client certificates `admin` and
    /// `front-proxy`, and `sa.key` for service account tokens.
    pub(crate) fn generate(directory: PathBuf, address: Ipv4Addr) -> Result<Self> {
        std::fs::create_dir_all(&directory)?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "realcluster");
        let key = KeyPair::generate()?;
        std::fs::write(directory.join("ca.crt"), authority.self_signed(&key)?.pem())?;
        let issuer = Issuer::new(authority, key);
        let certificates = Self { directory, address };
        let (server, client) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        certificates.sign("apiserver", None, server.clone(), &issuer)?;
        certificates.sign("webhook", None, server, &issuer)?;
        certificates.sign("admin", Some("system:masters"), client.clone(), &issuer)?;
        certificates.sign("front-proxy", None, client, &issuer)?;
        let service_account_key = KeyPair::generate()?;
        std::fs::write(certificates.key("sa"), service_account_key.serialize_pem())?;
        std::fs::write(certificates.public_key("sa"), service_account_key.public_key_pem())?;
        Ok(certificates)
    }

    fn sign(
        &self,
        name: &str,
        organization: Option<&str>,
        usage: ExtendedKeyUsagePurpose,
        issuer: &Issuer<'_, KeyPair>,
    ) -> Result<()> {
        let hosts = match usage {
            ExtendedKeyUsagePurpose::ServerAuth => {
                let address = self.address.to_string();
                [address.as_str(), "10.96.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned).to_vec()
            }
            _ => Vec::new(),
        };
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        std::fs::write(self.key(name), key.serialize_pem())?;
        std::fs::write(self.certificate(name), params.signed_by(&key, issuer)?.pem())?;
        Ok(())
    }

    /// Returns the path of the CA certificate.
    pub(crate) fn ca_certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// Returns the path of the certificate `name`.
    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.crt"))
    }

    /// Returns the path of the private key `name`.
    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.key"))
    }

    /// Returns the path of the public key `name`.
    pub(crate) fn public_key(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.pub"))
    }

    /// Writes `tls.crt` and `tls.key` to `directory`, where webhook servers expect them.
    pub(crate) fn write_webhook_files(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        std::fs::copy(self.certificate("webhook"), directory.join("tls.crt"))?;
        std::fs::copy(self.key("webhook"), directory.join("tls.key"))?;
        Ok(())
    }
}
