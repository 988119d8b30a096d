//! What became of each line, and why.

use std::fmt;

/// Behind the name of an option that no line sets.
const NOT_GIVEN: &str = " (not given)";

/// What became of a line. The later one is the worse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing had to be written: this broker behaves so by itself, or the line has no effect.
    Same,
    /// The same was written.
    Carried,
    /// Something like it was written, or holds by itself, with a difference that the text names.
    Differs,
    /// Nothing was written.
    Dropped,
}

impl Verdict {
    /// The words that begin what is said about a line.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "nothing to do",
            Self::Carried => "carried over",
            Self::Differs => "carried over with a difference",
            Self::Dropped => "NOT carried over",
        }
    }
}

/// A line of a file, or a file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As it was named.
    pub file: String,
    /// From 1; 0: the file as a whole.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// What became of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it stands.
    pub place: Place,
    /// The option, without its value: that may be a secret.
    pub option: String,
    /// What became of it; `None` until something is known.
    pub verdict: Option<Verdict>,
    /// What was done or why not, and what to do.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.verdict.map_or("nothing is known", Verdict::words);
        write!(f, "{}: {}: {words}", self.place, self.option)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

/// Names a finding of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(usize);

/// All findings, in the order of the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// A line about which nothing is known yet.
    pub fn line(&mut self, place: Place, option: &str) -> LineId {
        self.findings.push(Finding { place, option: option.to_owned(), verdict: None, text: String::new() });
        LineId(self.findings.len() - 1)
    }

    /// Something about a file as a whole.
    pub fn whole(&mut self, file: &str, option: &str, verdict: Verdict, text: impl Into<String>) {
        let place = Place { file: file.to_owned(), line: 0 };
        let id = self.line(place, option);
        self.say(id, verdict, text);
    }

    /// Adds to what is known about a line: the worst verdict stands, and all texts.
    pub fn say(&mut self, line: LineId, verdict: Verdict, text: impl Into<String>) {
        let finding = &mut self.findings[line.0];
        finding.verdict = finding.verdict.max(Some(verdict));
        let text = text.into();
        if text.is_empty() || finding.text.contains(&text) {
            return;
        }
        if !finding.text.is_empty() {
            finding.text.push_str("; ");
        }
        finding.text.push_str(&text);
    }

    /// The same was written.
    pub fn carried(&mut self, line: LineId, text: impl Into<String>) {
        self.say(line, Verdict::Carried, text);
    }

    /// Nothing had to be written.
    pub fn same(&mut self, line: LineId, text: impl Into<String>) {
        self.say(line, Verdict::Same, text);
    }

    /// Written, with a difference.
    pub fn differs(&mut self, line: LineId, text: impl Into<String>) {
        self.say(line, Verdict::Differs, text);
    }

    /// Nothing was written.
    pub fn dropped(&mut self, line: LineId, text: impl Into<String>) {
        self.say(line, Verdict::Dropped, text);
    }

    /// Nothing was written after all: what was said before does not hold.
    pub fn withdrawn(&mut self, line: LineId, text: impl Into<String>) {
        self.findings[line.0].text.clear();
        self.dropped(line, text);
    }

    /// Whether anything is known about a line.
    #[must_use]
    pub fn is_settled(&self, line: LineId) -> bool {
        self.findings[line.0].verdict.is_some()
    }

    /// Where a line stands.
    #[must_use]
    pub fn place(&self, line: LineId) -> &Place {
        &self.findings[line.0].place
    }

    /// All of them.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many have this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == Some(verdict)).count()
    }

    /// Nothing was left behind.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict.is_some_and(|verdict| verdict != Verdict::Dropped))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let is_default = |finding: &&Finding| {
            finding.verdict == Some(Verdict::Differs) && finding.option.ends_with(NOT_GIVEN)
        };
        let defaults: Vec<_> = self
            .findings
            .iter()
            .filter(is_default)
            .map(|finding| &finding.option[..finding.option.len() - NOT_GIVEN.len()])
            .collect();
        if !defaults.is_empty() {
            writeln!(f, "defaults that differ from Mosquitto's, see above: {}", defaults.join(", "))?;
        }
        writeln!(
            f,
            "{} findings: {} carried over, {} with a difference, {} need nothing, {} NOT carried over",
            self.findings.len(),
            self.count(Verdict::Carried),
            self.count(Verdict::Differs),
            self.count(Verdict::Same),
            self.count(Verdict::Dropped),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_stands_and_all_texts_are_kept_once() {
        let mut report = Report::default();
        let line = report.line(Place { file: "m.conf".into(), line: 3 }, "listener");
        assert!(!report.is_settled(line));
        report.carried(line, "url");
        report.differs(line, "IPv6 is missing");
        report.carried(line, "url");
        let said = report.findings()[0].to_string();
        assert_eq!(said, "m.conf:3: listener: carried over with a difference: url; IPv6 is missing");
        assert!(report.is_complete());
        report.dropped(line, "mount points are not known");
        assert!(!report.is_complete());
        assert!(report.to_string().ends_with(" 1 NOT carried over\n"));
    }
}
