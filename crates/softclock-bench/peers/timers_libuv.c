// Timers of libuv. Their unit is a millisecond of the loop's clock, so due times are rounded up.

#include <uv.h>

#include "timers.h"

static uv_timer_t *timers;
static uv_idle_t idle;
static void (*idle_work)(void);

static void on_timer(uv_timer_t *timer)
{
    fired(timer - timers);
}

static void prepare(unsigned count, int is_exact)
{
    timers = calloc(count, sizeof *timers);
    for (unsigned id = 0; id < count; id++)
        uv_timer_init(uv_default_loop(), &timers[id]);
    uv_idle_init(uv_default_loop(), &idle);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    on_readable((intptr_t)poll->data);
}

static void watch(int fd)
{
    uv_poll_t *poll = malloc(sizeof *poll);
    uv_poll_init(uv_default_loop(), poll, fd);
    poll->data = (void *)(intptr_t)fd;
    uv_poll_start(poll, UV_READABLE, on_poll);
}

static void set(unsigned id, uint64_t due_ns)
{
    uint64_t due = (due_ns + 999999) / 1000000, now = uv_now(uv_default_loop());
    uv_timer_start(&timers[id], on_timer, due > now ? due - now : 0, 0);
}

static void cancel(unsigned id)
{
    uv_timer_stop(&timers[id]);
}

static uint64_t loop_now_ns(void)
{
    return uv_now(uv_default_loop()) * 1000000;
}

static void on_end(uv_timer_t *timer)
{
    uv_stop(uv_default_loop());
}

static void run(uint64_t milliseconds)
{
    uv_timer_t end;
    uv_timer_init(uv_default_loop(), &end);
    uv_timer_start(&end, on_end, milliseconds, 0);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}

static void on_idle(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    idle_work();
}

static void turn(void (*work)(void))
{
    idle_work = work;
    uv_idle_start(&idle, on_idle);
    uv_run(uv_default_loop(), UV_RUN_NOWAIT);
}
