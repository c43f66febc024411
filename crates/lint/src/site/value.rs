//! JSON as CEL sees it.
//!
//! Nothing is copied: a table answers for the members that a condition names, and a
//! copy of it, of which CEL makes one for each turn of a loop, is a pointer.

use std::sync::OnceLock;

use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Iterator as Values, Sizer, Zeroer};
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelNull, CelString, CelUInt, Kind, MAP_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use serde_json::{Map, Value};

/// A value of JSON.
pub(super) fn of(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(on) => Box::new(CelBool::from(*on)),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => Box::new(CelInt::from(number)),
            (_, Some(number), _) => Box::new(CelUInt::from(number)),
            (.., number) => Box::new(CelDouble::from(number.unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(items) => {
            Box::new(CelList::from(items.iter().map(of).collect::<Vec<Box<dyn Val + '_>>>()))
        }
        Value::Object(members) => Box::new(ValueMap { members, names: OnceLock::new() }),
    }
}

/// A map with texts as keys.
#[derive(Debug)]
struct ValueMap<'v> {
    members: &'v Map<String, Value>,
    /// The keys, once somebody has gone through them.
    names: OnceLock<Vec<CelString<'v>>>,
}

impl<'v> ValueMap<'v> {
    fn member(&self, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError> {
        let Some(name) = key.downcast_ref::<CelString<'_>>() else {
            let got = key.get_type();
            return Err(match got.kind() {
                // Keys of other maps.
                Kind::Boolean | Kind::Int | Kind::UInt | Kind::Double => {
                    ExecutionError::NoSuchKey(format!("{key:?}").into())
                }
                _ => ExecutionError::UnexpectedType {
                    got: got.name().to_owned(),
                    want: "map key".to_owned(),
                },
            });
        };
        let name = name.inner();
        let member = self.members.get(name).map(of);
        member.ok_or_else(|| ExecutionError::NoSuchKey(name.to_owned().into()))
    }
}

impl Val for ValueMap<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn into_indexer<'w>(self: Box<Self>) -> Option<Box<dyn Indexer + 'w>>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    /// Conditions make no maps, so that the other is one of these, too.
    fn equals(&self, other: &dyn Val) -> bool {
        let Some((sizer, indexer)) = other.as_sizer().zip(other.as_indexer()) else {
            return false;
        };
        *sizer.size().inner() == *self.size().inner()
            && self.members.iter().all(|(name, member)| {
                let other = indexer.get(&CelString::from(name.as_str()));
                other.is_ok_and(|other| of(member).equals(other.as_ref()))
            })
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(Self { members: self.members, names: OnceLock::new() })
    }
}

impl Container for ValueMap<'_> {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        match self.member(key) {
            Ok(_) => Ok(true),
            Err(ExecutionError::NoSuchKey(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Indexer for ValueMap<'_> {
    fn get<'b, 'w>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.member(key).map(|member| CowVal::Owned(member as Box<dyn Val + 'w>))
    }

    fn steal<'w>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.member(key).map(|member| member as Box<dyn Val + 'w>)
    }
}

impl Iterable for ValueMap<'_> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn Values<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        let named = || self.members.keys().map(|name| CelString::from(name.as_str())).collect();
        Box::new(TableKeys(self.names.get_or_init(named).iter()))
    }
}

impl Sizer for ValueMap<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.members.len()).unwrap_or(i64::MAX))
    }
}

impl Zeroer for ValueMap<'_> {
    fn is_zero_value(&self) -> bool {
        self.members.is_empty()
    }
}

/// The keys of a table.
struct TableKeys<'b, 'v>(std::slice::Iter<'b, CelString<'v>>);

impl<'b, 'v: 'w, 'w> Values<'b, 'w> for TableKeys<'b, 'v> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        self.0.next().map(|name| name as &(dyn Val + 'w))
    }
}

#[cfg(test)]
mod tests {
    use cel::{Context, Program};
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_answer_as_cels_own_maps_do() {
        let value = json!({
            "table": { "a": 1, "b": [1, "x", null], "c": { "d": -2 } },
            "same": { "c": { "d": -2 }, "b": [1, "x", null], "a": 1 },
            "other": { "a": 1, "b": [1, "x", null], "c": { "d": -3 } },
            "empty": {}, "number": 1.5, "large": u64::MAX,
        });
        let own: cel::Value = cel::to_value(&value).unwrap();
        for condition in [
            "v.table.a == 1",
            "has(v.table.a)",
            "has(v.table.z)",
            "v.table.z == 1",
            "v.table['c'].d < 0",
            "v.table[1] == 1",
            "'b' in v.table",
            "'z' in v.table",
            "1 in v.table",
            "true in v.table",
            "null in v.table",
            "v.table[null] == 1",
            "v.table == v.same",
            "v.table == v.other",
            "v.table != v.empty",
            "v.table == v.number",
            "v.table.b == [1, 'x', null]",
            "[1, 'x', null] == v.table.b",
            "[v.table] == [v.same]",
            "v.table in [v.other, v.same]",
            "size(v.table) == 3 && v.empty.size() == 0",
            "v.table.exists(name, name == 'c')",
            "v.table.all(name, size(name) == 1)",
            "v.table.exists_one(name, v.table[name] == 1)",
            "v.table.map(name, size(name)) == [1, 1, 1]",
            "v.table.filter(name, name > 'a').size() == 2",
            "v.table.c.d.e == 1",
            "v.table + v.same == v.table",
            "v.table < v.same",
            "v.number > 1.4 && v.large > 5",
            "type(v.table) == map && type(v.empty) == map",
        ] {
            let program = Program::compile(condition).unwrap();
            let mut ours = Context::default();
            ours.add_variable_as_val("v", of(&value));
            let mut theirs = Context::default();
            theirs.add_variable_from_value("v", own.clone());
            let ask = |context: &Context<'_, '_>| {
                let found = cel::Value::resolve(program.expression(), context);
                found.map_err(|error| std::mem::discriminant(&error))
            };
            assert_eq!(ask(&ours), ask(&theirs), "{condition}");
        }
    }
}
