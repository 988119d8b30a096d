//! Writes the manual pages and the shell completions of this command line into a folder: `cargo run --example pages -- FOLDER`.
//! An example, so that what makes them is no part of the program that ships.

use std::path::{Path, PathBuf};

use clap_complete::Shell;

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| anyhow::anyhow!("say which folder to write into"))?;
    for name in ["man", "completions"] {
        std::fs::create_dir_all(folder.join(name))?;
    }
    clap_mangen::generate_to(tidegate::cli::command(), folder.join("man"))?;
    for shell in SHELLS {
        completions(shell, &folder.join("completions"))?;
    }
    Ok(())
}

fn completions(shell: Shell, folder: &Path) -> anyhow::Result<()> {
    let path = clap_complete::generate_to(shell, &mut tidegate::cli::command(), "tidegate", folder)?;
    println!("{}", path.display());
    Ok(())
}
