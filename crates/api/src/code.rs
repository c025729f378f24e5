//! Codes that programs and people look up: reasons of conditions and events, of decisions, plans and warnings.
//!
//! Each crate lists its own by [`codes!`](crate::codes), the only way to make one, so that every code that can be
//! published says what it means and what to do. `docs/reason-codes.md` is written from those lists.

use std::fmt;

/// A published code. Its name is stable and CamelCase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    name: &'static str,
    cause: &'static str,
    remedy: &'static str,
}

impl Code {
    /// What [`codes!`](crate::codes) makes its members with.
    #[doc(hidden)]
    #[must_use]
    pub const fn listed(name: &'static str, cause: &'static str, remedy: &'static str) -> Self {
        Self { name, cause, remedy }
    }

    /// As it is published.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// What it means.
    #[must_use]
    pub const fn cause(self) -> &'static str {
        self.cause
    }

    /// What to do about it; empty where nothing is to be done.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        self.remedy
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.name.to_owned()
    }
}

impl PartialEq<&str> for Code {
    fn eq(&self, other: &&str) -> bool {
        self.name == *other
    }
}

/// Constants of type [`Code`] and the list `ALL` of them, from lines `CONSTANT = "Name": "cause", "remedy";`.
#[macro_export]
macro_rules! codes {
    ($($constant:ident = $name:literal: $cause:literal, $remedy:literal;)+) => {
        $(
            #[doc = $cause]
            pub const $constant: $crate::code::Code = $crate::code::Code::listed($name, $cause, $remedy);
        )+
        /// Every code of this list, in its order.
        pub const ALL: &[$crate::code::Code] = &[$($constant),+];
    };
}
