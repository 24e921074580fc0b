//! One run of a program: started in a process group of its own, fed, read within bounds, and ended with
//! all of its group, whether it answers, hangs, floods us or is no longer wanted.

use std::{io, process::ExitStatus, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, unix::AsyncFd},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::log::Log;

/// The most that an answer may be, in bytes (1 MiB).
pub(super) const LONGEST_ANSWER: usize = 1024 * 1024;

/// How long after the program's own exit its pipes may stay open in the hands of its children. What it
/// wrote itself is read well within this; the rest is not waited for.
const PIPES_AFTER_EXIT: Duration = Duration::from_millis(500);

/// How a run ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself, or by somebody's signal.
    Exited(ExitStatus),
    /// Killed at its deadline.
    Deadline,
    /// Killed because its answer passed [`LONGEST_ANSWER`].
    TooLong,
    /// Killed because we could no longer talk to it.
    Broken(io::Error),
}

impl End {
    /// Whether the program itself brought it about, and not a signal or a limit of ours.
    pub(super) fn is_its_own(&self) -> bool {
        match self {
            Self::Exited(status) => status.code().is_some(),
            Self::TooLong => true,
            Self::Deadline | Self::Broken(_) => false,
        }
    }
}

/// What a run left.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) end: End,
    pub(super) answer: Vec<u8>,
    pub(super) log: Log,
}

/// Runs the program with `request` on its standard input, for `limit` at most. Dropping the future kills
/// the program's group.
///
/// # Errors
/// It could not be started.
pub(super) async fn run(command: &mut Command, request: &[u8], limit: Duration) -> io::Result<Run> {
    let mut group = Group::start(command)?;
    let (mut answer, mut log) = (Vec::new(), Log::default());
    let end = match timeout(limit, converse(&mut group, request, &mut answer, &mut log)).await {
        Ok(Ok(())) => group.end().await.map_or_else(End::Broken, End::Exited),
        Ok(Err(end)) => end,
        Err(_) => End::Deadline,
    };
    Ok(Run { end, answer, log })
}

/// Talks with the program until it has exited; it is not reaped yet then, so its group is still its own.
async fn converse(group: &mut Group, request: &[u8], answer: &mut Vec<u8>, log: &mut Log) -> Result<(), End> {
    let exit = group.exit().map_err(End::Broken)?;
    let (stdin, stdout, stderr) =
        (group.child()?.stdin.take(), group.child()?.stdout.take(), group.child()?.stderr.take());
    let talk = async {
        tokio::try_join!(feed(stdin, request), read_answer(stdout, answer), read_log(stderr, log)).map(|_| ())
    };
    tokio::pin!(talk);
    tokio::select! {
        said = &mut talk => {
            said?;
            exit.readable().await.map(|_| ()).map_err(End::Broken)
        }
        gone = exit.readable() => {
            gone.map(|_| ()).map_err(End::Broken)?;
            timeout(PIPES_AFTER_EXIT, talk).await.unwrap_or(Ok(()))
        }
    }
}

/// Writes the request and closes the pipe. A program that doesn't read it does nothing wrong.
async fn feed(stdin: Option<ChildStdin>, request: &[u8]) -> Result<(), End> {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(request).await;
    }
    Ok(())
}

async fn read_answer(stdout: Option<ChildStdout>, answer: &mut Vec<u8>) -> Result<(), End> {
    read(stdout, |chunk| {
        answer.extend_from_slice(chunk);
        if answer.len() > LONGEST_ANSWER { Err(End::TooLong) } else { Ok(()) }
    })
    .await
}

async fn read_log(stderr: Option<ChildStderr>, log: &mut Log) -> Result<(), End> {
    read(stderr, |chunk| {
        log.push(chunk);
        Ok(())
    })
    .await
}

/// Hands all that comes out of a pipe to `take`, in small chunks.
async fn read<R: AsyncRead + Unpin>(
    pipe: Option<R>,
    mut take: impl FnMut(&[u8]) -> Result<(), End>,
) -> Result<(), End> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut chunk = vec![0; 8192];
    loop {
        let count = pipe.read(&mut chunk).await.map_err(End::Broken)?;
        match chunk.get(..count) {
            Some(bytes) if count > 0 => take(bytes)?,
            _ => return Ok(()),
        }
    }
}

/// A started program and all the processes of its group. Dropping it kills and reaps them.
struct Group {
    /// Absent once it has been handed on to be reaped.
    child: Option<Child>,
    /// The program's process id, which is also its group's. It can't be given to another process while
    /// the program isn't reaped, so the group is always killed before that.
    pid: Pid,
}

impl Group {
    fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the program has no process id"))?;
        Ok(Self { child: Some(child), pid })
    }

    fn child(&mut self) -> Result<&mut Child, End> {
        self.child.as_mut().ok_or_else(|| End::Broken(io::Error::other("the program was ended already")))
    }

    /// Becomes readable when the program exits; unlike waiting for it, that doesn't reap it.
    #[expect(
        deprecated,
        reason = "its successor is unsafe code, and a file descriptor that it owns is sound"
    )]
    fn exit(&self) -> io::Result<AsyncFd<std::os::fd::OwnedFd>> {
        AsyncFd::new(rustix::process::pidfd_open(self.pid, PidfdFlags::empty())?)
    }

    fn kill(&self) {
        // There may be nobody left to kill.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
    }

    /// Kills what is left of the group of a program that has exited, and gives its status.
    async fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        let child = self.child.as_mut().ok_or_else(|| io::Error::other("the program was ended already"))?;
        let status = child.wait().await?;
        self.child = None;
        tokio::spawn(reap_adopted(self.pid));
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.kill();
        // A program that is stuck in the kernel dies late: nobody should have to wait for it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let pid = self.pid;
            runtime.spawn(async move {
                let _ = child.wait().await;
                reap_adopted(pid).await;
            });
        }
    }
}

/// Reaps those of a killed group that became our children when the program died: that happens where we
/// are the first process of a container. Elsewhere there are none, and the first look ends it.
async fn reap_adopted(group: Pid) {
    const LOOKS: u32 = 100;
    for _ in 0..LOOKS {
        match rustix::process::waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(_) => return,
        }
    }
}
