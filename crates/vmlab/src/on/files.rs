//! What a study names beside itself: disk images of the user's own.

use std::path::{Component, Path};

use anyhow::bail;
use remote::{Patience, Session};
use runner::freeze;
use runner::study::Study;
use vmconfig::Image;

use super::binary::{hash, put_if_missing};
use crate::study_file::StudyText;

/// Where studies' files lie there, below the home folder.
const FOLDER: &str = ".cache/vmlab/studies";

/// Copies the images that lie beside the study, unless they are there; returns the
/// folder that stands for the study's there. An absolute path is a file of the
/// other machine.
pub(crate) fn bring(
    session: &Session,
    written: &StudyText,
    study: &Study,
    patience: Patience<'_>,
) -> anyhow::Result<String> {
    let mut beside = Vec::new();
    for image in freeze::images(study) {
        let Image::File(path) = image else { continue };
        if path.is_absolute() {
            continue;
        }
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            bail!(
                "{}: the image {} does not lie below the study's folder, so it can't go over: move it there, or name a file of the other machine by its absolute path",
                written.file,
                path.display()
            );
        }
        let here = written.folder.join(&path);
        beside.push((hash(&here)?, here, path));
    }
    let names = beside.iter().map(|(hash, _, path)| format!("{hash} {}\n", path.display()));
    let all = blake3::hash(names.collect::<String>().as_bytes()).to_hex();
    let folder = format!("{}/{FOLDER}/{}", session.home(), &all[..16]);
    for (_, here, path) in &beside {
        let there = Path::new(&folder).join(path).display().to_string();
        put_if_missing(session, here, &there, 0o644, patience)?;
    }
    Ok(folder)
}
