//! The proxy's log: a JSON object per request, in memory and in a file.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Request;
use crate::clock;

/// A request and its fate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// When it came, in nanoseconds on `CLOCK_MONOTONIC_RAW`.
    pub came: u64,
    /// When its fate was sealed.
    pub sealed: u64,
    /// Its number, in the order of sealing, from 1.
    pub n: usize,
    /// What it is about.
    #[serde(flatten)]
    pub request: Request,
    /// What became of it, such as `answered 201`, `cut before the server`.
    pub fate: String,
}

/// All records.
#[derive(Debug)]
pub(super) struct Log(Mutex<(File, Vec<Record>)>);

impl Log {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(Mutex::new((file, Vec::new()))))
    }

    pub(super) fn add(&self, came: u64, request: &Request, fate: String) {
        let (file, records) = &mut *self.lock();
        let n = records.len() + 1;
        let record = Record { came, sealed: clock::raw_nanos(), n, request: request.clone(), fate };
        let mut line = serde_json::to_vec(&record).unwrap_or_default();
        line.push(b'\n');
        // The records in memory are what tests judge by.
        let _ = file.write_all(&line);
        records.push(record);
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.lock().1.clone()
    }

    fn lock(&self) -> MutexGuard<'_, (File, Vec<Record>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
