//! A report, as `neap run` prints it on standard error when the program has ended.

/// A report of a wrong access or call.
#[derive(Debug, PartialEq)]
pub struct Report {
    /// Its first line, with `ADDR` for the address.
    pub line: String,
    /// All of its lines.
    pub text: String,
}

const START: &str = "neap: ";

impl Report {
    /// The first report in `errors` that has stack traces. The first line alone, which the program
    /// itself wrote, is none.
    pub fn find(errors: &str) -> Option<Report> {
        let lines: Vec<&str> = errors.lines().collect();
        let starts = |line: &&str| line.starts_with(START);
        let is_trace = |line: &&str| line.starts_with("  ");
        let at = (0..lines.len().saturating_sub(1))
            .find(|&at| starts(&lines[at]) && is_trace(&lines[at + 1]))?;
        let rest = lines[at + 1..].iter().take_while(|line| is_trace(line));
        let all: Vec<&str> = [lines[at]].iter().chain(rest).copied().collect();
        Some(Report {
            line: without_address(&lines[at][START.len()..]),
            text: all.join("\n"),
        })
    }

    /// Whether its first line is `line`. Some processors do not tell a read from a write.
    pub fn says(&self, line: &str) -> bool {
        let forms = ["read of", "write to"].map(|verb| line.strip_prefix(verb));
        let mut forms = forms.into_iter().flatten();
        self.line == line || forms.any(|rest| self.line == format!("access to{rest}"))
    }

    /// Whether a stack trace has a call of `function`.
    pub fn names(&self, function: &str) -> bool {
        let frames = self.text.lines().filter(|line| line.starts_with("    #"));
        let mut names = frames.filter_map(|line| line.trim_start().split(' ').nth(1));
        names.any(|name| name == function)
    }
}

fn without_address(line: &str) -> String {
    let Some((before, after)) = line.split_once("0x") else {
        return line.to_string();
    };
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
    format!("{before}ADDR{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERRORS: &str = "starts\n\
neap: read of 0x7ea8c42ef010, byte 16 of a block of 66 bytes that was freed
the program's own words
neap: read of 0x7ea8c42ef010, byte 16 of a block of 66 bytes that was freed
  the access by thread 5 of process 5:
    #0 count_of  (in sessions.so)  sessions.c:54
  the free by thread 5 of process 5:
    #0 forget_session  (in sessions.so)
ends";

    #[test]
    fn a_report_is_the_part_with_stack_traces() {
        let report = Report::find(ERRORS).unwrap();
        let line = "read of ADDR, byte 16 of a block of 66 bytes that was freed";
        assert_eq!(report.line, line);
        assert_eq!(report.text.lines().count(), 5);
        assert!(report.says(line) && !report.says("write to ADDR"));
        assert!(report.names("count_of") && report.names("forget_session"));
        assert!(!report.names("count") && !report.names("(in"));
    }

    #[test]
    fn a_processor_that_cannot_tell_says_access() {
        let errors = ERRORS.replace("read of", "access to");
        let report = Report::find(&errors).unwrap();
        assert!(report.says("read of ADDR, byte 16 of a block of 66 bytes that was freed"));
    }

    #[test]
    fn other_words_are_no_report() {
        for words in [
            "",
            "neap: x",
            "neap: the program has no such option\nend",
            "  #0 x",
        ] {
            assert_eq!(Report::find(words), None, "{words}");
        }
    }
}
