//! Handlers that alarms may call, and what the alarms of a thread have done so far.
//!
//! See [`schedule_alarm_safe`](crate::schedule_alarm_safe).

pub use softclock_linux::alarm::{
    AlarmCounter, AlarmId, AlarmSafe, AlarmSend, AlarmStats, BackupPeriod, CAPACITY, FiredBy,
    Firing, TableFull,
};
