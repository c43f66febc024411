//! CRC-32 as Ethernet and zip have it (IEEE 802.3), without a table: a record has
//! less than a hundred bytes.

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 }
        })
    });
    !crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_that_of_everybody_else() {
        for text in ["", "a", "123456789", "hello version=1 arch=x86_64"] {
            assert_eq!(super::crc32(text.as_bytes()), crc32fast::hash(text.as_bytes()), "{text}");
        }
    }
}
