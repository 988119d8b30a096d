//! The configuration as people read it: the effective file and the memory sum.

use std::fmt::Write;

use super::Loaded;
use super::units::Size;
use crate::limits::Limits;

/// Stands in for a secret.
const HIDDEN: &str = "***";

/// The merged configuration, every default and derived value written out, as TOML that loads again; secrets are hidden.
///
/// # Errors
/// When a path is not UTF-8, which TOML cannot hold.
pub fn effective_toml(loaded: &Loaded) -> Result<String, toml_edit::ser::Error> {
    let mut shown = loaded.effective.clone();
    for bridge in &mut shown.bridge {
        if let Some(password) = &mut bridge.password {
            HIDDEN.clone_into(password);
        }
    }
    toml_edit::ser::to_string_pretty(&shown)
}

/// What these limits allow to be in memory at once, part by part, one line each, with the sum.
#[must_use]
pub fn memory_table(limits: &Limits) -> String {
    let mut table = String::new();
    let rows = limits.memory_parts().into_iter().chain([("sum", limits.memory_worst_case())]);
    for (name, bytes) in rows {
        writeln!(table, "  {name:<34} {:>12}", about(bytes)).expect("writing into a string cannot fail");
    }
    table
}

/// A size with one digit after the point, for eyes only.
fn about(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => Size(bytes).to_string(),
    }
}
