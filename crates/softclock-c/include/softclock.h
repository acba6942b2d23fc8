/*
 * Soft timers and paced sending for event loops in C.
 *
 * A loop adds timers with microsecond resolution at a few nanoseconds a check:
 *
 *     for (;;) {
 *             wait for events, no longer than softclock_before_wait(timers)
 *             softclock_after_wait(timers, whether there were events)
 *             while (softclock_next(timers, &event) == 1)
 *                     handle the event
 *             handle the events of the loop, with softclock_check() on the way
 *     }
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. Functions that return int or int64_t return a negative error number
 * (errno(3)) if they fail. Only softclock_send_queue_send_due() may then have changed something: it removes a message
 * that cannot be sent. Errors of all functions are:
 *
 *     -EINVAL           an argument is out of its range, or a pointer that must not be NULL is NULL
 *     -EPERM            the object belongs to another thread: each must be used and freed by the thread that created
 *                       it, before that thread ends
 *     -ENOTRECOVERABLE  a bug of the library; the object can only be freed
 *
 * Only the functions *_new(), softclock_byte_clock_add_class() and softclock_get_statistics() allocate memory, the
 * scheduling ones if more events are pending than memory was reserved for, and softclock_byte_clock_enqueue() and
 * softclock_byte_clock_dequeue() if more packets or classes wait than ever before. If there is no memory left,
 * softclock_send_queue_new() returns -ENOMEM; the others end the process.
 *
 * Generated from the source of the library (tests/header.rs): do not edit.
 */
#ifndef SOFTCLOCK_H
#define SOFTCLOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library */

/**
 * A time that never comes.
 */
#define SOFTCLOCK_NEVER UINT64_MAX

/**
 * A wait without a time limit.
 */
#define SOFTCLOCK_NO_LIMIT INT64_MAX

/**
 * Returns the version of the library, such as "0.1.0".
 */
const char *softclock_version(void);

/* Timers */

/**
 * The event may fire as late as a blocking wait ends: an idle thread does not spin for it.
 */
#define SOFTCLOCK_ROUGH 1

/**
 * The reason why a thread passes a trigger state, for the statistics.
 */
typedef enum softclock_state {
    /**
     * The end of a system call that neither receives nor sends.
     */
    SOFTCLOCK_SYSTEM_CALL,
    /**
     * The end of a receiving call.
     */
    SOFTCLOCK_RECEIVE,
    /**
     * The end of a sending call.
     */
    SOFTCLOCK_SEND,
    /**
     * The beginning of a turn of the loop.
     */
    SOFTCLOCK_TURN,
    /**
     * The end of a wait: softclock_after_wait() does this.
     */
    SOFTCLOCK_IDLE,
    /**
     * The end of a piece of work.
     */
    SOFTCLOCK_TASK_END,
    /**
     * Any other point of the program.
     */
    SOFTCLOCK_APPLICATION,
} softclock_state;

/**
 * Soft timers of one thread.
 */
typedef struct softclock_timers softclock_timers;

/**
 * An event that is due.
 */
typedef struct softclock_event {
    /**
     * The value given when the event was scheduled.
     */
    void *data;
    /**
     * The time for which it was scheduled.
     */
    uint64_t due_ns;
    /**
     * The time from then to the check.
     */
    uint64_t lateness_ns;
} softclock_event;

/**
 * Counts since the timers were created, and the lateness of their events. Percentiles are rounded up, by at most
 * 6.25 %. For the lateness of a period, create timers for it.
 */
typedef struct softclock_statistics {
    /**
     * Checks so far.
     */
    uint64_t checks;
    /**
     * Events scheduled, including rescheduled ones.
     */
    uint64_t scheduled;
    /**
     * Events cancelled.
     */
    uint64_t cancelled;
    /**
     * Events fired.
     */
    uint64_t fired;
    /**
     * Events pending.
     */
    uint64_t pending;
    /**
     * Lateness that half of the events did not exceed.
     */
    uint64_t lateness_p50_ns;
    /**
     * Lateness that 99 of 100 events did not exceed.
     */
    uint64_t lateness_p99_ns;
    /**
     * The longest lateness.
     */
    uint64_t lateness_max_ns;
} softclock_statistics;

/**
 * Creates timers for the calling thread, with memory for `capacity` pending events (at most 2^24), and stores the
 * pointer in `*timers`. Keeps the thread's timer slack at 1 ns, so that its waits end on time, until they are freed.
 * The first call in a process takes about 3 ms.
 */
int softclock_timers_new(size_t capacity, struct softclock_timers **timers);

/**
 * Frees timers; their events do not fire. NULL is allowed.
 */
int softclock_timers_free(struct softclock_timers *timers);

/**
 * Sets the share of its time, 0 to 1, that an idle thread may spin so that events fire on time. The default is 0.05.
 */
int softclock_set_spin_cap(struct softclock_timers *timers, double share);

/**
 * Returns the time; 0 after an error. Costs about 10 ns.
 */
uint64_t softclock_now(struct softclock_timers *timers);

/**
 * Schedules an event to fire from `earliest_ns` on, never before. `flags` are 0 or SOFTCLOCK_ROUGH. Stores the event's
 * id in `*id` unless id is NULL. Ids are never used again.
 */
int softclock_schedule(struct softclock_timers *timers, uint64_t earliest_ns, uint32_t flags, void *data, uint64_t *id);

/**
 * Like softclock_schedule(), once `delay_ns` has passed.
 */
int softclock_schedule_after(struct softclock_timers *timers,
                             uint64_t delay_ns,
                             uint32_t flags,
                             void *data,
                             uint64_t *id);

/**
 * Cancels an event, and stores its value in `*data` unless data is NULL. -ENOENT if it has fired or was cancelled.
 */
int softclock_cancel(struct softclock_timers *timers, uint64_t id, void **data);

/**
 * Moves a pending event to another time; the id stays. -ENOENT if it has fired or was cancelled.
 */
int softclock_reschedule(struct softclock_timers *timers, uint64_t id, uint64_t earliest_ns);

/**
 * Passes a trigger state: a value of enum softclock_state. Take the events that are due by softclock_next(). Call it
 * wherever the thread is awake anyway, such as after a system call. Costs a reading of the clock and some 10 ns.
 */
int softclock_check(struct softclock_timers *timers, int state);

/**
 * Stores an event that was due at the last check in `*event` and returns 1, or returns 0 if there is none. At most 32
 * events a check; further ones, and those that are not taken, wait for the next check.
 */
int softclock_next(struct softclock_timers *timers, struct softclock_event *event);

/**
 * Returns the earliest time at which a check may have work; SOFTCLOCK_NEVER without events and after an error.
 */
uint64_t softclock_next_due(struct softclock_timers *timers);

/**
 * Begins a wait: returns the longest time in ns for which the loop may wait, SOFTCLOCK_NO_LIMIT without events, and 0
 * if it must look without waiting. The wait should end as exactly as it can: by epoll_pwait2(), ppoll() or a
 * softclock_wake. It may end sooner.
 */
int64_t softclock_before_wait(struct softclock_timers *timers);

/**
 * Ends a wait, and passes a trigger state. `found` says whether the wait has found events of the loop: 0 if it ended
 * by its time limit, also by that of a softclock_wake.
 */
int softclock_after_wait(struct softclock_timers *timers, int found);

/**
 * Converts the limit of a wait for epoll_wait() and poll(): milliseconds, rounded up, or -1 for no limit. Events are
 * up to 1 ms late with these, unless a softclock_wake ends the wait. An error instead of a limit is converted to 0: the
 * wait ends at once, and softclock_after_wait() returns the error.
 */
int softclock_timeout_ms(int64_t wait_ns);

/**
 * Stores the counts in `*statistics`. Takes some 10 us, a system call and 200 KB of memory meanwhile.
 */
int softclock_get_statistics(struct softclock_timers *timers, struct softclock_statistics *statistics);

/* Descriptors that end waits */

/**
 * A descriptor that ends waits, for loops whose own timeouts are too coarse, such as those of libuv.
 */
typedef struct softclock_wake softclock_wake;

/**
 * Creates a descriptor that ends waits. -EMFILE or -ENFILE if descriptors have run out.
 */
int softclock_wake_new(struct softclock_wake **wake);

/**
 * Closes and frees the descriptor. NULL is allowed.
 */
int softclock_wake_free(struct softclock_wake *wake);

/**
 * Returns the descriptor, to be watched for reading, level- or edge-triggered. It need not be read: its event only
 * ends the wait. softclock_wake_free() closes it: end the watch before, in libuv by uv_close() of its handle.
 */
int softclock_wake_fd(struct softclock_wake *wake);

/**
 * Sets the descriptor for a wait of `wait_ns`, the result of softclock_before_wait(). Returns the limit for the wait
 * of the loop itself: 0 if it must not block, otherwise SOFTCLOCK_NO_LIMIT. Returns errors, which are negative, as
 * they are. The wait may end sooner, by up to 1/16 of its length. One system call, unless the wait ends at the same
 * time as the one before.
 */
int64_t softclock_wake_limit(struct softclock_wake *wake, int64_t wait_ns);

/* Rate clocks */

/**
 * A rate clock: when to send each packet of a flow.
 */
typedef struct softclock_rate_clock softclock_rate_clock;

/**
 * Creates a clock for one transmission per `target_ns`, and at most one per `minimum_ns` to catch up after a late one.
 */
int softclock_rate_clock_new(uint64_t target_ns, uint64_t minimum_ns, struct softclock_rate_clock **clock);

/**
 * Frees a rate clock. NULL is allowed.
 */
int softclock_rate_clock_free(struct softclock_rate_clock *clock);

/**
 * Returns the time at which to send next: `now_ns` if nothing was sent yet. SOFTCLOCK_NEVER after an error.
 */
uint64_t softclock_rate_clock_next_send(struct softclock_rate_clock *clock, uint64_t now_ns);

/**
 * Returns the number of transmissions that are due at `now_ns` and may be sent together; 0 after an error.
 */
uint64_t softclock_rate_clock_due(struct softclock_rate_clock *clock, uint64_t now_ns);

/**
 * Records a transmission at `now_ns`.
 */
int softclock_rate_clock_on_transmit(struct softclock_rate_clock *clock, uint64_t now_ns);

/**
 * Records that `bytes` were sent at `now_ns`, where a full transmission has `full` bytes, at least 1. After fewer
 * bytes, the next is due proportionally sooner; after more, proportionally later.
 */
int softclock_rate_clock_on_transmit_bytes(struct softclock_rate_clock *clock,
                                           uint64_t now_ns,
                                           uint64_t bytes,
                                           uint64_t full);

/**
 * Changes the rates for transmissions of the same size, such as after new feedback of a congestion control. The next
 * transmission is rescaled to the new rates, and makes up for at most half of `minimum_ns` of the lateness so far.
 */
int softclock_rate_clock_set_rates(struct softclock_rate_clock *clock, uint64_t target_ns, uint64_t minimum_ns);

/**
 * Changes the intervals for transmissions of another size at the same rates. The schedule stays.
 */
int softclock_rate_clock_set_intervals(struct softclock_rate_clock *clock, uint64_t target_ns, uint64_t minimum_ns);

/**
 * Sets how far transmissions may fall behind the rate and still catch up, at least `target_ns`; 50 ms by default.
 */
int softclock_rate_clock_set_most_behind(struct softclock_rate_clock *clock, uint64_t most_ns);

/**
 * Records that there is nothing to send: the time until the next transmission is not made up for.
 */
int softclock_rate_clock_end(struct softclock_rate_clock *clock);

/* Byte clocks */

/**
 * A byte clock: when to send the packets of several classes on one link, each class at its own rate.
 */
typedef struct softclock_byte_clock softclock_byte_clock;

/**
 * The options of a class. 0 stands for the default in parentheses.
 */
typedef struct softclock_class_options {
    /**
     * The average rate in bits per second; it has no default. Limited to the link's.
     */
    uint64_t rate_bps;
    /**
     * The rate at which it catches up (that of the link).
     */
    uint64_t peak_bps;
    /**
     * The bytes to make up for after it was idle (up to seven packets).
     */
    uint64_t burst_bytes;
    /**
     * The time to make up for after late packets (up to seven packets).
     */
    uint64_t most_behind_ns;
    /**
     * The most bytes that wait (1 MiB).
     */
    uint64_t most_bytes;
    /**
     * The most packets that wait (1000), up to 2^24.
     */
    size_t most_packets;
} softclock_class_options;

/**
 * Creates a byte clock without classes for a link of `link_bps` bits per second, from the time `start_ns` on.
 */
int softclock_byte_clock_new(uint64_t link_bps, uint64_t start_ns, struct softclock_byte_clock **clock);

/**
 * Frees a byte clock. NULL is allowed. The memory of packets that wait stays the program's: take them by
 * softclock_byte_clock_drain() before.
 */
int softclock_byte_clock_free(struct softclock_byte_clock *clock);

/**
 * Delays packets by up to `tolerance_ns` after the first due time, so that all that are due by then leave together.
 * The default is 0.
 */
int softclock_byte_clock_set_tolerance(struct softclock_byte_clock *clock, uint64_t tolerance_ns);

/**
 * Adds a class, and stores its number in `*class_number` unless that is NULL. The first has the number 0. -ENOBUFS for
 * more than 2^16. If the rates of the classes that have packets add up to more than the link's, each gets its share.
 */
int softclock_byte_clock_add_class(struct softclock_byte_clock *clock,
                                   const struct softclock_class_options *options,
                                   uint32_t *class_number);

/**
 * Changes the options of a class from its next packet on. Packets that wait stay.
 */
int softclock_byte_clock_set_options(struct softclock_byte_clock *clock,
                                     uint32_t class_number,
                                     const struct softclock_class_options *options);

/**
 * Queues a packet of a class that takes `bytes` on the wire. `packet` is a value of the program. -ENOBUFS if the queue
 * of the class has no room.
 */
int softclock_byte_clock_enqueue(struct softclock_byte_clock *clock,
                                 uint32_t class_number,
                                 void *packet,
                                 uint64_t bytes,
                                 uint64_t now_ns);

/**
 * Stores a packet that may be sent at `now_ns` in `*packet` and returns 1. If there is none, stores the time for which
 * to schedule the next call in `*next_ns`, SOFTCLOCK_NEVER if no packet waits, and returns 0. Call it until it returns
 * 0.
 */
int softclock_byte_clock_dequeue(struct softclock_byte_clock *clock, uint64_t now_ns, void **packet, uint64_t *next_ns);

/**
 * Returns the number of packets of a class that wait; 0 after an error.
 */
size_t softclock_byte_clock_queued(struct softclock_byte_clock *clock, uint32_t class_number);

/**
 * Takes all packets of a class that wait: stores them in `packets`, which has room for `room`, and returns their
 * number. -ENOBUFS if there are more; then none is taken.
 */
int64_t softclock_byte_clock_drain(struct softclock_byte_clock *clock,
                                   uint32_t class_number,
                                   void **packets,
                                   size_t room);

/* Send queues */

/**
 * A queue that sends the data of a socket evenly.
 */
typedef struct softclock_send_queue softclock_send_queue;

/**
 * The settings of a send queue. 0 stands for the default in parentheses.
 */
typedef struct softclock_send_options {
    /**
     * The rate in bits per second, of the data without headers; it has no default.
     */
    uint64_t rate_bps;
    /**
     * The rate at which it catches up after late events (twice the rate).
     */
    uint64_t burst_bps;
    /**
     * The bytes of a full message, or of a piece of a stream (1448), up to 1 GiB; a longer message is sent whole, and
     * delays the next one.
     */
    size_t piece;
    /**
     * The most bytes that wait (256 KiB), up to 1 GiB.
     */
    size_t most_bytes;
    /**
     * The most messages that wait (1024), up to 2^24.
     */
    size_t most_messages;
} softclock_send_options;

/**
 * Creates a queue for a connected socket, which stays the program's: keep it open until the queue is freed. -ENOTSOCK
 * for other descriptors, and -ENOMEM if there is no memory for the data that may wait: `most_bytes`, and for messages
 * 8 bytes more for each of `most_messages`.
 */
int softclock_send_queue_new(int fd, const struct softclock_send_options *options, struct softclock_send_queue **queue);

/**
 * Frees a queue; the data that waits is lost. NULL is allowed.
 */
int softclock_send_queue_free(struct softclock_send_queue *queue);

/**
 * Adds a copy of the data: one message, or the next bytes of a stream. -ENOBUFS if there is no room for all of it;
 * then nothing is added.
 */
int softclock_send_queue_push(struct softclock_send_queue *queue, const void *data, size_t length);

/**
 * Returns the time for which to schedule an event that calls softclock_send_queue_send_due(); SOFTCLOCK_NEVER if no
 * data waits, and after an error. While the socket has no room (-EAGAIN), the time is past: wait for the socket
 * instead.
 */
uint64_t softclock_send_queue_next_due(struct softclock_send_queue *queue, uint64_t now_ns);

/**
 * Sends the data that is due at `now_ns` without waiting, and returns the number of bytes sent. -EAGAIN if the socket
 * has no room: call it again once the socket is writable. Other errors are those of sendmsg(); a message that causes
 * one is removed, and the data of a stream stays. If other data was sent before the error, this call returns the
 * number of its bytes and the next call the error; until then the message waits.
 */
int64_t softclock_send_queue_send_due(struct softclock_send_queue *queue, uint64_t now_ns);

/**
 * Returns the number of bytes that wait; 0 after an error.
 */
size_t softclock_send_queue_length(struct softclock_send_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
