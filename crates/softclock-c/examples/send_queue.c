/* A paced send queue: 50 datagrams of 1200 bytes at 20 Mbit/s, one every 480 us. */
#include <poll.h>
#include <softclock.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

int main(void)
{
	static char message[1200];
	int pair[2], received = 0;
	softclock_timers *timers;
	softclock_send_queue *queue;
	softclock_send_options options = { .rate_bps = 20000000 };
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) || softclock_timers_new(1, &timers) ||
	    softclock_send_queue_new(pair[0], &options, &queue))
		return 1;
	for (int i = 0; i < 50; i++)
		softclock_send_queue_push(queue, message, sizeof message);
	uint64_t start = softclock_now(timers), due;
	while ((due = softclock_send_queue_next_due(queue, softclock_now(timers))) != SOFTCLOCK_NEVER) {
		softclock_event event;
		softclock_schedule(timers, due, 0, queue, NULL);
		do { /* here a loop would wait for its descriptors, too */
			int64_t limit = softclock_before_wait(timers);
			if (limit < 0) return 1;
			nanosleep(&(struct timespec){ limit / 1000000000, limit % 1000000000 }, NULL);
			softclock_after_wait(timers, 0);
		} while (softclock_next(timers, &event) == 0);
		softclock_send_queue_send_due(event.data, softclock_now(timers));
		while (recv(pair[1], message, sizeof message, MSG_DONTWAIT) > 0)
			received++;
	}
	unsigned took_us = (softclock_now(timers) - start) / 1000;
	printf("%d datagrams in %u us\n", received, took_us);
	return softclock_send_queue_free(queue) || softclock_timers_free(timers);
}
