/* Soft timers in a loop of libuv: sends a datagram every 100 us, and receives it in the same loop. */
#include <softclock.h>
#include <stdio.h>
#include <sys/socket.h>
#include <uv.h>

enum { PERIOD_NS = 100000 };

static int pair[2], received, found;

static void on_socket(uv_poll_t *poll, int status, int events)
{
	(void)poll, (void)status, (void)events;
	for (char buffer[8]; recv(pair[1], buffer, sizeof buffer, 0) > 0; found = 1)
		received++;
}

static void on_wake(uv_poll_t *poll, int status, int events) { (void)poll, (void)status, (void)events; }

int main(void)
{
	uv_poll_t socket, timer;
	softclock_timers *timers;
	softclock_wake *wake;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) || softclock_timers_new(1, &timers) || softclock_wake_new(&wake))
		return 1;
	uv_poll_init(uv_default_loop(), &socket, pair[1]), uv_poll_start(&socket, UV_READABLE, on_socket);
	uv_poll_init(uv_default_loop(), &timer, softclock_wake_fd(wake)), uv_poll_start(&timer, UV_READABLE, on_wake);
	softclock_schedule_after(timers, PERIOD_NS, 0, "tick", NULL);
	for (; received < 1000; found = 0) {
		int64_t limit = softclock_wake_limit(wake, softclock_before_wait(timers));
		uv_run(uv_default_loop(), limit > 0 ? UV_RUN_ONCE : UV_RUN_NOWAIT);
		if (softclock_after_wait(timers, found)) return 1;
		for (softclock_event due; softclock_next(timers, &due) == 1; send(pair[0], due.data, 4, 0))
			softclock_schedule(timers, due.due_ns + PERIOD_NS, 0, due.data, NULL);
	}
	return printf("%d datagrams\n", received) < 0 || softclock_wake_free(wake) || softclock_timers_free(timers);
}
