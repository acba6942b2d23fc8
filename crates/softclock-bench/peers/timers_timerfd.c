// A heap of timers in a loop of epoll, and one timerfd, which is set to the earliest of them before a wait.

#include <sys/timerfd.h>

#include "timers.h"
#include "timers_epoll.h"

enum { NOT_PENDING = -1u };

static struct node {
    uint64_t due_ns;
    unsigned id;
} *heap;
// The places of timers in the heap.
static unsigned *places;
static unsigned length;
static uint64_t time_ns, armed_ns;
static int timer;

static void prepare(unsigned count, int is_exact)
{
    heap = calloc(count + 1, sizeof *heap);
    places = calloc(count + 1, sizeof *places);
    for (unsigned id = 0; id < count; id++)
        places[id] = NOT_PENDING;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    watch(timer);
    time_ns = now_ns();
}

static void put(unsigned place, struct node node)
{
    heap[place] = node;
    places[node.id] = place;
}

// Four children a node: fewer levels, and a node's children lie together.
static void place(unsigned place, struct node node)
{
    unsigned start = place;
    for (unsigned parent; place && heap[parent = (place - 1) / 4].due_ns > node.due_ns; place = parent)
        put(place, heap[parent]);
    for (unsigned child; place >= start && (child = 4 * place + 1) < length; place = child) {
        unsigned end = child + 4 < length ? child + 4 : length;
        for (unsigned other = child + 1; other < end; other++)
            if (heap[other].due_ns < heap[child].due_ns)
                child = other;
        if (heap[child].due_ns >= node.due_ns)
            break;
        put(place, heap[child]);
    }
    put(place, node);
}

static void set(unsigned id, uint64_t due_ns)
{
    unsigned at = places[id] == NOT_PENDING ? length++ : places[id];
    place(at, (struct node){due_ns, id});
}

static void cancel(unsigned id)
{
    unsigned at = places[id];
    places[id] = NOT_PENDING;
    if (at != --length)
        place(at, heap[length]);
}

static uint64_t loop_now_ns(void)
{
    return time_ns;
}

static void fire(void)
{
    time_ns = now_ns();
    while (length && heap[0].due_ns <= time_ns) {
        unsigned id = heap[0].id;
        cancel(id);
        fired(id);
    }
}

static void wait_once(int timeout)
{
    if (length && heap[0].due_ns != armed_ns) {
        // This also clears the timer's last expiration, so that it need not be read.
        armed_ns = heap[0].due_ns;
        struct itimerspec at = {.it_value = {armed_ns / 1000000000, armed_ns % 1000000000}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, 0);
    }
    struct epoll_event events[MOST_EVENTS];
    int count = epoll_wait(epoll, events, MOST_EVENTS, timeout);
    for (int i = 0; i < count; i++) {
        if (events[i].data.fd == timer)
            fire();
        else
            on_readable(events[i].data.fd);
    }
}

static void run(uint64_t milliseconds)
{
    for (uint64_t end = now_ns() + milliseconds * 1000000; now_ns() < end;)
        wait_once(-1);
}

static void turn(void (*work)(void))
{
    time_ns = now_ns();
    work();
    wait_once(0);
}
