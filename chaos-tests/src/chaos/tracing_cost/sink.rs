//! Collectors of traces in this process: one that forgets everything, one that never answers.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Where traces go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Collector {
    /// Tracing is off.
    None,
    /// It takes everything at once, and forgets it.
    Discards,
    /// It accepts connections and never answers.
    Hangs,
}

impl Collector {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Discards, Self::Hangs];
}

/// A collector in this process; it ends when it is dropped.
pub(super) struct Sink {
    pub(super) url: String,
    task: JoinHandle<()>,
}

impl Sink {
    pub(super) async fn start(collector: Collector) -> Result<Option<Self>> {
        if collector == Collector::None {
            return Ok(None);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        let url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                match collector {
                    Collector::Discards => drop(tokio::spawn(discard(stream))),
                    Collector::Hangs | Collector::None => held.push(stream),
                }
            }
        });
        Ok(Some(Self { url, task }))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers each request of a connection with 200.
async fn discard(stream: TcpStream) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            ensure!(stream.read_line(&mut line).await? > 0, "the connection has ended");
            if line == "\r\n" {
                break;
            }
            if let Some((_, value)) =
                line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_discarding_collector_answers_every_request_of_a_connection() {
        let sink = Sink::start(Collector::Discards).await.unwrap().unwrap();
        let mut stream = TcpStream::connect(sink.url.strip_prefix("http://").unwrap()).await.unwrap();
        for _ in 0..2 {
            stream.write_all(b"POST /v1/traces HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody").await.unwrap();
            let mut answer = [0; 38];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    }
}
