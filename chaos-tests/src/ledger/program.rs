//! The ledger as a program of the exec protocol: one call, from the request to the answer.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Map, Value, json};

use super::{
    mark,
    record::{ARRIVED, ASSETS, COUNTS, Call, Conduct, DOORS, GATE, LOG, Phase, Rule, Words},
};
use crate::clock;

/// How often a call looks whether its door is open.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Answers the request for `operation` on the ledger in `root`.
///
/// # Errors
/// If the ledger's files cannot be read or written, or the request is none.
pub fn run(root: &Path, operation: &str, request: &[u8], answer: &mut impl Write) -> Result<()> {
    let request: Value = serde_json::from_slice(request).context("the request is not JSON")?;
    let call = begin(root, operation, request)?;
    let conduct = conduct(root, &call)?;
    eprint!("{}", conduct.stderr);
    thread::sleep(Duration::from_millis(conduct.latency_ms));
    linger(root, &call, Duration::from_millis(conduct.lingering_ms))?;
    wait_at(root, conduct.door_before.as_deref())?;
    let changed = !conduct.idle && change(root, &call)?;
    wait_at(root, conduct.door_after.as_deref())?;
    let outcome = serde_json::to_string(&conduct.words)?;
    write_log(
        root,
        &Call {
            phase: Phase::End,
            at: clock::raw_nanos(),
            outcome,
            changed,
            request: Value::Null,
            ..call.clone()
        },
    )?;
    say(root, &call, conduct.words, answer).context("the answer cannot be written")
}

fn begin(root: &Path, operation: &str, request: Value) -> Result<Call> {
    let text = |pointer| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let claim = ["/claim/metadata/name", "/volume/spec/claimRef/name"].map(text).concat();
    let volume = text("/volumeName");
    let call = Call {
        at: clock::raw_nanos(),
        operation: operation.to_owned(),
        number: count(root, operation, &volume)?,
        volume,
        claim,
        epoch: request.get("epoch").and_then(Value::as_u64).unwrap_or_default(),
        pid: std::process::id(),
        phase: Phase::Begin,
        outcome: String::new(),
        changed: false,
        request,
    };
    write_log(root, &call)?;
    Ok(call)
}

/// Counts by a byte per call: appending is atomic, and the position after it is the number.
fn count(root: &Path, operation: &str, volume: &str) -> Result<usize> {
    let path = root.join(COUNTS).join(format!("{operation}.{volume}"));
    let mut file =
        OpenOptions::new().create(true).append(true).open(path).context("cannot count the call")?;
    file.write_all(b".")?;
    Ok(io::Seek::stream_position(&mut file)?.try_into().unwrap_or(usize::MAX))
}

/// One write per record, so that records of calls side by side don't mix.
fn write_log(root: &Path, call: &Call) -> Result<()> {
    let mut line = serde_json::to_vec(call)?;
    line.push(b'\n');
    let mut log =
        OpenOptions::new().create(true).append(true).open(root.join(LOG)).context("cannot open the log")?;
    log.write_all(&line).context("cannot write the log")
}

fn conduct(root: &Path, call: &Call) -> Result<Conduct> {
    let rules: Vec<Rule> =
        serde_json::from_slice(&fs::read(root.join(GATE)).context("cannot read the gate")?)?;
    Ok(rules.into_iter().find(|rule| rule.fits(call)).map(|rule| rule.conduct).unwrap_or_default())
}

fn wait_at(root: &Path, door: Option<&str>) -> Result<()> {
    let Some(door) = door else { return Ok(()) };
    fs::write(root.join(ARRIVED).join(door), "").with_context(|| format!("cannot arrive at door {door}"))?;
    let door = root.join(DOORS).join(door);
    while !door.exists() {
        look_later(root);
    }
    Ok(())
}

/// A call whose replica was killed goes on, and must not outlive the test: it ends with the ledger's files.
fn look_later(root: &Path) {
    if !root.exists() {
        std::process::exit(1);
    }
    thread::sleep(LOOK_EVERY);
}

/// See [`Conduct::lingering_ms`]. Only the process group of the call is killed when its time is over.
fn linger(root: &Path, call: &Call, time: Duration) -> Result<()> {
    let asset = root.join(ASSETS).join(&call.volume);
    if time.is_zero() || asset.exists() {
        return Ok(());
    }
    mark::write(root, &call.volume, &mark::of_request(&call.request))?;
    let script = "sleep \"$0\"; mkdir -p \"$1\"";
    let mut worker = Command::new("setsid");
    worker.args(["sh", "-c", script, &time.as_secs_f64().to_string()]).arg(&asset);
    worker.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    worker.spawn().context("cannot start the lingering worker")?;
    thread::sleep(time);
    Ok(())
}

/// Makes, keeps or removes the asset; whether there was anything to do.
fn change(root: &Path, call: &Call) -> Result<bool> {
    let volume = &call.volume;
    let asset = root.join(ASSETS).join(volume);
    let existed = asset.exists();
    match call.operation.as_str() {
        "keep" => return mark::keep(root, volume),
        "provision" if !existed => {
            mark::write(root, volume, &mark::of_request(&call.request))?;
            done_or_already(fs::create_dir(&asset), io::ErrorKind::AlreadyExists)
        }
        "delete" => {
            let removed = done_or_already(fs::remove_dir_all(&asset), io::ErrorKind::NotFound);
            mark::remove(root, volume)?;
            removed
        }
        _ => Ok(false),
    }
    .with_context(|| format!("cannot change asset {}", asset.display()))
}

/// Another call may have been faster.
fn done_or_already(result: io::Result<()>, already: io::ErrorKind) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == already => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn say(root: &Path, call: &Call, words: Words, out: &mut impl Write) -> Result<()> {
    match words {
        Words::Done => write!(out, "{}", done(root, call, Map::new())?)?,
        Words::Volume(over) => write!(out, "{}", done(root, call, over)?)?,
        Words::Outcome(outcome, message) => {
            write!(out, "{}", json!({ "outcome": outcome, "message": message }))?
        }
        Words::Text(text) => out.write_all(text.as_bytes())?,
        Words::Flood(bytes) => flood(bytes, out)?,
        Words::Signal(signal) => {
            let signal = Signal::from_named_raw(signal).context("no such signal")?;
            kill_process(getpid(), signal)?;
        }
        Words::Exit(code) => std::process::exit(code),
        Words::Hang => loop {
            look_later(root);
        },
    }
    Ok(())
}

fn done(root: &Path, call: &Call, over: Map<String, Value>) -> Result<Value> {
    let (mut answer, extended) = match call.operation.as_str() {
        "list" => return mark::list(root, call.request.get("continue").and_then(Value::as_str)),
        "provision" => {
            let path = root.join(ASSETS).join(&call.volume);
            let mut volume = Map::from_iter([("source".to_owned(), json!({ "hostPath": { "path": path } }))]);
            volume.extend(over);
            (json!({ "volume": volume }), Map::new())
        }
        "capabilities" => (json!({ "operations": ["provision", "delete", "keep", "list"] }), over),
        _ => (json!({}), Map::new()),
    };
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("outcome".to_owned(), json!("done"));
        answer.extend(extended);
    }
    Ok(answer)
}

fn flood(bytes: usize, out: &mut impl Write) -> Result<()> {
    let block = [b'x'; 64 * 1024];
    let mut left = bytes;
    while left > 0 {
        let part = block.get(..left.min(block.len())).unwrap_or(&block);
        out.write_all(part)?;
        left -= part.len();
    }
    Ok(())
}
