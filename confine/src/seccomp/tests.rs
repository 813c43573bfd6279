//! Filters in a process of their own: each test runs itself again as a child, which closes the filter and says how it went
//! by its exit code.
use super::*;
use nix::errno::Errno;
use nix::unistd::{getpid, getsid};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// What a Rust program needs to say how it ended.
const BASE: &[i64] = &[
    libc::SYS_exit_group,
    libc::SYS_munmap,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_geteuid,
    libc::SYS_rt_sigprocmask,
    libc::SYS_madvise,
    libc::SYS_exit,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
];

/// An argument that ends the process, of a call that is listed with every other one.
const INTRUDER_WITH: &[(i64, Only<'static>)] = &[(libc::SYS_lseek, Only::OneOf(2, &[libc::SEEK_END as u64]))];

/// Runs `child` in a process of its own under `filter`, which leaves [`BASE`] too. Exit code 0: all that it asserts holds.
fn under(test: &str, only: &[(i64, Only<'_>)], intruder: &[i64], child: fn() -> bool) -> ExitStatus {
    let name = format!("seccomp::tests::{test}");
    if std::env::var("BCD_UNDER_FILTER").is_ok_and(|asked| asked == name) {
        nix::sys::prctl::set_no_new_privs().unwrap();
        let pretended = &[libc::SYS_setresuid, libc::SYS_getpgid];
        // As a service manager's, which is there first.
        let before =
            compile(Calls::default().and(&[libc::SYS_getpgid]).unwrap(), SeccompAction::Allow, errno(libc::EPERM))
                .unwrap();
        seccompiler::apply_filter(&before).unwrap();
        let intruder_with = INTRUDER_WITH;
        Filter { allowed: &[BASE], only, pretended, intruder, intruder_with, otherwise: libc::ENOTTY }
            .restrict()
            .unwrap();
        std::process::exit(if child() { 0 } else { 1 });
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env("BCD_UNDER_FILTER", &name);
    command.output().unwrap().status
}

fn answers(result: Result<(), Errno>, wanted: Option<Errno>) -> bool {
    result.err() == wanted
}

#[test]
fn an_unlisted_call_fails_with_the_chosen_error_and_a_listed_one_works() {
    let status = under("an_unlisted_call_fails_with_the_chosen_error_and_a_listed_one_works", &[], &[], || {
        getpid().as_raw() > 0 && answers(getsid(None).map(drop), Some(Errno::ENOTTY))
    });
    assert!(status.success(), "{status}");
}

#[test]
fn an_intruders_call_ends_the_process_though_it_is_not_listed_either() {
    let test = "an_intruders_call_ends_the_process_though_it_is_not_listed_either";
    let status = under(test, &[], &[libc::SYS_getsid], || getsid(None).is_ok());
    assert_eq!(status.signal(), Some(libc::SIGSYS));
}

/// Listed with both arguments, of which [`INTRUDER_WITH`] has one.
const SEEK: (i64, Only<'static>) = (libc::SYS_lseek, Only::OneOf(2, &[libc::SEEK_SET as u64, libc::SEEK_END as u64]));

#[test]
fn an_intruders_argument_ends_the_process() {
    let status = under("an_intruders_argument_ends_the_process", &[SEEK], &[], || {
        nix::unistd::lseek(std::io::stdin(), 0, nix::unistd::Whence::SeekEnd).is_ok()
    });
    assert_eq!(status.signal(), Some(libc::SIGSYS));
}

#[test]
fn the_same_call_with_another_argument_is_left() {
    let status = under("the_same_call_with_another_argument_is_left", &[SEEK], &[], || {
        // Whatever that input is: it answers, and not as an unlisted call would.
        nix::unistd::lseek(std::io::stdin(), 0, nix::unistd::Whence::SeekSet) != Err(Errno::ENOTTY)
    });
    assert!(status.success(), "{status}");
}

#[test]
fn a_call_is_left_with_its_listed_arguments_alone() {
    const UNIX_AND_NETLINK: &[u64] = &[libc::AF_UNIX as u64, libc::AF_NETLINK as u64];
    let close = (libc::SYS_socket, Only::OneOf(0, UNIX_AND_NETLINK));
    let limits = (libc::SYS_prlimit64, Only::Null(2));
    let test = "a_call_is_left_with_its_listed_arguments_alone";
    let status = under(test, &[close, limits], &[], || {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
        let made = |family, kind| {
            // Not closed: close is not listed here.
            socket(family, kind, SockFlag::empty(), None).map(std::mem::forget)
        };
        let limit = Resource::RLIMIT_CORE;
        answers(made(AddressFamily::Unix, SockType::Stream), None)
            && answers(made(AddressFamily::Netlink, SockType::Raw), None)
            && answers(made(AddressFamily::Inet, SockType::Stream), Some(Errno::ENOTTY))
            && answers(getrlimit(limit).map(drop), None)
            && answers(setrlimit(limit, 0, 0), Some(Errno::ENOTTY))
    });
    assert!(status.success(), "{status}");
}

#[test]
fn bits_are_compared_under_their_mask() {
    // O_CLOEXEC (among others) may be set, O_NONBLOCK may not.
    const MASK: u64 = libc::O_NONBLOCK as u64;
    let pipes = (libc::SYS_pipe2, Only::Bits { argument: 1, mask: MASK, bits: 0 });
    let status = under("bits_are_compared_under_their_mask", &[pipes], &[], || {
        use nix::fcntl::OFlag;
        let pipe = |flags| nix::unistd::pipe2(flags).map(std::mem::forget);
        answers(pipe(OFlag::O_CLOEXEC), None)
            && answers(pipe(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC), Some(Errno::ENOTTY))
    });
    assert!(status.success(), "{status}");
}

#[test]
fn clone3_is_not_there_so_that_threads_are_made_by_the_call_a_filter_can_read() {
    let threads = (libc::SYS_clone, Only::Bits { argument: 0, mask: 0, bits: 0 });
    let test = "clone3_is_not_there_so_that_threads_are_made_by_the_call_a_filter_can_read";
    let status = under(test, &[threads], &[], || std::thread::spawn(|| true).join().unwrap_or(false));
    assert!(status.success(), "{status}");
}

#[test]
fn a_pretended_call_is_answered_and_not_made_whatever_an_older_filter_says() {
    let test = "a_pretended_call_is_answered_and_not_made_whatever_an_older_filter_says";
    let status = under(test, &[], &[], || {
        use nix::unistd::{Uid, geteuid, getpgid, setresuid};
        let (other, before) = (Uid::from_raw(65_533), geteuid());
        // Made, it would answer this process's group, which is never 0.
        getpgid(None).is_ok_and(|group| group.as_raw() == 0)
            && answers(setresuid(other, other, other), None)
            && geteuid() == before
    });
    assert!(status.success(), "{status}");
}

/// The last three lists of a filter.
#[derive(Clone, Copy, Default)]
struct More<'a> {
    pretended: &'a [i64],
    intruder: &'a [i64],
    intruder_with: &'a [(i64, Only<'a>)],
}

/// Whether lists make a filter.
fn made(allowed: &[&[i64]], only: &[(i64, Only<'_>)], more: More<'_>) -> Result<(), SeccompError> {
    let More { pretended, intruder, intruder_with } = more;
    Filter { allowed, only, pretended, intruder, intruder_with, otherwise: libc::ENOSYS }.programs().map(drop)
}

const READ: i64 = libc::SYS_read;
const SOCKET: i64 = libc::SYS_socket;
const NO_MORE: More<'static> = More { pretended: &[], intruder: &[], intruder_with: &[] };

#[test]
fn a_call_with_no_argument_listed_is_an_error_and_not_a_call_with_any() {
    let none = &[(SOCKET, Only::OneOf(0, &[]))];
    let no_argument = |result| matches!(result, Err(SeccompError::NoArgument(SOCKET)));
    assert!(no_argument(made(&[BASE], none, NO_MORE)));
    assert!(no_argument(made(&[BASE], &[], More { intruder_with: none, ..NO_MORE })));
}

#[test]
fn a_call_in_two_places_is_an_error_and_none_of_them_is_lost() {
    let unix = (SOCKET, Only::OneOf(0, &[libc::AF_UNIX as u64]));
    let network = (SOCKET, Only::OneOf(0, &[libc::AF_INET as u64]));
    let sound = More { pretended: &[libc::SYS_setuid], intruder: &[libc::SYS_mount], intruder_with: INTRUDER_WITH };
    made(&[&[READ], &[libc::SYS_write, libc::SYS_lseek]], &[unix], sound).unwrap();
    let pretended = |pretended| More { pretended, ..NO_MORE };
    let intruder = |intruder| More { intruder, ..NO_MORE };
    for (name, result) in [
        ("two groups", made(&[&[READ], &[READ]], &[], NO_MORE)),
        ("one group", made(&[&[READ, READ]], &[], NO_MORE)),
        ("any argument and some", made(&[&[SOCKET]], &[unix], NO_MORE)),
        ("some arguments and others", made(&[], &[unix, network], NO_MORE)),
        ("left and pretended", made(&[&[READ]], &[], pretended(&[READ]))),
        ("pretended twice", made(&[], &[], pretended(&[READ, READ]))),
        ("left and an intruder's", made(&[&[READ]], &[], intruder(&[READ]))),
        ("left with some arguments and an intruder's", made(&[], &[unix], intruder(&[SOCKET]))),
        ("an intruder's twice", made(&[], &[], intruder(&[READ, READ]))),
        ("an intruder's with all and some", made(&[], &[], More { intruder_with: &[unix], ..intruder(&[SOCKET]) })),
        ("what no filter can read", made(&[&[libc::SYS_clone3]], &[], NO_MORE)),
    ] {
        assert!(matches!(result, Err(SeccompError::Twice(_))), "{name}: {result:?}");
    }
}

/// What a filter answers to any call of another architecture: of a program that begins by comparing it.
fn of_another_architecture(program: &BpfProgram) -> Option<u32> {
    const ARCHITECTURE: u32 = 4; // where it is in the kernel's struct seccomp_data
    let [load, compare, answer, ..] = program.as_slice() else { return None };
    let loads = (u32::from(load.code), load.k) == (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, ARCHITECTURE);
    let equal = u32::from(compare.code) == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let goes_on = (compare.jt, compare.jf) == (1, 0);
    let ends = u32::from(answer.code) == libc::BPF_RET | libc::BPF_K;
    (loads && equal && goes_on && ends).then_some(answer.k)
}

#[test]
fn a_call_of_another_architecture_ends_the_process_by_every_filter() {
    let typing =
        compile(Calls::default().and_only(&[(libc::SYS_ioctl, TYPING)]).unwrap(), SeccompAction::Allow, errno(1));
    let (intruder, intruder_with) = (&[libc::SYS_mount], INTRUDER_WITH);
    let filter = Filter { allowed: &[BASE], only: &[], pretended: &[], intruder, intruder_with, otherwise: 1 };
    for program in [&[typing.unwrap()], filter.programs().unwrap().as_slice()].concat() {
        assert_eq!(of_another_architecture(&program), Some(libc::SECCOMP_RET_KILL_PROCESS));
    }
}

#[test]
fn a_process_that_may_do_all_else_ends_when_it_types_into_a_terminal() {
    let test = "seccomp::tests::a_process_that_may_do_all_else_ends_when_it_types_into_a_terminal";
    if std::env::var("BCD_UNDER_FILTER").is_ok_and(|asked| asked == test) {
        nix::sys::prctl::set_no_new_privs().unwrap();
        forbid_typing().unwrap();
        // TIOCSTI, TIOCLINUX, and TCGETS, which is anybody's: in a child and after an execution, which inherit it.
        for (request, ends) in [("0x5412", true), ("0x541C", true), ("0x5401", false)] {
            let program = format!("my $byte = \"x\" x 64; ioctl(STDIN, {request}, $byte); exit 3");
            match Command::new("perl").args(["-e", &program]).status() {
                Ok(status) if ends => assert_eq!(status.signal(), Some(libc::SIGSYS), "{request}: {status}"),
                Ok(status) => assert_eq!(status.code(), Some(3), "{request}: {status}"),
                Err(error) => println!("skipped: no perl to try it with ({error})"),
            }
        }
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("BCD_UNDER_FILTER", test);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
