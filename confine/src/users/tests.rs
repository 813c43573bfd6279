//! Held to what the host's own `id` says, and to a database that cannot be read.
use super::*;
use nix::sys::resource::{Resource, setrlimit};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

/// The first fields of the lines of one of the host's own files.
fn names(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

#[test]
fn every_group_of_every_user_is_asked_for() {
    let mut in_others = 0;
    for name in names("/etc/passwd") {
        let account = look(&name, []).unwrap().unwrap();
        let groups: BTreeSet<_> = account.groups.iter().copied().collect();
        let said = Command::new("id").args(["-G", "--", &name]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(groups, said.split_whitespace().map(|gid| gid.parse().unwrap()).collect(), "{name}: {said}");
        in_others += usize::from(groups.len() > 1);
    }
    if in_others == 0 {
        println!("skipped in part: nobody here is in a group beside its own");
    }
}

#[test]
fn what_the_host_does_not_have_is_none() {
    assert!(look("no-such-user-here", []).unwrap().is_none());
    assert_eq!((gid_of("root"), gid_of("no-such-group-here")), (Ok(Some(0)), Ok(None)));
    let root = look("root", ["no-such-group-here", "root"]).unwrap().unwrap();
    assert_eq!((root.user.uid.as_raw(), root.asked), (0, [None, Some(0)]));
    assert!(groups_of_uid(0).unwrap().contains(&0));
    assert_eq!(groups_of_uid(0x7FFC_FFF0), Ok(Vec::new()));
}

#[test]
fn a_membership_that_the_list_of_a_users_groups_leaves_out_is_found_in_the_group() {
    let mut found = 0;
    for group in names("/etc/group") {
        let entry = Group::from_name(&group).unwrap().unwrap();
        for member in &entry.mem {
            let cut_short = |user: &User| Ok(vec![user.gid.as_raw()]);
            let Some(account) = look_by(member, [&group], cut_short).unwrap() else { continue };
            let times = account.groups.iter().filter(|gid| **gid == entry.gid.as_raw()).count();
            assert_eq!((times, account.asked), (1, [Some(entry.gid.as_raw())]), "{member} in {group}");
            found += 1;
        }
    }
    if found == 0 {
        println!("skipped: no group here has a member by name");
    }
}

#[test]
fn a_database_that_does_not_answer_is_an_error_and_not_an_absence() {
    let test = "users::tests::a_database_that_does_not_answer_is_an_error_and_not_an_absence";
    if std::env::var("BCD_NO_DATABASE").is_ok_and(|asked| asked == test) {
        // All numbers below this one are taken: nothing can be opened any more, no database either.
        let free = u64::try_from(std::io::stdin().as_fd().try_clone_to_owned().unwrap().as_raw_fd()).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, free, free).unwrap();
        let silent = |what: &str| Unanswered { what: what.to_owned(), cause: Errno::EMFILE };
        for name in ["daemon", "no-such-user-here"] {
            assert_eq!(look(name, []).map(|_| ()), Err(silent(&format!("user {name}"))));
        }
        assert_eq!(gid_of("root"), Err(silent("group root")));
        assert_eq!(gid_of("no-such-group-here"), Err(silent("group no-such-group-here")));
        assert_eq!(groups_of_uid(1), Err(silent("uid 1")));
        let text = crate::log::chain(&silent("user daemon"));
        assert!(text.ends_with("cannot be asked for user daemon: EMFILE: Too many open files"), "{text}");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("BCD_NO_DATABASE", test);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
