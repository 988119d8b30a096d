//! Who may connect and do what: anonymous clients, passwords, rules.
//!
//! There is one password file and one file of rules here, for all listeners. With `per_listener_settings` those of the first
//! listener that has any are taken, and listeners that would get other ones by that are left out.

use super::acl;
use super::passwords;
use super::report::{Report, Verdict};
use super::source::{Line, Section, Source};
use super::toml::Table;
use super::value;
use super::{Draft, Files, Paths, listener};

/// Names of the files that are written beside the configuration.
const PASSWORDS_NAME: &str = "passwords";
const RULES_NAME: &str = "acl";

/// The words that open an unauthenticated listener to the network.
const ANYONE_MAY_CONNECT: &str = "yes, anyone who reaches this address may connect";

/// What holds for each listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    listeners: Vec<OfListener>,
    default_anonymous: bool,
}

/// What holds for one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfListener {
    anonymous: bool,
    /// Why its settings cannot hold beside those of the others.
    conflict: Option<String>,
}

impl Policy {
    /// Sets the keys of a listener.
    ///
    /// # Errors
    /// Why the listener cannot be written.
    pub fn write(
        &self,
        index: usize,
        is_remote: bool,
        by_certificate: bool,
        table: &mut Table,
    ) -> Result<(), String> {
        let policy = self.listeners.get(index).cloned().unwrap_or_default();
        if let Some(why) = policy.conflict {
            return Err(why);
        }
        if !policy.anonymous && !by_certificate {
            return Err("its clients need passwords, and this build does not check them".into());
        }
        if is_remote && policy.anonymous {
            table.set("allow_anonymous_remote", ANYONE_MAY_CONNECT, "");
        }
        Ok(())
    }

    /// Where no listener is given.
    pub fn write_for_loopback(&self, listeners: &mut Vec<Table>) {
        let mut table = Table::element("listener");
        table.set("url", "mqtt://127.0.0.1:1883", "the default of Mosquitto");
        listeners.push(table);
    }
}

/// Writes the section about access, and finds out what holds for each listener.
pub fn access(
    source: &Source,
    files: &dyn Files,
    paths: &Paths<'_>,
    draft: &mut Draft,
    report: &mut Report,
) -> Policy {
    let mut access = Access { source, files, paths, draft, report };
    access.plugins();
    access.prefixes();
    let anonymous = access.anonymous();
    let mut policy = Policy { default_anonymous: access.default_anonymous(), listeners: Vec::new() };
    let (passwords, rules) = (access.chosen("password_file"), access.chosen("acl_file"));
    for (section, anonymous) in access.scopes().into_iter().zip(anonymous) {
        let conflict = access.conflict(section, anonymous, passwords, rules);
        policy.listeners.push(OfListener { anonymous, conflict });
    }
    let open = policy.listeners.iter().zip(access.scopes()).any(|(listener, section)| {
        listener.conflict.is_none()
            && listener.anonymous
            && rules.is_some()
            && section.get("acl_file").is_none()
    });
    access.passwords(passwords);
    access.rules(rules, open);
    policy
}

struct Access<'a> {
    source: &'a Source,
    files: &'a dyn Files,
    paths: &'a Paths<'a>,
    draft: &'a mut Draft,
    report: &'a mut Report,
}

impl<'a> Access<'a> {
    /// For each listener, the section that holds its settings about access.
    fn scopes(&self) -> Vec<&'a Section> {
        let source = self.source;
        let scope = |section: &'a Section| if source.per_listener { section } else { &source.security };
        source.listeners.iter().map(scope).collect()
    }

    fn plugins(&mut self) {
        let lines: Vec<_> = self.all_sections().flat_map(Section::lines).collect();
        for line in lines.into_iter().filter(|line| matches!(line.name, "plugin" | "plugin_use")) {
            let file = line.value.rsplit(['/', '\\', ' ']).next().unwrap_or_default();
            let what = match file {
                name if name.starts_with("mosquitto_dynamic_security") => {
                    "plugins are not loaded: write the users of the dynamic security plugin with `tidegate passwd` and its roles \
                     as access rules"
                }
                name if name.starts_with("mosquitto_password_file")
                    || name.starts_with("mosquitto_acl_file") =>
                {
                    "plugins are not loaded: name the file in a line password_file or acl_file and import again"
                }
                _ => {
                    "plugins are not loaded: clients need passwords, certificates or tokens, and rules in a file"
                }
            };
            self.report.dropped(line.id, what);
        }
    }

    fn all_sections(&self) -> impl Iterator<Item = &'a Section> {
        [&self.source.security].into_iter().chain(&self.source.listeners)
    }

    fn has_plugin(&self, section: &Section) -> bool {
        let has = |section: &Section| {
            section.lines().iter().any(|line| matches!(line.name, "plugin" | "plugin_use"))
        };
        has(section) || has(&self.source.security)
    }

    fn prefixes(&mut self) {
        let lines: Vec<_> = self
            .all_sections()
            .flat_map(|section| [section.get("auto_id_prefix"), section.get("listener_auto_id_prefix")])
            .flatten()
            .collect();
        for line in lines {
            let made = "client identifiers that the broker makes begin with auto-";
            match line.value.as_str() {
                "auto-" => self.report.same(line.id, made),
                _ => self.report.dropped(line.id, made),
            }
        }
    }

    fn default_anonymous(&self) -> bool {
        let given = self.source.security.get("allow_anonymous").map(|line| value::boolean(&line.value));
        match given {
            Some(given) => given == Ok(true) && !self.has_plugin(&self.source.security),
            None => !self.has_plugin(&self.source.security),
        }
    }

    /// For each listener, whether it takes anonymous clients.
    fn anonymous(&mut self) -> Vec<bool> {
        let local = listener::is_local_only(self.source);
        let mut is_given = self.source.listeners.is_empty();
        let mut found = Vec::new();
        if let Some(line) = self.source.security.get("allow_anonymous") {
            is_given = true;
            if self.source.per_listener {
                self.report.same(line.id, "it has no effect: per_listener_settings is true");
            }
        }
        let scopes = self.scopes();
        for (section, scope) in self.source.listeners.iter().zip(scopes) {
            let line = section.get("listener_allow_anonymous").or_else(|| scope.get("allow_anonymous"));
            let given = line.map(|line| (line, value::boolean(&line.value)));
            let plugin = self.has_plugin(section);
            found.push(match given {
                Some((line, Ok(true))) if plugin => {
                    self.report.dropped(
                        line.id,
                        "anonymous clients are refused, because the plugin does not judge them here",
                    );
                    false
                }
                Some((line, Ok(anonymous))) => {
                    self.report.carried(line.id, format!("allow_anonymous = {anonymous} for its listeners"));
                    anonymous
                }
                Some((line, Err(what))) => {
                    self.report.dropped(line.id, format!("{what}; anonymous clients are refused"));
                    false
                }
                None => local && !plugin,
            });
            is_given |= line.is_some();
        }
        if let (Some(line), true) =
            (self.source.security.get("allow_anonymous"), self.source.listeners.is_empty())
        {
            match value::boolean(&line.value) {
                Ok(_) => self.report.carried(line.id, "for the default listener"),
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if !is_given && !local {
            let text = "false, as in Mosquitto 2; before 2.0 everybody was let in";
            self.report.whole(&self.paths.main_name(), "allow_anonymous (not given)", Verdict::Carried, text);
        }
        found
    }

    /// The line whose file holds for everybody.
    fn chosen(&self, name: &str) -> Option<&'a Line> {
        if self.source.listeners.is_empty() {
            return self.source.security.get(name);
        }
        self.scopes().into_iter().find_map(|section| section.get(name))
    }

    /// Why a listener cannot get the files that were chosen.
    fn conflict(
        &mut self,
        section: &Section,
        anonymous: bool,
        passwords: Option<&Line>,
        rules: Option<&Line>,
    ) -> Option<String> {
        if !self.source.per_listener {
            return None;
        }
        for (name, chosen) in [("password_file", passwords), ("acl_file", rules)] {
            let Some(chosen) = chosen else { continue };
            let place = self.report.place(chosen.id).to_string();
            match section.get(name) {
                Some(own) if own.value == chosen.value => {}
                Some(own) => {
                    let what = format!("the {name} of {place} holds for all listeners");
                    self.report.dropped(own.id, what);
                    return Some(format!(
                        "it has another {name} than {place}, and there is one for all listeners; run a second broker"
                    ));
                }
                // Without a password file only anonymous clients come, or none.
                None if name == "password_file" => {}
                None if anonymous && !self.guests_have_rules(chosen) => {}
                None if !anonymous => {}
                None => {
                    return Some(format!(
                        "it has no acl_file, and that of {place} holds for anonymous clients of all listeners; run a second broker"
                    ));
                }
            }
        }
        None
    }

    /// Anonymous clients come in over a listener that has these rules.
    fn guests_have_rules(&self, rules: &Line) -> bool {
        self.source.listeners.iter().any(|section| {
            let anonymous =
                section.get("listener_allow_anonymous").or_else(|| section.get("allow_anonymous"));
            section.get("acl_file").is_some_and(|line| line.value == rules.value)
                && anonymous.is_some_and(|line| value::boolean(&line.value) == Ok(true))
        })
    }

    fn passwords(&mut self, chosen: Option<&Line>) {
        self.for_others(chosen, "password_file");
        let Some(line) = chosen else { return };
        let Some((name, text)) = self.read(line) else { return };
        let converted = passwords::convert(&name, &text, self.report);
        let origin = format!("{} password_file", self.report.place(line.id));
        match self.draft.secret(PASSWORDS_NAME, &converted.text) {
            Some(file) => {
                self.report.carried(
                    line.id,
                    format!("access.password_file = \"{file}\", {} users", converted.users),
                );
                self.name_file(line, "password_file", file, origin);
            }
            None if converted.is_whole => {
                self.report.carried(
                    line.id,
                    format!("access.password_file = \"{name}\", {} users", converted.users),
                );
                self.name_file(line, "password_file", name, origin);
            }
            None => {
                let what = "the file has lines that cannot be carried over: use --output DIR, which writes one without them";
                self.report.dropped(line.id, what);
            }
        }
    }

    fn rules(&mut self, chosen: Option<&Line>, open: bool) {
        self.for_others(chosen, "acl_file");
        let Some(line) = chosen else { return };
        let origin = format!("{} acl_file", self.report.place(line.id));
        // Without rules everything would be allowed, so a file is named in any case.
        let (text, is_read) = match self.read(line) {
            Some((name, text)) => (acl::convert(&name, &text, open, self.report), true),
            None => (acl::nothing_allowed(), false),
        };
        self.name_file(line, "acl_file", RULES_NAME.into(), origin);
        let said = match self.draft.secret(RULES_NAME, &text) {
            None => format!(
                "the rules have another form here: use --output DIR, which writes the file \"{RULES_NAME}\""
            ),
            Some(_) if !is_read => format!("access.acl_file = \"{RULES_NAME}\" allows nothing"),
            Some(_) => {
                let what = format!(
                    "access.acl_file = \"{RULES_NAME}\"; a SUBSCRIBE that could bring nothing is refused, where Mosquitto grants it \
                     and sends nothing"
                );
                return self.report.carried(line.id, what);
            }
        };
        self.report.dropped(line.id, said);
    }

    fn name_file(&mut self, line: &Line, _key: &'static str, _file: String, _origin: String) {
        self.report.dropped(line.id, "this build does not read it");
    }

    /// Other lines of the same option: the same file once more, or without effect.
    fn for_others(&mut self, chosen: Option<&Line>, name: &str) {
        let lines: Vec<_> = self.all_sections().filter_map(|section| section.get(name)).collect();
        for line in lines {
            match chosen {
                Some(chosen) if chosen.id == line.id => {}
                Some(chosen) if chosen.value == line.value && self.source.per_listener => {
                    self.report.carried(line.id, "it holds for all listeners");
                }
                _ if !self.report.is_settled(line.id) => {
                    self.report.same(line.id, "it has no effect: per_listener_settings is true");
                }
                _ => {}
            }
        }
    }

    fn read(&mut self, line: &Line) -> Option<(String, String)> {
        let text = match value::string(&line.value) {
            Ok(text) => text,
            Err(what) => {
                self.report.dropped(line.id, what);
                return None;
            }
        };
        let path = self.paths.resolve(text, line, self.report);
        match self.files.read(&path) {
            Ok(text) => Some((path.display().to_string(), text)),
            Err(what) => {
                self.report.dropped(line.id, format!("{}: {what}", path.display()));
                None
            }
        }
    }
}
