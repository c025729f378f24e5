//! Reason codes of conditions, events, decisions, plans and warnings.
//!
//! Each crate declares its codes with [`codes!`](crate::codes), so that every code has a documented cause and remedy.
//! `docs/reason-codes.md` is generated from those lists.

use std::fmt;

/// A reason code with its documentation. The name is stable and in CamelCase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    name: &'static str,
    cause: &'static str,
    remedy: &'static str,
}

impl Code {
    /// Creates a code; use [`codes!`](crate::codes) to declare codes.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, cause: &'static str, remedy: &'static str) -> Self {
        Self { name, cause, remedy }
    }

    /// Returns the name of the code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// Returns the meaning of the code.
    #[must_use]
    pub const fn cause(self) -> &'static str {
        self.cause
    }

    /// Returns the remedy; empty if no action is required.
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

/// Declares constants of type [`Code`](crate::Code) and a list `ALL` of them, from lines
/// `CONSTANT = "Name": "cause", "remedy";`.
#[macro_export]
macro_rules! codes {
    ($($constant:ident = $name:literal: $cause:literal, $remedy:literal;)+) => {
        $(
            #[doc = $cause]
            pub const $constant: $crate::Code = $crate::Code::new($name, $cause, $remedy);
        )+
        /// All codes of this list, in order of declaration.
        pub const ALL: &[$crate::Code] = &[$($constant),+];
    };
}
