//! Errors of system calls.

use std::fmt;

macro_rules! errors {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// An error of a system call, with Linux's number for it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(clippy::upper_case_acronyms)]
        #[repr(i32)]
        pub enum Errno {
            $(#[doc = concat!("`", stringify!($name), "`.")] $name = $number),*
        }

        impl Errno {
            pub(crate) const ALL: &[(&str, Self)] = &[$((stringify!($name), Self::$name)),*];
        }
    };
}

errors! {
    EPERM = 1, EINTR = 4, EIO = 5, EBADF = 9, EAGAIN = 11, ENOMEM = 12, EACCES = 13, EFAULT = 14, EINVAL = 22,
    EMFILE = 24, ENOSPC = 28, EPIPE = 32, EPROTO = 71, ENOTSOCK = 88, EDESTADDRREQ = 89, EMSGSIZE = 90,
    EPROTOTYPE = 91, ENOPROTOOPT = 92, EPROTONOSUPPORT = 93, EOPNOTSUPP = 95, EAFNOSUPPORT = 97, EADDRINUSE = 98,
    EADDRNOTAVAIL = 99, ENETDOWN = 100, ENETUNREACH = 101, ENETRESET = 102, ECONNABORTED = 103, ECONNRESET = 104,
    ENOBUFS = 105, EISCONN = 106, ENOTCONN = 107, ESHUTDOWN = 108, ETIMEDOUT = 110, ECONNREFUSED = 111,
    EHOSTDOWN = 112, EHOSTUNREACH = 113, EALREADY = 114, EINPROGRESS = 115,
}

impl Errno {
    /// The error with this name.
    ///
    /// ```
    /// use softclock_script::errno::Errno;
    ///
    /// assert_eq!(Errno::named("EWOULDBLOCK"), Some(Errno::EAGAIN));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        let name = match name {
            "EWOULDBLOCK" => "EAGAIN",
            "ENOTSUP" => "EOPNOTSUPP",
            name => name,
        };
        let found = Self::ALL.iter().find(|(known, _)| *known == name)?;
        Some(found.1)
    }

    /// The number.
    pub const fn number(self) -> i64 {
        self as i32 as i64
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
