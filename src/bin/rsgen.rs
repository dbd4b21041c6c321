//! The program `rsgen`: the command line of the library.

use rsgen::cli;

fn main() {
    std::process::exit(cli::run(std::env::args_os(), None, &mut cli::ctrl_c()));
}
