//! The `host` tables of a study: settings by id.

use std::collections::BTreeMap;

use host::settings::{self, SettingChange};
use vmconfig::VmPatch;

use super::Study;
use super::check::{StudyChecker, unknown};
use super::lines::PathStep::{self, Key};

/// Settings by id.
pub type HostSettings = BTreeMap<String, String>;

/// Whose host setting.
#[derive(Debug, Clone, Copy)]
pub enum SettingOwner<'a> {
    /// The whole study's.
    Study,
    /// That of a load, by its name.
    Load(&'a str),
    /// That of a variant, by its name.
    Variant(&'a str),
}

/// What is set, with units: `halt_poll_ns = 0 ns`.
#[must_use]
pub fn describe(settings: &HostSettings) -> Vec<String> {
    let one = |(id, value): (&String, &String)| {
        let unit = settings::setting(id).map_or("", |setting| setting.unit);
        format!("{id} = {value} {unit}").trim_end().to_owned()
    };
    settings.iter().map(one).collect()
}

/// Beside the settings of the study's own table: whether modules may be loaded
/// again for them.
const RELOAD: &str = "reload";

impl Study {
    /// Where the host setting of the study, of a load or of a variant stands in
    /// the file.
    #[must_use]
    pub fn line_of_setting(&self, of: SettingOwner<'_>, id: &str) -> usize {
        let lines = &self.places.lines;
        let path = match of {
            SettingOwner::Study => vec![Key("host"), Key(id)],
            SettingOwner::Load(name) => {
                let index = self.loads.iter().position(|load| load.name == name);
                vec![Key("load"), PathStep::Index(index.unwrap_or(0)), Key("host"), Key(id)]
            }
            SettingOwner::Variant(name) => {
                let index = self.places.variants.get(name).copied();
                let variant = [Key("variant"), PathStep::Index(index.unwrap_or(0))];
                let own = [&variant[..], &[Key("host"), Key(id)]].concat();
                let wish = [&variant[..], &[Key("vm"), Key("host"), Key(id)]].concat();
                let base = vec![Key("vm"), Key("host"), Key(id)];
                let exact = [&own, &wish, &base].into_iter().find_map(|path| lines.exactly(path));
                return exact.unwrap_or_else(|| lines.of(&own));
            }
        };
        lines.of(&path)
    }

    /// Where a key of `[ground]` stands in the file, of the study's size first.
    #[must_use]
    pub fn line_of_ground(&self, key: &str) -> usize {
        let lines = &self.places.lines;
        let of_size = self
            .scale
            .as_ref()
            .and_then(|name| lines.exactly(&[Key("scale"), Key(name), Key("ground"), Key(key)]));
        of_size.unwrap_or_else(|| lines.of(&[Key("ground"), Key(key)]))
    }
}

impl StudyChecker {
    /// The settings for the whole study, and whether modules may be reloaded.
    pub(super) fn study_settings(
        &mut self,
        table: &BTreeMap<String, toml::Value>,
    ) -> (BTreeMap<String, String>, bool) {
        let mut table = table.clone();
        let reload = match table.remove(RELOAD) {
            None => false,
            Some(toml::Value::Boolean(reload)) => reload,
            Some(other) => {
                let message = format!("{RELOAD} = {other}: must be true or false");
                self.problem(&[Key("host"), Key(RELOAD)], message);
                false
            }
        };
        (self.host_settings(&[Key("host")], &table), reload)
    }

    /// Refuses wishes of a VM that is not under test: they would be the VM's
    /// that is.
    pub(super) fn no_wishes(&mut self, path: &[PathStep<'_>], vm: &VmPatch) {
        if let Some((id, value)) = vm.host.set().into_iter().next() {
            let message = format!(
                "host.{id} = {value} is for the whole host, not for one of its VMs: write it as \
                 host.{id} of a variant, of a load or of the study"
            );
            self.problem(path, message);
        }
    }

    /// The settings of the table at `path`, each in the one way to say it.
    pub(super) fn host_settings(
        &mut self,
        path: &[PathStep<'_>],
        table: &BTreeMap<String, toml::Value>,
    ) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        for (id, value) in table {
            let at = [path, &[Key(id)]].concat();
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(on) => u32::from(*on).to_string(),
                other => {
                    let kind = other.type_str();
                    let message =
                        format!("{id}: a {kind} can't be a setting; give a number or text");
                    self.problem(&at, message);
                    continue;
                }
            };
            if settings::setting(id).is_none() {
                let ids = settings::SETTINGS.iter().map(|setting| setting.id);
                self.problem(&at, unknown_setting(id, ids));
                continue;
            }
            match SettingChange::new(id, &text) {
                Ok(change) => {
                    settings.insert(id.clone(), change.value().to_owned());
                }
                Err(error) => self.problem(&at, error.to_string()),
            }
        }
        settings
    }
}

/// All of them would be a page: the nearest, or where to look.
fn unknown_setting(id: &str, ids: impl Iterator<Item = &'static str> + Clone) -> String {
    match workload::near(id, ids.clone()) {
        Some(_) => unknown("host", "host setting", id, ids),
        None => {
            format!("host = {id:?}: no such host setting; `vmlab settings list` shows all")
        }
    }
}
