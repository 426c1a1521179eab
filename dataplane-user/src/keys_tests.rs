//! Tests of [`super`].

use super::*;
use crate::maps::tables::tests::tables;
use std::os::unix::fs::PermissionsExt as _;

fn line(number: u8, digit: char) -> String {
    format!("{number} {}\n", digit.to_string().repeat(64))
}

fn numbers(text: &str) -> Vec<u8> {
    parse(text).unwrap().iter().map(Secret::number).collect()
}

fn complaint(text: &str) -> String {
    format!("{:#}", parse(text).unwrap_err())
}

#[test]
fn a_file_holds_one_or_two_keys_the_first_of_which_signs() {
    assert_eq!(numbers(&line(1, 'a')), [1]);
    assert_eq!(numbers(&format!("# fresh\n\n{}  {}", line(15, 'F'), line(2, '0'))), [15, 2]);
    assert_eq!(numbers(&line(3, 'b').replace('\n', " # in use\n")), [3]);
    let rows = rows(&parse(&(line(15, 'F') + &line(2, '0'))).unwrap(), "c").unwrap();
    assert_eq!(rows[0].signing, 15);
    assert_eq!((1..16).filter(|at| rows[*at].valid != 0).collect::<Vec<_>>(), [2, 15]);
}

#[test]
fn every_mistake_is_named_with_its_line() {
    for (text, said) in [
        (String::new(), "no key"),
        ("# nothing\n".to_owned(), "no key"),
        (line(1, '1') + &line(2, '2') + &line(3, '3'), "3 keys"),
        (line(1, '1') + &line(1, '2'), "line 2: there is a key 1 before"),
        (line(0, '1'), "line 1: the number of a key is 1 to 15"),
        (line(16, '1'), "1 to 15"),
        ("one 00\n".to_owned(), "1 to 15"),
        ("1\n".to_owned(), "number and 64 hexadecimal digits"),
        ("1 00\n".to_owned(), "64 hexadecimal digits, not these 2"),
        (line(1, 'g'), "64 hexadecimal digits"),
        (line(1, 'ä'), "64 hexadecimal digits"),
    ] {
        assert!(complaint(&text).contains(said), "{text:?}: {}", complaint(&text));
    }
    assert!(!complaint(&(line(1, '7') + "2 77")).contains("7777"), "no error shows a secret");
}

#[test]
fn keys_of_purposes_clusters_and_secrets_differ() {
    let [a, b] = [Secret::new(1, [1; 32]), Secret::new(1, [2; 32])];
    let keys = [
        a.derive::<16>("header", "x").unwrap(),
        a.derive("body", "x").unwrap(),
        a.derive("header", "y").unwrap(),
        a.derive("headerx", "").unwrap(),
        b.derive("header", "x").unwrap(),
    ];
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "{at}");
    }
    assert_eq!(a.derive::<16>("header", "x").unwrap(), keys[0]);
    assert!(a.derive::<8161>("header", "x").is_err());
    let row = a.row("x").unwrap();
    assert_ne!(row.header, row.body);
    assert_eq!(format!("{a:?}"), "key 1");
}

#[test]
fn a_fresh_line_is_a_key_file() {
    let (first, second) = (fresh_line(4).unwrap(), fresh_line(4).unwrap());
    assert_ne!(first, second);
    assert_eq!(numbers(&first), [4]);
    assert!(fresh_line(0).is_err() && fresh_line(16).is_err());
}

/// A key file of this test's own, gone when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("dataplane-keys-{name}-{}", std::process::id())))
    }

    /// Replaces the file, as an editor does.
    fn put(&self, text: &str, mode: u32) {
        let fresh = self.0.with_extension("new");
        fs::write(&fresh, text).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&fresh, &self.0).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let scratch = Scratch::new("mode");
    for mode in [0o640, 0o604, 0o620, 0o601] {
        scratch.put(&line(1, '1'), mode);
        let error = format!("{:#}", read(&scratch.0).unwrap_err());
        assert!(error.contains(&format!("mode is {mode:03o}")) && error.contains("chmod 600"), "{error}");
    }
    for mode in [0o600, 0o400] {
        scratch.put(&line(1, '1'), mode);
        assert!(read(&scratch.0).is_ok());
    }
    assert!(format!("{:#}", read(Path::new("/nonexistent")).unwrap_err()).contains("dataplane key new"));
    assert!(format!("{:#}", read(Path::new("/")).unwrap_err()).contains("no regular file"));
}

#[test]
fn a_running_node_follows_its_file_and_keeps_its_keys_when_that_is_bad() {
    let scratch = Scratch::new("follow");
    let tables = Arc::new(tables(1, 1, 1, 1));
    scratch.put(&line(1, '1'), 0o600);
    let mut follower = Follower::start(&scratch.0, "c", Arc::clone(&tables)).unwrap();
    let word = |number, offset| tables.keys.row(number).word(offset).load(Relaxed);
    let state = || {
        let live: Vec<_> = (1..16).filter(|number| word(*number, offset_of!(KeyRow, valid)) != 0).collect();
        (word(0, offset_of!(KeyRow, signing)), live)
    };
    assert_eq!(state(), (1, vec![1]));
    assert!(follower.look().is_none(), "nothing has changed");
    scratch.put(&(line(1, '1') + &line(2, '2')), 0o600);
    assert_eq!(follower.look().unwrap().unwrap().len(), 2);
    assert_eq!(state(), (1, vec![1, 2]));
    for (text, mode) in [("nonsense", 0o600), ("", 0o600), (line(3, '3').as_str(), 0o644)] {
        scratch.put(text, mode);
        assert!(follower.look().unwrap().is_err());
        assert_eq!(state(), (1, vec![1, 2]), "{text:?}");
        assert!(follower.look().is_none(), "told once");
    }
    fs::remove_file(&scratch.0).unwrap();
    assert!(follower.look().unwrap().is_err());
    scratch.put(&(line(2, '2') + &line(1, '1')), 0o600);
    assert!(follower.look().unwrap().is_ok());
    assert_eq!(state(), (2, vec![1, 2]));
    scratch.put(&line(2, '2'), 0o600);
    assert!(follower.look().unwrap().is_ok());
    assert_eq!(state(), (2, vec![2]));
    assert_eq!(word(1, offset_of!(KeyRow, header)), 0, "no old key stays in memory");
}
