// Timers of libevent, which wait by its timerfd (EVENT_BASE_FLAG_PRECISE_TIMER).

#include <event2/event.h>
#include <event2/event_struct.h>

#include "timers.h"

static struct event_base *base;
static struct event *timers, *working;
static void (*turn_work)(void);
static uint64_t turn_ns_of_loop;

static void on_timer(int fd, short what, void *timer)
{
    fired((struct event *)timer - timers);
}

static void on_turn(int fd, short what, void *unused)
{
    turn_ns_of_loop = now_ns();
    turn_work();
}

static void prepare(unsigned count, int is_exact)
{
    struct event_config *config = event_config_new();
    int flags = EVENT_BASE_FLAG_PRECISE_TIMER | EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV;
    // Without it delays count from the end of the wait, so that timers fire early by the time since then.
    event_config_set_flag(config, flags | (is_exact ? EVENT_BASE_FLAG_NO_CACHE_TIME : 0));
    base = event_base_new_with_config(config);
    timers = calloc(count, sizeof *timers);
    if (!base || !timers)
        exit(1);
    for (unsigned id = 0; id < count; id++)
        evtimer_assign(&timers[id], base, on_timer, &timers[id]);
    working = event_new(base, -1, 0, on_turn, 0);
    turn_ns_of_loop = now_ns();
}

static void on_event(int fd, short what, void *unused)
{
    on_readable(fd);
}

static void watch(int fd)
{
    event_add(event_new(base, fd, EV_READ | EV_PERSIST, on_event, 0), 0);
}

static void set(unsigned id, uint64_t due_ns)
{
    uint64_t now = turn_work ? turn_ns_of_loop : now_ns();
    uint64_t us = due_ns > now ? (due_ns - now + 999) / 1000 : 0;
    struct timeval delay = {us / 1000000, us % 1000000};
    evtimer_add(&timers[id], &delay);
}

static void cancel(unsigned id)
{
    evtimer_del(&timers[id]);
}

static uint64_t loop_now_ns(void)
{
    return turn_ns_of_loop;
}

static void run(uint64_t milliseconds)
{
    struct timeval end = {milliseconds / 1000, milliseconds % 1000 * 1000};
    event_base_loopexit(base, &end);
    event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY);
}

static void turn(void (*work)(void))
{
    turn_work = work;
    event_active(working, EV_TIMEOUT, 0);
    event_base_loop(base, EVLOOP_NONBLOCK);
}
