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
