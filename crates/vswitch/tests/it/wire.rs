//! Single frames through a frontend's rings: what a test wants to send and see byte by
//! byte.

use vswitch::frontend::Frontend;

use crate::lab::Lab;

/// Bytes of the Virtio header.
pub(crate) const HEADER: usize = 12;

/// Gives a frontend's receive ring all its buffers.
pub(crate) fn fill(frontend: &mut Frontend) {
    let ring = &mut frontend.pairs()[0].receive;
    while let Some(slot) = ring.take_free() {
        ring.post(slot, 0);
    }
    ring.publish();
}

/// Sends a frame behind this header.
pub(crate) fn send(frontend: &mut Frontend, header: [u8; HEADER], frame: &[u8]) {
    let ring = &mut frontend.pairs()[0].transmit;
    let slot = suite::until("a free slot", || {
        while ring.take_used().is_some() {}
        ring.take_free()
    });
    let bytes = [&header, frame].concat();
    assert!(bytes.len() <= ring.buffer(slot).len());
    ring.buffer(slot).write(&bytes);
    ring.post(slot, bytes.len() as u32);
    ring.publish();
    ring.kick();
}

/// The next frame that arrives, with its header.
pub(crate) fn receive(frontend: &mut Frontend, what: &str) -> ([u8; HEADER], Vec<u8>) {
    suite::until(what, || try_receive(frontend))
}

/// A frame that has arrived, if there is one.
pub(crate) fn try_receive(frontend: &mut Frontend) -> Option<([u8; HEADER], Vec<u8>)> {
    let ring = &mut frontend.pairs()[0].receive;
    let (slot, bytes) = ring.take_used()?;
    let mut all = vec![0; bytes as usize];
    ring.buffer(slot).bytes().copy_out(&mut all);
    ring.post(slot, 0);
    ring.publish();
    Some((*all.first_chunk().unwrap(), all[HEADER..].to_vec()))
}

/// The address of the station behind a port.
pub(crate) fn mac(port: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, port]
}

/// An Ethernet frame of `length` bytes.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    let mut filler = 0..;
    frame.resize_with(length, || filler.next().unwrap_or(0) as u8);
    frame
}

/// Sends a plain frame.
pub(crate) fn send_plain(frontend: &mut Frontend, frame: &[u8]) {
    send(frontend, [0; HEADER], frame);
}

/// Drops of a port for a reason.
pub(crate) fn drops(lab: &Lab, port: usize, reason: &str) -> u64 {
    lab.port(port).counts.drops.get(reason).copied().unwrap_or(0)
}
