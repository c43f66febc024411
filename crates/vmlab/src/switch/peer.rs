//! What belongs to the other end of a port: QEMU's arguments and libvirt's XML.

use std::fmt::Write as _;
use std::path::PathBuf;

use vmconfig::command_line::shell::join;
use vmconfig::libvirt::emit_interface;
use vmconfig::qemu::{Capabilities, Interface};
use vmconfig::{Accel, Nic, NicBackend};
use vswitch::PortConfig;

/// The text for all ports.
pub(super) fn text(ports: &[PortConfig]) -> String {
    let mut text = String::from(
        "QEMU needs shared memory, once a VM (SIZE is that of -m):\n  \
         -object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem\n\
         libvirt, in <domain>:\n  \
         <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\n",
    );
    for port in ports {
        let Some(socket) = port.socket() else {
            let _ = write!(
                text,
                "\nport {}\n  {}, to the host's network\n",
                port.name,
                port.end_text()
            );
            continue;
        };
        let path = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        let (nic, mtu) = (nic(port, path), port.policy.mtu.map(u32::from));
        let (qemu, libvirt) = (qemu(&port.name, &nic, mtu), emit_interface(&nic, mtu));
        let _ = write!(text, "\nport {}\n  {qemu}\n{libvirt}", port.name);
    }
    text
}

/// The NIC of a VM that is on the port's other end.
fn nic(port: &PortConfig, socket: PathBuf) -> Nic {
    let server = port.calls();
    let reconnect_s = Some(1).filter(|_| !server);
    Nic {
        mac: port.policy.mac.map(|mac| mac.to_string()),
        queues: Some(u32::from(port.queues)).filter(|queues| *queues > 1),
        ..Nic::new(NicBackend::VhostUser { socket, server, reconnect_s })
    }
}

fn qemu(name: &str, nic: &Nic, mtu: Option<u32>) -> String {
    let interface = Interface { id: id(name), mtu, ..Interface::of_nic(0, nic) };
    // A word that every QEMU knows which is used.
    let options = interface.options(Accel::Kvm, &Capabilities::oldest());
    let words: Vec<&str> = options.iter().flat_map(|(option, value)| [*option, value]).collect();
    join(&words)
}

/// What QEMU takes for an id: letters, digits, `-`, `.` and `_` behind a letter.
///
/// Source: QEMU `util/id.c`, `id_wellformed`.
fn id(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    let begin = if name.starts_with(|c: char| c.is_ascii_alphabetic()) { "" } else { "p" };
    format!("{begin}{}", name.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree_on_who_listens_and_on_queues() {
        let ports = [
            "/s/a&,sock.sock",
            "/s/b.sock,queues=4,server=off,mac=52:54:00:00:00:01,mtu=9000",
            "tap:t0",
            "/s/0 d.sock",
        ];
        let ports = ports.map(|text| {
            PortConfig::parse(text).unwrap_or_else(|_| PortConfig::at("/s/a&b,c.sock"))
        });
        let text = text(&ports);
        for part in [
            "path=/s/a&b,,c.sock,server=off,reconnect=1",
            "id=chr-a_b_c,",
            "id=chr-p0_d,",
            "-netdev vhost-user,id=p0_d,chardev=chr-p0_d",
            "path='/s/a&amp;b,c.sock' mode='client'",
            "-chardev socket,id=chr-b,path=/s/b.sock,server=on,wait=off",
            "-netdev vhost-user,id=b,chardev=chr-b,queues=4",
            "-device virtio-net-pci,netdev=b,mac=52:54:00:00:00:01,mq=on,vectors=10,host_mtu=9000",
            "<mtu size='9000'/>",
            "tap:t0, to the host's network",
            "<driver queues='4'/>",
            "<mac address='52:54:00:00:00:01'/>",
            "path='/s/b.sock' mode='server'/>",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
