use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn options(line: &str) -> Result<Options, clap::Error> {
    Ok(Cli::try_parse_from(std::iter::once("vm").chain(line.split(' ')))?.options)
}

fn report(lines: &str) -> Report {
    let mut report = Report::default();
    lines.lines().for_each(|line| report.line(line));
    report
}

const PASSED: &str = "DATAPLANE-VM begin 6.12
DATAPLANE-VM phase xdp
     Running tests/xdp_a.rs (/t/release/deps/xdp_a-0f)
test b ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.5s
";

#[test]
fn exactly_one_job_is_asked_for() {
    assert_eq!(options("--kernel 6.12 --test").unwrap().job(false), Job::Test(Choice::default()));
    assert_eq!(options("--kernel 6.12 --bench pktgen --nic igb").unwrap().job(true), Job::Bench);
    assert_eq!(options("--kernel 7.3 --shell").unwrap().job(true), Job::Shell);
    assert!(options("--list").is_ok());
    for wrong in [
        "--kernel 6.12",
        "--test",
        "--kernel 6.12 --test --shell",
        "--kernel 6.12 --shell --filter x",
        "--kernel 6.12 --test --all --filter x",
    ] {
        assert!(options(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_guest_succeeds_by_saying_so_after_tests_that_passed() {
    let good = report(&format!("{PASSED}DATAPLANE-VM end 0"));
    assert_eq!(good.results.total().passed, 1);
    assert_eq!(good.conclude(true), ExitCode::SUCCESS);
}

#[test]
fn silence_a_status_and_missing_tests_are_failures() {
    for lines in [
        "",
        "DATAPLANE-VM begin 6.12\nDATAPLANE-VM end 0",
        PASSED,
        &format!("{PASSED}DATAPLANE-VM end 1"),
        &format!("{PASSED}     Running tests/xdp_c.rs (/t/release/deps/xdp_c-0f)\nDATAPLANE-VM end 0"),
    ] {
        assert_eq!(report(lines).conclude(true), ExitCode::FAILURE, "{lines}");
    }
}

#[test]
fn a_benchmark_needs_no_test() {
    assert_eq!(report("DATAPLANE-VM begin 6.12\nDATAPLANE-VM end 0").conclude(false), ExitCode::SUCCESS);
    assert_eq!(report("DATAPLANE-VM begin 6.12\nDATAPLANE-VM end 3").conclude(false), ExitCode::FAILURE);
}

#[test]
fn the_guests_file_system_is_read_through_this_process() {
    let directory = std::env::temp_dir().join(format!("xtask-initrd-{}", std::process::id()));
    let mut image = Image::default();
    image.content("/init", 0o755, b"#!/vm/busybox sh\n".to_vec());
    let initrd = Initrd::write(&image, &directory).unwrap();
    assert!(fs::read(&initrd.path).unwrap().starts_with(b"070701"));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    fs::remove_dir(&directory).unwrap();
}
