//! Two namespaces with a link between them, for tests.

use softclock_testing::lab::{Namespace, connect};

/// Creates a namespace with the link `near`, and another with its other end, `far`.
pub(super) fn connected() -> Result<[Namespace; 2], String> {
    let [near, far] = [Namespace::new()?, Namespace::new()?];
    connect((&near, "near"), (&far, "far")).map_err(|error| error.to_string())?;
    Ok([near, far])
}

/// The namespaces, after a function has prepared them if one is given, or skips the test.
macro_rules! two {
    () => {
        two!(Ok)
    };
    ($prepare:expr) => {{
        softclock_testing::require!("ip", "unshare", "nsenter");
        match crate::link::two::connected().and_then($prepare) {
            Ok(both) => both,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}
pub(super) use two;
