/* Soft timers in a loop around epoll_wait(): sends a datagram every 100 us, and receives it in the same loop. */
#include <softclock.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { PERIOD_NS = 100000 };

int main(void)
{
	int pair[2], received = 0, epoll = epoll_create1(EPOLL_CLOEXEC);
	softclock_timers *timers;
	softclock_wake *wake; /* epoll_wait() waits for whole milliseconds, so a descriptor ends its waits */
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) || softclock_timers_new(1, &timers) || softclock_wake_new(&wake))
		return 1;
	struct epoll_event socket = { .events = EPOLLIN, .data.u32 = 1 }, timer = { .events = EPOLLIN, .data.u32 = 0 };
	epoll_ctl(epoll, EPOLL_CTL_ADD, pair[1], &socket);
	epoll_ctl(epoll, EPOLL_CTL_ADD, softclock_wake_fd(wake), &timer);
	softclock_schedule_after(timers, PERIOD_NS, 0, "tick", NULL);
	while (received < 1000) {
		struct epoll_event events[2] = { 0 };
		int64_t limit = softclock_wake_limit(wake, softclock_before_wait(timers));
		epoll_wait(epoll, events, 2, softclock_timeout_ms(limit));
		if (softclock_after_wait(timers, events[0].data.u32 || events[1].data.u32)) return 1;
		for (softclock_event due; softclock_next(timers, &due) == 1;) {
			send(pair[0], due.data, 4, 0);
			softclock_schedule(timers, due.due_ns + PERIOD_NS, 0, due.data, NULL);
		}
		for (char buffer[8]; recv(pair[1], buffer, sizeof buffer, 0) > 0;)
			received++;
	}
	softclock_statistics statistics;
	softclock_get_statistics(timers, &statistics);
	printf("%d datagrams, %llu ns late\n", received, (unsigned long long)statistics.lateness_p50_ns);
	return softclock_wake_free(wake) || softclock_timers_free(timers);
}
