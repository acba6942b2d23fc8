// libevent's dispatching, adding and deleting. Prints the samples of each on a line.

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
    struct event *event = event_new(base, fd, EV_READ | EV_PERSIST, callback, argument);
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

static void costs(int hot, int cold, int rounds)
{
    double *samples[3];
    for (int kind = 0; kind < 3; kind++)
        samples[kind] = calloc(rounds, sizeof(double));
    pairs = calloc(hot, sizeof *pairs);
    struct event **fresh = calloc(hot, sizeof *fresh);
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
        for (int i = 0; i < hot; i++)
            if (write(pairs[i][1], "x", 1) != 1)
                fail("write");
        got = 0;
        double start = now_ns();
        while (got < hot)
            event_base_loop(base, EVLOOP_ONCE);
        samples[0][round] = (now_ns() - start) / got;
        for (int i = 0; i < hot; i++) {
            char byte;
            if (read(pairs[i][0], &byte, 1) != 1)
                fail("read");
        }
        int (*new)[2] = calloc(hot, sizeof *new);
        for (int i = 0; i < hot; i++) {
            make_pair(new[i]);
            fresh[i] = event_new(base, new[i][0], EV_READ | EV_PERSIST, on_nothing, NULL);
        }
        start = now_ns();
        for (int i = 0; i < hot; i++)
            event_add(fresh[i], NULL);
        double added = now_ns();
        for (int i = 0; i < hot; i++)
            event_del(fresh[i]);
        samples[1][round] = (added - start) / hot;
        samples[2][round] = (now_ns() - added) / hot;
        for (int i = 0; i < hot; i++) {
            event_free(fresh[i]);
            close(new[i][0]);
            close(new[i][1]);
        }
        free(new);
    }
    for (int kind = 0; kind < 3; kind++) {
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

int main(int argc, char **argv)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    base = event_base_new();
    if (argc == 5 && !strcmp(argv[1], "costs")) {
        costs(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    } else if (argc == 6 && !strcmp(argv[1], "bench")) {
        count = atoi(argv[2]);
        bench(atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    } else {
        return 2;
    }
    return 0;
}
