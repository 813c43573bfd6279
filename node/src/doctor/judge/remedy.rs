//! Remedies that are commands: what an operator pastes into a shell of root's.
//!
//! Room: `node`. Pure. Invariants: whatever is named is quoted; nothing stands behind a command, since not every shell knows
//! comments on a terminal and its words would be taken for names; and no command of root's goes by a path that somebody else
//! could lead elsewhere between the look and the paste.
use super::super::facts::{Entry, Kind, Part, Seen};
use std::path::Path;

/// A command of these words.
pub(super) fn command(words: &[&str]) -> String {
    // A word with a NUL is none that a shell could be given.
    words.iter().map(|word| shlex::try_quote(word).unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

/// The text of a path, as far as it is text.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// `command`, which names what lies at the end of `way`, where nobody but root can put something else there; what to do
/// before otherwise. The command may be a sentence with commands in it.
pub(super) fn at(way: &[Part], command: String) -> String {
    match unsteady(way) {
        // A way that does not begin at the root was not seen.
        None if way.first().is_some_and(|part| part.path == Path::new("/")) => command,
        None => "run bcd doctor again, as root: the way there could not be seen".to_owned(),
        Some(part) => format!(
            "make every directory above {} root's alone first, or name another place: somebody else may swap what lies there",
            part.path.display()
        ),
    }
}

/// As [`at`], for a command that acts on the name at the end of `way` and not on what lies there.
pub(super) fn on_name(way: &[Part], command: String) -> String {
    at(way.split_last().map_or(way, |(_, above)| above), command)
}

/// The first part that somebody else than root could put something else in the place of.
fn unsteady(way: &[Part]) -> Option<&Part> {
    way.windows(2).find_map(|pair| match pair {
        [above, part] if !keeps(&above.seen, &part.seen) => Some(part),
        _ => None,
    })
}

/// Whether what lies in the directory `above` is there for as long as root wants.
fn keeps(above: &Seen, part: &Seen) -> bool {
    let Seen::There(Entry { kind: Kind::Directory, uid: 0, mode, .. }) = above else { return false };
    let roots = matches!(part, Seen::There(Entry { uid: 0, .. }));
    mode & 0o022 == 0 || (mode & 0o1000 != 0 && roots)
}
