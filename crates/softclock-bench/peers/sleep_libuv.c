// Sleeps by timers of libuv. Their unit is a millisecond of the loop's clock, so due times are rounded up.

#include <uv.h>

#include "sleep.h"

struct timer {
    uv_timer_t handle;
    uint64_t random, due_ns;
};

static struct order order;

static void on_timer(uv_timer_t *handle);

static void set(struct timer *timer)
{
    uint64_t length_ns = next_length_ns(&timer->random, &order);
    timer->due_ns = now_ns() + length_ns;
    uint64_t due_ms = (timer->due_ns + 999999) / 1000000;
    uint64_t now_ms = uv_now(timer->handle.loop);
    uv_timer_start(&timer->handle, on_timer, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

static void on_timer(uv_timer_t *handle)
{
    struct timer *timer = (struct timer *)handle;
    tally_count(timer->due_ns);
    set(timer);
}

static void on_end(uv_timer_t *handle)
{
    tally_print();
    fflush(stdout);
    _exit(0);
}

static void on_warm(uv_timer_t *handle)
{
    tally_begin();
    uv_timer_start(handle, on_end, order.milliseconds, 0);
}

static void on_load(uv_poll_t *handle, int status, int events)
{
    char byte;
    if (read(0, &byte, 1) == 1)
        burst(50000);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    order = order_of(argv);
    uv_loop_t *loop = uv_default_loop();
    uv_poll_t load;
    uv_poll_init(loop, &load, 0);
    uv_poll_start(&load, UV_READABLE, on_load);
    uv_timer_t phase;
    uv_timer_init(loop, &phase);
    uv_timer_start(&phase, on_warm, order.warm_up_ms, 0);
    struct timer *timers = calloc(order.timers + 1, sizeof *timers);
    for (unsigned i = 0; i < order.timers; i++) {
        uv_timer_init(loop, &timers[i].handle);
        timers[i].random = i + 1;
        set(&timers[i]);
    }
    return uv_run(loop, UV_RUN_DEFAULT);
}
