//! How spans reach the collector: over HTTP, or over HTTPS with the authorities that the machine or the environment
//! trusts.

use std::{error::Error, fs, path::Path, thread};

use reqwest::{Certificate, blocking::Client};
use rustls::crypto::{CryptoProvider, ring};

use crate::telemetry::{TelemetryError, settings::OtlpSettings};

/// A client for the collector that `settings` name.
pub(super) fn client(settings: &OtlpSettings) -> Result<Client, TelemetryError> {
    let roots = roots(settings)?;
    if CryptoProvider::get_default().is_none() {
        // Somebody else may be faster; then it is theirs.
        let _ = ring::default_provider().install_default();
    }
    let mut builder = Client::builder().timeout(settings.timeout);
    if let Some(roots) = roots {
        builder = builder.tls_certs_only(roots);
    }
    // It waits for a thread of its own, which no async caller may.
    let built = thread::spawn(move || builder.build()).join();
    let cause = match built {
        Ok(Ok(client)) => return Ok(client),
        Ok(Err(error)) => told(&error),
        Err(_) => "its thread panicked".to_owned(),
    };
    Err(TelemetryError::Client { endpoint: settings.endpoint.clone(), cause })
}

/// The only authorities that are trusted: none where there is nothing to encrypt, those of the environment's file, or
/// (`None`) the machine's.
fn roots(settings: &OtlpSettings) -> Result<Option<Vec<Certificate>>, TelemetryError> {
    if !settings.is_encrypted() {
        return Ok(Some(Vec::new()));
    }
    settings.certificate.as_deref().map(read).transpose()
}

fn read(path: &Path) -> Result<Vec<Certificate>, TelemetryError> {
    let unusable = |cause: String| TelemetryError::Certificate { path: path.to_owned(), cause };
    let pem = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(unusable("it has no certificate in PEM form".to_owned())),
        Err(error) => Err(unusable(told(&error))),
    }
}

/// Its own words alone are "builder error".
fn told(error: &reqwest::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
