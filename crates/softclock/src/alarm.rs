//! Handlers that an alarm may call inside a signal handler, and the statistics of a thread's alarms.
//!
//! See [`schedule_alarm_safe`](crate::schedule_alarm_safe).
//!
//! # Example
//! ```
//! use std::time::Duration;
//!
//! use softclock::alarm::AlarmCounter;
//!
//! // Such handlers are never dropped, so they live in a `static` or a leaked box.
//! static TICKS: AlarmCounter = AlarmCounter::new();
//!
//! # fn main() -> std::io::Result<()> {
//! softclock::Runtime::new()?.block_on(async {
//!     let id = softclock::schedule_alarm_safe(&TICKS, Duration::from_millis(1), None)?;
//!     // A computation without trigger states. The backup timer fires the event meanwhile.
//!     while TICKS.fires() < 3 {
//!         std::hint::spin_loop();
//!     }
//!     softclock::cancel_alarm_safe(id);
//!     Ok::<_, softclock::TableFull>(())
//! }).map_err(std::io::Error::other)
//! # }
//! ```

pub use softclock_linux::alarm::{
    AlarmCounter, AlarmId, AlarmSafe, AlarmSend, AlarmStats, BackupPeriod, CAPACITY, FiredBy,
    Firing, TableFull,
};
