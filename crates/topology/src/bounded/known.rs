//! JSON that a program wrote, perhaps a later version of it: what is known of it is
//! used, and what is not is told, however strictly the types are read elsewhere.

use std::cell::RefCell;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// A value, and the fields of its text that its type does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFields<T> {
    /// What was understood.
    pub value: T,
    /// The paths of the fields that were passed over, as `variants[0].spec.colour`.
    pub unknown: Vec<String>,
}

/// Reads JSON of vmlab's own. A field that the type does not have is passed over and
/// named, also where the type refuses such fields in what people write.
///
/// # Errors
/// When it is no JSON, or a known field is not as the type wants it; with the line where
/// that is known.
pub fn json<T: DeserializeOwned>(text: &[u8]) -> Result<KnownFields<T>, Error> {
    let unknown = RefCell::default();
    let known =
        KnownValue { value: serde_json::from_slice(text)?, path: String::new(), unknown: &unknown };
    let value = match T::deserialize(known) {
        Ok(value) => value,
        // The same once more, for the line: the tree has none. It may stop at an unknown
        // field before.
        Err(error) if unknown.borrow().is_empty() => {
            return Err(serde_json::from_slice::<T>(text).err().unwrap_or(error));
        }
        Err(error) => return Err(error),
    };
    Ok(KnownFields { value, unknown: unknown.into_inner() })
}

/// A value of a text, and its path there.
struct KnownValue<'a> {
    value: Value,
    path: String,
    unknown: &'a RefCell<Vec<String>>,
}

impl<'a> KnownValue<'a> {
    fn map(self, members: Map<String, Value>) -> Members<'a> {
        Members { members: members.into_iter(), next: None, path: self.path, unknown: self.unknown }
    }

    /// The only member, where an enum's variant has data.
    fn variant(self) -> Result<(String, Option<Self>), Error> {
        let Self { value, path, unknown } = self;
        match value {
            Value::String(name) => Ok((name, None)),
            Value::Object(members) if members.len() == 1 => {
                let mut members = members.into_iter();
                let Some((name, value)) = members.next() else {
                    return Err(Error::custom("a variant is missing"));
                };
                let path = below(&path, &name);
                Ok((name, Some(Self { value, path, unknown })))
            }
            _ => Err(Error::custom("expected a variant's name, or an object of one member")),
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<'de> Deserializer<'de> for KnownValue<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => {
                let (path, unknown) = (self.path, self.unknown);
                visitor.visit_seq(Items { items: items.into_iter(), number: 0, path, unknown })
            }
            Value::Object(members) => {
                let empty = Self { value: Value::Null, path: self.path, unknown: self.unknown };
                visitor.visit_map(empty.map(members))
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Self { value, path, unknown } = self;
        let Value::Object(mut members) = value else {
            return Self { value, path, unknown }.deserialize_any(visitor);
        };
        members.retain(|name, _| {
            let is_known = fields.contains(&name.as_str());
            if !is_known {
                unknown.borrow_mut().push(below(&path, name));
            }
            is_known
        });
        visitor.visit_map(Self { value: Value::Null, path, unknown }.map(members))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (name, data) = self.variant()?;
        visitor.visit_enum(NamedVariant { name, data })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    items: std::vec::IntoIter<Value>,
    number: usize,
    path: String,
    unknown: &'a RefCell<Vec<String>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let path = format!("{}[{}]", self.path, self.number);
        self.number += 1;
        seed.deserialize(KnownValue { value, path, unknown: self.unknown }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Members<'a> {
    members: serde_json::map::IntoIter,
    /// The one whose name was asked for last.
    next: Option<(String, Value)>,
    path: String,
    unknown: &'a RefCell<Vec<String>>,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.next = self.members.next();
        let Some((name, _)) = &self.next else { return Ok(None) };
        seed.deserialize(MemberName(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((name, value)) = self.next.take() else {
            return Err(Error::custom("a value without its name"));
        };
        let path = below(&self.path, &name);
        seed.deserialize(KnownValue { value, path, unknown: self.unknown })
    }
}

/// The name of a member, which may be a number's text.
struct MemberName<'a>(&'a str);

macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match (self.0.parse::<u64>(), self.0.parse::<i64>()) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for MemberName<'_> {
    type Error = Error;

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// A variant by its name, with what it holds.
struct NamedVariant<'a> {
    name: String,
    data: Option<KnownValue<'a>>,
}

impl<'de, 'a> EnumAccess<'de> for NamedVariant<'a> {
    type Error = Error;
    type Variant = VariantData<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, VariantData<'a>), Error> {
        Ok((seed.deserialize(MemberName(&self.name))?, VariantData(self.data)))
    }
}

struct VariantData<'a>(Option<KnownValue<'a>>);

impl<'a> VariantData<'a> {
    fn expected(self) -> Result<KnownValue<'a>, Error> {
        self.0.ok_or_else(|| Error::custom("a variant without what it holds"))
    }
}

impl<'de> VariantAccess<'de> for VariantData<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.0 {
            Some(data) if !data.value.is_null() => {
                Err(Error::custom("a variant that holds nothing has a value"))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.expected()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.expected()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.expected()?.deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct StrictFields {
        a: u8,
        #[serde(default, rename = "be")]
        b: Option<Vec<InnerFields>>,
        #[serde(default)]
        c: BTreeMap<u32, Kind>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    enum Kind {
        Unit,
        New(f64),
        Pair(u8, String),
        Fields { x: i8 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, try_from = "RawFields")]
    struct InnerFields(u8);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RawFields {
        x: u8,
    }

    impl TryFrom<RawFields> for InnerFields {
        type Error = String;
        fn try_from(raw: RawFields) -> Result<Self, String> {
            if raw.x < 100 { Ok(Self(raw.x)) } else { Err(format!("{} is too much", raw.x)) }
        }
    }

    const LATER: &str = r#"{
        "a": 1, "new": {"a": 2},
        "be": [{"x": 1}, {"x": 2, "y": [3]}],
        "c": {"3": "unit", "4": {"new": 0.1}, "5": {"pair": [1, "two"]}, "6": {"fields": {"x": -1, "z": 0}}}
    }"#;

    #[test]
    fn what_is_not_known_is_named_and_the_rest_read() {
        assert!(serde_json::from_str::<StrictFields>(LATER).is_err());
        let KnownFields { value, unknown } = json::<StrictFields>(LATER.as_bytes()).unwrap();
        assert_eq!(unknown, ["new", "be[1].y", "c.6.fields.z"]);
        let c = [
            (3, Kind::Unit),
            (4, Kind::New(0.1)),
            (5, Kind::Pair(1, "two".to_owned())),
            (6, Kind::Fields { x: -1 }),
        ];
        assert_eq!(
            value,
            StrictFields { a: 1, b: Some(vec![InnerFields(1), InnerFields(2)]), c: c.into() }
        );
    }

    #[test]
    fn what_is_known_stays_strict() {
        let error = json::<StrictFields>(b"{\n\"a\": 300}").unwrap_err();
        assert_eq!(error.line(), 2, "{error}");
        for (text, part) in [
            (r#"{"a": 1, "new": 2, "be": [{"x": 100}]}"#, "100 is too much"),
            (r#"{"a": 1, "c": {"x": "unit"}}"#, "a number"),
            (r#"{"a": 1, "c": {"1": "other"}}"#, "unknown variant `other`"),
            (r#"{"a": 1, "c": {"1": {"unit": 1}}}"#, ""),
            (r#"{"a": 1, "c": {"1": "new"}}"#, ""),
            (r#"{"a": 1, "c": {"1": {"new": 1, "unit": null}}}"#, ""),
            (r#"{"new": 1}"#, "missing field `a`"),
            ("[", "EOF"),
        ] {
            let error = json::<StrictFields>(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }
}
