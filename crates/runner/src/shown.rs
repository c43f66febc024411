//! Command lines and domains that are shown, not started.

use vmconfig::qemu;

/// Names in place of the paths that a run has.
pub(crate) fn placeholder_channels() -> qemu::Channels {
    qemu::Channels {
        qmp_socket: "qmp.sock".into(),
        agent_socket: "agent.sock".into(),
        done_socket: "done.sock".into(),
        console_socket: "console.sock".into(),
        console_log: "console.log".into(),
    }
}
