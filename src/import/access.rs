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

const NO_USERS: &str = "# There are no users yet: tidegate passwd FILE USER\n";

/// What holds for each listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    listeners: Vec<OfListener>,
    default_anonymous: bool,
    /// A password file was carried over.
    has_passwords: bool,
}

/// What holds for one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfListener {
    anonymous: bool,
    /// Its clients may log in with passwords.
    by_password: bool,
    /// Why its settings cannot hold beside those of the others.
    conflict: Option<String>,
}

impl Policy {
    /// Sets the keys of a listener, whose TLS keys are set already.
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
        let asks_certificate = table.value("client_cert").is_some_and(|asks| asks.contains("required"));
        if by_certificate {
            table.set("allow_anonymous", false, "each client is named by its certificate");
        } else if policy.anonymous && is_remote && !asks_certificate {
            table.set("allow_anonymous_remote", ANYONE_MAY_CONNECT, "");
        } else if policy.anonymous {
            table.set("allow_anonymous", true, "");
        } else if !policy.by_password {
            return Err(
                "it would let nobody in: anonymous clients are refused, and it has no password file".into()
            );
        } else if !self.has_passwords {
            return Err("its clients need passwords, and its password file is not carried over".into());
        } else {
            table.set("allow_anonymous", false, "");
        }
        Ok(())
    }

    /// Where no listener is given, or none is left; in the second case, `is_left_over`, it takes no anonymous clients.
    /// Without any users it gets an empty password file, so that nobody comes in until there are some.
    pub fn write_for_loopback(
        &self,
        is_left_over: bool,
        paths: &Paths<'_>,
        draft: &mut Draft,
        report: &mut Report,
    ) {
        let anonymous = self.default_anonymous && !is_left_over;
        let mut table = Table::element("listener");
        table.set("url", "mqtt://127.0.0.1:1883", "the default of Mosquitto");
        table.set("allow_anonymous", anonymous, "");
        draft.listeners.push(table);
        if anonymous || self.has_passwords {
            return;
        }
        // Without an output folder the file is not there, and the broker does not start before somebody makes it.
        let _unwritten = draft.secret(PASSWORDS_NAME, NO_USERS);
        draft.access.set("password_file", PASSWORDS_NAME, "");
        let text = format!(
            "nobody may connect to mqtt://127.0.0.1:1883 before there are users: tidegate passwd {PASSWORDS_NAME} USER"
        );
        report.whole(&paths.main_name(), "password_file (not given)", Verdict::Differs, text);
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
    let default_anonymous = access.default_anonymous();
    let mut policy = Policy { default_anonymous, ..Policy::default() };
    let (passwords, rules) = (access.chosen("password_file"), access.chosen("acl_file"));
    for (section, anonymous) in access.scopes().into_iter().zip(anonymous) {
        let conflict = access.conflict(section, anonymous, passwords, rules);
        let by_password = section.get("password_file").is_some();
        policy.listeners.push(OfListener { anonymous, by_password, conflict });
    }
    let open = policy.listeners.iter().zip(access.scopes()).any(|(listener, section)| {
        listener.conflict.is_none()
            && listener.anonymous
            && rules.is_some()
            && section.get("acl_file").is_none()
    });
    access.passwords(passwords);
    policy.has_passwords = access.draft.access.value("password_file").is_some();
    access.rules(rules, open);
    access.unproven_names(rules, policy.has_passwords);
    access.sessions(policy.has_passwords);
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
        let mut is_used = is_given || self.source.per_listener;
        let mut found = Vec::new();
        let general = self.source.security.get("allow_anonymous");
        if let Some(line) = general {
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
            is_used |= section.get("listener_allow_anonymous").is_none();
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
        if let Some(line) = general.filter(|_| !is_used) {
            self.report.same(line.id, "it has no effect: every listener says listener_allow_anonymous");
        }
        if let (Some(line), true) = (general, self.source.listeners.is_empty()) {
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
                None if name == "password_file" => {
                    if anonymous {
                        let what =
                            format!("clients that give a user name need its password, as {place} says");
                        self.of_listener(section, what);
                    }
                }
                None if !anonymous || !self.guests_have_rules(chosen) => {
                    self.of_listener(section, format!("the rules of {place} hold for users on it too"));
                }
                None => {
                    return Some(format!(
                        "it has no acl_file, and that of {place} holds for anonymous clients of all listeners; run a second broker"
                    ));
                }
            }
        }
        None
    }

    /// Tells a difference that concerns a whole listener.
    fn of_listener(&mut self, section: &Section, what: String) {
        match &section.head {
            Some(head) => self.report.differs(head.id, what),
            None => {
                self.report.whole(&self.paths.main_name(), "default listener", Verdict::Differs, what);
            }
        }
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
                self.draft.access.set("password_file", file, origin);
            }
            None if converted.is_whole => {
                self.report.carried(
                    line.id,
                    format!("access.password_file = \"{name}\", {} users", converted.users),
                );
                self.draft.access.set("password_file", name, origin);
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
        self.draft.access.set("acl_file", RULES_NAME, origin);
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

    /// A name that a client merely claims opens what rules say about it in Mosquitto, but not here.
    fn unproven_names(&mut self, rules: Option<&Line>, has_passwords: bool) {
        let Some(line) = rules.filter(|_| !has_passwords && !self.names_by_certificate()) else { return };
        let what = "there is no password file, so rules for users hold for nobody: a name that a client does not prove does not count";
        self.report.differs(line.id, what);
    }

    fn sessions(&mut self, has_passwords: bool) {
        if !has_passwords && !self.names_by_certificate() {
            return;
        }
        let what = "a session belongs to the user that made it, while Mosquitto lets any user take it over by its client identifier; \
                    access.sessions = \"of-anyone\" does that here";
        self.report.whole(&self.paths.main_name(), "sessions (not given)", Verdict::Differs, what);
    }

    fn names_by_certificate(&self) -> bool {
        let names = ["use_identity_as_username", "use_subject_as_username"];
        let is_set = |section: &Section, name| {
            section.get(name).is_some_and(|line| value::boolean(&line.value) == Ok(true))
        };
        self.source.listeners.iter().any(|section| names.iter().any(|name| is_set(section, name)))
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
