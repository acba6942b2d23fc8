//! Groups of options of `softclock serve`, each in a file of its own.

mod content;
mod operation;
mod pace;

pub(crate) use content::ContentOptions;
pub(crate) use operation::OperationOptions;
pub(crate) use pace::PaceOptions;
