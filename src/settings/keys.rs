//! Which keys exist. The lists come from the serde structs themselves, so that they cannot lag behind.

use serde::de::{DeserializeOwned, Deserializer, Error, Visitor, value::Error as Stop};
use serde::forward_to_deserialize_any;

use super::raw::{
    Raw, RawAccess, RawAdmin, RawBridge, RawDurability, RawJwt, RawLimits, RawListener, RawLog, RawQueue,
    RawQueueDef, RawQueueRule, RawRule, RawStore,
};

/// A place in the file that holds keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[name]`
    Table(&'static [&'static str]),
    /// `[[name]]`, any number of times.
    List(&'static [&'static str]),
}

impl Section {
    /// The keys of the table, or of each table of the list.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Table(keys) | Self::List(keys) => keys,
        }
    }
}

/// The section at `path` (without indexes; the empty path is the file itself), if it is one.
pub fn section(path: &str) -> Option<Section> {
    Some(match path {
        "" => Section::Table(fields_of::<Raw>()),
        "listener" => Section::List(fields_of::<RawListener>()),
        "store" => Section::Table(fields_of::<RawStore>()),
        "durability" => Section::Table(fields_of::<RawDurability>()),
        "limits" => Section::Table(fields_of::<RawLimits>()),
        "queue" => Section::Table(fields_of::<RawQueue>()),
        "queue_rule" => Section::List(fields_of::<RawQueueRule>()),
        "queue_def" => Section::List(fields_of::<RawQueueDef>()),
        "bridge" => Section::List(fields_of::<RawBridge>()),
        "bridge.out" | "bridge.in" => Section::List(fields_of::<RawRule>()),
        "access" => Section::Table(fields_of::<RawAccess>()),
        "jwt" => Section::Table(fields_of::<RawJwt>()),
        "admin" => Section::Table(fields_of::<RawAdmin>()),
        "log" => Section::Table(fields_of::<RawLog>()),
        _ => return None,
    })
}

/// The keys that can be set by an environment variable or a flag: those of plain tables, as `section.key`.
pub fn plain_keys() -> impl Iterator<Item = String> {
    section("").into_iter().flat_map(|root| root.keys()).flat_map(|name| match section(name) {
        Some(Section::Table(keys)) => keys.iter().map(|key| format!("{name}.{key}")).collect(),
        _ => Vec::new(),
    })
}

/// Letters that may be wrong, missing or swapped for a key to be suggested however short it is.
const SLIPS_MAX: usize = 2;
/// Least similarity, from 0 to 1, of a key that is suggested in place of an unknown one.
const SIMILAR_ENOUGH: f64 = 0.75;

/// The one of `known` that `unknown` was probably meant to be.
pub fn nearest<T: AsRef<str>>(unknown: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    let score = |key: &T| {
        let key = key.as_ref();
        let slips = strsim::osa_distance(unknown, key);
        let similar = strsim::jaro_winkler(unknown, key);
        if slips <= (key.len() / 3).min(SLIPS_MAX) { similar.max(SIMILAR_ENOUGH) } else { similar }
    };
    let best = known.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(&best) >= SIMILAR_ENOUGH).then_some(best)
}

/// The field names that a struct's derived `Deserialize` asks for, under their serde names.
fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    let stopped = T::deserialize(FieldSpy(&mut fields));
    assert!(stopped.is_err(), "the spy never yields a value");
    fields
}

/// Notes which fields are asked for, then stops.
struct FieldSpy<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldSpy<'_> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Stop> {
        *self.0 = fields;
        Err(Stop::custom("seen enough"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_at_the_top_is_a_section() {
        for name in section("").unwrap().keys() {
            assert!(!section(name).unwrap().keys().is_empty(), "{name}");
        }
        assert!(section("bridge").unwrap().keys().contains(&"in"));
    }

    #[test]
    fn a_slip_of_the_pen_finds_the_key_that_was_meant_and_nonsense_finds_none() {
        let keys = section("limits").unwrap().keys();
        assert_eq!(nearest("packet_size_max", keys), Some(&"packet_max"));
        assert_eq!(nearest("conections_max", keys), Some(&"connections_max"));
        assert_eq!(nearest("ulr", ["url", "allow_anonymous_remote"]), Some("url"));
        assert_eq!(nearest("zzz", keys), None);
    }
}
