//! Short names of functions: without parameters, return types and long template arguments.

/// Longest template arguments that a name keeps.
const LONGEST_ARGUMENTS: usize = 24;
/// What stands for longer ones.
const LEFT_OUT: &str = "<...>";
/// C++'s names for its string, and for operators with brackets, and what stands for them meanwhile.
#[rustfmt::skip]
const SPELLINGS: [(&str, &str); 10] = [
    ("std::__cxx11::", "std::"),
    ("std::__1::", "std::"),
    ("std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"),
    ("[abi:cxx11]", ""),
    ("operator()", "operator\u{1}"),
    ("operator<<", "operator\u{2}"),
    ("operator<", "operator\u{3}"),
    ("operator>>", "operator\u{4}"),
    ("operator->", "operator\u{5}"),
    ("operator>", "operator\u{6}"),
];
/// The first operator.
const OPERATORS: usize = 4;

/// `Catalog::add` for `Catalog::add(std::string const&)`, and `std::vector<...>::push_back` for a
/// vector of a long type. A name that is not balanced stays as it is.
pub fn short(name: &str) -> String {
    if name.starts_with("_Z") {
        return identifiers(name).unwrap_or_else(|| name.to_owned());
    }
    if !name.contains(['<', '(']) {
        return name.to_owned();
    }
    let spelled = SPELLINGS.iter();
    let spelled = spelled.fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    shortened(&spelled).map_or(name.to_owned(), |short| {
        let operators = SPELLINGS[OPERATORS..].iter();
        operators.fold(short, |short, (to, from)| short.replace(from, to))
    })
}

fn shortened(name: &str) -> Option<String> {
    let mut out = String::new();
    // The open brackets: whether a list begins with it, and its index in the output.
    let mut open: Vec<(char, bool, usize)> = Vec::new();
    let mut rest = name.chars().peekable();
    while let Some(char) = rest.next() {
        match char {
            // A return type is before it.
            ' ' if open.is_empty() && !out.contains("operator") => out.clear(),
            '<' | '(' => {
                open.push((char, begins_list(&out, char), out.len()));
                out.push(char);
            }
            '>' if !out.ends_with('-') => match open.pop()? {
                ('<', true, start) => close(&mut out, start),
                // Rust's `<Type>::method`.
                ('<', false, 0) if !out.contains(" as ") => drop(out.remove(0)),
                ('<', ..) => out.push('>'),
                _ => return None,
            },
            ')' => match open.pop()? {
                ('(', true, start) => {
                    out.truncate(start);
                    if open.is_empty() && rest.peek() == Some(&' ') {
                        break;
                    }
                }
                ('(', ..) => out.push(')'),
                _ => return None,
            },
            _ => out.push(char),
        }
    }
    (open.is_empty() && !out.is_empty()).then_some(out)
}

/// Ends template arguments, or leaves them out.
fn close(out: &mut String, start: usize) {
    out.truncate(out.trim_end().len());
    if out.len() - start > LONGEST_ARGUMENTS {
        out.truncate(start);
        out.push_str(LEFT_OUT);
    } else {
        out.push('>');
    }
}

/// Whether a bracket after `out` begins arguments or parameters, instead of a name such as
/// `(anonymous namespace)` or `<Type as Trait>`.
fn begins_list(out: &str, bracket: char) -> bool {
    let is_name = out.is_empty() || out.ends_with([' ', '<', '(', '.', '&']);
    !(is_name || bracket == '(' && out.ends_with(':'))
}

/// The identifiers at the start of a mangled name that the demangler did not understand.
fn identifiers(mangled: &str) -> Option<String> {
    let rest = mangled.strip_prefix("_Z")?.trim_start_matches(['N', 'K']);
    let (mut names, mut rest) = match rest.strip_prefix("St") {
        Some(after) => (vec!["std"], after),
        None => (Vec::new(), rest),
    };
    while rest.starts_with(|char: char| char.is_ascii_digit()) {
        let digits = rest.find(|char: char| !char.is_ascii_digit())?;
        let (name, after) = rest[digits..].split_at_checked(rest[..digits].parse().ok()?)?;
        names.push(name);
        rest = after;
    }
    let arguments = if rest.starts_with('I') { LEFT_OUT } else { "" };
    (!names.is_empty()).then(|| names.join("::") + arguments)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_short() {
        let string =
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
        let of_libcxx =
            "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char> >";
        for (name, expected) in [
            (
                format!("Catalog::add({string} const&, int)"),
                "Catalog::add",
            ),
            (
                format!("{string}::_M_mutate(unsigned long)"),
                "std::string::_M_mutate",
            ),
            (
                format!("{of_libcxx}::append(char const*)"),
                "std::string::append",
            ),
            (
                format!("{string} std::operator+<char, int>({string}&&)"),
                "std::operator+<char, int>",
            ),
            (
                format!("void std::vector<{string}, std::allocator<{string} > >::grow<int>(int&&)"),
                "std::vector<...>::grow<int>",
            ),
            (
                format!("Cache<{string}, User>::get() const"),
                "Cache<std::string, User>::get",
            ),
        ] {
            assert_eq!(short(&name), expected);
        }
        for (name, expected) in [
            ("main", "main"),
            (
                "(anonymous namespace)::fill(int)",
                "(anonymous namespace)::fill",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("operator new[](unsigned long)", "operator new[]"),
            ("A::operator bool() const", "A::operator bool"),
            ("A::operator()(int) const", "A::operator()"),
            ("A::operator->() const", "A::operator->"),
            ("A::operator*()", "A::operator*"),
            ("bool operator< <int>(A<int> const&)", "operator< <int>"),
            (
                "std::ostream& operator<<(std::ostream&, A const&)",
                "operator<<",
            ),
            ("f(int) [clone .cold]", "f"),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::{lambda#1}::operator()",
            ),
            (
                "f(int)::{lambda()#1}::operator()() const",
                "f::{lambda#1}::operator()",
            ),
            ("run(void (*)(int))", "run"),
            (
                "std::vector<int, std::allocator<int> >::reserve",
                "std::vector<...>::reserve",
            ),
            (
                "_ZSt11make_sharedINSt7__cxx1112basic_stringE",
                "std::make_shared<...>",
            ),
            ("_ZN3App4loadEv", "App::load"),
            ("_Z9999f", "_Z9999f"),
            ("<m::Catalog>::add", "m::Catalog::add"),
            (
                "m::build::<m::main::{closure#0}>::{closure#0}",
                "m::build::<m::main::{closure#0}>::{closure#0}",
            ),
            (
                "<&mut T as core::fmt::Write>::write_str",
                "<&mut T as core::fmt::Write>::write_str",
            ),
            (
                "<alloc::vec::Vec<T> as alloc::vec::spec_from_iter::SpecFromIter<T,I>>::from_iter",
                "<alloc::vec::Vec<T> as alloc::vec::spec_from_iter::SpecFromIter<T,I>>::from_iter",
            ),
            (
                "<fn() -> u8 as core::ops::FnOnce<()>>::call",
                "<fn -> u8 as core::ops::FnOnce<()>>::call",
            ),
            ("main.(*Server).handle", "main.(*Server).handle"),
            ("a<b", "a<b"),
            ("a>)", "a>)"),
            ("(", "("),
        ] {
            assert_eq!(short(name), expected);
        }
    }
}
