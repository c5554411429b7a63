// SPDX-License-Identifier: GPL-2.0
/*
 * A small profiler with deferred user callchains. It runs a command, and samples
 * the command's first thread for some seconds, or until the thread exits. Then it
 * prints the callchain of the kernel entry with the most samples.
 *
 * This is the example of Documentation/userspace-api/perf_deferred_callchain.rst.
 */
#include <err.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGES		128	/* size of the ring buffer, a power of two */
#define FREQUENCY	1000

struct chain {
	struct chain	*next;
	__u32		tid;
	__u64		cookie;
	__u64		nr;
	__u64		ips[];
};

static struct chain *waiting;	/* samples whose record has not come */
static struct chain *last;	/* the user stack of the latest record */
static unsigned int last_samples;	/* number of samples merged with it */
static struct chain *best;	/* the merged callchain that is printed */
static unsigned int best_samples, samples, immediate, merged, records, missing, lost;

/* Make a chain of @nr words from @ips, with room for @more words. */
static struct chain *chain_new(__u32 tid, __u64 cookie, const __u64 *ips, __u64 nr,
			       __u64 more)
{
	struct chain *chain = malloc(sizeof(*chain) + (nr + more) * sizeof(*ips));

	if (!chain)
		err(1, "no memory");
	chain->tid = tid;
	chain->cookie = cookie;
	chain->nr = nr;
	memcpy(chain->ips, ips, nr * sizeof(*ips));
	return chain;
}

/* { u32 pid, tid; u64 nr; u64 ips[nr]; } */
static void take_sample(const __u64 *word, size_t words)
{
	struct chain *chain;
	__u64 nr;

	if (words < 2 || word[1] > words - 2)
		errx(1, "malformed sample");
	nr = word[1];

	samples++;
	if (nr < 2 || word[nr] != PERF_CONTEXT_USER_DEFERRED) {
		immediate++;
		return;
	}
	chain = chain_new(word[0] >> 32, word[nr + 1], word + 2, nr - 2, 0);
	chain->next = waiting;
	waiting = chain;
}

static bool same_entry(const struct chain *a, const struct chain *b)
{
	return a && b && a->tid == b->tid && a->cookie == b->cookie;
}

/* Merge the samples that wait for the stack in @last. */
static void merge_waiting(void)
{
	struct chain **link = &waiting, *sample = NULL;

	while (*link) {
		if (!same_entry(*link, last)) {
			link = &(*link)->next;
			continue;
		}
		free(sample);
		sample = *link;
		*link = sample->next;
		last_samples++;
		merged++;
	}
	if (sample && last->nr && last_samples > best_samples) {
		best_samples = last_samples;
		free(best);
		/* The user part replaces the marker and the cookie. */
		best = chain_new(last->tid, 0, sample->ips, sample->nr, last->nr + 1);
		best->ips[best->nr++] = PERF_CONTEXT_USER;
		memcpy(best->ips + best->nr, last->ips, last->nr * sizeof(__u64));
		best->nr += last->nr;
	}
	free(sample);
}

/* { u64 cookie; u64 nr; u64 ips[nr]; u32 pid, tid; } */
static void take_record(const __u64 *word, size_t words)
{
	struct chain *record;

	if (words < 3 || word[1] != words - 3)
		errx(1, "malformed record");
	record = chain_new(word[words - 1] >> 32, word[0], word + 2, word[1], 0);
	records++;

	if (!same_entry(record, last)) {
		/* If an interrupt wrote the record, its sample may come after it. */
		merge_waiting();
		last_samples = 0;
	}
	if (same_entry(record, last) && record->nr < last->nr) {
		/* It is the same stack, but now a page of it was absent. */
		free(record);
	} else {
		free(last);
		last = record;
	}
	merge_waiting();
}

static void drain(struct perf_event_mmap_page *page)
{
	static __u64 buffer[(1 << 16) / sizeof(__u64)];	/* header.size has 16 bits */
	struct perf_event_header *header = (void *)buffer;
	char *data = (char *)page + page->data_offset;
	__u64 size = page->data_size, tail = page->data_tail, at, first, words;
	__u64 head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);

	while (tail < head) {
		at = tail % size;
		/* Records are multiples of 8 bytes, so a header does not wrap. */
		memcpy(header, data + at, sizeof(*header));
		first = size - at < header->size ? size - at : header->size;
		memcpy(buffer, data + at, first);
		memcpy((char *)buffer + first, data, header->size - first);
		tail += header->size;

		words = header->size / sizeof(__u64) - 1;
		if (header->type == PERF_RECORD_SAMPLE)
			take_sample(buffer + 1, words);
		else if (header->type == PERF_RECORD_CALLCHAIN_DEFERRED)
			take_record(buffer + 1, words);
		else if (header->type == PERF_RECORD_LOST)
			lost += buffer[2];
	}
	__atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
}

static int event_open(struct perf_event_attr *attr, pid_t pid)
{
	return syscall(__NR_perf_event_open, attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Fork a child for @argv. It calls execve() when it has read a byte from *@go. */
static pid_t start(char **argv, int *go)
{
	int fds[2];
	pid_t pid;
	char byte;

	pid = pipe(fds) ? -1 : fork();
	if (pid < 0)
		err(1, "starting %s", argv[0]);
	if (!pid) {
		close(fds[1]);
		if (read(fds[0], &byte, 1) != 1)
			_exit(127);
		close(fds[0]);
		execvp(argv[0], argv);
		err(127, "%s", argv[0]);
	}
	close(fds[0]);
	*go = fds[1];
	return pid;
}

int main(int argc, char **argv)
{
	struct perf_event_attr tracking = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_DUMMY,
		.size		= sizeof(tracking),
		.sample_type	= PERF_SAMPLE_TID,
		.sample_id_all	= 1,
		.disabled	= 1,
		.enable_on_exec	= 1,
		.defer_output	= 1,
	};
	struct perf_event_attr sampling = {
		.type		= PERF_TYPE_SOFTWARE,
		.config		= PERF_COUNT_SW_CPU_CLOCK,
		.size		= sizeof(sampling),
		.sample_type	= PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN,
		.freq		= 1,
		.sample_freq	= FREQUENCY,
		.disabled	= 1,
		.enable_on_exec	= 1,
		.defer_callchain = 1,
	};
	struct perf_event_mmap_page *page;
	int output, sampler, go;
	time_t end;
	pid_t pid;
	__u64 i;

	if (argc < 3)
		errx(2, "usage: example SECONDS COMMAND [ARGUMENT...]");
	pid = start(argv + 2, &go);

	output = event_open(&tracking, pid);
	if (output < 0 && errno == EINVAL) {
		/* This kernel cannot defer: the user part comes with the sample. */
		tracking.defer_output = 0;
		sampling.defer_callchain = 0;
		output = event_open(&tracking, pid);
	}
	sampler = output < 0 ? -1 : event_open(&sampling, pid);
	if (sampler < 0)
		err(1, "perf_event_open (see kernel.perf_event_paranoid)");
	page = mmap(NULL, (PAGES + 1) * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
		    MAP_SHARED, output, 0);
	if (page == MAP_FAILED || ioctl(sampler, PERF_EVENT_IOC_SET_OUTPUT, output))
		err(1, "ring buffer");

	if (write(go, "", 1) != 1)
		err(1, "%s", argv[2]);
	end = time(NULL) + atoi(argv[1]);
	while (!waitpid(pid, NULL, WNOHANG) && time(NULL) < end) {
		poll(NULL, 0, 20);
		drain(page);
	}

	/* End the samples first, then the records, and then empty the buffer. */
	if (ioctl(sampler, PERF_EVENT_IOC_DISABLE, 0) ||
	    ioctl(output, PERF_EVENT_IOC_DISABLE, 0))
		err(1, "PERF_EVENT_IOC_DISABLE");
	drain(page);

	merge_waiting();
	for (; waiting; waiting = waiting->next)
		missing++;
	if (best)
		printf("kernel entry with %u samples:\n", best_samples);
	for (i = 0; best && i < best->nr; i++) {
		if (best->ips[i] == PERF_CONTEXT_KERNEL)
			printf("  kernel\n");
		else if (best->ips[i] == PERF_CONTEXT_USER)
			printf("  user\n");
		else
			printf("    %llx\n", best->ips[i]);
	}
	printf("%u samples: %u merged with %u records, %u not deferred, %u missing, %u lost\n",
	       samples, merged, records, immediate, missing, lost);
	return 0;
}
