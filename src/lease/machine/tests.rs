//! The rules of the protocol, one sentence each.
