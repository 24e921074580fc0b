//! Orders of events, answers and crashes against the pure operation.
