use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use super::*;

/// A kernel that answers as Linux 6.12 was seen to answer for a veth.
#[derive(Default)]
struct Fake {
    state: Mutex<RefCell<State>>,
}

#[derive(Default)]
struct State {
    log: Vec<String>,
    files: BTreeMap<String, String>,
    is_down: bool,
}

impl Fake {
    fn log(&self) -> Vec<String> {
        self.state.lock().unwrap().borrow().log.clone()
    }

    fn answer(state: &mut State, file: &str, line: &str) -> io::Result<String> {
        let invalid = || io::Error::from_raw_os_error(22);
        let (word, value) = line.split_once(' ').unwrap_or((line, ""));
        Ok(match word {
            "add_device" if value.starts_with("nosuch") => return Err(io::Error::from_raw_os_error(19)),
            "add_device" => {
                state.files.insert(value.to_owned(), String::new());
                format!("OK: {line}")
            }
            "rem_device_all" => "OK: rem_device_all".to_owned(),
            "clone_skb" | "burst" => return Err(io::Error::from_raw_os_error(files::ENOTSUPP)),
            "flag" if value == "UDPDST_RND" || value == "QUEUE_MAP_CPU" => "OK: flags=0x1".to_owned(),
            "flag" => format!("Flag -:{value}:- unknown"),
            "dst_mac" if !value.contains(':') => return Err(invalid()),
            "count" | "pkt_size" | "delay" | "dst_mac" | "dst_min" | "dst_max" | "udp_dst_min" | "udp_dst_max" => {
                format!("OK: {word}={value}")
            }
            _ => return Err(invalid()),
        })
        .inspect(|text| {
            state.files.insert(file.to_owned(), format!("Params: x\nResult: {text}\n"));
        })
    }
}

impl Files for &Fake {
    fn write(&self, file: &str, line: &str) -> io::Result<()> {
        let guard = self.state.lock().unwrap();
        let mut state = guard.borrow_mut();
        state.log.push(format!("{file} {line}"));
        if file != CONTROL {
            return Fake::answer(&mut state, file, line).map(drop);
        }
        if line == "start" {
            let sent = if state.is_down { 0 } else { 20_000 };
            let text = format!(
                "Result: OK: 114507(c114376+d130) usec, {sent} (60byte,0frags)\n  174661pps 83Mb/sec (83837280bps) errors: 3\n"
            );
            for (name, content) in &mut state.files {
                if name.contains('@') {
                    content.clone_from(&text);
                }
            }
        }
        Ok(())
    }

    fn read(&self, file: &str) -> io::Result<String> {
        let guard = self.state.lock().unwrap();
        let state = guard.borrow();
        state.files.get(file).cloned().ok_or_else(|| io::Error::from_raw_os_error(2))
    }
}

fn plain() -> Settings {
    Settings {
        interface: "g1".to_owned(),
        size: 60,
        destination: Ipv4Addr::new(198, 18, 1, 1),
        mac: "02:00:00:00:01:01".to_owned(),
        ports: "3322".parse().unwrap(),
        threads: 1,
        first: 0,
        clone: 0,
        count: 20_000,
        burst: 0,
        delay_ns: 0,
        verbose: false,
    }
}

fn refusal(settings: Settings) -> String {
    format!("{:#}", Driver::configure(&Fake::default(), settings).err().unwrap())
}

#[test]
fn a_run_is_configured_started_read_and_reset() {
    let fake = Fake::default();
    let driver = Driver::configure(&fake, Settings { threads: 2, ..plain() }).unwrap();
    let outcomes = driver.run(&Interrupt::never()).unwrap();
    let expected = Outcome { elapsed_us: 114_507, packets: 20_000, bytes: 60, errors: 3 };
    assert_eq!(outcomes, [expected; 2]);
    drop(driver);
    let log = fake.log();
    assert_eq!(log.first().map(String::as_str), Some("pgctrl reset"));
    assert_eq!(log.last().map(String::as_str), Some("pgctrl reset"));
    for line in ["kpktgend_1 add_device g1@1", "g1@0 count 20000", "g1@1 udp_dst_max 3322", "pgctrl start"] {
        assert!(log.iter().any(|entry| entry == line), "{line} in {log:?}");
    }
    assert!(!log.iter().any(|entry| entry.contains("clone_skb") || entry.contains("burst")));
}

#[test]
fn a_refusal_by_errno_and_one_by_text_are_both_noticed() {
    assert!(refusal(Settings { burst: 8, ..plain() }).contains("errno 524"));
    assert!(refusal(Settings { interface: "nosuch".to_owned(), ..plain() }).contains("add_device nosuch@0"));
    assert!(refusal(Settings { mac: "zz".to_owned(), ..plain() }).contains("dst_mac zz"));
    let fake = Fake::default();
    let driver = Driver::configure(&fake, plain()).unwrap();
    let error = driver.set("g1@0", "flag BOGUS").unwrap_err().to_string();
    assert!(error.contains("took `flag BOGUS` but says: Flag -:BOGUS:- unknown"), "{error}");
}

#[test]
fn nothing_sent_and_nothing_to_send_are_errors() {
    assert!(refusal(Settings { count: 0, ..plain() }).starts_with("-n 0"));
    let fake = Fake::default();
    fake.state.lock().unwrap().borrow_mut().is_down = true;
    let driver = Driver::configure(&fake, plain()).unwrap();
    assert!(driver.run(&Interrupt::never()).unwrap_err().to_string().contains("is the interface up?"));
}

#[test]
fn results_in_other_words_are_not_understood() {
    assert_eq!(Outcome::parse("Result: Idle"), None);
    assert_eq!(Outcome::parse(""), None);
    assert_eq!(result::last_result("Result: a\nResult: OK: b \n"), "OK: b");
}

#[test]
fn ports_are_one_or_a_range() {
    assert_eq!("9".parse::<Ports>(), Ok(Ports { first: 9, last: 9 }));
    assert_eq!("9-12".parse::<Ports>(), Ok(Ports { first: 9, last: 12 }));
    for wrong in ["", "12-9", "70000", "9-"] {
        assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
    }
}
