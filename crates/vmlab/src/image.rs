//! `vmlab image build|list|rm`: the guest images that vmlab builds.

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use guest::image::{self, Recipe};
use serde_json::json;

use crate::progress::Spinner;
use crate::{interrupt, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab image build            build builtin:debian-12, if it is not there yet
  vmlab image list
  vmlab image rm debian-12     remove all its versions

Images lie in $XDG_CACHE_HOME/vmlab/images (~/.cache/vmlab/images). A study may
also name an image of your own: image = \"path/to/guest.qcow2\" (with the QEMU
guest agent installed in it).";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Build a builtin image, unless it is there already.
    Build {
        /// Its name, with or without `builtin:`.
        #[arg(default_value = "debian-12")]
        name: String,
        /// Build it even if it is there.
        #[arg(long)]
        again: bool,
    },
    /// List the images in the cache.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove images from the cache.
    Rm {
        /// A name (`debian-12`: all its versions) or a version (`debian-12-0123456789ab`).
        name: String,
    },
}

pub(crate) fn run(args: &ImageArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Build { name, again } => build(name, *again),
        Action::List { json } => list(*json),
        Action::Rm { name } => rm(name),
    }
}

fn build(name: &str, again: bool) -> anyhow::Result<ExitCode> {
    let recipe = Recipe::builtin(name.trim_start_matches("builtin:"))?;
    let cancel = interrupt::cancel_on_signals()?;
    if !again && let Some(found) = image::find(&recipe) {
        terminal::print(&format!("{} is there: {}\n", recipe.name, found.folder.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if again && let Some(found) = image::find(&recipe) {
        let folder = found.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        image::remove(&folder)?;
    }
    let spinner = Spinner::start();
    let built = image::build(
        &recipe,
        &mut |progress| spinner.say(&runner::machine::build_step(&recipe.name, &progress)),
        &cancel,
    );
    drop(spinner);
    let built = built?;
    terminal::print(&format!(
        "Built {} with {} packages: {}\n",
        recipe.name,
        built.packages.len(),
        built.folder.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn list(as_json: bool) -> anyhow::Result<ExitCode> {
    let images = image::list()?;
    if as_json {
        let rows: Vec<_> = images
            .iter()
            .map(|image| {
                json!({
                    "name": image.name,
                    "hash": image.short_hash,
                    "folder": image.folder,
                    "size_bytes": image.size_bytes,
                    "built_unix_s": image.built_unix_s,
                    "complete": image.complete,
                    "current": image.current,
                })
            })
            .collect();
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&rows)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for image in &images {
        let state = match (image.complete, image.current) {
            (false, _) => "incomplete",
            (true, true) => "current",
            (true, false) => "of another version",
        };
        let size = record::Unit::from("B").show(image.size_bytes as f64);
        writeln!(
            text,
            "{:<24} {size:>9}  {state:<18} {}",
            format!("{}-{}", image.name, image.short_hash),
            image.folder.display()
        )?;
    }
    if images.is_empty() {
        writeln!(text, "No images yet: `vmlab image build` makes one.")?;
    }
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn rm(name: &str) -> anyhow::Result<ExitCode> {
    for removed in image::remove(name.trim_start_matches("builtin:"))? {
        terminal::print(&format!("Removed {}\n", removed.folder.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
