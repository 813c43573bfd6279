//! `tests/host/run` with an emulator that is played: what it makes of a host that fails, and what it tells of it.
//!
//! Room: `tests`. Needs no root: nothing is built and nothing is emulated.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// What takes the place of lib.sh's functions: no root, no package, no payload, no disk.
const LIB: &str = r#"
here=$PLAYED top=$PLAYED logs=$PLAYED/logs
say() { printf '%s\n' "$*"; }
need_root() { :; }
payload() { mkdir -p "$1"; }
disk() { : >"$2"; }
made_image() { printf '%s\n' "$PLAYED"; }
fresh() { : >"$2"; }
emulator() { shift 3; exec "$PLAYED/emulator" "$*"; }
"#;

/// Boots, has one test pass at the first boot, then does with the second test what the case says, for as many boots as it says.
const EMULATOR: &str = r#"#!/usr/bin/env bash
console=$(sed -n 's/.*-serial file:\([^ ]*\).*/\1/p' <<<"$1")
out=$(sed -n 's/.*path=\([^ ]*\).*/\1/p' <<<"$1").out
sed -n 's/.*test-host.boot=\([a-z]*\).*/\1/p' <<<"$1" >>"$PLAYED/boots"
boots=$(wc -l <"$PLAYED/boots")
tell() { printf '%s\n' "$1" >"$out"; }
tell up
[ "$boots" -gt 1 ] || { tell 'begin group::first'; tell 'ok group::first 1'; }
tell 'begin group::second'
if [ "$boots" -le "$TIMES" ]; then
	case $CASE in
	hung) echo '[ 9.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [worker:1034]' >>"$console"; exec sleep 60 ;;
	panic) echo '[ 9.1] Kernel panic - not syncing: stack end' >>"$console"; exit 0 ;;
	silent) exec sleep 60 ;;
	cut) tell cut; exec sleep 60 ;;
	gone) exit 0 ;;
	halves) printf 'ok group::sec' >"$out"; sleep 2; printf 'ond 2\r\nbeat\r' >"$out"; sleep 2; tell ''; tell 'end success 0'; exec sleep 60 ;;
	esac
fi
tell 'ok group::second 2'
tell 'end success 0'
exec sleep 60
"#;

/// What a run says whose emulator does `case` for `times` boots; its success, and the reasons of its boots.
fn run(case: &str, times: u32) -> (String, bool, String) {
    let dir = std::env::temp_dir().join(format!("bcd-played-{}-{case}-{times}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("packaging/dev")).expect("make a directory");
    fs::write(dir.join("lib.sh"), LIB).expect("write");
    for (file, text) in [("emulator", EMULATOR), ("packaging/dev/install", "#!/bin/sh\n")] {
        fs::write(dir.join(file), text).expect("write");
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(0o755)).expect("make it a program");
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("host/run");
    fs::copy(script, dir.join("run")).expect("copy tests/host/run");
    let output = Command::new("bash")
        .arg(dir.join("run"))
        .env("PLAYED", &dir)
        .env("CASE", case)
        .env("TIMES", times.to_string())
        .env("BCD_TEST_HOST_SILENCE", "6")
        .output()
        .expect("run it");
    let boots = fs::read_to_string(dir.join("boots")).expect("it booted");
    let _ = fs::remove_dir_all(&dir);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    (told, output.status.success(), boots.lines().collect::<Vec<_>>().join(" "))
}

/// How many lines begin so.
fn lines(told: &str, begin: &str) -> usize {
    told.lines().filter(|line| line.starts_with(begin)).count()
}

#[test]
fn a_hung_a_broken_and_a_silent_host_are_told_and_their_test_is_repeated() {
    for (case, why) in
        [("hung", "soft lockup - CPU#1"), ("panic", "Kernel panic"), ("silent", "nothing was heard of it")]
    {
        let (told, success, boots) = run(case, 1);
        assert!(success, "{case}:\n{told}");
        assert_eq!(boots, "first repeat", "{case}:\n{told}");
        assert_eq!(lines(&told, "repeated group::second: "), 1, "{case}:\n{told}");
        assert!(told.contains(why), "{case}:\n{told}");
        assert!(told.ends_with("2 passed, 0 failed, 0 skipped\n"), "{case}:\n{told}");
    }
}

#[test]
fn a_host_that_fails_a_third_time_fails_the_run() {
    let (told, success, boots) = run("hung", 3);
    assert!(!success, "{told}");
    assert_eq!(boots, "first repeat repeat", "{told}");
    assert_eq!((lines(&told, "repeated "), lines(&told, "FAILED test host: ")), (2, 1), "{told}");
    assert!(told.ends_with("1 passed, 1 failed, 0 skipped\n"), "{told}");
}

#[test]
fn a_power_cut_that_a_test_asks_for_is_no_failure() {
    let (told, success, boots) = run("cut", 1);
    assert!(success, "{told}");
    assert_eq!((boots.as_str(), lines(&told, "repeated ")), ("first cut", 0), "{told}");
}

#[test]
fn a_host_that_goes_without_a_word_fails_the_run() {
    let (told, success, _) = run("gone", 1);
    assert!(!success && told.contains("it ended by itself while group::second was running"), "{told}");
}

#[test]
fn a_line_that_comes_in_halves_is_one() {
    let (told, success, _) = run("halves", 1);
    assert!(success && told.ends_with("2 passed, 0 failed, 0 skipped\n"), "{told}");
    assert!(!told.contains("beat"), "a sign of life is no news: {told}");
}
