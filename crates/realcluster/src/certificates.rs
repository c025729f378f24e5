//! One authority that signs the API server, the administrator and the webhooks.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// Files in one folder: `ca.crt`, and `NAME.crt` with `NAME.key` for each NAME of [`Certificates::make`].
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    folder: PathBuf,
    address: Ipv4Addr,
}

// === impl Certificates ===

impl Certificates {
    /// `apiserver` and `webhook`, both at `address`, `admin` and `front-proxy`, and `sa.key` for tokens of accounts.
    pub(crate) fn make(folder: PathBuf, address: Ipv4Addr) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "realcluster");
        let key = KeyPair::generate()?;
        std::fs::write(folder.join("ca.crt"), authority.self_signed(&key)?.pem())?;
        let issuer = Issuer::new(authority, key);
        let made = Self { folder, address };
        let (server, client) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        made.sign("apiserver", None, server.clone(), &issuer)?;
        made.sign("webhook", None, server, &issuer)?;
        made.sign("admin", Some("system:masters"), client.clone(), &issuer)?;
        made.sign("front-proxy", None, client, &issuer)?;
        let accounts = KeyPair::generate()?;
        std::fs::write(made.key("sa"), accounts.serialize_pem())?;
        std::fs::write(made.public_key("sa"), accounts.public_key_pem())?;
        Ok(made)
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
                let own = self.address.to_string();
                [own.as_str(), "10.96.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned).to_vec()
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

    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    pub(crate) fn public_key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pub"))
    }

    /// A folder with `tls.crt` and `tls.key`, as controllers want their webhook's.
    pub(crate) fn for_webhook(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::copy(self.certificate("webhook"), folder.join("tls.crt"))?;
        std::fs::copy(self.key("webhook"), folder.join("tls.key"))?;
        Ok(())
    }
}
