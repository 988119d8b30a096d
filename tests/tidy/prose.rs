//! Rules for documents and for every text file.

use std::path::Path;

use crate::tree::{File, repository, root};
use crate::{caught, finding, hold};

/// Folders of the machines this was written on. In two parts, so that this file does not contain them.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/", "bash")];

fn links_resolve(file: &File) -> Vec<String> {
    if !file.is("md") {
        return vec![];
    }
    let broken = |(line, target): (usize, String)| {
        let what = problem(&file.path, &file.text, &target)?;
        Some(finding(file, line, &format!("link to `{target}`: {what}")))
    };
    links(&file.text).into_iter().filter_map(broken).collect()
}

/// What is wrong with a link in the document at `path`.
fn problem(path: &str, text: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (name, anchor) = target.split_once('#').unwrap_or((target, ""));
    if name.starts_with('/') {
        return Some("is not relative");
    }
    let place = if name.is_empty() { path.to_owned() } else { normal(path, name)? };
    if !name.is_empty() && (place.starts_with("..") || !root().join(&place).exists()) {
        return Some("there is no such file in the repository");
    }
    let document = match name {
        "" => Some(text),
        _ => repository().iter().find(|file| file.path == place && file.is("md")).map(|file| &*file.text),
    };
    let known =
        document.is_none_or(|text| anchor.is_empty() || anchors(text).iter().any(|known| known == anchor));
    if known { None } else { Some("there is no such heading") }
}

/// `name` as seen from the document at `path`, from the root; `None` without a folder to start from.
fn normal(path: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> =
        Path::new(path).parent()?.to_str()?.split('/').filter(|p| !p.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Targets of inline links, images, definitions and HTML attributes, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = vec![];
    for (number, line) in prose(text) {
        // What stands between backticks is no link: every second part.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("_");
        for (open, close) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
            for (at, _) in line.match_indices(open) {
                let rest = line[at + open.len()..].trim_start_matches('<');
                let end =
                    rest.find(|c: char| c == close || c == '>' || c.is_whitespace()).unwrap_or(rest.len());
                found.push((number, rest[..end].to_owned()));
            }
        }
        if line.starts_with('[')
            && let Some((_, target)) = line.split_once("]: ")
        {
            found.push((number, target.split_whitespace().next().unwrap_or("").to_owned()));
        }
    }
    found
}

/// The anchors that common renderers give a document's headings.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let twins = (1..).map(|n| format!("{slug}-{n}"));
        let free = std::iter::once(slug.clone()).chain(twins).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

fn no_machine_is_named(file: &File) -> Vec<String> {
    let named = |line: &str| {
        MACHINE_PATHS.into_iter().find(|path| {
            line.match_indices(path).any(|(at, _)| {
                // A part of a longer path or of an address is another place.
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
            })
        })
    };
    let found = file.lines().filter_map(|(number, line)| Some((number, named(line)?)));
    found.map(|(number, path)| finding(file, number, &format!("names `{path}`"))).collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    hold(links_resolve);
    caught(links_resolve, 1, "README.md", "see [this](src/nowhere.rs)");
    caught(links_resolve, 1, "src/README.md", "a picture ![x](missing.svg \"title\")");
    caught(links_resolve, 1, "README.md", "[a]: nowhere.md");
    caught(links_resolve, 1, "README.md", "<img src=\"nowhere.png\">");
    caught(links_resolve, 1, "README.md", "[outside](../elsewhere)");
    caught(links_resolve, 1, "README.md", "[absolute](/etc)");
    caught(links_resolve, 1, "README.md", "# A title\n[x](#another-title)");
    let good = "# A `title`, twice\n# A title twice\n[x](Cargo.toml) [y](https://example.com/x) [z](#a-title-twice-1)\n\
        ```text\n[no](link)\n```\n`[no](link)`";
    caught(links_resolve, 0, "README.md", good);
    caught(links_resolve, 0, "src/README.md", "[up](../Cargo.toml) [here](lib.rs#L1)");
}

#[test]
fn no_file_names_a_folder_of_the_machine_it_was_written_on() {
    hold(no_machine_is_named);
    for path in MACHINE_PATHS {
        caught(no_machine_is_named, 1, "docs/a.md", &format!("run {path}x"));
        caught(no_machine_is_named, 1, "a.sh", &format!("X={path}"));
        caught(no_machine_is_named, 0, "a.sh", &format!("https://example.com{path}x and frame.{path}"));
    }
}
