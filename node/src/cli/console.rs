//! `bcd console`: a terminal, or a script, at a guest's serial port.
//!
//! Room: `node`. Invariant: a terminal that was switched to raw mode is switched back however this ends, short of
//! SIGKILL. Reading stdin and writing stdout block, so each has a thread of its own.
use super::failure::{FAILED, Failure, LATE};
use super::until::Wanted;
use crate::client::Client;
use crate::console::Attach;
use bcd_protocol::id::InstanceId;
use nix::sys::termios::{self, SetArg, Termios};
use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::thread;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// What leaves: Ctrl-].
const ESCAPE: u8 = 0x1d;
/// Bytes read at once, each way.
const PIECE: usize = 16 * 1024;
/// Pieces that may wait for stdout; behind that the node's queue fills, and then it ends the session.
const PIECES: usize = 16;

/// How a session ended.
enum End {
    /// The person left.
    Left,
    /// Stdin ended.
    InputEnded,
    /// The wanted text appeared.
    Appeared,
    /// The node closed the session.
    Closed,
    /// A signal asked for it; its number.
    Signal(i32),
    /// Nobody reads the output any more.
    OutputGone(io::Error),
    /// The connection failed.
    Broken(io::Error),
}

pub(super) async fn run(
    client: &Client,
    id: &InstanceId,
    read_only: bool,
    mut wanted: Option<Wanted>,
) -> Result<ExitCode, Failure> {
    let attach = if read_only { Attach::ReadOnly } else { Attach::Control };
    let connection = client.console(id, attach).await?;
    // Before the terminal is changed: a signal that ended this process by itself would leave it so.
    let signals = Signals::new()?;
    let raw = Raw::switch_on()?;
    if raw.is_some() {
        let reads = if read_only { ", reading only" } else { "" };
        say(&format!("connected to {id}{reads}; Ctrl-] leaves"));
    }
    let timeout = wanted.as_ref().and_then(|w| w.timeout);
    let session = session(connection, signals, raw.is_some(), read_only, wanted.as_mut());
    let end = match timeout {
        None => session.await?,
        Some(timeout) => match tokio::time::timeout(timeout, session).await {
            Ok(end) => end?,
            Err(_) => {
                drop(raw);
                let text = wanted.as_ref().map(Wanted::text).unwrap_or_default();
                let sentence = format!("{id} did not print {text:?} within {} s", timeout.as_secs());
                return Err(Failure::new(sentence).code(LATE));
            }
        },
    };
    if raw.is_some() {
        say(if matches!(end, End::Closed) { "the node has ended this session" } else { "left" });
    }
    drop(raw);
    conclude(end, id, wanted.as_ref())
}

fn conclude(end: End, id: &InstanceId, wanted: Option<&Wanted>) -> Result<ExitCode, Failure> {
    match (end, wanted) {
        (End::Left | End::Appeared, _) | (End::InputEnded, None) | (End::Closed, None) => Ok(ExitCode::SUCCESS),
        (End::Closed | End::InputEnded, Some(wanted)) => {
            Err(Failure::new(format!("the console of {id} ended before {:?} appeared", wanted.text())))
        }
        (End::Signal(number), _) => Ok(ExitCode::from(u8::try_from(number.saturating_add(128)).unwrap_or(FAILED))),
        (End::OutputGone(error), _) => Err(error.into()),
        (End::Broken(error), _) => Err(Failure::because("the connection to the node failed", &error)),
    }
}

/// Moves bytes until one side ends.
async fn session(
    connection: impl tokio::io::AsyncRead + tokio::io::AsyncWrite,
    mut signals: Signals,
    terminal: bool,
    read_only: bool,
    mut wanted: Option<&mut Wanted>,
) -> Result<End, Failure> {
    let (mut from, mut to) = tokio::io::split(connection);
    let mut typed = stdin();
    let (output, mut output_gone) = stdout();
    let mut buffer = vec![0_u8; PIECE];
    let mut input_open = true;
    loop {
        tokio::select! {
            number = signals.next() => return Ok(End::Signal(number)),
            error = &mut output_gone => return Ok(End::OutputGone(error.unwrap_or_else(|_| io::ErrorKind::Other.into()))),
            input = typed.recv(), if input_open => match input {
                Some(input) => {
                    let left = terminal.then(|| input.iter().position(|b| *b == ESCAPE)).flatten();
                    let bytes = input.get(..left.unwrap_or(input.len())).unwrap_or_default();
                    if !read_only && let Err(error) = to.write_all(bytes).await {
                        return Ok(End::Broken(error));
                    }
                    if left.is_some() {
                        return Ok(End::Left);
                    }
                }
                // A script that waits for a text has nothing to type; anybody else has left.
                None if wanted.is_some() => input_open = false,
                None => return Ok(End::InputEnded),
            },
            count = from.read(&mut buffer) => {
                let piece = match count {
                    Ok(0) => {
                        output.finish().await;
                        return Ok(End::Closed);
                    }
                    Ok(count) => buffer.get(..count).unwrap_or_default(),
                    Err(error) => return Ok(End::Broken(error)),
                };
                let appeared = wanted.as_deref_mut().is_some_and(|w| w.appears(piece));
                output.write(piece).await;
                if appeared {
                    output.finish().await;
                    return Ok(End::Appeared);
                }
            }
        }
    }
}

/// Stdin by pieces, until it ends. The thread stays in its read when the command ends.
fn stdin() -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(1);
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0_u8; PIECE];
        while let Ok(count @ 1..) = stdin.read(&mut buffer) {
            let piece = buffer.get(..count).unwrap_or_default().to_vec();
            if send.blocking_send(piece).is_err() {
                return;
            }
        }
    });
    receive
}

/// The way to stdout.
struct Output {
    pieces: mpsc::Sender<Vec<u8>>,
    done: oneshot::Receiver<()>,
}

impl Output {
    async fn write(&self, bytes: &[u8]) {
        // An error means that stdout is gone; its own receiver tells.
        let _ = self.pieces.send(bytes.to_vec()).await;
    }

    /// Waits until all is written.
    async fn finish(self) {
        drop(self.pieces);
        let _ = self.done.await;
    }
}

/// A thread that writes to stdout, and the error that ends it.
fn stdout() -> (Output, oneshot::Receiver<io::Error>) {
    let (pieces, mut waiting) = mpsc::channel::<Vec<u8>>(PIECES);
    let (failed, gone) = oneshot::channel();
    let (all, done) = oneshot::channel();
    thread::spawn(move || {
        let mut stdout = io::stdout();
        while let Some(piece) = waiting.blocking_recv() {
            if let Err(error) = stdout.write_all(&piece).and_then(|()| stdout.flush()) {
                let _ = failed.send(error);
                return;
            }
        }
        let _ = all.send(());
    });
    (Output { pieces, done }, gone)
}

/// A line of ours on stderr; the terminal may be raw.
fn say(text: &str) {
    let _ = write!(io::stderr().lock(), "\r[bcd: {text}]\r\n");
}

/// The signals that end a session.
struct Signals {
    each: Vec<(i32, tokio::signal::unix::Signal)>,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let each = kinds.into_iter().map(|kind| Ok((kind.as_raw_value(), signal(kind)?))).collect::<io::Result<_>>();
        each.map(|each| Self { each }).map_err(|e| Failure::because("signals cannot be handled", &e))
    }

    async fn next(&mut self) -> i32 {
        let received = self.each.iter_mut().map(|(number, signal)| {
            let number = *number;
            Box::pin(async move {
                signal.recv().await;
                number
            })
        });
        futures_util::future::select_all(received).await.0
    }
}

/// Raw mode of stdin's terminal, for as long as it lives.
struct Raw(Termios);

impl Raw {
    /// `None` when stdin is no terminal.
    fn switch_on() -> Result<Option<Self>, Failure> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let cannot = |e: nix::errno::Errno| Failure::because("the terminal cannot be switched to raw mode", &e);
        let before = termios::tcgetattr(&stdin).map_err(cannot)?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(&stdin, SetArg::TCSADRAIN, &raw).map_err(cannot)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.0);
    }
}
