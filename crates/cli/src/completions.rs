//! `sherman completions`: prints a script with which a shell completes this command.

use crate::args::Arguments;
use crate::failure::Failure;
use crate::output::print;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

const HELP: &str = "\
Exit code: 0 on success, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman completions bash > /etc/bash_completion.d/sherman
  sherman completions zsh > ~/.zfunc/_sherman
  sherman completions fish > ~/.config/fish/completions/sherman.fish";

/// The options of `sherman completions`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// Complete for this shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Writes the script to stdout.
pub fn run(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "sherman", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
