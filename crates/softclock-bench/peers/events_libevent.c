// Costs of libevent's dispatching, adding and deleting. Prints the samples of each on a line.

#include <event2/event.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct event_base *base;
static short watched = EV_READ | EV_PERSIST;
static int (*pairs)[2];
static int count, space, left, got;

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void make_pair(int pair[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        fail("socketpair");
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
}

static struct event *watch(int fd, event_callback_fn callback, void *argument)
{
    struct event *event = event_new(base, fd, watched, callback, argument);
    if (!event || event_add(event, NULL) < 0)
        fail("event_add");
    return event;
}

static void on_nothing(evutil_socket_t fd, short what, void *argument)
{
}

static void on_hot(evutil_socket_t fd, short what, void *argument)
{
    got++;
}

enum { EVENT, ADD, DELETE, ARMED, CLOSE, KINDS };

// Sockets that are watched during one round only.
struct fresh {
    int count;
    int (*pairs)[2];
    struct event **events;
};

static void make_fresh(struct fresh *fresh)
{
    for (int i = 0; i < fresh->count; i++) {
        make_pair(fresh->pairs[i]);
        fresh->events[i] = event_new(base, fresh->pairs[i][0], watched, on_nothing, NULL);
        if (!fresh->events[i])
            fail("event_new");
    }
}

static void add_fresh(struct fresh *fresh)
{
    for (int i = 0; i < fresh->count; i++)
        event_add(fresh->events[i], NULL);
}

static void free_fresh(struct fresh *fresh)
{
    for (int i = 0; i < fresh->count; i++) {
        event_free(fresh->events[i]);
        close(fresh->pairs[i][1]);
    }
}

static void add_and_delete(struct fresh *fresh, double *add, double *delete)
{
    make_fresh(fresh);
    double start = now_ns();
    add_fresh(fresh);
    double added = now_ns();
    for (int i = 0; i < fresh->count; i++)
        event_del(fresh->events[i]);
    *delete = (now_ns() - added) / fresh->count;
    *add = (added - start) / fresh->count;
    for (int i = 0; i < fresh->count; i++)
        close(fresh->pairs[i][0]);
    free_fresh(fresh);
}

static void arm_and_close(struct fresh *fresh, double *arm, double *end)
{
    make_fresh(fresh);
    double start = now_ns();
    add_fresh(fresh);
    event_base_loop(base, EVLOOP_NONBLOCK);
    double armed = now_ns();
    for (int i = 0; i < fresh->count; i++) {
        event_del(fresh->events[i]);
        close(fresh->pairs[i][0]);
    }
    // The changelist reaches the kernel in a turn of the loop.
    event_base_loop(base, EVLOOP_NONBLOCK);
    *end = (now_ns() - armed) / fresh->count;
    *arm = (armed - start) / fresh->count;
    free_fresh(fresh);
}

static double dispatch(int hot)
{
    for (int i = 0; i < hot; i++)
        if (write(pairs[i][1], "x", 1) != 1)
            fail("write");
    got = 0;
    double start = now_ns();
    while (got < hot)
        event_base_loop(base, EVLOOP_ONCE);
    double each = (now_ns() - start) / got;
    for (int i = 0; i < hot; i++) {
        char byte;
        if (read(pairs[i][0], &byte, 1) != 1)
            fail("read");
    }
    return each;
}

static void costs(int hot, int cold, int rounds)
{
    double *samples[KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        samples[kind] = calloc(rounds, sizeof(double));
    pairs = calloc(hot, sizeof *pairs);
    struct fresh fresh = {
        hot, calloc(hot, sizeof *fresh.pairs), calloc(hot, sizeof *fresh.events)};
    for (int i = 0; i < hot; i++) {
        make_pair(pairs[i]);
        watch(pairs[i][0], on_hot, NULL);
    }
    for (int made = 0; made < cold; made += 2) {
        int pair[2];
        make_pair(pair);
        watch(pair[0], on_nothing, NULL);
        if (made + 1 < cold)
            watch(pair[1], on_nothing, NULL);
    }
    event_base_loop(base, EVLOOP_NONBLOCK);
    for (int round = 0; round < rounds; round++) {
        samples[EVENT][round] = dispatch(hot);
        add_and_delete(&fresh, &samples[ADD][round], &samples[DELETE][round]);
        arm_and_close(&fresh, &samples[ARMED][round], &samples[CLOSE][round]);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int round = 0; round < rounds; round++)
            printf("%.1f ", samples[kind][round]);
        printf("\n");
    }
}

static void on_readable(evutil_socket_t fd, short what, void *argument)
{
    char byte;
    int number = (intptr_t)argument;
    while (read(fd, &byte, 1) == 1) {
        got++;
        if (left > 0) {
            left--;
            if (write(pairs[(number + space + 1) % count][1], "e", 1) != 1)
                fail("write");
        }
    }
}

static void bench(int active, int writes, int runs)
{
    pairs = calloc(count, sizeof *pairs);
    space = count / active;
    for (int i = 0; i < count; i++) {
        make_pair(pairs[i]);
        watch(pairs[i][0], on_readable, (void *)(intptr_t)i);
    }
    event_base_loop(base, EVLOOP_NONBLOCK);
    for (int run = 0; run < runs; run++) {
        for (int i = 0; i < active; i++)
            if (write(pairs[i * space][1], "e", 1) != 1)
                fail("write");
        left = writes;
        got = 0;
        double start = now_ns();
        while (got < writes + active)
            event_base_loop(base, EVLOOP_ONCE);
        printf("%.2f ", (now_ns() - start) / 1e3);
    }
    printf("\n");
}

// Creates a base with its defaults, or with the settings that its documentation recommends for speed.
static struct event_base *make_base(int fast)
{
    if (!fast)
        return event_base_new();
    watched |= EV_ET;
    struct event_config *config = event_config_new();
    event_config_set_flag(config, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST | EVENT_BASE_FLAG_NOLOCK);
    return event_base_new_with_config(config);
}

// Arguments: "fast" or "defaults", the workload, and its numbers.
int main(int argc, char **argv)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    base = make_base(argc > 1 && !strcmp(argv[1], "fast"));
    if (!base)
        fail("event_base");
    if (argc == 6 && !strcmp(argv[2], "costs")) {
        costs(atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    } else if (argc == 7 && !strcmp(argv[2], "bench")) {
        count = atoi(argv[3]);
        bench(atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
    } else {
        return 2;
    }
    return 0;
}
