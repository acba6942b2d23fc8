// The counts of a sleeper and its output: see src/lab/sleepers/.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct order {
    unsigned timers;
    uint64_t shortest_us, longest_us, warm_up_ms, milliseconds;
};

static struct order order_of(char **argv)
{
    return (struct order){strtoul(argv[1], 0, 10), strtoull(argv[2], 0, 10), strtoull(argv[3], 0, 10),
                          strtoull(argv[4], 0, 10), strtoull(argv[5], 0, 10)};
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

// xorshift64*.
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1d;
}

static uint64_t next_length_ns(uint64_t *state, const struct order *order)
{
    uint64_t span_ns = (order->longest_us - order->shortest_us) * 1000 + 1;
    return order->shortest_us * 1000 + (uint64_t)(((unsigned __int128)next_random(state) * span_ns) >> 64);
}

// Sixteen buckets per octave.
enum { SUB_BITS = 4, SUB = 1 << SUB_BITS, BUCKETS = (64 - SUB_BITS) * SUB + SUB };

static struct {
    uint64_t start_ns, start_cpu_ns, early, bursts, burst_ns;
    uint64_t late[BUCKETS];
} tally;

static void tally_begin(void)
{
    memset(&tally, 0, sizeof tally);
    tally.start_ns = now_ns();
    tally.start_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void tally_count(uint64_t due_ns)
{
    uint64_t now = now_ns();
    uint64_t late = now > due_ns ? now - due_ns : 0;
    unsigned octave = 63 - __builtin_clzll(late | SUB) - SUB_BITS;
    tally.early += now < due_ns;
    tally.late[octave * SUB + (late >> octave)]++;
}

static void tally_print(void)
{
    printf("cpu_ns %lu\n", clock_ns(CLOCK_PROCESS_CPUTIME_ID) - tally.start_cpu_ns);
    printf("elapsed_ns %lu\n", now_ns() - tally.start_ns);
    printf("early %lu\nbursts %lu\nburst_ns %lu\n", tally.early, tally.bursts, tally.burst_ns);
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        unsigned octave = bucket < 2 * SUB ? 0 : bucket / SUB - 1;
        uint64_t largest = ((bucket - octave * SUB + 1ull) << octave) - 1;
        if (tally.late[bucket])
            printf("late %lu %lu\n", largest, tally.late[bucket]);
    }
}

// Computes until it has used this much processor time.
static void burst(uint64_t length_ns)
{
    uint64_t start = clock_ns(CLOCK_THREAD_CPUTIME_ID), used = 0;
    volatile uint64_t number = start;
    while (used < length_ns) {
        for (int i = 0; i < 500; i++)
            number = number * 3 + 1;
        used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    }
    tally.bursts++;
    tally.burst_ns += used;
}
