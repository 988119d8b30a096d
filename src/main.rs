//! The tidegate executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::cli::main()
}
