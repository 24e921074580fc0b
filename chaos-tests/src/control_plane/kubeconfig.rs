//! Kubeconfig files for people, components and replicas.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::certificates::Identity;

/// Who a kubeconfig speaks as.
pub(crate) enum Credentials<'a> {
    /// A client certificate.
    Certificate(&'a Identity),
    /// A bearer token.
    Token(&'a str),
}

/// Writes a kubeconfig file. JSON is YAML, and needs no quoting rules of our own.
pub(crate) fn write(
    path: &Path,
    server: &str,
    authority: &Path,
    namespace: &str,
    credentials: &Credentials<'_>,
) -> Result<()> {
    let user = match credentials {
        Credentials::Certificate(files) => {
            serde_json::json!({ "client-certificate": files.certificate, "client-key": files.key })
        }
        Credentials::Token(token) => serde_json::json!({ "token": token }),
    };
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": { "server": server, "certificate-authority": authority } }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "user", "namespace": namespace } }],
        "current-context": "test",
    });
    fs::write(path, format!("{config:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}
