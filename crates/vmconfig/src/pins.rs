//! Where QEMU's threads run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use topology::PcpuSet;

/// Which pCPUs each of QEMU's threads may use. A thread that isn't named runs
/// where the host's scheduler likes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// By vCPU number.
    #[serde(default)]
    pub vcpus: VcpuPins,
    /// QEMU's other threads.
    #[serde(default)]
    pub emulator: Option<PcpuSet>,
    /// By the iothread's number, from 1.
    #[serde(default, skip_serializing_if = "VcpuPins::is_empty")]
    pub iothreads: VcpuPins,
    /// The kernel's threads that move packets and blocks for the VM: one for
    /// each vhost device, a network interface's pairs of queues apart. Without
    /// this they run where QEMU's thread that made them may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<PcpuSet>,
}

impl Pins {
    /// True if no thread is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vcpus.is_empty()
            && self.emulator.is_none()
            && self.iothreads.is_empty()
            && self.vhost.is_none()
    }
}

/// Where each vCPU may run, by vCPU number.
///
/// Written as a list by vCPU number, `["2", "3", "4-5"]`, where `""` leaves a
/// vCPU unpinned; or as a table, `{ 0 = "2", 3 = "4-5" }`. A pCPU alone may be
/// a number: `[2, 3]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct VcpuPins(pub BTreeMap<u32, PcpuSet>);

impl std::ops::Deref for VcpuPins {
    type Target = BTreeMap<u32, PcpuSet>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl VcpuPins {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(u32, PcpuSet)> for VcpuPins {
    fn from_iter<I: IntoIterator<Item = (u32, PcpuSet)>>(pins: I) -> Self {
        Self(pins.into_iter().collect())
    }
}

impl JsonSchema for VcpuPins {
    fn schema_name() -> Cow<'static, str> {
        "VcpuPins".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let pcpus = generator.subschema_for::<PcpuSet>();
        if generator.contract().is_serialize() {
            return json_schema!({
                "description": "pCPUs by the number of a vCPU.",
                "type": "object",
                "additionalProperties": pcpus,
            });
        }
        let pin = json_schema!({ "anyOf": [pcpus, { "type": "integer", "minimum": 0 }] });
        json_schema!({
            "description": "pCPUs by vCPU: a list `[\"2\", \"4-5\"]`, or a table `{ 0 = \"2\" }`.",
            "anyOf": [
                { "type": "array", "items": pin.clone() },
                { "type": "object", "additionalProperties": pin },
            ],
        })
    }
}

impl<'de> Deserialize<'de> for VcpuPins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOrTable)
    }
}

struct ListOrTable;

impl<'de> Visitor<'de> for ListOrTable {
    type Value = VcpuPins;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pCPUs by vCPU: a list [\"2\", \"4-5\"] or a table { 0 = \"2\" }")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<VcpuPins, A::Error> {
        let mut pins = BTreeMap::new();
        let mut vcpu = 0;
        while let Some(OnePin(pcpus)) = list.next_element()? {
            if !pcpus.is_empty() {
                pins.insert(vcpu, pcpus);
            }
            vcpu += 1;
        }
        Ok(VcpuPins(pins))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<VcpuPins, A::Error> {
        let mut pins = BTreeMap::new();
        while let Some(key) = table.next_key::<String>()? {
            let vcpu = key.parse().map_err(|_| {
                de::Error::custom(format_args!("not a vCPU number: {key:?} (vCPUs count from 0)"))
            })?;
            let OnePin(pcpus) = table.next_value()?;
            if pins.insert(vcpu, pcpus).is_some() {
                return Err(de::Error::custom(format_args!("vCPU {vcpu} is pinned twice")));
            }
        }
        Ok(VcpuPins(pins))
    }
}

/// A pCPU list, or one pCPU as a number.
struct OnePin(PcpuSet);

impl<'de> Deserialize<'de> for OnePin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;

        impl Visitor<'_> for TextOrNumber {
            type Value = OnePin;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pCPUs: a list like \"2\" or \"4-5,8\", or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OnePin, E> {
                text.parse().map(OnePin).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<OnePin, E> {
                let pcpu = u32::try_from(number)
                    .map_err(|_| E::custom(format_args!("not a pCPU number: {number}")))?;
                Ok(OnePin(PcpuSet::from_iter([pcpu])))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<OnePin, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::custom(format_args!("not a pCPU number: {number}"))),
                }
            }
        }

        deserializer.deserialize_any(TextOrNumber)
    }
}
