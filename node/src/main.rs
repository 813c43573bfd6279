//! Wires the command line; everything else is in the library.
use std::process::ExitCode;

fn main() -> ExitCode {
    bcd_node::cli::main()
}
