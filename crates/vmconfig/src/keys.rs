//! The keys of a table that people write, from the type that reads it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The keys that a type takes which is read from a table, in their order; none of one that
/// is read from something else. For whoever takes part of what vmlab's own tables hold.
#[must_use]
pub fn keys_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    T::deserialize(KeyAsker).err().map_or(&[], |asked| asked.0)
}

/// Gives no value; what a type asks for comes back with the error.
struct KeyAsker;

/// The fields that a type asks for.
#[derive(Debug)]
struct AskedFields(&'static [&'static str]);

impl fmt::Display for AskedFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for AskedFields {}

impl Error for AskedFields {
    fn custom<D: fmt::Display>(_: D) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for KeyAsker {
    type Error = AskedFields;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, AskedFields> {
        Err(AskedFields(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, AskedFields> {
        Err(AskedFields(fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::keys_of;
    use crate::{GuestNode, MemoryBacking, PageSize, VmPatch};

    #[test]
    fn keys_are_those_that_are_read() {
        let keys = keys_of::<VmPatch>();
        assert_eq!(keys[..3], ["vcpus", "max_vcpus", "topology"]);
        let known = |keys: &[&str], all: &[&str]| all.iter().all(|key| keys.contains(key));
        assert!(known(keys_of::<MemoryBacking>(), &["huge_pages", "host_nodes", "policy"]));
        assert!(known(keys_of::<GuestNode>(), &["vcpus", "memory_mib", "host_nodes"]));
        assert!(keys_of::<PageSize>().is_empty() && keys_of::<u32>().is_empty());
        for key in keys {
            let unknown = format!("{key}_ = 1");
            let error = toml::from_str::<VmPatch>(&unknown).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{error}");
        }
    }
}
