//! Migration streams, in pieces whose length the first byte picks: any bytes are a state or
//! one error with a place in them, and what is kept of a stream is the same state.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmstate::{MachineState, MigrationStream, Skim, StreamError, compare, patches};

fn skim(bytes: &[u8], piece: usize) -> Result<MigrationStream, StreamError> {
    let mut skim = Skim::new();
    for piece in bytes.chunks(piece) {
        skim.push(piece)?;
    }
    skim.finish()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let piece = 1 + 16 * usize::from(*first);
    let read = skim(bytes, piece);
    assert_eq!(read.as_ref().err(), skim(bytes, usize::MAX).as_ref().err());
    let read = read.and_then(|stream| {
        let kept = stream.bytes().to_vec();
        Ok((MachineState::read(stream)?, kept))
    });
    match read {
        Ok((state, kept)) => {
            let again =
                skim(&kept, piece).and_then(MachineState::read).expect("what is kept is one");
            assert!(compare(&state, &again, |_| true).is_empty());
            let facts = state.facts(|_| true);
            for device in &facts.devices {
                for field in &device.fields {
                    assert!(field.at + field.size as u64 <= bytes.len() as u64);
                }
            }
            if let Some(device) = facts.devices.iter().find(|device| device.mac.is_some()) {
                let set = format!("{}#{}.mac=52:54:00:12:34:56", device.name, device.instance);
                for patch in patches(&state, &[set]).unwrap_or_default() {
                    assert!(patch.at + patch.bytes.len() as u64 <= bytes.len() as u64);
                    assert_eq!(patch.bytes.len(), patch.before.len());
                }
            }
        }
        Err(error) => assert!(error.at <= bytes.len() as u64, "{error}"),
    }
});
