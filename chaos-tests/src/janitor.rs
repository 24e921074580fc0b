//! A shell that cleans up after this process, however it ends. What there is to clean is its owner's business.

use std::{
    ffi::OsStr,
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// Runs its script when its owner drops it or is killed.
#[derive(Debug)]
pub(crate) struct Janitor {
    /// Holds the other end of its input: the kernel closes it when this process is gone.
    shell: Child,
}

impl Janitor {
    /// Hires a janitor for `script`, whose `$0` is `what`.
    pub(crate) fn hire(script: &str, what: &OsStr) -> io::Result<Self> {
        let shell = Command::new("sh")
            .arg("-c")
            .arg(format!("read -r _\n{script}"))
            .arg(what)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not in the group that a Ctrl-C reaches: its work begins after that.
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        if let Err(error) = self.shell.wait() {
            eprintln!("cannot wait for the cleaning up: {error}");
        }
    }
}
