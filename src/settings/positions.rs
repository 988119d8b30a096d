//! Walks one TOML file: refuses keys that do not exist and notes on which line each key stands.
//!
//! The `config` crate merges the layers but keeps no positions; this pass over the same text provides them.

use std::collections::BTreeMap;
use std::path::Path;

use toml_edit::{Document, Item, TableLike};

use super::keys::{self, Section};
use super::place::{Origins, Place, SettingsError};

/// Sections whose keys are named in hints.
const SECTIONS: [&str; 11] = [
    "listener",
    "store",
    "limits",
    "queue",
    "queue_rule",
    "queue_def",
    "bridge",
    "bridge.out",
    "bridge.in",
    "admin",
    "log",
];

/// Checks the keys of `text` and notes their lines in `origins`. `counts` holds how many elements each list at the top has
/// already, since the lists of several files are joined; it is counted on.
///
/// # Errors
/// The first syntax error, unknown key, or section of the wrong kind.
pub fn note_positions(
    file: &Path,
    text: &str,
    counts: &mut BTreeMap<&'static str, usize>,
    origins: &mut Origins,
) -> Result<(), SettingsError> {
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        SettingsError::new(Place::Line(file.into(), line_of(text, at)), "", error.message().trim_end())
    })?;
    Walk { file, text, counts, origins }.table(document.as_table(), "", "")
}

struct Walk<'a> {
    file: &'a Path,
    text: &'a str,
    counts: &'a mut BTreeMap<&'static str, usize>,
    origins: &'a mut Origins,
}

impl Walk<'_> {
    /// `path` names the table with list indexes, `schema` without.
    fn table(&mut self, table: &dyn TableLike, path: &str, schema: &str) -> Result<(), SettingsError> {
        let known = keys::section(schema).map_or(&[][..], Section::keys);
        for (name, item) in table.iter() {
            let at = table
                .key(name)
                .and_then(|key| key.span())
                .or_else(|| item.span())
                .map_or(0, |span| span.start);
            let place = Place::Line(self.file.into(), line_of(self.text, at));
            let full = join(path, name);
            let Some(name) = known.iter().find(|known| **known == name) else {
                return Err(SettingsError::new(place, full, unknown_key(name, schema, known)));
            };
            let child = join(schema, name);
            self.origins.set(full.clone(), place.clone());
            match keys::section(&child) {
                None => {}
                Some(Section::Table(_)) => match item.as_table_like() {
                    Some(inner) => self.table(inner, &full, &child)?,
                    None => {
                        return Err(SettingsError::new(
                            place,
                            full,
                            format!("is a section; write it as [{child}]"),
                        ));
                    }
                },
                Some(Section::List(_)) => self.list(item, name, &full, &child, place)?,
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        item: &Item,
        name: &'static str,
        path: &str,
        schema: &str,
        place: Place,
    ) -> Result<(), SettingsError> {
        let elements = elements(item).ok_or_else(|| {
            SettingsError::new(
                place.clone(),
                path,
                format!("is a list of sections; write each one as [[{schema}]]"),
            )
        })?;
        let first = if path == schema { self.counts.get(name).copied().unwrap_or(0) } else { 0 };
        if path == schema {
            self.counts.insert(name, first + elements.len());
        }
        for (index, (at, element)) in elements.into_iter().enumerate() {
            let full = format!("{path}[{}]", first + index);
            let place = at.map_or(place.clone(), |at| Place::Line(self.file.into(), line_of(self.text, at)));
            self.origins.set(full.clone(), place);
            self.table(element, &full, schema)?;
        }
        Ok(())
    }
}

/// The tables of a `[[list]]` or of an array of inline tables, each with its offset in the text.
fn elements(item: &Item) -> Option<Vec<(Option<usize>, &dyn TableLike)>> {
    if let Some(tables) = item.as_array_of_tables() {
        return Some(tables.iter().map(|t| (t.span().map(|s| s.start), t as &dyn TableLike)).collect());
    }
    let array = item.as_array()?;
    array.iter().map(|v| Some((v.span().map(|s| s.start), v.as_inline_table()? as &dyn TableLike))).collect()
}

fn unknown_key(name: &str, schema: &str, known: &[&str]) -> String {
    let place =
        if schema.is_empty() { "at the top of the file".to_owned() } else { format!("in section {schema}") };
    let homes: Vec<_> = SECTIONS
        .iter()
        .filter(|s| keys::section(s).is_some_and(|s| s.keys().contains(&name)))
        .copied()
        .collect();
    if !homes.is_empty() {
        return format!("unknown key {place}; it belongs to section {}", homes.join(" or "));
    }
    match keys::nearest(name, known) {
        Some(near) => format!("unknown key {place}; did you mean \"{near}\"?"),
        None => format!("unknown key {place}; known are {}", known.join(", ")),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(text: &str) -> Result<Origins, String> {
        let mut origins = Origins::default();
        note_positions(Path::new("t.toml"), text, &mut BTreeMap::new(), &mut origins)
            .map_err(|e| e.to_string())?;
        Ok(origins)
    }

    #[test]
    fn each_key_is_found_on_its_line() {
        let origins = walk(
            "store.ring = 1\n[[bridge]]\nname = 'a'\n[[bridge.out]]\nfilter = '#'\n[[bridge]]\n\nname = 'b'\n[limits]\nreceive_max=1",
        )
        .unwrap();
        for (key, line) in [
            ("store.ring", 1),
            ("bridge[0]", 2),
            ("bridge[0].name", 3),
            ("bridge[0].out[0].filter", 5),
            ("bridge[1]", 6),
            ("bridge[1].name", 8),
            ("bridge[1].url", 6),
            ("limits.receive_max", 10),
        ] {
            assert_eq!(origins.of(key), Place::Line("t.toml".into(), line), "{key}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
        for (text, said) in [
            (
                "[limits]\n\nconections_max = 1",
                "t.toml:3: limits.conections_max: unknown key in section limits; did you mean \"connections_max\"?",
            ),
            (
                "[store]\npacket_max = 1",
                "t.toml:2: store.packet_max: unknown key in section store; it belongs to section limits or bridge",
            ),
            ("[limit]\n", "t.toml:1: limit: unknown key at the top of the file; did you mean \"limits\"?"),
            (
                "listener = [{ ulr = '' }]",
                "t.toml:1: listener[0].ulr: unknown key in section listener; did you mean \"url\"?",
            ),
            (
                "[listener]\nurl = ''",
                "t.toml:1: listener: is a list of sections; write each one as [[listener]]",
            ),
            ("store = 5", "t.toml:1: store: is a section; write it as [store]"),
        ] {
            assert_eq!(walk(text).unwrap_err(), said);
        }
    }

    #[test]
    fn a_syntax_error_is_told_with_its_line() {
        let said = walk("[store]\nring = = 5\n").unwrap_err();
        assert!(said.starts_with("t.toml:2: "), "{said}");
    }
}
