//! The sanitizers whose runtime replaces `malloc`. A program that a compiler built with one of them
//! runs without Neap.

/// Hands the macro `$list` a pair of literals for each of them: a function that only the runtime
/// defines, and the sanitizer's name. The library needs literals to ask for the functions.
#[macro_export]
macro_rules! sanitizers {
    ($list:ident) => {
        $list! {
            ("__asan_init", "AddressSanitizer"),
            ("__hwasan_init", "HWAddressSanitizer"),
            ("__tsan_init", "ThreadSanitizer"),
            ("__msan_init", "MemorySanitizer"),
            ("__lsan_init", "LeakSanitizer"),
        }
    };
}

macro_rules! pairs {
    ($(($init:literal, $name:literal),)*) => {
        [$(($init, $name)),*]
    };
}

/// The same pairs as a list.
pub const RUNTIMES: [(&str, &str); 5] = sanitizers!(pairs);
