//! What the tests of this module share: a clock that only they move, a collector, and a log in memory.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};

use crate::clock::{BootTime, Clock};

/// Stands still until it is advanced. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    pub(crate) fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.0.fetch_add(u64::try_from(span.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> BootTime {
        BootTime::from_boot(Duration::from_nanos(self.0.load(Ordering::SeqCst)))
    }
}

/// A collector in memory. Clones are the same collector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected(Arc<Mutex<Vec<SpanData>>>);

impl Collected {
    pub(crate) fn spans(&self) -> Vec<SpanData> {
        self.0.lock().unwrap().clone()
    }
}

impl SpanExporter for Collected {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// A log in memory. Clones are the same log.
#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// What the logs' layer writes to.
    pub(crate) fn writer(&self) -> impl Fn() -> Self + Send + Sync + use<> {
        let log = self.clone();
        move || log.clone()
    }

    /// What was written since the last time.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
