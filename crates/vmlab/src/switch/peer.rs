//! What belongs to the other end of a port: QEMU's arguments and libvirt's XML.

use std::fmt::Write as _;

use report::escape;
use vswitch::{PortConfig, mac_text};

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
        let path = path.display().to_string();
        let _ =
            write!(text, "\nport {}\n  {}\n{}", port.name, qemu(port, &path), libvirt(port, &path));
    }
    text
}

/// QEMU takes a comma in a value if it stands there twice.
fn qemu(port: &PortConfig, path: &str) -> String {
    let path = path.replace(',', ",,");
    let end = if port.calls() { ",server=on,wait=off" } else { ",reconnect=1" };
    let (name, queues) = (&port.name, port.queues);
    let several = queues > 1;
    let netdev = if several { format!(",queues={queues}") } else { String::new() };
    let mut device = String::new();
    if several {
        let _ = write!(device, ",mq=on,vectors={}", 2 * queues + 2);
    }
    if let Some(mac) = port.policy.mac {
        let _ = write!(device, ",mac={}", mac_text(mac));
    }
    if let Some(mtu) = port.policy.mtu {
        let _ = write!(device, ",host_mtu={mtu}");
    }
    format!(
        "-chardev socket,id={name},path={path}{end} \
         -netdev vhost-user,id=net-{name},chardev={name}{netdev} \
         -device virtio-net-pci,netdev=net-{name}{device}"
    )
}

fn libvirt(port: &PortConfig, path: &str) -> String {
    let path = escape(path);
    let source = if port.calls() {
        format!("    <source type='unix' path='{path}' mode='server'/>\n")
    } else {
        format!(
            "    <source type='unix' path='{path}' mode='client'>\n      \
             <reconnect enabled='yes' timeout='1'/>\n    </source>\n"
        )
    };
    let mtu = port.policy.mtu.map_or(String::new(), |mtu| format!("    <mtu size='{mtu}'/>\n"));
    let mac = port
        .policy
        .mac
        .map_or(String::new(), |mac| format!("    <mac address='{}'/>\n", mac_text(mac)));
    let queues = if port.queues > 1 {
        format!("    <driver queues='{}'/>\n", port.queues)
    } else {
        String::new()
    };
    format!(
        "  <interface type='vhostuser'>\n{mac}{source}    <model type='virtio'/>\n{queues}{mtu}  \
         </interface>\n"
    )
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
        ];
        let ports = ports.map(|text| {
            PortConfig::parse(text).unwrap_or_else(|_| PortConfig::at("/s/a&b,c.sock"))
        });
        let text = text(&ports);
        for part in [
            "path=/s/a&b,,c.sock,reconnect=1",
            "path='/s/a&amp;b,c.sock' mode='client'",
            "-chardev socket,id=b,path=/s/b.sock,server=on,wait=off",
            "-netdev vhost-user,id=net-b,chardev=b,queues=4",
            "mq=on,vectors=10,mac=52:54:00:00:00:01,host_mtu=9000",
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
