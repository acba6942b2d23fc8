// Timers of softclock for timers.h.

#include <softclock.h>

static softclock_timers *timers;
static uint64_t *timer_ids;
static uint64_t time_ns;
// Without timers the program does not check them.
static unsigned has_timers;

static void prepare_timers(unsigned count)
{
    timer_ids = calloc(count + 1, sizeof *timer_ids);
    has_timers = count;
    if (softclock_timers_new(count, &timers))
        exit(1);
    time_ns = softclock_now(timers);
}

static void set(unsigned id, uint64_t due_ns)
{
    if (timer_ids[id])
        softclock_reschedule(timers, timer_ids[id], due_ns);
    else
        softclock_schedule(timers, due_ns, 0, (void *)(uintptr_t)id, &timer_ids[id]);
}

static void cancel(unsigned id)
{
    softclock_cancel(timers, timer_ids[id], 0);
    timer_ids[id] = 0;
}

static uint64_t loop_now_ns(void)
{
    return time_ns;
}

static void fire(void)
{
    for (softclock_event event; softclock_next(timers, &event) == 1;) {
        unsigned id = (uintptr_t)event.data;
        timer_ids[id] = 0;
        fired(id);
    }
}

// A trigger state behind each message.
static void serve(int fd)
{
    on_readable(fd);
    if (has_timers) {
        softclock_check(timers, SOFTCLOCK_TASK_END);
        fire();
    }
}

// Waits once, for events and timers.
static void wait_once(int64_t limit_ns);

static void turn(void (*work)(void))
{
    time_ns = softclock_now(timers);
    work();
    softclock_before_wait(timers);
    wait_once(0);
}
