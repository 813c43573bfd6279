//! The manual pages of the command line: made from its parser, kept in packaging/man, held against it here.
use super::Cli;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the parser does not know: after the options of bcd(1).
const MAIN: &str = "\
.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
Refused or failed. plan: part would be refused, or cannot be told. apply \\-\\-wait: an instance failed. doctor: something
fails.
.TP
.B 2
The command line is wrong. doctor: warnings only.
.TP
.B 3
The node does not answer.
.TP
.B 4
Not within \\-\\-timeout.
.TP
.BI 128+ n
console: ended by signal
.IR n .
.SH ENVIRONMENT
.TP
.B BCD_CONFIG
The configuration, where \\-\\-config does not name one.
.TP
.B BCD_API
The node's API socket, where \\-\\-api does not name one.
.TP
.B BCD_LOG
What the node logs: error, warn, info (the default), debug or trace.
.TP
.B NO_COLOR
Print without colours.
.SH FILES
.TP
.I /etc/bcd/bcd.toml
The configuration of both daemons, see
.BR bcd.toml (5).
.TP
.I /run/bcd/node/node.sock
The node's API, for root, the node's user and the members of its group.
.TP
.I /etc/bcd/secrets/
User data: one file for each allocation, mode 0600, of the node's user.
.TP
.I /var/lib/bcd/
Images and instances. Each guest's disk lies in instances/.
.TP
.I /usr/share/doc/bcd/docs/nodespec.md
The document, field by field; the directory has the other pages, and examples/node.toml.
";

/// All pages by file name.
fn pages() -> BTreeMap<String, String> {
    let mut command = Cli::command();
    command.build();
    let names: Vec<String> = command.get_subcommands().map(|sub| format!("bcd-{}", sub.get_name())).collect();
    let mut pages = BTreeMap::new();
    let others: Vec<&str> = names.iter().map(String::as_str).collect();
    pages.insert("bcd.1".to_owned(), page(command.clone(), MAIN, &others));
    for sub in command.get_subcommands() {
        let name = format!("bcd-{}", sub.get_name());
        let shown = sub.clone().display_name(name.clone()).bin_name(format!("bcd {}", sub.get_name()));
        pages.insert(format!("{name}.1"), page(shown, "", &["bcd"]));
    }
    pages
}

fn page(command: Command, more: &str, others: &[&str]) -> String {
    let title = command.get_display_name().unwrap_or("bcd").to_uppercase();
    let values: Vec<(String, String)> = command.get_arguments().filter_map(long_with_value).collect();
    let man =
        Man::new(command).title(title).section("1").manual("bcd").source(concat!("bcd ", env!("CARGO_PKG_VERSION")));
    let mut roff = Vec::new();
    man.render_title(&mut roff).unwrap();
    man.render_name_section(&mut roff).unwrap();
    roff.extend(synopsis(&man, &values).into_bytes());
    man.render_description_section(&mut roff).unwrap();
    man.render_options_section(&mut roff).unwrap();
    if man_has_subcommands(others) {
        man.render_subcommands_section(&mut roff).unwrap();
    }
    let mut text = String::from_utf8(roff).unwrap();
    text.push_str(more);
    text.push_str(".SH SEE ALSO\n");
    for other in others {
        text.push_str(&format!(".BR {} (1),\n", other.replace('-', "\\-")));
    }
    text.push_str(".BR bcd\\-helper (8),\n.BR bcd.toml (5)\n");
    text
}

/// An option that takes a value: its long name and what stands for the value.
fn long_with_value(argument: &clap::Arg) -> Option<(String, String)> {
    let takes = argument.get_action().takes_values() && !argument.is_hide_set();
    takes.then(|| Some((argument.get_long()?.to_owned(), argument.get_value_names()?.first()?.to_string())))?
}

/// The synopsis, in which clap_mangen leaves out that an option takes a value.
fn synopsis(man: &Man, values: &[(String, String)]) -> String {
    let mut roff = Vec::new();
    man.render_synopsis_section(&mut roff).unwrap();
    let mut text = String::from_utf8(roff).unwrap();
    for (long, value) in values {
        let long = long.replace('-', "\\-");
        let bare = format!("\\fB\\-\\-{long}\\fR]");
        assert!(text.contains(&bare), "{bare} is not in {text}");
        text = text.replace(&bare, &format!("\\fB\\-\\-{long}\\fR \\fI{value}\\fR]"));
    }
    text
}

/// The page of bcd itself names the others; theirs name it.
fn man_has_subcommands(others: &[&str]) -> bool {
    others != ["bcd"]
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/man")
}

#[test]
fn the_manual_pages_are_those_of_the_command_line() {
    let pages = pages();
    if std::env::var_os("BCD_BLESS").is_some() {
        for (name, text) in &pages {
            std::fs::write(directory().join(name), text).unwrap();
        }
    }
    for (name, text) in &pages {
        let kept = std::fs::read_to_string(directory().join(name)).unwrap_or_default();
        assert!(kept == *text, "packaging/man/{name} is old: run this test with BCD_BLESS=1");
    }
    let kept = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stray: Vec<_> = kept.filter(|name| name.ends_with(".1") && !pages.contains_key(name)).collect();
    assert!(stray.is_empty(), "of no command: {stray:?}");
}

#[test]
fn each_page_says_every_option_and_the_first_every_command() {
    let pages = pages();
    let mut command = Cli::command();
    command.build();
    let plain = |text: &str| text.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "");
    let main = plain(&pages["bcd.1"]);
    for sub in command.get_subcommands() {
        let name = sub.get_name();
        assert!(main.contains(&format!("bcd-{name}(1)")), "bcd.1 does not name {name}");
        let page = plain(&pages[&format!("bcd-{name}.1")]);
        assert!(page.contains(&format!("bcd {name}")), "the synopsis of {name}");
        for argument in sub.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let shown = match argument.get_long() {
                Some(long) => format!("--{long}"),
                None => argument.get_value_names().unwrap()[0].to_string(),
            };
            assert!(page.contains(&shown), "bcd-{name}.1 does not say {shown}");
            if let Some((long, value)) = long_with_value(argument) {
                assert!(page.contains(&format!("[--{long} {value}]")), "the synopsis of {name}: --{long} {value}");
            }
            let help = argument.get_help().unwrap().to_string();
            let words = help.split_whitespace().next_back().unwrap();
            assert!(page.contains(words), "bcd-{name}.1 does not explain {shown}");
        }
    }
}
