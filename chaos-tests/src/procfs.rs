//! Processes that need not be children of this one: who they are, what they use, when they end.

use std::{fs, os::fd::OwnedFd, time::Duration};

use anyhow::{Context, Result, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// A process that is watched from outside. Stays with this process also when its number is used again.
#[derive(Debug)]
pub struct Watched {
    pid: u32,
    handle: OwnedFd,
}

impl Watched {
    /// Watches the process `pid`.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn new(pid: u32) -> Result<Self> {
        let handle =
            i32::try_from(pid).ok().and_then(Pid::from_raw).map(|raw| pidfd_open(raw, PidfdFlags::empty()));
        let handle = handle.with_context(|| format!("{pid} is no process id"))?;
        Ok(Self { pid, handle: handle.with_context(|| format!("there is no process {pid}"))? })
    }

    /// Waits for its end. Blocks.
    ///
    /// # Errors
    /// If it still runs after `deadline`.
    pub fn wait_end(&self, deadline: Duration) -> Result<()> {
        let deadline =
            Timespec { tv_sec: deadline.as_secs().try_into()?, tv_nsec: deadline.subsec_nanos().into() };
        let readable = poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&deadline))?;
        ensure!(readable == 1, "process {} still runs", self.pid);
        Ok(())
    }
}

/// The process ids of the children of `pid`.
///
/// # Errors
/// If there is no such process.
pub fn children(pid: u32) -> Result<Vec<u32>> {
    let tasks =
        fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("there is no process {pid}"))?;
    let mut children = Vec::new();
    for task in tasks {
        // A thread may end between the two reads; its children go to another one.
        let list = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(children)
}

/// The arguments of the process `pid`, separated by spaces.
///
/// # Errors
/// If there is no such process.
pub fn command_line(pid: u32) -> Result<String> {
    let bytes =
        fs::read(format!("/proc/{pid}/cmdline")).with_context(|| format!("there is no process {pid}"))?;
    Ok(String::from_utf8_lossy(&bytes).replace('\0', " "))
}

/// The memory that the process `pid` has resident, in bytes.
///
/// # Errors
/// If there is no such process, or if it has ended.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

/// The memory of its own that the process `pid` may write to, in bytes: heaps and stacks, used or not.
///
/// # Errors
/// If there is no such process, or if it has ended.
pub fn writable_bytes(pid: u32) -> Result<u64> {
    memory(pid, "VmData:")
}

/// The most memory that the process `pid` has ever had resident, in bytes.
///
/// # Errors
/// As [`resident_bytes`].
pub fn peak_resident_bytes(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_memory(&status, field).with_context(|| format!("{path} has no {field} the process has ended"))
}

/// The CPU time that the process `pid` has used so far, in user and kernel mode. Exact to 10 ms.
///
/// # Errors
/// If there is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("there is no process {pid}"))?;
    parse_cpu_time(&stat).with_context(|| format!("{path} is not as expected"))
}

fn parse_cpu_time(stat: &str) -> Option<Duration> {
    // The name of the program, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    // Linux shows a hundredth of a second as the tick, whatever it counts in.
    Some(Duration::from_millis((user + system) * 10))
}

/// How many threads the process `pid` has.
///
/// # Errors
/// If there is no such process.
pub fn threads(pid: u32) -> Result<usize> {
    count_entries(&format!("/proc/{pid}/task"))
}

/// How many files, sockets among them, the process `pid` has open.
///
/// # Errors
/// If there is no such process, or it is somebody else's.
pub fn open_files(pid: u32) -> Result<usize> {
    count_entries(&format!("/proc/{pid}/fd"))
}

fn count_entries(directory: &str) -> Result<usize> {
    Ok(fs::read_dir(directory).with_context(|| format!("cannot list {directory}"))?.count())
}

fn parse_memory(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn cpu_time_is_read_behind_a_name_that_looks_like_fields() {
        let stat = "7 (a) b 1) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 1 0 99";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_millis(1750)));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmData:\t    4096 kB\nVmRSS:\t    2048 kB\nThreads:\t1\n";
        assert_eq!(parse_memory(status, "VmRSS:"), Some(2 << 20));
        assert_eq!(parse_memory(status, "VmData:"), Some(4 << 20));
        assert_eq!(parse_memory("Name:\tx\nState:\tZ (zombie)\n", "VmRSS:"), None);
    }

    #[test]
    fn a_child_is_listed_until_it_was_reaped_and_its_end_is_seen_before() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        assert!(children(std::process::id()).unwrap().contains(&pid));
        let watched = Watched::new(pid).unwrap();
        assert!(watched.wait_end(Duration::from_millis(50)).is_err());
        child.kill().unwrap();
        watched.wait_end(Duration::from_secs(30)).unwrap();
        child.wait().unwrap();
        assert!(!children(std::process::id()).unwrap().contains(&pid));
    }
}
