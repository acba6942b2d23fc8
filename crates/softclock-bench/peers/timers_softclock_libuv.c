// Timers of softclock in a loop of libuv.

#include <uv.h>

#include "timers.h"
#include "timers_softclock.h"

static softclock_wake *wake;
static int found;

static void on_poll(uv_poll_t *poll, int status, int events)
{
    found = 1;
    serve((intptr_t)poll->data);
}

static void on_wake(uv_poll_t *poll, int status, int events)
{
}

static void watch_by(int fd, uv_poll_cb on_event)
{
    uv_poll_t *poll = malloc(sizeof *poll);
    uv_poll_init(uv_default_loop(), poll, fd);
    poll->data = (void *)(intptr_t)fd;
    uv_poll_start(poll, UV_READABLE, on_event);
}

static void watch(int fd)
{
    watch_by(fd, on_poll);
}

static void prepare(unsigned count, int is_exact)
{
    prepare_timers(count);
    if (softclock_wake_new(&wake))
        exit(1);
    watch_by(softclock_wake_fd(wake), on_wake);
}

static void wait_once(int64_t limit_ns)
{
    found = 0;
    uv_run(uv_default_loop(), limit_ns ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    softclock_after_wait(timers, found);
    fire();
}

static void run(uint64_t milliseconds)
{
    for (uint64_t end = now_ns() + milliseconds * 1000000; now_ns() < end;)
        wait_once(softclock_wake_limit(wake, softclock_before_wait(timers)));
}
