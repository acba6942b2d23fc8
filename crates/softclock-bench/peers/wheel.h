// Plays the wheel experiment's trace on one timer structure: see src/experiments/soft_timers/wheel/coprocess.rs.
//
// Orders arrive on standard input, each followed by its steps. The answer to each is a line: nanoseconds per step or
// call, timers that had not fired a tick after they were due, timers that had fired before they were due.
//
// The including file defines the structure by the functions that are declared first.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Allocates the timers. A step of the trace takes `step_ns` of the trace's time.
static void prepare(unsigned timers, double step_ns);
// Continues after a pause that does not count.
static void resume(void);
// Waits until the trace's time is `now_ns`; returns the nanoseconds that it waited.
static double advance(void);
// Fires all due timers: calls fired() for each.
static void poll_timers(void);
static void set(uint32_t id, uint64_t due_ns);
static void stop(uint32_t id);
// Moves a pending timer.
static void move(uint32_t id, uint64_t due_ns);

struct step {
    uint64_t at_ns, due_ns;
    uint32_t id, expired;
};

enum what { POPULATE, PLAY, SCHEDULE, CANCEL, SCHEDULE_AND_CANCEL, RESCHEDULE, IDLE_CHECK };

struct order {
    uint32_t what, count;
};

// Timers beside the population, for single operations: as many as one order has calls.
enum { SPARE = 10000 };

// The trace's time.
static uint64_t now_ns;
// For each timer, whether it is pending.
static uint8_t *pending;
static unsigned population;
static uint64_t late, early;

static void fired(uint32_t id)
{
    pending[id] = 0;
}

// Reads the clock by a raw system call, because a structure may replace clock_gettime().
static double real_ns(void)
{
    struct timespec time;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void schedule(uint32_t id, uint64_t due_ns)
{
    set(id, due_ns);
    pending[id] = 1;
}

static void cancel(uint32_t id)
{
    stop(id);
    pending[id] = 0;
}

static double play(const struct step *steps, unsigned count)
{
    double waited_ns = 0, start = real_ns();
    for (const struct step *step = steps; step < steps + count; step++) {
        now_ns = step->at_ns;
        waited_ns += advance();
        poll_timers();
        if (pending[step->id]) {
            late += step->expired;
            cancel(step->id);
        } else {
            early += !step->expired;
        }
        schedule(step->id, step->due_ns);
    }
    return real_ns() - start - waited_ns;
}

// Schedules timers beside the population, which the operation's end cancels.
static double schedule_and_leave(const struct step *steps, unsigned count)
{
    double start = real_ns();
    for (unsigned i = 0; i < count; i++)
        schedule(population + i, steps[i].due_ns);
    return real_ns() - start;
}

static double cancel_all(unsigned count)
{
    // In a scattered order: a step without a common divisor with the count reaches all.
    uint64_t step = 7919 % count ? 7919 : 1;
    double start = real_ns();
    for (uint64_t i = 0; i < count; i++)
        cancel(population + i * step % count);
    return real_ns() - start;
}

static double operate(enum what what, const struct step *steps, unsigned count)
{
    double ns = 0, start;
    switch (what) {
    case SCHEDULE:
        ns = schedule_and_leave(steps, count);
        cancel_all(count);
        return ns;
    case CANCEL:
        schedule_and_leave(steps, count);
        return cancel_all(count);
    case SCHEDULE_AND_CANCEL:
        start = real_ns();
        for (unsigned i = 0; i < count; i++) {
            if (pending[steps[i].id])
                cancel(steps[i].id);
            schedule(steps[i].id, steps[i].due_ns);
        }
        return real_ns() - start;
    case RESCHEDULE:
        start = real_ns();
        for (unsigned i = 0; i < count; i++) {
            if (pending[steps[i].id])
                move(steps[i].id, steps[i].due_ns);
            else
                schedule(steps[i].id, steps[i].due_ns);
        }
        return real_ns() - start;
    default:
        start = real_ns();
        for (unsigned i = 0; i < count; i++)
            poll_timers();
        return real_ns() - start;
    }
}

static int run(void)
{
    struct step *initial = NULL, *steps = NULL;
    struct order order;
    while (fread(&order, sizeof order, 1, stdin) == 1) {
        steps = realloc(steps, (order.count + 1) * sizeof *steps);
        if (fread(steps, sizeof *steps, order.count, stdin) != order.count)
            return 1;
        if (order.what == POPULATE) {
            population = order.count;
            initial = steps;
            steps = NULL;
            continue;
        }
        // The first order after the population is to play. It shows the speed of the trace's time, and only then can
        // the timers be set.
        if (initial) {
            unsigned room = population + SPARE;
            pending = calloc(room, 1);
            prepare(room, (double)(steps[order.count - 1].at_ns - steps[0].at_ns) / order.count);
            for (unsigned i = 0; i < population; i++)
                schedule(i, initial[i].due_ns);
            free(initial);
            initial = NULL;
        }
        resume();
        double ns = order.what == PLAY ? play(steps, order.count) : operate(order.what, steps, order.count);
        printf("%.3f %lu %lu\n", ns / order.count, late, early);
        fflush(stdout);
    }
    return 0;
}
