//! What belongs to the other end of a port: QEMU's arguments and libvirt's XML.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use vmconfig::command_line::shell::join;
use vmconfig::libvirt::emit_interface;
use vmconfig::qemu::{Capabilities, Interface};
use vmconfig::{Accel, Nic, NicBackend};
use vswitch::PortConfig;

/// The text for all ports, beside `others` whose VMs have addresses already.
pub(super) fn text(ports: &[PortConfig], others: &[PathBuf]) -> String {
    let mut taken: BTreeSet<String> = ports.iter().filter_map(given_mac).collect();
    for socket in others {
        taken.insert(own_mac(socket, &taken));
    }
    let mut text = String::new();
    if ports.iter().any(|port| port.socket().is_some()) {
        text += "QEMU needs shared memory, once a VM (SIZE is that of -m):\n  \
         -object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem\n\
         libvirt, in <domain>:\n  \
         <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\n";
    }
    for port in ports {
        let Some(socket) = port.socket() else {
            let _ = write!(
                text,
                "{}port {}\n  {}, to the host's network\n",
                if text.is_empty() { "" } else { "\n" },
                port.name,
                port.end_text()
            );
            continue;
        };
        let path = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
        let mac = given_mac(port).unwrap_or_else(|| own_mac(&path, &taken));
        taken.insert(mac.clone());
        let nic = nic(port, path, mac);
        let (qemu, libvirt) = (qemu(&port.name, &nic), emit_interface(&nic));
        let _ = write!(text, "\nport {}\n  {qemu}\n{libvirt}", port.name);
    }
    text
}

/// The only address that the port's VM may have, if one is said.
fn given_mac(port: &PortConfig) -> Option<String> {
    port.policy.mac.map(|mac| mac.to_string())
}

/// An address for the VM at this socket: the same at each start, and none of `taken`. QEMU
/// gives the first NIC of each of its VMs one and the same.
fn own_mac(socket: &Path, taken: &BTreeSet<String>) -> String {
    let hash = blake3::hash(socket.as_os_str().as_encoded_bytes());
    let [a, b, c, ..] = hash.as_bytes();
    let mut last = u32::from_be_bytes([0, *a, *b, *c]);
    loop {
        let [_, a, b, c] = last.to_be_bytes();
        let mac = format!("52:54:00:{a:02x}:{b:02x}:{c:02x}");
        if !taken.contains(&mac) {
            return mac;
        }
        last = last.wrapping_add(1);
    }
}

/// The NIC of a VM that is on the port's other end.
fn nic(port: &PortConfig, socket: PathBuf, mac: String) -> Nic {
    let server = port.calls();
    let reconnect_s = Some(1).filter(|_| !server);
    Nic {
        mac: Some(mac),
        queues: Some(u32::from(port.queues)).filter(|queues| *queues > 1),
        mtu: port.policy.mtu.map(u32::from),
        ..Nic::new(NicBackend::VhostUser { socket, server, reconnect_s })
    }
}

fn qemu(name: &str, nic: &Nic) -> String {
    let interface = Interface { id: id(name), ..Interface::of_nic(0, nic) };
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
        let text = text(&ports, &[]);
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

    #[test]
    fn the_documentation_shows_what_is_printed() {
        let page = include_str!("../../../../docs/switch.md");
        let shown = text(&[PortConfig::at("/run/vm/a.sock")], &[]);
        let page: Vec<&str> = page.lines().map(str::trim).collect();
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        assert!(lines.iter().any(|line| line.starts_with("-chardev ")), "{shown}");
        for line in lines {
            assert!(page.contains(&line), "{line:?} is not in docs/switch.md");
        }
    }

    #[test]
    fn each_vm_gets_an_address_of_its_own_and_keeps_it() {
        let macs = |text: &str| -> Vec<String> {
            let parts = text.split("mac=").skip(1);
            parts.map(|part| part.chars().take(17).collect()).collect()
        };
        let named = |name: usize| PortConfig::at(format!("/s/{name}.sock"));
        let ports: Vec<PortConfig> = (0..64).map(named).collect();
        let whole = text(&ports, &[]);
        let own = macs(&whole);
        assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), 64, "{whole}");
        for (mac, port) in own.iter().zip(&ports) {
            assert!(mac.starts_with("52:54:00:"), "{mac}");
            let alone = text(std::slice::from_ref(port), &[]);
            assert_eq!(macs(&alone), [mac.as_str()]);
            assert!(alone.contains(&format!("<mac address='{mac}'/>")), "{alone}");
        }
        // Two that would have the same one, and a port that has it by hand.
        let mut by_hand = PortConfig::at("/s/x.sock");
        by_hand = PortConfig {
            policy: PortConfig::parse(&format!("x,mac={}", own[0])).unwrap().policy,
            ..by_hand
        };
        let both = macs(&text(&[ports[0].clone(), by_hand], &[]));
        assert_eq!(both[1], own[0]);
        assert_ne!(both[0], own[0]);
        let beside = macs(&text(&ports[..1], &[PathBuf::from("/s/0.sock")]));
        assert_ne!(beside[0], own[0]);
    }
}
