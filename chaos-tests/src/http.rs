//! Small requests on loopback, for probes and APIs without encryption.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Nothing on loopback takes longer unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body; as text, since that is what probes, metrics and JSON are.
    pub body: String,
}

/// Gets `url`, which starts with `http://` and names host and port.
///
/// # Errors
/// If there is no answer within ten seconds, or none of HTTP.
pub async fn get(url: &str) -> Result<Answer> {
    ask("GET", url, "").await
}

/// Posts a body, which is JSON, to `url`.
///
/// # Errors
/// As [`get`].
pub async fn post(url: &str, body: &str) -> Result<Answer> {
    ask("POST", url, body).await
}

async fn ask(method: &str, url: &str, body: &str) -> Result<Answer> {
    let exchange = timeout(TIMEOUT, exchange(method, url, body)).await;
    exchange
        .with_context(|| format!("no answer of {url} within {TIMEOUT:?}"))?
        .with_context(|| format!("cannot {method} {url}"))
}

async fn exchange(method: &str, url: &str, body: &str) -> Result<Answer> {
    let rest = url.strip_prefix("http://").context("the url does not start with http://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(authority).await?;
    // Version 1.0: the body ends with the connection, there are no chunks.
    let mut request = format!("{method} /{path} HTTP/1.0\r\nHost: {authority}\r\nAccept: */*\r\n");
    if !body.is_empty() {
        request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    request += "\r\n";
    request += body;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    parse(&String::from_utf8_lossy(&bytes))
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no end of headers")?;
    let mut words = head.split_whitespace();
    ensure!(words.next().is_some_and(|version| version.starts_with("HTTP/1.")), "the answer is not HTTP/1");
    let status = words.next().and_then(|word| word.parse().ok()).context("the answer has no status")?;
    Ok(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_split_into_status_and_body() {
        let answer =
            parse("HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\nno caches\r\n\r\n");
        assert_eq!(answer.unwrap(), Answer { status: 503, body: "no caches\r\n\r\n".to_owned() });
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        assert!(parse("SSH-2.0-server\r\n\r\n").is_err());
        assert!(parse("").is_err());
    }
}
