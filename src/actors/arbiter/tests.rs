//! Orders of events, outcomes and leaderships against the pure Arbiter.
