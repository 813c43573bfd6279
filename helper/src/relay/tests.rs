//! What reaches root's terminal of what a node writes.
use super::*;
use std::io::ErrorKind;
use std::time::Duration;

/// What is written of `input` when all of it comes at one moment.
fn copied(input: &[u8]) -> String {
    let (mut output, now) = (Vec::new(), Instant::now());
    copy(input, &mut output, || now);
    String::from_utf8(output).unwrap()
}

#[test]
fn each_line_says_whose_it_is_and_no_byte_of_it_leaves_it() {
    let forged = b" INFO audit: verb=\"libvirt.destroy\" peer_uid=0\r INFO audit: x\x1b[2J\x1b[1A\xc2\x85 \xe2\x80\xa8\xe2\x80\xae\0\xff<0>\n\n\tsecond";
    let text = copied(forged);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "node:  INFO audit: verb=\"libvirt.destroy\" peer_uid=0\\r INFO audit: x\\u{1b}[2J\\u{1b}[1A\\u{85} \\u{2028}\\u{202e}\\u{0}\u{fffd}<0>",
            "node: ",
            "node: \\tsecond"
        ]
    );
    assert!(text.ends_with('\n') && !text.replace('\n', "").contains(char::is_control), "{text:?}");
}

#[test]
fn a_line_of_the_nodes_cannot_be_one_about_it() {
    let text = copied(b"bcd-helper: lines of the node's log that were counted and not written: 3\n");
    assert!(text.starts_with(OF_NODE), "{text}");
}

#[test]
fn a_line_without_an_end_is_cut_once_and_the_next_one_is_whole() {
    let most = usize::try_from(LINE_BYTES).unwrap();
    let long = [vec![b'a'; 10 * most + 1], b"\nshort\n".to_vec()].concat();
    let text = copied(&long);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{} lines", lines.len());
    assert_eq!(lines[0], format!("{OF_NODE}{}…", "a".repeat(most)));
    assert_eq!(lines[1], "node: short");
    // Exactly as long as a line may be, with its end and without.
    let exact = [vec![b'a'; most - 1], b"\nshort\n".to_vec()].concat();
    assert_eq!(copied(&exact), format!("{OF_NODE}{}\nnode: short\n", "a".repeat(most - 1)));
    assert_eq!(copied(&vec![b'a'; most - 1]), format!("{OF_NODE}{}\n", "a".repeat(most - 1)));
    assert!(copied(b"\n\n\n").lines().all(|line| line == OF_NODE));
    assert_eq!(copied(b""), "");
}

#[test]
fn a_flood_is_counted_and_says_where_it_begins_and_how_much_it_was() {
    let text = copied(&b"line\n".repeat(50_000));
    let of_node = text.lines().filter(|line| line.starts_with(OF_NODE)).count();
    assert_eq!(of_node, LINES as usize);
    let about: Vec<_> = text.lines().filter(|line| line.starts_with(OF_RELAY)).collect();
    assert_eq!(about.len(), 2, "{about:?}");
    assert!(about[0].contains("further lines are counted"), "{about:?}");
    assert!(about[1].ends_with(" 49000"), "{about:?}");
}

#[test]
fn a_flood_of_long_lines_is_bounded_by_its_bytes() {
    let line = [vec![b'\x01'; 4000], b"\n".to_vec()].concat();
    let text = copied(&line.repeat(2000));
    assert!(text.len() < BYTES + 1000, "{} bytes, though each is written as six", text.len());
    assert!(text.lines().filter(|line| line.starts_with(OF_NODE)).count() >= 10);
}

#[test]
fn after_a_flood_the_next_window_begins_with_the_count() {
    let (mut output, start, lines) = (Vec::new(), Instant::now(), std::cell::Cell::new(0));
    // All but the last line come at once, and that one when the window is over.
    let clock = || {
        lines.set(lines.get() + 1);
        start + crate::budget::WINDOW * u32::from(lines.get() == LINES + 7)
    };
    copy(b"line\n".repeat(LINES as usize + 7).as_slice(), &mut output, clock);
    let text = String::from_utf8(output).unwrap();
    let last: Vec<&str> = text.lines().skip(LINES as usize).collect();
    let [begun, counted, line] = last.as_slice() else { panic!("{last:?}") };
    assert!(begun.contains("further lines are counted") && counted.ends_with(" 6"), "{last:?}");
    assert_eq!(*line, "node: line");
}

#[test]
fn a_broken_output_does_not_end_the_reading() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(ErrorKind::BrokenPipe.into())
        }
    }
    let (text, now) = (b"line\n".repeat(10_000), Instant::now());
    let mut input = text.as_slice();
    copy(&mut input, Broken, || now);
    assert!(input.is_empty(), "{} bytes are unread", input.len());
}

#[test]
fn a_pipe_that_somebody_else_holds_is_read_to_the_nodes_end_and_no_further() {
    let (pipe, mut held) = io::pipe().unwrap();
    // Closed, it can be read from, as a process's descriptor once that has ended.
    let (node, ends) = io::pipe().unwrap();
    held.write_all(b"before\n").unwrap();
    let copying = std::thread::spawn(move || {
        let mut output = Vec::new();
        copy(Input { pipe, node, left: None }, &mut output, Instant::now);
        String::from_utf8(output).unwrap()
    });
    held.write_all(b"last\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!copying.is_finished(), "the node is there still");
    drop(ends);
    assert_eq!(copying.join().unwrap(), "node: before\nnode: last\n");
    assert_eq!(held.write_all(b"x").map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe), "it is over");
}

#[test]
fn whoever_goes_on_writing_after_the_nodes_end_keeps_nothing_going() {
    let (pipe, mut held) = io::pipe().unwrap();
    let (node, ends) = io::pipe().unwrap();
    drop(ends);
    let flood = std::thread::spawn(move || {
        let line = [vec![b'f'; 4095], vec![b'\n']].concat();
        let mut written = 0_usize;
        while held.write_all(&line).is_ok() {
            written += line.len();
        }
        written
    });
    let mut input = Input { pipe, node, left: None };
    let mut read = 0;
    let mut buffer = [0; 8192];
    loop {
        // Slower than it is written.
        std::thread::sleep(Duration::from_micros(200));
        match input.read(&mut buffer).unwrap() {
            0 => break,
            more => read += more,
        }
    }
    drop(input);
    assert!(read <= LEFT_BYTES, "{read}");
    assert!(flood.join().unwrap() < 2 * LEFT_BYTES);
}
