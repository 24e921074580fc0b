//! Child processes that cannot outlive this process, however it ends.
//!
//! What the children are, and in which order they stop, is their owners' business.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, OnceLock, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::sync::watch;

/// What ends when this process ends without having stopped a child. The kernel sees to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// The child.
    #[default]
    Child,
    /// The child and all that it has started: for a program that runs others, such as a compiler's driver.
    Family,
}

impl Fate {
    /// The signal that the kernel sends, and the shell script that becomes or runs the child. Its `$0` is this
    /// process: a parent that died between the fork and the request to the kernel is no longer the shell's parent.
    const fn enforcement(self) -> (&'static str, &'static str) {
        match self {
            Self::Child => ("KILL", r#"[ "$PPID" = "$0" ] && exec "$@""#),
            Self::Family => {
                ("TERM", r#"trap 'kill -KILL 0' TERM; [ "$PPID" = "$0" ] || exit 1; "$@" & wait "$!""#)
            }
        }
    }
}

/// How a program is started; the same value starts it again.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The program, as a path or as a name on `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of this process's environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs, if not in this process's directory.
    pub directory: Option<PathBuf>,
    /// The file that both its outputs are appended to. Without one, errors go to this process's standard error
    /// and the rest nowhere.
    pub log: Option<PathBuf>,
    /// What ends with this process.
    pub fate: Fate,
}

/// A running or ended child, reaped by a thread of its own. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    /// Signals go through the descriptor: unlike a number, it never comes to mean another process.
    handle: OwnedFd,
    exit: watch::Receiver<Option<ExitStatus>>,
    waiter: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Launch {
    /// Starts the program in a process group of its own: a Ctrl-C on the terminal reaches only this process, which
    /// then stops its children in their order.
    ///
    /// # Errors
    /// If the program, or the `setpriv` that binds it to this process, cannot be started.
    pub fn start(&self) -> Result<Process> {
        let name = self.program.display();
        let command = self.command().with_context(|| format!("cannot open the log of {name}"))?;
        let child = spawn_on_lasting_thread(command).with_context(|| {
            format!("cannot start {name} (this needs setpriv of util-linux and sh on PATH)")
        })?;
        Process::adopt(child).with_context(|| format!("cannot watch over {name}"))
    }

    fn command(&self) -> io::Result<Command> {
        let (signal, script) = self.fate.enforcement();
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", signal, "sh", "-c", script])
            .arg(std::process::id().to_string())
            .arg(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if let Some(log) = &self.log {
            let file = OpenOptions::new().create(true).append(true).open(log)?;
            command.stdout(file.try_clone()?).stderr(file);
        }
        Ok(command)
    }
}

impl Process {
    fn adopt(child: Child) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let (exited, exit) = watch::channel(None);
        let waiter = thread::Builder::new().name("reaper".to_owned()).spawn(move || reap(child, &exited))?;
        Ok(Self { pid, handle, exit, waiter: Mutex::new(Some(waiter)) })
    }

    /// The process id; after the process ended, the id that it had.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// How the process ended, or `None` while it runs.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Sends `signal` to this process alone, not to programs that it started itself.
    ///
    /// # Errors
    /// If the process has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&self.handle, signal)
            .with_context(|| format!("cannot send {signal:?} to process {}", self.pid()))
    }

    /// Completes when the process has ended; does not keep it.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut exit = self.exit.clone();
        async move {
            // The sender is gone only when the process was reaped.
            let _ = exit.wait_for(Option::is_some).await;
        }
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// If it still runs after `deadline`.
    pub async fn wait(&self, deadline: Duration) -> Result<ExitStatus> {
        let mut exit = self.exit.clone();
        let ended = tokio::time::timeout(deadline, exit.wait_for(Option::is_some))
            .await
            .with_context(|| format!("process {} still runs after {deadline:?}", self.pid()))??;
        (*ended).ok_or_else(|| anyhow!("process {} ended without a status", self.pid()))
    }

    /// Waits for the end of the process, on a thread that may block.
    #[must_use]
    pub fn wait_blocking(&self) -> Option<ExitStatus> {
        let waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waiter) = waiter {
            // The reaper does not panic, and if it did, there would be no status, which is what the caller sees.
            let _ = waiter.join();
        }
        self.exit_status()
    }

    /// Kills the process with all of its process group, and waits for its end.
    pub fn kill_and_wait(&self) {
        // The group exists as long as its leader is not reaped, and a new group cannot have the number until then.
        if self.exit_status().is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = self.wait_blocking();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_and_wait();
    }
}

fn reap(mut child: Child, exited: &watch::Sender<Option<ExitStatus>>) {
    // Waiting for a child that nobody else reaps cannot fail.
    if let Ok(status) = child.wait() {
        exited.send_replace(Some(status));
    }
}

type Request = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel's promise to end a child with its parent is tied to the *thread* that forked: a child started from a
/// test's or a pool's thread would die with that thread. This thread ends only with the process.
fn spawn_on_lasting_thread(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, queue) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in queue {
                // A caller that went away has dropped the answer, and the child with it.
                let _ = answer.send(command.spawn());
            }
        });
        requests
    });
    let (answer, answered) = mpsc::channel();
    spawner.send((command, answer)).map_err(|_| anyhow!("the thread that starts processes has ended"))?;
    Ok(answered.recv().context("the thread that starts processes has ended")??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs;

    fn shell(script: &str) -> Launch {
        Launch { program: "sh".into(), args: vec!["-c".into(), script.into()], ..Launch::default() }
    }

    #[tokio::test]
    async fn a_child_is_reaped_with_its_status() {
        let child = shell("exit 7").start().unwrap();
        assert_eq!(child.wait(Duration::from_secs(10)).await.unwrap().code(), Some(7));
    }

    #[tokio::test]
    async fn a_child_outlives_the_thread_that_asked_for_it() {
        let child = thread::spawn(|| shell("exec sleep 600").start().unwrap()).join().unwrap();
        assert!(
            child.wait(Duration::from_millis(300)).await.is_err(),
            "the child died with the asking thread"
        );
    }

    #[test]
    fn a_dropped_child_has_ended_with_what_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = "sleep 600 & echo $!; echo ready; wait";
        let child = Launch { log: Some(log.clone()), ..shell(script) }.start().unwrap();
        let grandchild = loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if let Some((pid, _)) = text.split_once("\nready") {
                break procfs::Watched::new(pid.parse().unwrap()).unwrap();
            }
            thread::yield_now();
        };
        drop(child);
        // Killed with the group, but nobody here waits for it: the kernel may still be at it.
        grandchild.wait_end(Duration::from_secs(10)).unwrap();
    }
}
