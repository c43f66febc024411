//! Packets of TCP and UDP over both networks, and their checksums, computed here by the
//! letter of RFC 1071, RFC 768, RFC 9293 and RFC 8200.

use crate::wire::HEADER;

/// What a packet is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) four: bool,
    pub(crate) udp: bool,
    pub(crate) ports: [u16; 2],
    /// The last byte of each address.
    pub(crate) hosts: [u8; 2],
}

/// Where in a frame without tags things begin.
pub(crate) struct Headers {
    pub(crate) transport: usize,
    pub(crate) data: usize,
}

impl Packet {
    pub(crate) const PLAIN: Self =
        Self { four: true, udp: true, ports: [40_000, 443], hosts: [1, 2] };

    /// Each kind.
    pub(crate) fn all() -> [Self; 4] {
        [(true, true), (true, false), (false, true), (false, false)].map(|(four, udp)| Self {
            four,
            udp,
            ..Self::PLAIN
        })
    }

    pub(crate) fn headers(&self) -> Headers {
        let transport = 14 + if self.four { 20 } else { 40 };
        Headers { transport, data: transport + if self.udp { 8 } else { 20 } }
    }

    fn protocol(&self) -> u8 {
        if self.udp { 17 } else { 6 }
    }

    /// In a checksum's place in its header.
    fn offset(&self) -> u16 {
        if self.udp { 6 } else { 16 }
    }

    /// A frame with `bytes` of payload, whose checksum is left to the card: the sum of the
    /// pseudo header stands there.
    pub(crate) fn frame(&self, to: [u8; 6], from: [u8; 6], bytes: usize) -> Vec<u8> {
        let transport = bytes + if self.udp { 8 } else { 20 };
        let mut frame = [to, from].concat();
        let [source, destination] = self.hosts;
        if self.four {
            let length = (20 + transport) as u16;
            let [high, low] = length.to_be_bytes();
            frame.extend([8, 0, 0x45, 0, high, low, 0x12, 0x34, 0, 0, 64, self.protocol(), 0, 0]);
            frame.extend([10, 0, 0, source, 10, 0, 0, destination]);
            let sum = !folded(sum(&frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            let [high, low] = (transport as u16).to_be_bytes();
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, high, low, self.protocol(), 64]);
            for host in [source, destination] {
                frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            }
        }
        let begin = frame.len();
        frame.extend(self.ports.iter().flat_map(|port| port.to_be_bytes()));
        if self.udp {
            frame.extend((transport as u16).to_be_bytes());
            frame.extend([0, 0]);
        } else {
            frame.extend([0, 0, 0x10, 0, 0, 0, 0, 1, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0]);
        }
        frame.extend((0..bytes).map(|number| (number * 7 + number / 251) as u8));
        let at = begin + usize::from(self.offset());
        let pseudo = folded(self.pseudo(&frame, transport));
        frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame
    }

    /// The sum of the pseudo header of a frame without tags.
    fn pseudo(&self, frame: &[u8], transport: usize) -> u64 {
        let addresses = if self.four { &frame[26..34] } else { &frame[22..54] };
        sum(addresses) + u64::from(self.protocol()) + transport as u64
    }
}

/// The header of a frame of `packet` with so many more bytes before the network's, whose
/// checksum is left to the card and, if a size is given, whose segments are.
pub(crate) fn offload_header(packet: &Packet, more: u16, size: Option<u16>) -> [u8; HEADER] {
    let Headers { transport, data } = packet.headers();
    let mut header = [0; HEADER];
    header[0] = 1;
    header[6..8].copy_from_slice(&(transport as u16 + more).to_le_bytes());
    header[8..10].copy_from_slice(&packet.offset().to_le_bytes());
    if let Some(size) = size {
        header[1] = match (packet.udp, packet.four) {
            (true, _) => 5,
            (false, true) => 1,
            (false, false) => 4,
        };
        header[2..4].copy_from_slice(&(data as u16 + more).to_le_bytes());
        header[4..6].copy_from_slice(&size.to_le_bytes());
    }
    header
}

/// True if the checksums of a frame of `packet`'s kind without tags are right, and its
/// lengths are.
pub(crate) fn is_summed(packet: &Packet, frame: &[u8]) -> bool {
    let transport = packet.headers().transport;
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let network = if packet.four {
        folded(sum(&frame[14..34])) == 0xffff && word(16) == frame.len() - 14
    } else {
        word(18) == frame.len() - 54
    };
    let bytes = frame.len() - transport;
    let whole = packet.pseudo(frame, bytes) + sum(&frame[transport..]);
    network && folded(whole) == 0xffff && (!packet.udp || word(transport + 4) == bytes)
}

fn sum(bytes: &[u8]) -> u64 {
    let word = |word: &[u8]| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
