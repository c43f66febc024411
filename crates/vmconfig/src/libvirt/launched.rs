//! What a domain has that vmlab itself starts, beside the VM: whose it is, how the
//! guest is talked to, and what ends it.
//!
//! Source: libvirt `docs/formatdomain.rst`: "General metadata", "Events
//! configuration", "Unix domain socket client/server", "Security label".

use std::path::Path;

use crate::Arch;
use crate::qemu::Channels;

use super::xml::Element;

/// The namespace of the element in `<metadata>` that tells whose a domain is: the
/// owner's own text. A domain without it is not vmlab's.
pub const OWNER_NAMESPACE: &str = "urn:vmlab:owner:1";

/// A domain that vmlab starts.
#[derive(Debug, Clone, Copy)]
pub struct LaunchedDomain<'a> {
    /// Its name among the domains of the host.
    pub name: &'a str,
    /// QEMU's program.
    pub emulator: &'a Path,
    /// The sockets on which vmlab listens and to which QEMU connects. The monitor's is
    /// of no use here: that is libvirt's.
    pub channels: &'a Channels,
    /// Whose it is, for [`OWNER_NAMESPACE`].
    pub owner: &'a str,
    /// The user and the group as which QEMU runs, with no file given to another owner;
    /// libvirt's own choice if none.
    pub run_as: Option<(u32, u32)>,
}

/// The owner's text in what `virsh metadata --uri` says of [`OWNER_NAMESPACE`]; the
/// element has lost its namespace there.
#[must_use]
pub fn owner_in(said: &str) -> Option<String> {
    let document = roxmltree::Document::parse(said.trim()).ok()?;
    let root = document.root_element();
    root.text().filter(|_| root.has_tag_name("owner")).map(str::to_owned)
}

impl LaunchedDomain<'_> {
    pub(super) fn metadata(&self) -> Element {
        let owner = Element::new("vmlab:owner").attr("xmlns:vmlab", OWNER_NAMESPACE);
        Element::new("metadata").child(owner.text(self.owner))
    }

    /// A guest that ends or starts again by itself is at its end.
    pub(super) fn ends() -> [Element; 3] {
        ["on_poweroff", "on_reboot", "on_crash"].map(|name| Element::new(name).text("destroy"))
    }

    pub(super) fn emulator(&self) -> Element {
        Element::new("emulator").text(self.emulator.to_string_lossy())
    }

    /// The console, the ports, and what tells of a panic.
    pub(super) fn ports(&self, arch: Arch) -> Vec<Element> {
        let unix = |name: &'static str, path: &Path| {
            let source = Element::new("source").attr("mode", "connect");
            let source = source.attr("path", path.to_string_lossy());
            Element::new(name).attr("type", "unix").child(source)
        };
        let port = |path: &Path, name: &str| {
            let target = Element::new("target").attr("type", "virtio").attr("name", name);
            unix("channel", path).child(target)
        };
        let mut all = vec![
            unix("serial", &self.channels.console_socket),
            port(&self.channels.agent_socket, "org.qemu.guest_agent.0"),
            port(&self.channels.done_socket, "org.vmlab.done.0"),
        ];
        if arch == Arch::X86_64 {
            all.push(Element::new("panic").attr("model", "isa"));
        }
        all
    }

    pub(super) fn security(&self) -> Element {
        let label = Element::new("seclabel");
        let Some((user, group)) = self.run_as else { return label };
        label
            .attr("type", "static")
            .attr("model", "dac")
            .attr("relabel", "no")
            .child(Element::new("label").text(format!("+{user}:+{group}")))
    }
}
