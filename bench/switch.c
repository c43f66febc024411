/* Frames of 64 bytes through the Linux bridge, for bench/switch: the other side of
 * its ratios. Prints frames a second that came out.
 *
 *   switch tap  IN OUT SENDER RECEIVER MS   tap devices, by write(2) and read(2)
 *   switch veth IN OUT SENDER RECEIVER MS   packet sockets, by sendmmsg(2) and
 *                                           recvmmsg(2), past the queueing discipline
 *
 * IN and OUT are the interfaces; SENDER and RECEIVER are pCPUs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BYTES 60
#define BURST 32

unsigned if_nametoindex(const char *name);

static atomic_int ending;
static atomic_ulong received;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void pin(int pcpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(pcpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
}

static int open_tap(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);

	if (fd < 0)
		fail("/dev/net/tun");
	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	if (ioctl(fd, TUNSETIFF, &request))
		fail(name);
	return fd;
}

static int open_packet(const char *name)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), one = 1, room = 1 << 24;

	at.sll_ifindex = if_nametoindex(name);
	if (fd < 0 || !at.sll_ifindex || bind(fd, (struct sockaddr *)&at, sizeof(at)))
		fail(name);
	if (setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)))
		fail("PACKET_QDISC_BYPASS");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	return fd;
}

struct end {
	int fd, pcpu, packets;
};

static void *sink(void *argument)
{
	struct end *end = argument;
	static char frames[BURST][2048];
	struct mmsghdr messages[BURST] = { 0 };
	struct iovec parts[BURST];

	pin(end->pcpu);
	for (int i = 0; i < BURST; i++) {
		parts[i] = (struct iovec){ frames[i], sizeof(frames[i]) };
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	while (!atomic_load_explicit(&ending, memory_order_relaxed)) {
		int count = 0;

		if (end->packets)
			count = recvmmsg(end->fd, messages, BURST, MSG_DONTWAIT, NULL);
		else if (read(end->fd, frames[0], sizeof(frames[0])) > 0)
			count = 1;
		for (int i = 0; i < count; i++)
			/* What the kernel itself says on a new link is not ours. */
			if (frames[i][12] == (char)0x88 && frames[i][13] == (char)0xb5)
				atomic_fetch_add_explicit(&received, 1, memory_order_relaxed);
	}
	return NULL;
}

static void *source(void *argument)
{
	struct end *end = argument;
	static char frame[BYTES] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, (char)0x88, (char)0xb5 };
	struct mmsghdr messages[BURST] = { 0 };
	struct iovec part = { frame, BYTES };

	pin(end->pcpu);
	for (int i = 0; i < BURST; i++) {
		messages[i].msg_hdr.msg_iov = &part;
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	while (!atomic_load_explicit(&ending, memory_order_relaxed)) {
		if (end->packets)
			sendmmsg(end->fd, messages, BURST, 0);
		else if (write(end->fd, frame, BYTES) < 0 && errno != EAGAIN && errno != ENOBUFS)
			fail("write");
	}
	return NULL;
}

int main(int count, char **words)
{
	struct end in, out;
	struct timespec warm_up = { 0, 50 * 1000 * 1000 }, length, begin, end;
	pthread_t sending, receiving;
	unsigned long before;

	if (count != 7)
		return 2;
	in.packets = out.packets = !strcmp(words[1], "veth");
	in.fd = in.packets ? open_packet(words[2]) : open_tap(words[2]);
	out.fd = out.packets ? open_packet(words[3]) : open_tap(words[3]);
	in.pcpu = atoi(words[4]);
	out.pcpu = atoi(words[5]);
	length = (struct timespec){ atoi(words[6]) / 1000, atoi(words[6]) % 1000 * 1000000L };
	/* The bridge learns where the receiver is. */
	static char hello[BYTES] = { -1, -1, -1, -1, -1, -1, 2, 0, 0, 0, 0, 2, 8, 6 };
	for (int tries = 0; tries < 200; tries++) {
		char seen[2048];
		ssize_t got;

		if (write(out.fd, hello, BYTES) < 0 && errno != EAGAIN && errno != EIO && errno != ENETDOWN)
			fail("write");
		if (poll(&(struct pollfd){ in.fd, POLLIN, 0 }, 1, 10) == 1) {
			got = in.packets ? recv(in.fd, seen, sizeof(seen), MSG_DONTWAIT)
					 : read(in.fd, seen, sizeof(seen));
			if (got >= 14 && !memcmp(seen + 6, hello + 6, 6))
				break;
		}
	}
	pthread_create(&receiving, NULL, sink, &out);
	pthread_create(&sending, NULL, source, &in);
	nanosleep(&warm_up, NULL);
	before = atomic_load(&received);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	nanosleep(&length, NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	before = atomic_load(&received) - before;
	atomic_store(&ending, 1);
	pthread_join(sending, NULL);
	pthread_join(receiving, NULL);
	if (!before) {
		fprintf(stderr, "no frame came through\n");
		return 1;
	}
	printf("%.0f\n", before / ((end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec) / 1e9));
	return 0;
}
