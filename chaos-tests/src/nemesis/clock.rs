//! Clocks that are wrong, by libfaketime: a wall clock that is off, stepped and too fast or slow while the replica
//! runs, or a machine all of whose clocks run at another rate.
//!
//! What libfaketime 0.9.10 does, measured: it answers what a program asks of the C library. With its setting for
//! monotonic clocks it fakes `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC_RAW` as well; a rate also stretches sleeps and the
//! timeouts of `epoll_wait`, whichever clock is faked. What goes to the kernel directly, such as [`crate::clock`],
//! it doesn't see.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// libfaketime for programs with threads, where distributions put it.
#[must_use]
pub fn library() -> Option<PathBuf> {
    let roots = ["/usr/lib", "/usr/lib64"].map(Path::new).into_iter();
    let below = fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let roots: Vec<PathBuf> = roots.map(Path::to_owned).chain(below).collect();
    roots.into_iter().map(|root| root.join("faketime/libfaketimeMT.so.1")).find(|path| path.is_file())
}

/// The clocks of a replica that is started with [`Clock::env`], as wrong as a file says.
#[derive(Clone, Debug)]
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
    monotonic: bool,
}

impl Clock {
    /// A wall clock, right at first. The monotonic clocks stay right: no kernel steps them.
    ///
    /// # Errors
    /// If libfaketime is not installed, or `file` cannot be written.
    pub fn wall(file: &Path) -> Result<Self> {
        let clock = Self::of(file, false)?;
        clock.set(0, 1.0)?;
        Ok(clock)
    }

    /// All clocks of a machine whose crystal runs at this rate, from a replica's start to its end. They can't be set:
    /// a step would put the monotonic ones wrong too, which is no fault that there is.
    ///
    /// # Errors
    /// If libfaketime is not installed, or `file` cannot be written.
    pub fn machine(file: &Path, rate: f64) -> Result<Self> {
        let clock = Self::of(file, true)?;
        clock.write(0, rate)?;
        Ok(clock)
    }

    /// Puts a wall clock wrong: by `offset` seconds at the replica's start, and by `rate - 1` seconds more for each
    /// second that it has run. It counts from the replica's next look at its clock.
    ///
    /// # Errors
    /// If this is the clock of a machine, or the file cannot be written.
    pub fn set(&self, offset: i64, rate: f64) -> Result<()> {
        anyhow::ensure!(!self.monotonic, "the clocks of a machine can't be set while it runs");
        self.write(offset, rate)
    }

    /// The variables that give a replica this clock.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        let real = if self.monotonic { "0" } else { "1" };
        let settings = [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", real.to_owned()),
            ("DONT_FAKE_MONOTONIC", real.to_owned()),
        ];
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn of(file: &Path, monotonic: bool) -> Result<Self> {
        let library = library().context("libfaketime is not installed (Debian: faketime)")?;
        Ok(Self { library, file: file.to_owned(), monotonic })
    }

    /// Renamed into place: the file is read at every look at the clock.
    fn write(&self, offset: i64, rate: f64) -> Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, text(offset, rate)).context("cannot write the clock's file")?;
        fs::rename(&new, &self.file).context("cannot set the clock")
    }
}

/// In the words of libfaketime. Without a rate there is none: its sleeps are the kernel's own.
#[expect(clippy::float_cmp, reason = "exactly this value means that the rate is left alone")]
fn text(offset: i64, rate: f64) -> String {
    if rate == 1.0 { format!("{offset:+}") } else { format!("{offset:+} x{rate}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_and_rate_are_written_as_libfaketime_reads_them() {
        assert_eq!(text(3600, 1.0), "+3600");
        assert_eq!(text(-60, 0.9), "-60 x0.9");
        assert_eq!(text(0, 1.1), "+0 x1.1");
    }
}
