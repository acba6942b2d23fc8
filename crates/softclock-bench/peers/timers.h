// Timers in a loop of C: their lateness, idle and beside sockets, and the cost of their operations. See
// src/lab/timers/.
//
//     PROGRAM late PAIRS TIMERS SHORTEST_US LONGEST_US WARM_UP_MS MILLISECONDS
//     PROGRAM cost PENDING TURNS
//
// The including file defines the loop by the functions that are declared first.

#include <sys/socket.h>

#include "sleep.h"

// Creates the loop and its timers. `is_exact`: whether delays count from the call, not from the turn's beginning.
static void prepare(unsigned timers, int is_exact);
// Calls on_readable() whenever the descriptor is readable.
static void watch(int fd);
// Schedules a timer, or moves it if it is pending, to fire from `due_ns` on (CLOCK_MONOTONIC).
static void set(unsigned id, uint64_t due_ns);
static void cancel(unsigned id);
// Reads the time from which delays count, as the loop does at the beginning of a turn.
static uint64_t loop_now_ns(void);
// Runs the loop for this time, and calls fired() for each timer that is due.
static void run(uint64_t milliseconds);
// Makes one turn of the loop without waiting, which calls `work`.
static void turn(void (*work)(void));

enum { OPERATIONS = 1000, REQUESTS = 64, MESSAGE = 64 };

static struct order order;

// Lateness: each timer sleeps again and again, as in sleep.h.

static struct sleeper {
    uint64_t random, due_ns;
} *sleepers;

static void (*fired)(unsigned id);

static void sleep_again(unsigned id)
{
    struct sleeper *sleeper = &sleepers[id];
    sleeper->due_ns = now_ns() + next_length_ns(&sleeper->random, &order);
    set(id, sleeper->due_ns);
}

static void slept(unsigned id)
{
    tally_count(sleepers[id].due_ns);
    sleep_again(id);
}

// Works 5 to 20 us for a message, and sends it back to the other socket of the pair: one of the two is always readable.
static void on_readable(int fd)
{
    static uint64_t random = 1;
    char message[MESSAGE];
    ssize_t length = recv(fd, message, sizeof message, MSG_DONTWAIT);
    if (length <= 0)
        return;
    burst(5000 + next_random(&random) % 15001);
    send(fd, message, length, MSG_DONTWAIT);
}

static void add_pair(void)
{
    int pair[2];
    char message[MESSAGE] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) || send(pair[0], message, sizeof message, 0) < 0)
        exit(1);
    watch(pair[0]);
    watch(pair[1]);
}

static int measure_lateness(char **argv)
{
    order = order_of(argv + 1);
    prepare(order.timers, 1);
    sleepers = calloc(order.timers + 1, sizeof *sleepers);
    fired = slept;
    for (unsigned pairs = strtoul(argv[1], 0, 10); pairs; pairs--)
        add_pair();
    for (unsigned id = 0; id < order.timers; id++) {
        // Spread over the longest sleep.
        sleepers[id].random = id + 1;
        sleepers[id].due_ns = now_ns() + order.longest_us * 1000 * (id + 1) / order.timers;
        set(id, sleepers[id].due_ns);
    }
    run(order.warm_up_ms);
    tally_begin();
    run(order.milliseconds);
    tally_print();
    return 0;
}

// Cost: operations on a loop with many pending timers.

static unsigned pending, due;
static uint64_t random_state = 1;

static uint64_t timeout_ns(void)
{
    // 10 to 60 s: none fires.
    return loop_now_ns() + 10000000000 + next_random(&random_state) % 50000000000;
}

static uint64_t timeouts[OPERATIONS];
static unsigned ids[OPERATIONS];

static void schedule_and_cancel(void)
{
    // Of each request the timer is scheduled at its beginning and cancelled at its end, when 63 others are under way.
    for (unsigned i = 0; i < OPERATIONS; i++) {
        unsigned id = pending + i % REQUESTS;
        if (i >= REQUESTS)
            cancel(id);
        set(id, timeouts[i]);
    }
    for (unsigned i = 0; i < REQUESTS; i++)
        cancel(pending + i);
}

static void move(void)
{
    for (unsigned i = 0; i < OPERATIONS; i++)
        set(ids[i], timeouts[i]);
}

static void schedule_due(void)
{
    uint64_t now = loop_now_ns();
    for (unsigned i = 0; i < OPERATIONS; i++)
        set(pending + i, now + 1 + timeouts[i] % 1000000);
}

static void on_due(unsigned id)
{
    due--;
}

static void nothing(void)
{
}

// Returns the processor time of a turn with this work.
static uint64_t turn_ns(void (*work)(void))
{
    uint64_t start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    turn(work);
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
}

static uint64_t fire_ns(void)
{
    due = OPERATIONS;
    uint64_t used = turn_ns(schedule_due);
    // All are due when this ends, also those that are rounded up to a millisecond.
    usleep(2500);
    while (due)
        used += turn_ns(nothing);
    return used;
}

static int measure_cost(char **argv)
{
    uint64_t turns = strtoull(argv[2], 0, 10), used[3] = {0};
    pending = strtoul(argv[1], 0, 10);
    prepare(pending + OPERATIONS, 0);
    fired = on_due;
    for (unsigned id = 0; id < pending; id++)
        set(id, timeout_ns());
    // The first tenth warms up.
    for (uint64_t i = 0; i < turns + turns / 10 + 1; i++) {
        for (unsigned k = 0; k < OPERATIONS; k++) {
            timeouts[k] = timeout_ns();
            ids[k] = next_random(&random_state) % pending;
        }
        // An initializer list would leave the order open.
        uint64_t ns[3];
        ns[0] = turn_ns(schedule_and_cancel);
        ns[1] = turn_ns(move);
        ns[2] = fire_ns();
        for (unsigned k = 0; k < 3 && i > turns / 10; k++)
            used[k] += ns[k];
    }
    double operations = (double)turns * OPERATIONS;
    printf("schedule_and_cancel %g\nmove %g\nfire %g\n", used[0] / operations, used[1] / operations, used[2] / operations);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 8 && !strcmp(argv[1], "late"))
        return measure_lateness(argv + 1);
    if (argc == 4 && !strcmp(argv[1], "cost"))
        return measure_cost(argv + 1);
    return 2;
}
