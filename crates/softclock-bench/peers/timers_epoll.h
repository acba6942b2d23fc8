// A loop of epoll, for timers.h.

#include <sys/epoll.h>

enum { MOST_EVENTS = 64 };

static int epoll;

static void watch(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        exit(1);
}
