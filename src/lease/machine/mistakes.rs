//! Mistakes that tests switch on, one at a time, to see that the checks turn red. Not in any build but the
//! tests'.

/// One mistake of the bare crate, or one that a careless wrapper would make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(crate) enum Mistake {
    /// F1, F2: writes carry no resourceVersion.
    NoCompareAndSwap = 1,
    /// F2, F6: the holder in the answer of a write is not looked at.
    HolderUnchecked = 1 << 1,
    /// F3: expiry is the stored renewTime against the local wall clock.
    ForeignClock = 1 << 2,
    /// F4: missing fields are not filled in.
    MissingFieldsKept = 1 << 3,
    /// F5: the write of a step-down carries no resourceVersion.
    UnconditionalStepDown = 1 << 4,
    /// F6: renewals go on beside a step-down.
    RenewalBesideStepDown = 1 << 5,
    /// F8: the hold counts from the answer, however late.
    DeadlineFromAnswer = 1 << 6,
    /// F14: leadership never lapses by itself.
    NoDeadline = 1 << 7,
    /// The stored holder is taken as proof that a write without answer was written.
    HolderIsProof = 1 << 8,
    /// Whatever is empty or absent is taken at once.
    AnyEmptyingIsFree = 1 << 9,
}

/// The mistakes that are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Mistakes(u16);

impl Mistakes {
    pub(crate) fn of(mistakes: &[Mistake]) -> Self {
        Self(mistakes.iter().fold(0, |set, mistake| set | *mistake as u16))
    }

    pub(crate) fn contain(self, mistake: Mistake) -> bool {
        self.0 & mistake as u16 != 0
    }
}
