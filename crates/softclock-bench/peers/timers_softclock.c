// Timers of softclock in a loop of epoll.

#include "timers.h"
#include "timers_softclock.h"
#include "timers_epoll.h"

static void prepare(unsigned count, int is_exact)
{
    epoll = epoll_create1(EPOLL_CLOEXEC);
    prepare_timers(count);
}

static void wait_once(int64_t limit_ns)
{
    struct timespec limit = {limit_ns / 1000000000, limit_ns % 1000000000};
    struct epoll_event events[MOST_EVENTS];
    int count = epoll_pwait2(epoll, events, MOST_EVENTS, limit_ns == SOFTCLOCK_NO_LIMIT ? 0 : &limit, 0);
    softclock_after_wait(timers, count > 0);
    fire();
    for (int i = 0; i < count; i++)
        serve(events[i].data.fd);
}

static void run(uint64_t milliseconds)
{
    for (uint64_t end = now_ns() + milliseconds * 1000000; now_ns() < end;)
        wait_once(softclock_before_wait(timers));
}
