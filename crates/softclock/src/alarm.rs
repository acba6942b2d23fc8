//! Handlers that an alarm may call inside a signal handler, and the statistics of a thread's alarms.
//!
//! See [`schedule_alarm_safe`](crate::schedule_alarm_safe).

pub use softclock_linux::alarm::{
    AlarmCounter, AlarmId, AlarmSafe, AlarmSend, AlarmStats, BackupPeriod, CAPACITY, FiredBy,
    Firing, TableFull,
};
