//! What a study boots: disk images of the user's own, and built ones that would
//! have to be built there.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use guest::image::{self, Recipe};
use remote::{Patience, SshSession};
use runner::freeze;
use runner::study::Study;
use vmconfig::{Arch, BuiltinKernel, ImagePatch};

use super::binary::{hash, is_there, put_if_missing};
use crate::study_file::StudyText;
use crate::terminal;

/// Where studies' files lie there, below the folder for cached files.
const FOLDER: &str = "vmlab/studies";

/// Where built images lie, here and there.
const IMAGES: &str = "vmlab/images";

/// Gives the folder `$1` its name `$2`, unless another was faster.
const NAME: &str = "mv -T -- \"$1\" \"$2\" 2>/dev/null || { test -d \"$2\" && rm -r -- \"$1\"; }";

/// The images that lie beside a study. An absolute path is a file of the other
/// machine.
pub(crate) struct StudyImages {
    /// Hash, file here, path below the study's folder.
    images: Vec<(String, PathBuf, PathBuf)>,
}

impl StudyImages {
    /// Reads them; what can't go over is an error.
    pub(crate) fn of(written: &StudyText, study: &Study) -> anyhow::Result<Self> {
        let mut images = Vec::new();
        for path in image_files(study) {
            if path.is_absolute() {
                continue;
            }
            if !path
                .components()
                .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
            {
                bail!(
                    "{}: the image {} does not lie below the study's folder, so it can't go over: move it there, or name a file of the other machine by its absolute path",
                    written.file,
                    path.display()
                );
            }
            let here = written.folder.join(&path);
            images.push((hash(&here)?, here, path));
        }
        Ok(Self { images })
    }

    /// Copies them unless they are there; returns the folder that stands for the
    /// study's there.
    pub(crate) fn bring(
        &self,
        session: &SshSession,
        patience: Patience<'_>,
    ) -> anyhow::Result<String> {
        let names =
            self.images.iter().map(|(hash, _, path)| format!("{hash} {}\n", path.display()));
        let all = blake3::hash(names.collect::<String>().as_bytes()).to_hex();
        let folder = format!("{}/{FOLDER}/{}", session.cache_home(), &all[..16]);
        for (_, here, path) in &self.images {
            let there = Path::new(&folder).join(path).display().to_string();
            put_if_missing(session, here, &there, 0o644, patience)?;
        }
        Ok(folder)
    }
}

/// Copies the built images that guests of `arch` boot, where they are here and not
/// there: a machine without a way to Debian's mirror need not build them.
pub(crate) fn bring_images(
    session: &SshSession,
    study: &Study,
    folder: &Path,
    arch: Arch,
    patience: Patience<'_>,
) -> anyhow::Result<()> {
    for recipe in builtin_images(study, folder, arch)? {
        let Some(built) = image::find(&recipe) else { continue };
        let name = recipe.shown_name();
        let folder = built.folder.file_name().unwrap_or_default().to_string_lossy();
        let images = format!("{}/{IMAGES}", session.cache_home());
        let there = format!("{images}/{folder}");
        if is_there(session, &format!("{there}/manifest.json"), patience)? {
            continue;
        }
        let size = record::Unit::from("B").show(built.size_bytes as f64);
        let to = session.destination();
        terminal::note(&format!("vmlab: copying the image {name} ({size}) to {to}"));
        let part = format!("{images}/.coming-{folder}-{}", std::process::id());
        let files = fs::read_dir(&built.folder)
            .with_context(|| format!("Cannot read {}", built.folder.display()))?;
        for file in files {
            let here = file?.path();
            let name = here.file_name().unwrap_or_default().to_string_lossy();
            session.put(&here, &format!("{part}/{name}"), 0o644, patience)?;
        }
        session.command(["sh", "-c", NAME, "sh", &part, &there]).run(patience)?;
    }
    Ok(())
}

/// The files that the images of a study are made of, as it names them: disk images,
/// and packages with a kernel.
pub(crate) fn image_files(study: &Study) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = freeze::images(study)
        .into_iter()
        .filter_map(|image| match image {
            ImagePatch::File(path) => Some(path),
            ImagePatch::Builtin(name) => image::kernel_path(&name).map(Path::to_owned),
        })
        .collect();
    files.sort();
    files.dedup();
    files
}

/// The built images that a study in `folder` boots, and that the trial of KVM does.
pub(crate) fn builtin_images(
    study: &Study,
    folder: &Path,
    arch: Arch,
) -> anyhow::Result<Vec<Recipe>> {
    let mut names: Vec<String> = freeze::images(study)
        .into_iter()
        .filter_map(|image| match image {
            // vmlab itself carries it.
            thin if BuiltinKernel::is_thin(&thin) => None,
            ImagePatch::Builtin(name) => Some(name),
            ImagePatch::File(_) => None,
        })
        .collect();
    if runner::machine::wants_kvm(study) {
        names.push(runner::machine::trial_image(study));
    }
    names.sort();
    names.dedup();
    Ok(names
        .iter()
        .map(|name| Recipe::builtin_from(name, folder, arch))
        .collect::<Result<_, _>>()?)
}
