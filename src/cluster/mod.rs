//! Everything that talks to the API server: clients and their layers, the objects as caches hold them,
//! typed calls, watches. Decides nothing.

pub mod calls;
pub mod clients;
mod counted;
pub mod decode;
mod errors;
pub mod evidence;
mod guarded;
pub mod permissions;
pub mod watch;

pub use calls::Calls;
pub use counted::CountedLayer;
pub use errors::CallError;
pub(crate) use errors::with_sources;
pub use guarded::{Authority, GuardedLayer};
pub use permissions::Permissions;
