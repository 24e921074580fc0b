//! The ledger: a backend for tests that logs each call, lists its assets, and has a gate.
//!
//! This is the tests' side: set the gate, read calls and assets, wait for them. What the program does with a call
//! is in [`program`], the files that both share in [`record`].

pub mod audit;
mod mark;
pub mod program;
pub mod record;
pub mod stage;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

pub use self::record::{Call, Conduct, Phase, Rule, Words};

/// How often the ledger's files are looked at while a test waits for them. They are local and small, and the
/// program that writes them cannot be asked to call back: it lives for one call.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The files of one ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    root: PathBuf,
}

impl Ledger {
    /// A new ledger below `parent`.
    ///
    /// # Errors
    /// If its directories cannot be made.
    pub fn create(parent: &Path, name: &str) -> Result<Self> {
        let ledger = Self { root: parent.join(name) };
        for part in [record::ASSETS, record::MARKS, record::COUNTS, record::DOORS, record::ARRIVED] {
            let path = ledger.root.join(part);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        ledger.set(&[])?;
        Ok(ledger)
    }

    /// Where it is. The program takes this as its first argument.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the asset of a volume is.
    #[must_use]
    pub fn asset(&self, volume: &str) -> PathBuf {
        self.root.join(record::ASSETS).join(volume)
    }

    /// Sets the gate: of these rules the first that fits a call counts, for calls that begin from now on.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, rules: &[Rule]) -> Result<()> {
        let new = self.root.join("gate.new");
        fs::write(&new, serde_json::to_vec(rules)?).context("cannot write the gate")?;
        fs::rename(new, self.root.join(record::GATE)).context("cannot put the gate in place")
    }

    /// Opens a door that calls wait at; it stays open.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(&self, door: &str) -> Result<()> {
        fs::write(self.root.join(record::DOORS).join(door), "")
            .with_context(|| format!("cannot open door {door}"))
    }

    /// Whether a call has come to this door.
    #[must_use]
    pub fn has_arrived(&self, door: &str) -> bool {
        self.root.join(record::ARRIVED).join(door).exists()
    }

    /// Waits until a call has come to this door. With a door behind the change, the asset is as it will be then.
    ///
    /// # Errors
    /// If none has within `deadline`.
    pub async fn wait_arrived(&self, door: &str, deadline: Duration) -> Result<()> {
        let what = format!("a call has come to door {door}");
        self.wait(&what, deadline, || Ok(self.has_arrived(door).then_some(()))).await
    }

    /// Puts an asset there without any call, with this mark beside it or none.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn plant(&self, volume: &str, mark: Option<&serde_json::Value>) -> Result<()> {
        mark.map_or(Ok(()), |mark| mark::write(&self.root, volume, mark))?;
        fs::create_dir(self.asset(volume)).with_context(|| format!("cannot plant asset {volume}"))
    }

    /// The names of the assets that exist.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn assets(&self) -> Result<BTreeSet<String>> {
        let entries = fs::read_dir(self.root.join(record::ASSETS)).context("cannot list assets")?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Every record of the log, in the order of writing.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn log(&self) -> Result<Vec<Call>> {
        let path = self.root.join(record::LOG);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let complete = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        let parse =
            |line| serde_json::from_str(line).with_context(|| format!("a strange line in the log: {line}"));
        complete.lines().map(parse).collect()
    }

    /// The calls of one operation that have begun.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn begun(&self, operation: &str) -> Result<Vec<Call>> {
        self.records(operation, Phase::Begin)
    }

    /// The calls of one operation that have given their answer.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn ended(&self, operation: &str) -> Result<Vec<Call>> {
        self.records(operation, Phase::End)
    }

    fn records(&self, operation: &str, phase: Phase) -> Result<Vec<Call>> {
        let mut log = self.log()?;
        log.retain(|call| call.operation == operation && call.phase == phase);
        Ok(log)
    }

    /// Waits until `count` calls of an operation have begun, and returns them.
    ///
    /// # Errors
    /// If there are fewer after `deadline`.
    pub async fn wait_begun(&self, operation: &str, count: usize, deadline: Duration) -> Result<Vec<Call>> {
        let what = format!("{count} calls of {operation} have begun");
        self.wait(&what, deadline, || {
            let calls = self.begun(operation)?;
            Ok((calls.len() >= count).then_some(calls))
        })
        .await
    }

    /// Waits until `look` finds what it is after; every few milliseconds, a bounded number of times.
    ///
    /// # Errors
    /// If it does not within `deadline`, with the log in the message.
    pub async fn wait<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let started = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if started.elapsed() >= deadline {
                let calls: Vec<String> = self.log()?.iter().map(ToString::to_string).collect();
                bail!("not so after {deadline:?}: {what}; the ledger's log:\n{}", calls.join("\n"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> (tempfile::TempDir, Ledger) {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(directory.path(), "ledger").unwrap();
        (directory, ledger)
    }

    fn call(ledger: &Ledger, operation: &str, claim: &str) -> String {
        let request = format!(
            r#"{{"operation":"{operation}","epoch":7,"volumeName":"pvc-{claim}","claim":{{"metadata":{{"name":"{claim}"}}}}}}"#
        );
        let mut out = Vec::new();
        program::run(ledger.root(), operation, request.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn calls_and_assets_are_on_record() {
        let (_directory, ledger) = ledger();
        assert!(call(&ledger, "provision", "a").contains(r#""outcome":"done""#));
        assert!(ledger.assets().unwrap().contains("pvc-a"));
        assert!(call(&ledger, "delete", "a").contains(r#""outcome":"done""#));
        assert!(ledger.assets().unwrap().is_empty());
        let log = ledger.log().unwrap();
        let told: Vec<_> =
            log.iter().map(|call| (call.operation.as_str(), call.phase, call.changed)).collect();
        assert_eq!(
            told,
            [
                ("provision", Phase::Begin, false),
                ("provision", Phase::End, true),
                ("delete", Phase::Begin, false),
                ("delete", Phase::End, true),
            ]
        );
        assert_eq!(log[0].epoch, 7);
        assert!(log.is_sorted_by_key(|call| call.at));
    }

    fn listed(ledger: &Ledger, after: Option<&str>) -> serde_json::Value {
        let request = serde_json::json!({ "operation": "list", "continue": after }).to_string();
        let mut out = Vec::new();
        program::run(ledger.root(), "list", request.as_bytes(), &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_listed_asset_has_the_mark_of_its_provisioning_and_whether_it_is_kept_and_used() {
        let (_directory, ledger) = ledger();
        call(&ledger, "provision", "a");
        ledger.plant("pvc-b", None).unwrap();
        let assets = listed(&ledger, None)["assets"].clone();
        assert_eq!(assets[0]["volumeName"], "pvc-a");
        assert_eq!(assets[0]["claim"]["name"], "a");
        assert_eq!((&assets[0]["kept"], &assets[0]["unused"]), (&false.into(), &true.into()));
        assert!(assets[1].get("installation").is_none() && assets[1].get("claim").is_none());
        call(&ledger, "keep", "a");
        call(&ledger, "provision", "a");
        fs::write(ledger.asset("pvc-a").join("data"), "").unwrap();
        let asset = &listed(&ledger, None)["assets"][0];
        assert_eq!((&asset["kept"], &asset["unused"]), (&true.into(), &false.into()));
        call(&ledger, "delete", "a");
        assert_eq!(listed(&ledger, None)["assets"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_long_list_comes_in_pages_that_miss_nothing() {
        let (_directory, ledger) = ledger();
        for number in 0..150 {
            ledger.plant(&format!("pvc-{number:03}"), None).unwrap();
        }
        let first = listed(&ledger, None);
        let second = listed(&ledger, first["continue"].as_str());
        let count = |page: &serde_json::Value| page["assets"].as_array().unwrap().len();
        assert_eq!((count(&first), count(&second)), (100, 50));
        assert!(second.get("continue").is_none());
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let (_directory, ledger) = ledger();
        let rules = [
            Rule::on("provision").claim("a").first(1).conduct(Conduct::answer("failed", "once")),
            Rule::on("provision").claim("b").conduct(Conduct::answer("infeasible", "never")),
        ];
        ledger.set(&rules).unwrap();
        assert!(call(&ledger, "provision", "a").contains("once"));
        assert!(call(&ledger, "provision", "a").contains("done"));
        assert!(call(&ledger, "provision", "b").contains("never"));
        assert!(call(&ledger, "provision", "c").contains("done"));
        assert_eq!(ledger.assets().unwrap().len(), 2, "a failed call makes nothing");
    }
}
