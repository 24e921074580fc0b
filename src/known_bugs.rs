//! Known bugs that a build for tests can bring back, one at a time: the negative controls of the chaos tests, which
//! must catch each of them. `docs/development/chaos.md` tells what each one is.
//!
//! Only where the code asks [`is`] can a bug be; without the Cargo feature `known-bugs` the answer is a constant.

/// The variable that names the bug.
pub(crate) const VARIABLE: &str = "KUBE_PROVISIONER_KNOWN_BUG";

/// Whether this build can bring bugs back.
pub(crate) const BUILT_IN: bool = cfg!(feature = "known-bugs");

#[cfg(all(feature = "known-bugs", not(debug_assertions)))]
compile_error!("the feature known-bugs is for tests: it is never in a release build");

/// A bug that this program, or one like it, once had or nearly had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(not(any(test, feature = "known-bugs")), allow(dead_code))]
pub(crate) enum Bug {
    /// A leadership that has ended stops nothing.
    NoGuard,
    /// A volume that exists under our name counts as saved, whoever's claim it is for.
    NoClaimRefComparison,
    /// What the cache says is believed where a live read is due.
    NoLiveRead,
    /// An asset whose volume could not be saved is deleted.
    DeleteOnFailedSave,
    /// Whoever takes our finalizer off writes the whole list, and takes others' off with it.
    UnconditionalFinalizerPatch,
    /// The audit deletes what it sees for the first time, without a live read.
    NoAuditGrace,
    /// The backend is not told that people chose to keep an asset.
    NoKeep,
    /// What failed is tried again at once.
    RequeueAtOnce,
    /// The node that a claim was to go to is gone: another is asked for without a word to the backend.
    RescheduleOnNodeGone,
    /// A call of which it is not known what it left behind counts as one that left nothing.
    ForgetBackground,
}

#[cfg(any(test, feature = "known-bugs"))]
impl Bug {
    const ALL: [(&str, Self); 10] = [
        ("no-guard", Self::NoGuard),
        ("no-claimref-comparison", Self::NoClaimRefComparison),
        ("no-live-read", Self::NoLiveRead),
        ("delete-on-failed-save", Self::DeleteOnFailedSave),
        ("unconditional-finalizer-patch", Self::UnconditionalFinalizerPatch),
        ("no-audit-grace", Self::NoAuditGrace),
        ("no-keep", Self::NoKeep),
        ("requeue-at-once", Self::RequeueAtOnce),
        ("reschedule-on-node-gone", Self::RescheduleOnNodeGone),
        ("forget-background", Self::ForgetBackground),
    ];

    fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, bug)| *bug);
        found.ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("{VARIABLE}: there is no known bug {name:?}; there are: {}", known.join(", "))
        })
    }
}

/// The bug that is switched on, if one is.
///
/// # Errors
/// A message if the variable names none that there is.
#[cfg(feature = "known-bugs")]
pub(crate) fn switched_on() -> Result<Option<Bug>, String> {
    static BUG: std::sync::OnceLock<Result<Option<Bug>, String>> = std::sync::OnceLock::new();
    let read = || {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        if name.is_empty() { Ok(None) } else { Bug::named(&name).map(Some) }
    };
    BUG.get_or_init(read).clone()
}

/// See the other one.
#[cfg(not(feature = "known-bugs"))]
pub(crate) const fn switched_on() -> Result<Option<Bug>, String> {
    Ok(None)
}

/// Whether `bug` is switched on.
#[cfg(any(test, feature = "known-bugs"))]
pub(crate) fn is(bug: Bug) -> bool {
    #[cfg(test)]
    if testing::BUG.get() == Some(bug) {
        return true;
    }
    switched_on() == Ok(Some(bug))
}

/// Whether `bug` is switched on: never, in this build.
#[cfg(not(any(test, feature = "known-bugs")))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}

/// Bugs in unit tests, on the thread of the test alone.
#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        pub(super) static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Does `what` with this bug.
    pub(crate) fn with<T>(bug: Bug, what: impl FnOnce() -> T) -> T {
        BUG.set(Some(bug));
        let done = what();
        BUG.set(None);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bug_is_switched_on_by_itself() {
        assert_eq!(switched_on(), Ok(None));
        assert!(Bug::ALL.iter().all(|(_, bug)| !is(*bug)));
    }

    #[test]
    fn one_bug_is_switched_on_at_a_time() {
        let on = testing::with(Bug::NoKeep, || Bug::ALL.iter().filter(|(_, bug)| is(*bug)).count());
        assert_eq!((on, is(Bug::NoKeep)), (1, false));
    }

    #[test]
    fn each_bug_has_a_name_of_its_own_and_no_other_name_is_taken() {
        for (name, bug) in Bug::ALL {
            assert_eq!(Bug::named(name), Ok(bug));
        }
        let refused = Bug::named("no-gaurd").unwrap_err();
        assert!(refused.contains(VARIABLE) && refused.contains("no-guard"), "{refused}");
    }
}
