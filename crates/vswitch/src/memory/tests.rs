//! Ranges, copies, alignment, and files that are made shorter. All but what needs a
//! file is made to run under Miri.

use std::sync::atomic::Ordering;

use rustix::fs::ftruncate;

use super::*;

const BASE: u64 = 0x10_0000;

fn region(size: u64) -> Region {
    Region::anonymous(size, BASE)
}

#[test]
fn only_whole_ranges_inside_one_region_are_given() {
    let mut memory = GuestMemory::new();
    memory.add(region(8192)).unwrap();
    assert!(memory.at(BASE, 8192).is_some());
    assert!(memory.at(BASE + 8191, 1).is_some());
    for (address, length) in [
        (BASE - 1, 1),
        (BASE, 8193),
        (BASE + 8191, 2),
        (BASE + 8192, 1),
        (0, 1),
        (u64::MAX, 1),
        (u64::MAX - 3, 8),
        (BASE + 1, usize::MAX),
    ] {
        assert!(memory.at(address, length).is_none(), "{address:#x} {length}");
    }
    // Nothing of no length is inside, too, up to the end.
    assert_eq!(memory.at(BASE + 8192, 0).unwrap().len(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "it maps no file")]
fn regions_that_wrap_overlap_or_outgrow_their_file_are_refused() {
    let (_, file) = Region::create(4096, BASE).unwrap();
    let good =
        RegionAddresses { guest_address: 0, size: 4096, user_address: 1 << 40, file_offset: 0 };
    for (bad, what) in [
        (RegionAddresses { size: 0, ..good }, "no range"),
        (RegionAddresses { guest_address: u64::MAX - 1, ..good }, "no range"),
        (RegionAddresses { user_address: u64::MAX - 4094, ..good }, "no range"),
        (RegionAddresses { file_offset: u64::MAX - 4000, ..good }, "no range"),
        (RegionAddresses { size: u64::MAX, guest_address: 0, user_address: 0, ..good }, "file"),
        (RegionAddresses { file_offset: 1, ..good }, "file"),
        (RegionAddresses { size: 4097, ..good }, "file"),
    ] {
        let error = Region::map(&file, bad).unwrap_err().to_string();
        assert!(error.contains(what), "{bad:?}: {error}");
    }
    let mut memory = GuestMemory::new();
    memory.add(Region::map(&file, good).unwrap()).unwrap();
    for other in [
        good,
        RegionAddresses { guest_address: 4095, user_address: 0, ..good },
        RegionAddresses { guest_address: 1 << 20, user_address: (1 << 40) + 8, ..good },
    ] {
        let error = memory.add(Region::map(&file, other).unwrap()).unwrap_err();
        assert!(matches!(error, MapError::Overlap { .. }), "{error}");
    }
    assert!(!memory.remove(RegionAddresses { size: 8, ..good }));
    assert!(memory.remove(good));
    assert!(memory.at(0, 1).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "it maps no file")]
fn a_part_of_a_file_that_begins_inside_a_page_is_mapped_there() {
    let (whole, file) = Region::create(8192, BASE).unwrap();
    whole.at(100, 5).unwrap().write(b"hello");
    let placement =
        RegionAddresses { guest_address: 0, size: 200, user_address: 0, file_offset: 100 };
    let part = Region::map(&file, placement).unwrap();
    let mut own = [0; 5];
    assert_eq!(part.at(0, 5).unwrap().bytes().read(&mut own), 5);
    assert_eq!(&own, b"hello");
    assert!(part.at(196, 5).is_none());
}

#[test]
fn bytes_are_copied_whole_at_every_length_and_offset() {
    let (from, to) = (region(8192), region(8192));
    let pattern: Vec<u8> = (0..2000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    from.at(0, 2000).unwrap().write(&pattern);
    // Interpreted, each takes its time.
    let short = if cfg!(miri) { 70 } else { 300 };
    for length in (0..short).chain([1000, 1517, 1999]) {
        for offset in [0, 1, 13] {
            let length = length.min(2000 - offset);
            let target = to.at(offset as u64 + 3, length + 1).unwrap();
            target.write(&vec![0xee; length + 1]);
            let source = from.at(offset as u64, length).unwrap().bytes();
            assert_eq!(source.copy_to(target), length);
            let mut own = vec![0; length + 1];
            target.bytes().copy_out(&mut own);
            assert_eq!(own[..length], pattern[offset..offset + length], "{length} at {offset}");
            assert_eq!(own[length], 0xee, "{length} at {offset}: one byte too many");
        }
    }
    // Within one guest, ranges may overlap.
    let source = from.at(0, 100).unwrap().bytes();
    source.copy_to(from.at(1, 100).unwrap());
    let mut own = [0; 100];
    from.at(1, 100).unwrap().bytes().read(&mut own);
    assert_eq!(own[..], pattern[..100]);
}

/// Over memory of exact bounds, beyond which Miri lets nobody read or write.
#[test]
fn spans_touch_their_own_bytes_alone() {
    let pattern: Vec<u8> = (0..400_u32).map(|i| (i * 13 + i / 256) as u8).collect();
    let lengths = (0..140).chain([255, 256, 257, 300]);
    let step = if cfg!(miri) { 5 } else { 1 };
    for length in lengths.step_by(step) {
        for offset in [0, 1, 7] {
            let mut room = vec![0xee_u8; length + 16];
            // SAFETY: `length` bytes behind `offset` are ours, and `room` lives until its
            // pointer is used no more.
            let target = unsafe { GuestBuffer::new(room.as_mut_ptr().add(offset), length) };
            let source = ByteRange::from(&pattern[offset..offset + length]);
            assert_eq!(source.copy_to(target), length);
            assert!(target.bytes().equals(&pattern[offset..offset + length]));
            let mut own = vec![0; length];
            assert_eq!(target.bytes().copy_out(&mut own), length);
            assert_eq!(target.bytes().read(&mut own), length);
            let mut short = [0; 128];
            let copied = target.bytes().copy_out_short(&mut short);
            assert_eq!(copied, if (16..=128).contains(&length) { length } else { 0 });
            assert_eq!(target.write_short(&short, copied), copied > 0);
            assert_eq!(target.bytes().head().is_some(), length >= 32);
            assert_eq!(target.bytes().words::<4>().is_some(), length >= 32);
            assert_eq!(target.write_head(&[7; 32]), length >= 32);
            assert_eq!(target.after(3).write(&own), length.saturating_sub(3));
            assert_eq!(target.first(5).len(), length.min(5));
            target.prefetch(2);
            target.bytes().prefetch(2);
            let inside = offset..offset + length;
            let untouched = room.iter().enumerate().filter(|(at, _)| !inside.contains(at));
            assert!(untouched.map(|(_, byte)| *byte).all(|byte| byte == 0xee), "{length} {offset}");
        }
    }
}

#[test]
fn heads_are_whole_or_none() {
    let region = region(4096);
    let own: Vec<u8> = (0..32).collect();
    region.at(5, 32).unwrap().write(&own);
    assert_eq!(region.at(5, 32).unwrap().bytes().head().unwrap()[..], own[..]);
    assert_eq!(region.at(5, 31).unwrap().bytes().head(), None);
    assert!(!region.at(0, 31).unwrap().write_head(&[0; 32]));
    let span = region.at(4090, 6).unwrap().bytes();
    assert_eq!((span.after(7).len(), span.after(2).len(), span.first(3).len()), (0, 4, 3));
}

#[test]
fn entries_lie_in_their_area() {
    let mut memory = GuestMemory::new();
    memory.add(region(4096)).unwrap();
    let area = Area::new(&memory, BASE + 64, 64, 16).unwrap();
    let used = Entries::used(area.clone(), 4, 7);
    assert_eq!(used.guest_address(), BASE + 68);
    used.store(6, [1, 2]);
    assert_eq!((used.load(6), area.load_u16(52, Ordering::Relaxed)), ([1, 2], 1));
    let heads = Entries::heads(area.clone(), 4, 30);
    heads.store(29, 0x1234);
    assert_eq!((heads.load(29), area.load_u16(62, Ordering::Relaxed)), (0x1234, 0x1234));
    let descriptors = Entries::descriptors(area.clone(), 4);
    descriptors.store_first(1, 5);
    descriptors.store_second(1, 6, Ordering::Release);
    assert_eq!(descriptors.load(1), [5, 6]);
    assert_eq!((area.load_u64(16, Ordering::Relaxed), descriptors.first_word(1)), (5, 5));
    assert_eq!(descriptors.second_word(1, Ordering::Acquire), 6);
    // Hints may point anywhere.
    descriptors.prefetch(usize::MAX);
    used.prefetch_write(1000);
    let outside: [&dyn Fn(); 5] = [
        &|| _ = descriptors.load(4),
        &|| _ = heads.load(30),
        &|| used.store(7, [0, 0]),
        &|| _ = Entries::descriptors(area.clone(), 5),
        &|| _ = Entries::used(area.clone(), 2, 1),
    ];
    for access in outside {
        let access = std::panic::AssertUnwindSafe(access);
        assert!(std::panic::catch_unwind(access).is_err(), "a mistake of ours is told");
    }
}

#[test]
fn areas_are_aligned_and_mapped() {
    let mut memory = GuestMemory::new();
    memory.add(region(4096)).unwrap();
    let area = Area::new(&memory, BASE + 64, 64, 16).unwrap();
    assert_eq!(area.guest_address(), BASE + 64);
    area.store_u16(2, 0x1234, Ordering::Release);
    assert_eq!(area.load_u16(2, Ordering::Acquire), 0x1234);
    area.store_u64(24, 3, Ordering::Release);
    area.set_bits(24, 8);
    assert_eq!(area.load_u64(24, Ordering::Acquire), 11);
    assert!(matches!(Area::new(&memory, BASE + 8, 64, 16), Err(AreaError::Misaligned { .. })));
    for (address, length) in [(BASE, 4097), (BASE - 16, 16), (u64::MAX - 15, 16)] {
        let error = Area::new(&memory, address, length, 16).unwrap_err();
        assert!(matches!(error, AreaError::Unmapped { .. }), "{error}");
    }
}

#[test]
#[should_panic(expected = "outside of the ring")]
fn an_area_ends_where_it_ends() {
    let mut memory = GuestMemory::new();
    memory.add(region(4096)).unwrap();
    let _ = Area::new(&memory, BASE, 64, 16).unwrap().load_u64(64, Ordering::Relaxed);
}

#[test]
#[should_panic(expected = "not aligned")]
fn an_area_is_used_as_it_is_aligned() {
    let mut memory = GuestMemory::new();
    memory.add(region(4096)).unwrap();
    let _ = Area::new(&memory, BASE + 2, 64, 2).unwrap().load_u64(4, Ordering::Relaxed);
}

#[test]
#[cfg_attr(miri, ignore = "it maps no file")]
fn a_file_made_shorter_loses_its_region_and_no_other() {
    survive_shrunk_files().unwrap();
    let other = region(8192);
    other.at(4096, 5).unwrap().write(b"whole");
    let (shrunk, file) = Region::create(64 * 4096, BASE).unwrap();
    shrunk.at(0, 4).unwrap().write(b"gone");
    let before = losses();
    ftruncate(&file, 0).unwrap();
    let mut own = [1; 4];
    shrunk.at(63 * 4096, 4).unwrap().bytes().read(&mut own);
    assert_eq!(own, [0; 4]);
    assert!(shrunk.is_lost());
    assert!(losses() > before);
    // It stays usable, and so does all else.
    shrunk.at(0, 4).unwrap().write(b"void");
    assert!(!other.is_lost());
    let mut own = [0; 5];
    other.at(4096, 5).unwrap().bytes().read(&mut own);
    assert_eq!(&own, b"whole");
}
