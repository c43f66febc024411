//! `vmlab image build|list|show|export|rm`: the guest images that vmlab builds; `vmlab image
//! render`: what names container images.

mod render;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use guest::image::oci::OciImage;
use guest::image::{self, GuestImage, PackageVersion, Recipe};
use schemars::JsonSchema;
use serde::Serialize;
use vmconfig::{Arch, ImageReference};

use crate::progress::Spinner;
use crate::{interrupt, terminal};

const EXAMPLES: &str = "\
Examples:
  vmlab image build                   build builtin:debian-12, if it is not there yet
  vmlab image build debian-12-full    with compiler, kernel source and PostgreSQL
  vmlab image build debian-13         the tools of the next release, and Linux 6.12
  vmlab image build debian-12-aarch64 for arm64 guests
  vmlab image build debian-12+linux-image
                                      with another kernel of Debian's
  vmlab image build debian-13+linux-image-cloud/trixie-backports
                                      with the newest that Debian brings for that release
  vmlab image build debian-12+linux-hz1000.deb
                                      with a kernel of your own (scripts/build-kernel makes one)
  vmlab image list
  vmlab image show debian-12          packages, sizes, hashes
  vmlab image export debian-12 --to containerdisk guest.tar
                                      for KubeVirt: `skopeo copy oci-archive:guest.tar ...`
  vmlab image export debian-12 --to qcow2 root.qcow2
  vmlab image rm debian-12            remove all its versions

Images lie in $XDG_CACHE_HOME/vmlab/images (~/.cache/vmlab/images). A study may
also name an image of your own: image = \"path/to/guest.qcow2\" (with the QEMU
guest agent installed in it).";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    action: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
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
    /// Show what an image holds.
    Show {
        /// Its name, with or without `builtin:`.
        #[arg(default_value = "debian-12")]
        name: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write an image for others than vmlab; it is built if it is not there.
    Export {
        /// Its name, with or without `builtin:`.
        name: String,
        /// The file or the folder to write; it must not exist.
        out: PathBuf,
        /// As what.
        #[arg(long, value_enum, value_name = "FORMAT")]
        to: ImageFormat,
        /// Name and tag in a container image (default: vmlab/guest:NAME-HASH).
        #[arg(long, value_name = "NAME:TAG")]
        tag: Option<String>,
    },
    /// Fill Containerfiles and manifests from one file of names, versions and a tag.
    Render(render::RenderArgs),
    /// Remove images from the cache.
    Rm {
        /// A name (`debian-12`: all its versions) or a version (`debian-12-0123456789ab`).
        name: String,
    },
}

/// What an image is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ImageFormat {
    /// An OCI archive that KubeVirt boots: kernel and initial RAM disk in /boot, root disk
    /// in /disk.
    Containerdisk,
    /// The same as an OCI layout, a folder.
    Oci,
    /// The root disk: it boots with the kernel of `vmlab image show`.
    Raw,
    /// The root disk, compressed.
    Qcow2,
}

/// A row of `list --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ListedImage<'a> {
    name: &'a str,
    /// The first digits of its recipe's hash, as in the folder's name.
    hash: &'a str,
    folder: &'a Path,
    /// Bytes on disk.
    size_bytes: u64,
    /// Seconds since the Unix epoch; none if its manifest can't be read.
    built_unix_s: Option<u64>,
    /// False for what an interrupted build left.
    complete: bool,
    /// Whether this vmlab would use it.
    current: bool,
}

/// What `show --json` prints.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ImageDescription<'a> {
    name: &'a str,
    arch: Arch,
    /// Debian's name of the release.
    suite: &'a str,
    recipe_hash: &'a str,
    content_hash: &'a str,
    /// Bytes on disk.
    size_bytes: u64,
    /// Seconds since the Unix epoch.
    built_unix_s: u64,
    /// Kernel parameters.
    cmdline: &'a [String],
    kernel: &'a Path,
    initrd: &'a Path,
    root_image: &'a Path,
    /// Packages that the recipe names.
    asked_for: &'a [String],
    /// All packages that it holds.
    packages: &'a [PackageVersion],
}

pub(crate) fn run(args: &ImageArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        ImageCommand::Build { name, again } => build(name, *again),
        ImageCommand::List { json } => list(*json),
        ImageCommand::Show { name, json } => show(name, *json),
        ImageCommand::Export { name, out, to, tag } => export(name, out, *to, tag.as_deref()),
        ImageCommand::Render(args) => render::run(args),
        ImageCommand::Rm { name } => rm(name),
    }
}

fn build(name: &str, again: bool) -> anyhow::Result<ExitCode> {
    let recipe = image::recipe(name)?;
    // As it was asked for: the recipe's name says no architecture.
    let name = image::plain_name(name);
    let cancel = interrupt::cancel_on_signals()?;
    if !again && let Some(found) = image::find(&recipe) {
        terminal::print(&format!("{name} is there: {}\n", found.folder.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if again && let Some(found) = image::find(&recipe) {
        let folder = found.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        image::remove(&folder)?;
    }
    let spinner = Spinner::start();
    let built = image::build(
        &recipe,
        &mut |progress| spinner.say(&runner::machine::build_step(name, &progress)),
        &cancel,
    );
    drop(spinner);
    let built = built?;
    terminal::print(&format!(
        "Built {name} with {} packages: {}\n",
        built.packages.len(),
        built.folder.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn export(
    name: &str,
    out: &Path,
    format: ImageFormat,
    tag: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let tagged = tag.map(|tag| {
        let named = tag.parse::<ImageReference>();
        named.with_context(|| format!("--tag {tag:?} is no image's name"))
    });
    let tagged = tagged.transpose()?;
    if out.exists() {
        bail!("{} is there already: name another one", out.display());
    }
    let recipe = image::recipe(name)?;
    let name = image::plain_name(name);
    let cancel = interrupt::cancel_on_signals()?;
    let spinner = Spinner::start();
    let mut say = |progress| spinner.say(&runner::machine::build_step(name, &progress));
    let built = image::build(&recipe, &mut say, &cancel)?;
    spinner.say(&format!("writing {}", out.display()));
    let whole = format!("vmlab/guest:{}", recipe.tag());
    let reference = tag.unwrap_or(&whole);
    let written = write_export(&built, &recipe, out, format, reference);
    drop(spinner);
    if let Err(error) = written {
        // Half of it is of no use to anybody.
        drop(fs::remove_file(out).or_else(|_| fs::remove_dir_all(out)));
        return Err(error.context(format!("Cannot write {}", out.display())));
    }
    let there = match tagged.is_some_and(|tag| tag.has_registry()) {
        true => reference.to_owned(),
        false => format!("REGISTRY/{reference}"),
    };
    let next = match format {
        ImageFormat::Containerdisk => {
            format!("skopeo copy oci-archive:{} docker://{there}", out.display())
        }
        ImageFormat::Oci => format!("skopeo copy oci:{} docker://{there}", out.display()),
        ImageFormat::Raw | ImageFormat::Qcow2 => String::new(),
    };
    terminal::print(&format!("{}\n", out.display()))?;
    if terminal::is_terminal() && !next.is_empty() {
        terminal::note(&format!(
            "Next: {next}\n      vmlab run STUDY --on kubevirt --kubevirt-image {there}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_export(
    built: &GuestImage,
    recipe: &Recipe,
    out: &Path,
    format: ImageFormat,
    reference: &str,
) -> anyhow::Result<()> {
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let image = OciImage::container_disk(built, recipe.arch, reference);
    match format {
        ImageFormat::Containerdisk => {
            Ok(image.write_archive(&mut fs::File::create_new(out)?, folder)?)
        }
        ImageFormat::Oci => Ok(image.write_layout(out)?),
        ImageFormat::Raw => {
            fs::copy(&built.root_image, out)?;
            Ok(())
        }
        ImageFormat::Qcow2 => {
            let output = Command::new("qemu-img")
                .args(["convert", "-f", "raw", "-O", "qcow2", "-c"])
                .arg(&built.root_image)
                .arg(out)
                .output()
                .context("Cannot run qemu-img: run `apt-get install qemu-utils`")?;
            match output.status.success() {
                true => Ok(()),
                false => bail!("qemu-img: {}", String::from_utf8_lossy(&output.stderr).trim()),
            }
        }
    }
}

fn list(as_json: bool) -> anyhow::Result<ExitCode> {
    let images = image::list()?;
    if as_json {
        let rows: Vec<ListedImage> = images
            .iter()
            .map(|image| ListedImage {
                name: &image.name,
                hash: &image.short_hash,
                folder: &image.folder,
                size_bytes: image.size_bytes,
                built_unix_s: image.built_unix_s,
                complete: image.complete,
                current: image.current,
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

fn show(name: &str, as_json: bool) -> anyhow::Result<ExitCode> {
    let recipe = image::recipe(name)?;
    let shown = recipe.shown_name();
    let Some(found) = image::find(&recipe) else {
        let name = image::plain_name(name);
        bail!("{shown} is not built yet: run `vmlab image build {name}`");
    };
    if as_json {
        let facts = ImageDescription {
            name: &recipe.name,
            arch: recipe.arch,
            suite: &recipe.suite,
            recipe_hash: &found.recipe_hash,
            content_hash: &found.content_hash,
            size_bytes: found.size_bytes,
            built_unix_s: found.built_unix_s,
            cmdline: &found.cmdline,
            kernel: &found.kernel,
            initrd: &found.initrd,
            root_image: &found.root_image,
            asked_for: &recipe.packages,
            packages: &found.packages,
        };
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&facts)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let size = |bytes: u64| record::Unit::from("B").show(bytes as f64);
    let mut text = String::new();
    writeln!(text, "{shown}: Debian {} for {}", recipe.suite, recipe.arch)?;
    writeln!(text, "Folder        {}", found.folder.display())?;
    writeln!(
        text,
        "Size          {} on disk: kernel {}, initial RAM disk {}, root image {}",
        size(found.size_bytes),
        size(bytes(&found.kernel)),
        size(bytes(&found.initrd)),
        size(bytes(&found.root_image)),
    )?;
    writeln!(text, "Recipe hash   {}", found.recipe_hash)?;
    writeln!(text, "Content hash  {}", found.content_hash)?;
    writeln!(text, "Parameters    {}", found.cmdline.join(" "))?;
    writeln!(text, "Asked for     {}", recipe.packages.join(" "))?;
    writeln!(text, "\n{} packages", found.packages.len())?;
    for package in &found.packages {
        writeln!(text, "  {} {}", package.name, package.version)?;
    }
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn rm(name: &str) -> anyhow::Result<ExitCode> {
    for removed in image::remove(name)? {
        terminal::print(&format!("Removed {}\n", removed.folder.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
