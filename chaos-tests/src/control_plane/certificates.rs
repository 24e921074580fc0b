//! The control plane's own certificate authority, and the files that it signs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::nemesis::addresses;

/// A certificate and its private key, as files.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// An authority that lives as long as one control plane.
pub(super) struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new authority whose files are in `directory`.
    pub(super) fn new(directory: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kube-provisioner test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("cannot make the authority's key")?;
        let certificate = params.self_signed(&key).context("cannot sign the authority's certificate")?;
        let authority = Self { directory: directory.to_owned(), issuer: Issuer::new(params, key) };
        write(&authority.certificate(), &certificate.pem())?;
        Ok(authority)
    }

    /// The file by which clients and servers recognise what this authority signed.
    pub(super) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// A server's certificate for loopback, for what is outside of network namespaces, and for the names that pods
    /// would use.
    pub(super) fn server(&self, name: &str) -> Result<Identity> {
        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let hosts = addresses::all_hosts().map(|host| host.to_string());
        let names: Vec<String> = names.map(str::to_owned).into_iter().chain(hosts).collect();
        let mut params = CertificateParams::new(names).context("cannot name the server")?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, params)
    }

    /// A client's certificate: the API server takes `user` and `group` from it.
    pub(super) fn client(&self, name: &str, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
    }

    /// The key pair of service account tokens: the private key signs, the "certificate" is its public half.
    pub(super) fn token_keys(&self) -> Result<Identity> {
        let key = KeyPair::generate().context("cannot make the key of service account tokens")?;
        let files = self.files("service-account");
        write(&files.certificate, &key.public_key_pem())?;
        write(&files.key, &key.serialize_pem())?;
        Ok(files)
    }

    fn sign(&self, name: &str, mut params: CertificateParams) -> Result<Identity> {
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate().with_context(|| format!("cannot make the key of {name}"))?;
        let signed = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot sign the certificate of {name}"))?;
        let files = self.files(name);
        write(&files.certificate, &signed.pem())?;
        write(&files.key, &key.serialize_pem())?;
        Ok(files)
    }

    fn files(&self, name: &str) -> Identity {
        Identity {
            certificate: self.directory.join(format!("{name}.crt")),
            key: self.directory.join(format!("{name}.key")),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
