/* Soft timers in a loop of libevent: sends a datagram every 100 us, and receives it in the same loop. */
#include <event2/event.h>
#include <softclock.h>
#include <stdio.h>
#include <sys/socket.h>

enum { PERIOD_NS = 100000 };

static int pair[2], received, found;

static void on_socket(evutil_socket_t fd, short events, void *argument)
{
	(void)events, (void)argument;
	for (char buffer[8]; recv(fd, buffer, sizeof buffer, 0) > 0; found = 1)
		received++;
}

static void on_wake(evutil_socket_t fd, short events, void *argument) { (void)fd, (void)events, (void)argument; }

int main(void)
{
	struct event_base *base = event_base_new();
	softclock_timers *timers;
	softclock_wake *wake;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) || softclock_timers_new(1, &timers) || softclock_wake_new(&wake))
		return 1;
	struct event *socket = event_new(base, pair[1], EV_READ | EV_PERSIST, on_socket, NULL);
	struct event *timer = event_new(base, softclock_wake_fd(wake), EV_READ | EV_PERSIST, on_wake, NULL);
	event_add(socket, NULL), event_add(timer, NULL), softclock_schedule_after(timers, PERIOD_NS, 0, "tick", NULL);
	for (; received < 1000; found = 0) {
		int64_t limit = softclock_wake_limit(wake, softclock_before_wait(timers));
		event_base_loop(base, EVLOOP_ONCE | (limit > 0 ? 0 : EVLOOP_NONBLOCK));
		if (softclock_after_wait(timers, found)) return 1;
		for (softclock_event due; softclock_next(timers, &due) == 1; send(pair[0], due.data, 4, 0))
			softclock_schedule(timers, due.due_ns + PERIOD_NS, 0, due.data, NULL);
	}
	event_free(socket), event_free(timer), event_base_free(base);
	return printf("%d datagrams\n", received) < 0 || softclock_wake_free(wake) || softclock_timers_free(timers);
}
