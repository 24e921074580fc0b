//! TLS on both sides, by the control plane's own authority: a replica trusts the proxy as it trusts the server.

use std::{fs::File, io::BufReader, path::Path, sync::Arc};

use anyhow::{Context, Result};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor, TlsConnector, client,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
    server,
};

use crate::control_plane::ControlPlane;

/// Both sides.
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl Tls {
    /// The server's side bears the certificate of the API server itself, which is for loopback.
    pub(super) fn of(plane: &ControlPlane) -> Result<Self> {
        let file = |name: &str| plane.directory().join(name);
        let provider = Arc::new(ring::default_provider());
        let key_file = file("apiserver.key");
        let key = PrivateKeyDer::from_pem_file(&key_file)
            .with_context(|| format!("{} holds no key", key_file.display()))?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates(&file("apiserver.crt"))?, key)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(plane.authority())? {
            roots.add(certificate)?;
        }
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { acceptor: Arc::new(server).into(), connector: Arc::new(client).into() })
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> Result<server::TlsStream<TcpStream>> {
        Ok(self.acceptor.accept(stream).await?)
    }

    pub(super) async fn connect(&self, address: &str) -> Result<client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot reach {address}"))?;
        stream.set_nodelay(true)?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        Ok(self.connector.connect(ServerName::try_from(host.to_owned())?, stream).await?)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(BufReader::new(file)).collect();
    all.map_err(|error| anyhow::anyhow!("{} holds no certificate: {error:?}", path.display()))
}
