//! Who ran where, as files; and recordings of it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context as _, bail};
use sim::map::Map;
use sim::{page, picture, recording, tracks};

/// The most bytes of a recording, which is in memory as a whole: some million switches.
const MOST_BYTES: u64 = 1 << 28;

/// Writes the pictures that are asked for.
pub(super) fn write(picture: Option<&Path>, trace: Option<&Path>, map: &Map) -> anyhow::Result<()> {
    let write = |path: &Path, text: String| {
        fs::write(path, text).with_context(|| format!("Cannot write {}", path.display()))
    };
    if let Some(path) = picture {
        let is_page = path.extension().is_some_and(|end| end == "html" || end == "htm");
        let text = if is_page {
            page::html(map).with_context(|| {
                let count = map.segments.len();
                let most = page::MOST_SEGMENTS;
                format!("{count} stretches are too many for a page, {most} fit: draw less time (--map-ms), or SVG")
            })?
        } else {
            picture::svg(map)
        };
        write(path, text)?;
    }
    if let Some(path) = trace {
        write(path, tracks::trace(map))?;
    }
    Ok(())
}

/// Reads a recording of a real machine.
pub(super) fn recorded(path: &Path) -> anyhow::Result<Map> {
    let stdin = path == Path::new("-");
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    let read = if stdin {
        io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("Cannot read {name}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{name} has more than {MOST_BYTES} bytes: print less time (perf script --time)");
    }
    if bytes.starts_with(b"PERFILE2") {
        bail!(
            "{name} is perf's own file: make a text of it with `perf script -i {name} -F comm,pid,tid,cpu,time,event,trace`"
        );
    }
    if bytes.get(3..10) == Some(b"tracing") {
        bail!(
            "{name} is trace-cmd's own file: make a text of it with `trace-cmd report -i {name}`"
        );
    }
    let text = String::from_utf8_lossy(&bytes);
    recording::read(&name, &text).map_err(|error| anyhow::anyhow!("{name}:{error}"))
}
