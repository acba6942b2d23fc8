// The timers of libevent: a heap in the base. The base gets the trace's time as its clock, and an epoll_wait() without
// a system call that finds nothing, so that only its timers are measured.

#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/epoll.h>

#include "wheel.h"

static struct event_base *base;
static struct event *timers;

// Replaces the C library's function in libevent too. Never 0, which libevent treats as unset.
int clock_gettime(clockid_t clock, struct timespec *time)
{
    time->tv_sec = 1000 + now_ns / 1000000000;
    time->tv_nsec = now_ns % 1000000000;
    return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int room, int timeout)
{
    return 0;
}

static void on_timer(int fd, short what, void *id)
{
    fired((uintptr_t)id);
}

static void prepare(unsigned count, double step_ns)
{
    struct event_config *config = event_config_new();
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
    base = event_base_new_with_config(config);
    timers = calloc(count, sizeof *timers);
    if (!base || !timers)
        exit(1);
    for (uintptr_t id = 0; id < count; id++)
        evtimer_assign(&timers[id], base, on_timer, (void *)id);
}

static void resume(void)
{
}

static double advance(void)
{
    return 0;
}

static void poll_timers(void)
{
    event_base_loop(base, EVLOOP_NONBLOCK);
}

static void set(uint32_t id, uint64_t due_ns)
{
    uint64_t us = due_ns / 1000 + 1 - now_ns / 1000;
    struct timeval delay = {us / 1000000, us % 1000000};
    evtimer_add(&timers[id], &delay);
}

static void stop(uint32_t id)
{
    evtimer_del(&timers[id]);
}

static void move(uint32_t id, uint64_t due_ns)
{
    set(id, due_ns);
}

int main(void)
{
    return run();
}
