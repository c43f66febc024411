//! The state of a stopped VM, as QEMU's migration stream tells it: which devices, which
//! fields, which values.
//!
//! - [`Skim`]: takes a stream piece by piece, passes memory over and keeps the rest.
//! - [`MachineState`]: every section, field by field, as the stream's own description names them.
//! - [`compare`]: what differs between two states.
//! - [`patches`]: which bytes of a stream make a field have another value.
//!
//! Nothing here reads files or knows a VM: bytes come in, values come out. A stream is
//! anybody's, so what it can cost is bounded: [`MAX_KEPT_BYTES`], [`MAX_FIELDS`] and the
//! like, and the depth of JSON.
//!
//! Source: QEMU `docs/devel/migration/main.rst`, "Stream structure"; `migration/savevm.c`,
//! `migration/ram.c`, `migration/vmstate.c`.

mod cursor;
mod description;
mod diff;
mod edit;
mod error;
mod facts;
mod field;
mod nic;
mod patch;
mod select;
mod skim;
mod state;
mod stream;
mod virtio;

pub use description::MAX_DESCRIPTION_BYTES;
pub use diff::{FieldChange, StateDiff, compare};
pub use edit::{EditError, patches};
pub use error::{Problem, StreamError};
pub use facts::{DeviceFacts, FieldFacts, MemoryBlock, MemoryFacts, StateFacts, StateValue};
pub use field::{Field, FieldKind};
pub use patch::Patch;
pub use select::{SelectError, Selector};
pub use skim::{MAX_KEPT_BYTES, Skim};
pub use state::{DeviceState, MAX_FIELDS, MachineState};
pub use stream::{MemorySections, MigrationStream};

#[cfg(test)]
mod tests;
