/* Misuse is refused with error numbers, and changes nothing. Errors of the network are passed on. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <softclock.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *elsewhere(void *timers)
{
	softclock_event event;
	assert(softclock_check(timers, SOFTCLOCK_TURN) == -EPERM);
	assert(softclock_next(timers, &event) == -EPERM);
	assert(softclock_before_wait(timers) == -EPERM);
	assert(softclock_timers_free(timers) == -EPERM);
	assert(softclock_now(timers) == 0);
	return NULL;
}

static softclock_timers *timers_of_ended;

static void *ends(void *unused)
{
	assert(softclock_timers_new(0, &timers_of_ended) == 0);
	return unused;
}

static void *follows(void *unused)
{
	assert(softclock_check(timers_of_ended, SOFTCLOCK_TURN) == -EPERM);
	assert(softclock_timers_free(timers_of_ended) == -EPERM);
	return unused;
}

static void threads(void)
{
	void *(*const in_turn[])(void *) = { ends, follows };
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		assert(pthread_create(&thread, NULL, in_turn[i], NULL) == 0);
		assert(pthread_join(thread, NULL) == 0);
	}
}

static void timers(void)
{
	softclock_timers *timers;
	softclock_event event;
	uint64_t first, second;
	void *data = NULL;
	assert(softclock_timers_new(0, NULL) == -EINVAL);
	assert(softclock_timers_new(SIZE_MAX, &timers) == -EINVAL);
	assert(softclock_timers_new(2, &timers) == 0);
	assert(softclock_check(NULL, SOFTCLOCK_TURN) == -EINVAL);
	assert(softclock_check(timers, -1) == -EINVAL);
	assert(softclock_check(timers, SOFTCLOCK_APPLICATION + 1) == -EINVAL);
	assert(softclock_next(timers, NULL) == -EINVAL);
	assert(softclock_next(NULL, &event) == -EINVAL);
	assert(softclock_schedule(timers, 0, 2, NULL, NULL) == -EINVAL);
	assert(softclock_schedule(NULL, 0, 0, NULL, NULL) == -EINVAL);
	assert(softclock_set_spin_cap(timers, 1.5) == -EINVAL);
	assert(softclock_set_spin_cap(timers, 0.0) == 0);
	assert(softclock_next_due(timers) == SOFTCLOCK_NEVER);
	assert(softclock_next_due(NULL) == SOFTCLOCK_NEVER);
	assert(softclock_before_wait(timers) == SOFTCLOCK_NO_LIMIT);
	assert(softclock_after_wait(timers, 0) == 0);
	assert(softclock_get_statistics(timers, NULL) == -EINVAL);

	assert(softclock_schedule_after(timers, 0, 0, &first, &first) == 0);
	assert(softclock_schedule_after(timers, UINT64_MAX, SOFTCLOCK_ROUGH, &second, &second) == 0);
	while (softclock_next(timers, &event) == 0)
		assert(softclock_check(timers, SOFTCLOCK_APPLICATION) == 0);
	assert(event.data == &first && event.due_ns > 0);
	assert(softclock_cancel(timers, first, NULL) == -ENOENT);
	assert(softclock_reschedule(timers, first, 0) == -ENOENT);
	assert(softclock_cancel(timers, 0, NULL) == -ENOENT);
	assert(softclock_cancel(timers, UINT64_MAX, NULL) == -ENOENT);
	assert(softclock_reschedule(timers, second, UINT64_MAX / 2) == 0);
	assert(softclock_cancel(timers, second, &data) == 0 && data == &second);

	pthread_t thread;
	assert(pthread_create(&thread, NULL, elsewhere, timers) == 0);
	assert(pthread_join(thread, NULL) == 0);
	assert(softclock_timers_free(timers) == 0);
	assert(softclock_timers_free(NULL) == 0);
}

static void wakes(void)
{
	softclock_wake *wake;
	assert(softclock_timeout_ms(0) == 0 && softclock_timeout_ms(1) == 1 && softclock_timeout_ms(1000001) == 2);
	assert(softclock_timeout_ms(SOFTCLOCK_NO_LIMIT) == -1 && softclock_timeout_ms(-EPERM) == 0);
	assert(softclock_wake_new(NULL) == -EINVAL);
	assert(softclock_wake_fd(NULL) == -EINVAL);
	assert(softclock_wake_new(&wake) == 0 && softclock_wake_fd(wake) >= 0);
	assert(softclock_wake_limit(wake, -EPERM) == -EPERM);
	assert(softclock_wake_limit(wake, 0) == 0);
	assert(softclock_wake_limit(wake, 5) == SOFTCLOCK_NO_LIMIT);
	assert(softclock_wake_limit(wake, SOFTCLOCK_NO_LIMIT) == SOFTCLOCK_NO_LIMIT);
	assert(softclock_wake_free(wake) == 0 && softclock_wake_free(NULL) == 0);
}

static void rate_clocks(void)
{
	softclock_rate_clock *clock;
	assert(softclock_rate_clock_new(100, 50, NULL) == -EINVAL);
	assert(softclock_rate_clock_new(100000, 50000, &clock) == 0);
	assert(softclock_rate_clock_next_send(clock, 7) == 7);
	assert(softclock_rate_clock_on_transmit(clock, 7) == 0);
	assert(softclock_rate_clock_next_send(clock, 7) == 100007);
	assert(softclock_rate_clock_due(clock, 100007) == 1);
	/* Half the bytes take half the time, and half the rate takes twice the time. */
	assert(softclock_rate_clock_on_transmit_bytes(clock, 100007, 750, 0) == -EINVAL);
	assert(softclock_rate_clock_on_transmit_bytes(clock, 100007, 750, 1500) == 0);
	assert(softclock_rate_clock_next_send(clock, 100007) == 150007);
	assert(softclock_rate_clock_set_rates(clock, 200000, 100000) == 0);
	assert(softclock_rate_clock_next_send(clock, 100007) == 200007);
	assert(softclock_rate_clock_set_rates(NULL, 1, 1) == -EINVAL);
	assert(softclock_rate_clock_set_intervals(clock, 100000, 50000) == 0);
	assert(softclock_rate_clock_next_send(clock, 100007) == 200007);
	assert(softclock_rate_clock_set_most_behind(clock, 100000) == 0);
	/* A changed rate makes up for nothing before the next transmission. */
	assert(softclock_rate_clock_due(clock, 200007 + 1000000) == 1);
	assert(softclock_rate_clock_on_transmit(clock, 200007) == 0);
	assert(softclock_rate_clock_due(clock, 300007 + 1000000) == 2);
	assert(softclock_rate_clock_end(clock) == 0);
	assert(softclock_rate_clock_next_send(NULL, 7) == SOFTCLOCK_NEVER && softclock_rate_clock_due(NULL, 7) == 0);
	assert(softclock_rate_clock_free(clock) == 0 && softclock_rate_clock_free(NULL) == 0);
}

static void byte_clocks(void)
{
	softclock_byte_clock *clock;
	softclock_class_options options = { .rate_bps = 8000000, .most_packets = 2 };
	char first, second;
	void *packet = NULL, *rest[2];
	uint64_t next = 0;
	uint32_t class_number = 7;
	assert(softclock_byte_clock_new(80000000, 0, NULL) == -EINVAL);
	assert(softclock_byte_clock_new(0, 0, &clock) == -EINVAL);
	assert(softclock_byte_clock_new(80000000, 0, &clock) == 0);
	assert(softclock_byte_clock_add_class(clock, NULL, NULL) == -EINVAL);
	assert(softclock_byte_clock_add_class(clock, &options, &class_number) == 0 && class_number == 0);
	options.rate_bps = 0;
	assert(softclock_byte_clock_set_options(clock, 0, &options) == -EINVAL);
	options.rate_bps = 4000000, options.most_packets = ((size_t)1 << 24) + 1;
	assert(softclock_byte_clock_set_options(clock, 0, &options) == -EINVAL);
	options.most_packets = 2;
	assert(softclock_byte_clock_set_options(clock, 1, &options) == -EINVAL);
	assert(softclock_byte_clock_set_tolerance(clock, 0) == 0);

	assert(softclock_byte_clock_dequeue(clock, 0, NULL, &next) == -EINVAL);
	assert(softclock_byte_clock_dequeue(clock, 0, &packet, &next) == 0 && next == SOFTCLOCK_NEVER);
	assert(softclock_byte_clock_enqueue(clock, 1, &first, 1000, 0) == -EINVAL);
	assert(softclock_byte_clock_enqueue(clock, 0, &first, 1000, 0) == 0);
	assert(softclock_byte_clock_enqueue(clock, 0, &second, 1000, 0) == 0);
	assert(softclock_byte_clock_enqueue(clock, 0, &second, 1000, 0) == -ENOBUFS);
	assert(softclock_byte_clock_queued(clock, 0) == 2 && softclock_byte_clock_queued(clock, 1) == 0);
	/* 1000 bytes take 1 ms at 8 Mbit/s. */
	assert(softclock_byte_clock_dequeue(clock, 0, &packet, &next) == 1 && packet == &first);
	assert(softclock_byte_clock_dequeue(clock, 0, &packet, &next) == 0 && next == 1000000);
	assert(softclock_byte_clock_dequeue(clock, next, &packet, &next) == 1 && packet == &second);

	assert(softclock_byte_clock_enqueue(clock, 0, &first, 1000, next) == 0);
	assert(softclock_byte_clock_drain(clock, 0, rest, 0) == -ENOBUFS);
	assert(softclock_byte_clock_drain(clock, 0, NULL, 2) == -EINVAL);
	assert(softclock_byte_clock_drain(clock, 0, rest, 2) == 1 && rest[0] == &first);
	assert(softclock_byte_clock_drain(clock, 0, rest, 2) == 0);
	assert(softclock_byte_clock_free(clock) == 0 && softclock_byte_clock_free(NULL) == 0);
}

static void send_queues(void)
{
	softclock_send_queue *queue;
	softclock_send_options options = { .most_messages = 2 };
	int pair[2];
	assert(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	assert(softclock_send_queue_new(pair[0], NULL, &queue) == -EINVAL);
	assert(softclock_send_queue_new(pair[0], &options, &queue) == -EINVAL);
	options.rate_bps = 8000000;
	assert(softclock_send_queue_new(-1, &options, &queue) == -EBADF);
	assert(softclock_send_queue_new(0, &options, &queue) == -ENOTSOCK);
	options.most_messages = ((size_t)1 << 24) + 1;
	assert(softclock_send_queue_new(pair[0], &options, &queue) == -EINVAL);
	options.most_messages = 2;
	options.most_bytes = ((size_t)1 << 30) + 1;
	assert(softclock_send_queue_new(pair[0], &options, &queue) == -EINVAL);
	options.most_bytes = 0;
	assert(softclock_send_queue_new(pair[0], &options, &queue) == 0);
	assert(softclock_send_queue_push(queue, NULL, 1) == -EINVAL);
	assert(softclock_send_queue_push(queue, "one", 3) == 0);
	assert(softclock_send_queue_push(queue, "two", 3) == 0);
	assert(softclock_send_queue_push(queue, "three", 5) == -ENOBUFS);
	assert(softclock_send_queue_length(queue) == 6);
	assert(softclock_send_queue_next_due(queue, 7) == 7);
	assert(softclock_send_queue_send_due(queue, 7) == 3);
	assert(softclock_send_queue_send_due(queue, 7) == 0 && softclock_send_queue_next_due(queue, 7) > 7);
	assert(softclock_send_queue_send_due(NULL, 7) == -EINVAL);
	assert(softclock_send_queue_free(queue) == 0 && softclock_send_queue_free(NULL) == 0);
}

static void send_errors(void)
{
	softclock_send_queue *queue;
	softclock_send_options options = { .rate_bps = 8000000, .burst_bps = 16000000, .piece = 100 };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	static char data[100];
	int there = socket(AF_INET, SOCK_DGRAM, 0), here = socket(AF_INET, SOCK_DGRAM, 0);
	assert(bind(there, (struct sockaddr *)&address, length) == 0);
	assert(getsockname(there, (struct sockaddr *)&address, &length) == 0);
	assert(connect(here, (struct sockaddr *)&address, length) == 0 && close(there) == 0);
	assert(softclock_send_queue_new(here, &options, &queue) == 0);
	for (int i = 0; i < 4; i++)
		assert(softclock_send_queue_push(queue, data, sizeof data) == 0);
	assert(softclock_send_queue_send_due(queue, 0) == 100);
	/* The port is closed: the second message is removed with the error. */
	assert(softclock_send_queue_send_due(queue, 300000) == -ECONNREFUSED);
	assert(softclock_send_queue_length(queue) == 200);
	/* The third is sent; the fourth waits until its error is returned. */
	assert(softclock_send_queue_send_due(queue, 300000) == 100);
	assert(softclock_send_queue_length(queue) == 100 && softclock_send_queue_next_due(queue, 300000) <= 300000);
	assert(softclock_send_queue_send_due(queue, 300000) == -ECONNREFUSED);
	assert(softclock_send_queue_length(queue) == 0);
	assert(softclock_send_queue_free(queue) == 0 && close(here) == 0);
}

int main(void)
{
	threads(), timers(), wakes(), rate_clocks(), byte_clocks(), send_queues(), send_errors();
	puts("all misuse was refused");
	return strcmp(softclock_version(), VERSION);
}
