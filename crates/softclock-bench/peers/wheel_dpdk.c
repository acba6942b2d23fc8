// The timers of DPDK (rte_timer): a skip list per core. They read the processor's counter themselves and cannot be
// given the trace's time. The trace's time therefore begins far in the future, where nothing fires, and timers that
// would have fired are cancelled instead. With the argument `fire` the trace runs in real time, at a pace that the
// structure can keep, and waiting is not counted; this suits traces whose steps are about equally long.

#define _GNU_SOURCE
#include <sched.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_timer.h>

#include "wheel.h"

// Cycles, more than ever pass.
#define FAR (1ull << 50)

static struct rte_timer *timers;
static unsigned room;
// Whether the trace runs in real time.
static int paced;
// The counter at the trace's beginning, and its increase per nanosecond of the trace.
static uint64_t epoch;
static double cycles_per_ns;

static uint64_t cycles_at(uint64_t ns)
{
    return epoch + ns * cycles_per_ns;
}

static void on_timer(struct rte_timer *timer, void *id)
{
    fired((uintptr_t)id);
}

static void set(uint32_t id, uint64_t due_ns)
{
    uint64_t due = cycles_at(due_ns), now = rte_get_timer_cycles();
    rte_timer_reset(&timers[id], due > now ? due - now : 0, SINGLE, rte_lcore_id(), on_timer, (void *)(uintptr_t)id);
}

static void stop(uint32_t id)
{
    rte_timer_stop(&timers[id]);
}

static void move(uint32_t id, uint64_t due_ns)
{
    set(id, due_ns);
}

static void poll_timers(void)
{
    rte_timer_manage();
}

// Returns three times the cycles of one cancellation and scheduling with this number of pending timers.
static double affordable_cycles(unsigned count)
{
    enum { TRIES = 1000 };
    uint64_t random = 1;
    for (unsigned id = 0; id < count; id++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        rte_timer_reset(&timers[id], FAR + (random >> 24), SINGLE, rte_lcore_id(), on_timer, NULL);
    }
    uint64_t start = rte_get_timer_cycles();
    for (unsigned i = 0; i < TRIES; i++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        struct rte_timer *timer = &timers[(random >> 32) % count];
        rte_timer_stop(timer);
        rte_timer_reset(timer, FAR + (random >> 24), SINGLE, rte_lcore_id(), on_timer, NULL);
    }
    double cycles = 3.0 * (rte_get_timer_cycles() - start) / TRIES;
    for (unsigned id = 0; id < count; id++)
        rte_timer_stop(&timers[id]);
    return cycles;
}

static void prepare(unsigned count, double step_ns)
{
    room = count;
    timers = calloc(count, sizeof *timers);
    if (!timers)
        exit(1);
    for (unsigned id = 0; id < count; id++)
        rte_timer_init(&timers[id]);
    cycles_per_ns = paced ? affordable_cycles(population) / step_ns : 1;
    epoch = rte_get_timer_cycles() + (paced ? 0 : FAR);
}

// Moves the epoch and all pending timers by the same pause, which keeps their order.
static void resume(void)
{
    if (!paced)
        return;
    uint64_t pause = rte_get_timer_cycles() - cycles_at(now_ns);
    epoch += pause;
    for (unsigned id = 0; id < room; id++)
        timers[id].expire += pause;
}

static double advance(void)
{
    if (!paced)
        return 0;
    uint64_t start = rte_get_timer_cycles(), now = start;
    for (uint64_t until = cycles_at(now_ns); now < until;)
        now = rte_get_timer_cycles();
    return (now - start) * 1e9 / rte_get_timer_hz();
}

int main(int argc, char **argv)
{
    paced = argc > 1 && !strcmp(argv[1], "fire");
    char *options[] = {argv[0], "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-l", "0", NULL};
    cpu_set_t processors;
    sched_getaffinity(0, sizeof processors, &processors);
    if (rte_eal_init(7, options) < 0 || rte_timer_subsystem_init() < 0)
        return 1;
    // rte_eal_init() binds the thread to one processor, which other programs may be using: undo it.
    sched_setaffinity(0, sizeof processors, &processors);
    return run();
}
