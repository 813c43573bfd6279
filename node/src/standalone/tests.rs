//! What needs no root of it. The whole is tried in tests/tests/real_standalone.rs.
use super::*;

fn kept(name: &str) -> bool {
    is_kept(OsStr::new(name))
}

#[test]
fn of_roots_environment_the_node_keeps_what_it_needs_and_nothing_else() {
    for name in
        ["PATH", "BCD_LOG", "NOTIFY_SOCKET", "WATCHDOG_USEC", "LC_ALL", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE"]
    {
        assert!(kept(name), "{name}");
    }
    for name in
        ["HOME", "SUDO_USER", "LD_PRELOAD", "XDG_RUNTIME_DIR", "AWS_SECRET_ACCESS_KEY", "LISTEN_FDS", "SSH_AUTH_SOCK"]
    {
        assert!(!kept(name), "{name}");
    }
}

#[test]
fn the_helper_is_told_nothing_of_the_service_manager() {
    for name in
        ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC", "PATH", "LD_LIBRARY_PATH", "LIBVIRT_DEFAULT_URI"]
    {
        assert!(!is_for_helper(OsStr::new(name)), "{name}");
    }
    assert!(is_for_helper(OsStr::new("BCD_LOG")) && is_for_helper(OsStr::new("JOURNAL_STREAM")));
}

#[test]
fn a_user_that_the_helper_would_refuse_is_refused_before_it_is_started_and_an_unknown_one_is_told() {
    assert!(fit_user("root").expect_err("root").chain().contains("has uid 0, which is root's"));
    assert!(fit_user("nobody").expect_err("nobody").chain().contains("has uid 65534"));
    assert!(fit_user("no-such-user-of-bcd").expect_err("unknown").chain().contains("useradd"));
    assert_eq!(fit_user("daemon").expect("fit").name, "daemon");
}

#[test]
fn one_who_is_not_root_is_told_to_be() {
    if geteuid().is_root() {
        // As root it would start a helper: then tests/tests/real_standalone.rs asks it of a process of its own.
        eprintln!("skipped: these tests run as root");
        return;
    }
    let fault = prepare(Path::new("/etc/bcd/bcd.toml"), None).expect_err("not root");
    assert_eq!(fault.kind(), FaultKind::Denied);
}

#[test]
fn whoever_can_still_become_root_has_not_given_it_up() {
    if !geteuid().is_root() {
        refuses_root().expect("an ordinary user cannot");
        return;
    }
    assert!(refuses_root().expect_err("root can").chain().contains("user 0 again answered Ok"));
}
