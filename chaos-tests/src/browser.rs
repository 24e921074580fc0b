//! Debian's Chromium without a window: what is on a page once its scripts have run, and what it looks like.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::{process::Command, time::timeout};

/// The width of pictures, in pixels.
const WIDTH: u32 = 1280;
/// The height of a picture whose page does not say how high it is.
const HEIGHT: u32 = 800;
/// For one look at a page, the browser's start on a busy machine included.
const DEADLINE: Duration = Duration::from_secs(60);

/// It talks to the page's address and to nobody else, and leaves nothing behind.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    // Milliseconds that the page's scripts may believe have passed; requests are waited for in real time.
    "--virtual-time-budget=5000",
];

/// A browser on this machine.
#[derive(Clone, Debug)]
pub struct Browser(PathBuf);

impl Browser {
    /// The Chromium on `PATH`, if there is one.
    #[must_use]
    pub fn find() -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&path).map(|directory| directory.join("chromium"));
        found.into_iter().find(|program| program.is_file()).map(Self)
    }

    /// The page at `url` as HTML, with what its scripts made of it.
    ///
    /// # Errors
    /// If the browser fails or takes too long.
    pub async fn contents(&self, url: &str) -> Result<String> {
        self.look(&["--dump-dom".to_owned()], url).await
    }

    /// A picture of the whole page. Its height is what the page says in `data-height` of its body.
    ///
    /// # Errors
    /// If the browser fails, takes too long, or writes no picture.
    pub async fn photograph(&self, url: &str, picture: &Path) -> Result<()> {
        let height = height(&self.contents(url).await?);
        let args = [format!("--window-size={WIDTH},{height}"), format!("--screenshot={}", picture.display())];
        self.look(&args, url).await?;
        ensure!(picture.exists(), "the browser made no picture of {url}");
        Ok(())
    }

    /// What the browser prints. A profile of its own each time: an empty one.
    async fn look(&self, args: &[String], url: &str) -> Result<String> {
        let profile = tempfile::tempdir().context("cannot make a directory for the browser's profile")?;
        let mut browser = Command::new(&self.0);
        browser.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display())).args(args).arg(url);
        let Ok(output) = timeout(DEADLINE, browser.kill_on_drop(true).output()).await else {
            bail!("the browser did not show {url} within {DEADLINE:?}");
        };
        let output = output.with_context(|| format!("cannot run {}", self.0.display()))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the browser failed at {url} ({}): {complaint}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn height(page: &str) -> u32 {
    let text = page.split_once("data-height=\"").and_then(|(_, rest)| rest.split('"').next());
    text.and_then(|text| text.parse().ok()).unwrap_or(HEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_how_high_it_is() {
        assert_eq!(height(r#"<html><body class="a" data-height="1234"><p>"#), 1234);
        assert_eq!(height("<html><body>"), HEIGHT);
    }
}
