use super::*;

/// A pcap file: its header and its frames, each with seconds and parts of one, of which so many bytes were not kept.
pub fn pcap(magic: u32, link: u32, frames: &[(u32, u32, &[u8])], not_kept: u32) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(magic.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(65_535u32.to_le_bytes());
    file.extend(link.to_le_bytes());
    for (seconds, parts, bytes) in frames {
        file.extend(seconds.to_le_bytes());
        file.extend(parts.to_le_bytes());
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend((bytes.len() as u32 + not_kept).to_le_bytes());
        file.extend(*bytes);
    }
    file
}

/// A pcapng block.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat())
}

fn interface(link: u16, resolution: u8) -> Vec<u8> {
    let option = [9, 0, 1, 0, resolution, 0, 0, 0, 0, 0, 0, 0];
    block(1, &[&link.to_le_bytes()[..], &[0; 2], &[0; 4], &option].concat())
}

fn packet(interface: u32, ticks: u64, bytes: [u8; 4]) -> Vec<u8> {
    let words = [interface, (ticks >> 32) as u32, ticks as u32, 4, 60];
    block(6, &[&words.map(u32::to_le_bytes).concat()[..], &bytes].concat())
}

/// Times, interfaces, bytes and lengths of the frames, and the number of interfaces.
type Frames = (Vec<(u64, u32, Vec<u8>, usize)>, u32);

fn frames(file: &[u8]) -> Result<Frames> {
    let mut found = Vec::new();
    let interfaces = read_from(file, &mut |frame: Captured<'_>| {
        found.push((frame.at_ns, frame.interface, frame.bytes.to_vec(), frame.length));
        Ok(())
    })?;
    Ok((found, interfaces))
}

fn error(file: &[u8]) -> String {
    format!("{:#}", frames(file).unwrap_err())
}

#[test]
fn pcap_counts_in_micro_or_nanoseconds() {
    let file = |magic| pcap(magic, 1, &[(1, 500, b"abc"), (2, 0, b"d")], 2);
    let (found, interfaces) = frames(&file(0xa1b2_c3d4)).unwrap();
    let first = (1_000_500_000, 0, b"abc".to_vec(), 5);
    assert_eq!((&found[0], found[1].0, interfaces), (&first, 2_000_000_000, 1));
    assert_eq!(frames(&file(0xa1b2_3c4d)).unwrap().0[0].0, 1_000_000_500);
}

#[test]
fn pcapng_has_a_clock_for_each_interface() {
    let parts = [
        section(),
        interface(1, 9),
        interface(1, 0x80 | 10),
        packet(0, 5_000_000_007, *b"abcd"),
        packet(1, 6 * 1024 + 512, *b"efgh"),
    ];
    let (found, interfaces) = frames(&parts.concat()).unwrap();
    assert_eq!(found[0], (5_000_000_007, 0, b"abcd".to_vec(), 60));
    assert_eq!((found[1].0, found[1].1, interfaces), (6_500_000_000, 1, 2));
    let again = [parts.concat(), section(), interface(1, 6), packet(0, 7, *b"ijkl")].concat();
    let (found, interfaces) = frames(&again).unwrap();
    assert_eq!((found[2].0, found[2].1, interfaces), (7_000, 2, 3), "a section has interfaces of its own");
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    assert_eq!(error(b""), "the file is empty");
    assert_eq!(error(&[7; 100]), "the file is neither pcap nor pcapng");
    let whole = pcap(0xa1b2_c3d4, 1, &[(1, 0, b"abc"), (2, 0, b"def")], 2);
    let cut = error(&whole[..whole.len() - 1]);
    assert_eq!(cut, "the file ends in the middle of a block: it was cut short, behind 1 whole frames");
    let wireless = "frames of link type 105: only Ethernet (1) can be read";
    assert_eq!(error(&pcap(0xa1b2_c3d4, 105, &[], 2)), wireless);
    assert_eq!(error(&[section(), interface(105, 6)].concat()), wireless);
    let unknown = [section(), packet(3, 1, *b"abcd")].concat();
    assert_eq!(error(&unknown), "frame 1 names an interface that the file does not describe");
    assert!(error(&[section(), interface(1, 100)].concat()).contains("resolution 100"));
    let simple = [section(), interface(1, 6), block(3, &[4, 0, 0, 0, 1, 2, 3, 4])].concat();
    assert!(error(&simple).contains("has no time"));
}

#[test]
fn a_missing_file_is_named() {
    let error = read(Path::new("/nonexistent/a.pcap"), |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/a.pcap"), "{error}");
}

proptest::proptest! {
    #[test]
    fn nothing_panics(mut bytes in proptest::collection::vec(0u8..=255, 0..400), at: usize, is_pcap: bool) {
        let mut file = if is_pcap { pcap(0xa1b2_c3d4, 1, &[(1, 0, &bytes)], 2) } else { [section(), interface(1, 6)].concat() };
        let at = at % file.len();
        file[at] ^= 1;
        file.append(&mut bytes);
        let _ = frames(&file);
    }
}
