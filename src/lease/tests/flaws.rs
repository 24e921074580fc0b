//! The flaws of the bare crate, each shown on the crate itself or by a mistake switched back on.
