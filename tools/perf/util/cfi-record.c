// SPDX-License-Identifier: GPL-2.0
/*
 * Which files get an unwinding table, and when.
 *
 * At the start: the files that the targets have mapped, or those that the program will map
 * if perf starts it. Later: the files that side-band events name. They queue up for a thread
 * that makes or loads a table and gives it to the kernel.
 *
 * The start waits for that thread: a profile of programs has whole stacks from the first
 * sample. A profile of all CPUs waits START_MS at most, as there can be hundreds of files, and
 * its first samples may be without their callers.
 *
 * A file is opened as soon as it is met, by the root directory of the process: that may be
 * gone before its turn comes. O_PATH opens a device or a FIFO without an effect on it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/zalloc.h>
#include <api/fs/fs.h>
#include <perf/threadmap.h>

#include "build-id.h"
#include "cfi-install.h"
#include "cfi-needed.h"
#include "cfi-record.h"
#include "event.h"
#include "evlist.h"
#include "evsel.h"
#include "hashmap.h"
#include "perf_api_probe.h"
#include "target.h"
#include "ui/ui.h"
#include "util.h"

#define START_MS		50
#define PROGRESS_NS		NSEC_PER_SEC
#define POLL_MS			100
/* So many wait with an open file, the others by their path */
#define NR_OPEN_MAX		128

struct item {
	struct list_head	list;
	int			fd;		/* O_PATH, or -1 */
	long			key;		/* in the files that were seen */
	pid_t			pid;		/* whose path it is; -1: perf's own */
	char			path[];		/* "": all that pid has mapped; if -1, all have */
};

struct cfi_record {
	struct cfi_install	install;
	struct evlist		*sb_evlist;
	pthread_t		thread;
	pthread_mutex_t		lock;		/* of what follows */
	pthread_cond_t		work;		/* there is some, or the end has come */
	pthread_cond_t		idle;		/* there is none */
	struct list_head	queue;
	struct hashmap		*seen;
	int			nr_open;
	bool			busy;
	bool			done;
	bool			full;		/* the kernel takes no more */
	bool			told;
};

static size_t hash_seen(long key, void *ctx __maybe_unused)
{
	return key;
}

static bool equal_seen(long a, long b, void *ctx __maybe_unused)
{
	return a == b;
}

static void put_item(struct item *item)
{
	if (item->fd >= 0)
		close(item->fd);
	free(item);
}

/*
 * Once for each file, and again when it was written to. On overlayfs chmod() makes another
 * file of it, and only the time of the last change differs.
 */
static long seen_key(const struct stat *st)
{
	u64 values[] = {
		st->st_dev, st->st_ino, st->st_size, st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
		st->st_ctim.tv_sec, st->st_ctim.tv_nsec,
	};
	u64 key = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(values); i++) {
		key = (key ^ values[i]) * 0x9e3779b97f4a7c15ULL;
		key ^= key >> 32;
	}
	return key;
}

/* The lock is held. */
static bool is_new(struct cfi_record *record, long key)
{
	return !hashmap__add(record->seen, key, 0);
}

static int open_path(pid_t pid, const char *path, struct stat *st)
{
	char name[PATH_MAX];
	int fd;

	if (pid >= 0) {
		if (snprintf(name, sizeof(name), "/proc/%d/root%s", pid, path) >=
		    (int)sizeof(name))
			return -1;
		path = name;
	}

	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, st) || !S_ISREG(st->st_mode) || !st->st_size)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* A path of /proc/PID/maps or a side-band event that is a file's */
static bool is_file_path(const char *path)
{
	size_t len = strlen(path);

	if (path[0] != '/' || path[1] == '/')
		return false;
	if (len > 10 && !strcmp(path + len - 10, " (deleted)")) {
		pr_debug("cfi: %s: no table\n", path);
		return false;
	}
	return true;
}

static void add_item(struct cfi_record *record, pid_t pid, const char *path)
{
	size_t size = strlen(path) + 1;
	struct item *item = malloc(sizeof(*item) + size);
	struct stat st;
	bool is_wanted = true;

	if (!item)
		return;
	item->fd = *path ? open_path(pid, path, &st) : -1;
	item->pid = pid;
	memcpy(item->path, path, size);
	if (*path && item->fd < 0) {
		free(item);
		return;
	}

	pthread_mutex_lock(&record->lock);
	if (*path) {
		item->key = seen_key(&st);
		is_wanted = is_new(record, item->key);
	}
	if (item->fd >= 0 && record->nr_open >= NR_OPEN_MAX) {
		close(item->fd);
		item->fd = -1;
	}
	if (is_wanted && !record->full) {
		record->nr_open += item->fd >= 0;
		list_add_tail(&item->list, &record->queue);
		pthread_cond_signal(&record->work);
		item = NULL;
	}
	pthread_mutex_unlock(&record->lock);
	if (item)
		put_item(item);
}

static bool is_done(struct cfi_record *record)
{
	bool done;

	pthread_mutex_lock(&record->lock);
	done = record->done || record->full;
	pthread_mutex_unlock(&record->lock);
	return done;
}

/* By whom it is seen first: the thread that waits for the tables, or the one that makes them */
static void tell_progress(struct cfi_record *record)
{
	bool tell = false;

	if (quiet || use_browser > 0)
		return;

	pthread_mutex_lock(&record->lock);
	if (!record->told && cfi_install__making_ns(&record->install) > PROGRESS_NS) {
		record->told = true;
		tell = true;
	}
	pthread_mutex_unlock(&record->lock);
	if (tell)
		fprintf(stderr, "[ perf: Making unwinding tables, kept in %s for the next time ]\n",
			buildid_dir);
}

static void install(struct cfi_record *record, int path_fd, const char *name)
{
	char path[64];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		pr_debug("cfi: %s: no table: %m\n", name);
		return;
	}

	err = cfi_install__file(&record->install, fd, name);
	close(fd);
	tell_progress(record);

	if (err == -ENOSPC) {
		pr_warning("WARNING: The kernel takes no more unwinding tables: raise kernel.perf_event_cfi_mb, or profile fewer programs\n");
		pthread_mutex_lock(&record->lock);
		record->full = true;
		pthread_mutex_unlock(&record->lock);
	}
}

static void install_mapped(struct cfi_record *record, pid_t pid)
{
	char name[64], *line = NULL;
	size_t size = 0;
	FILE *maps;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	maps = fopen(name, "re");
	if (!maps)
		return;

	while (getline(&line, &size, maps) > 0 && !is_done(record)) {
		struct stat st;
		char exec;
		int pos = 0, fd;
		bool wanted;

		if (sscanf(line, "%*x-%*x %*c%*c%c%*c %*x %*x:%*x %*u %n", &exec, &pos) != 1 ||
		    exec != 'x' || !pos)
			continue;
		strim(line + pos);
		if (!is_file_path(line + pos))
			continue;

		/* Of a program behind chroot() the path may begin at our root. */
		fd = open_path(pid, line + pos, &st);
		if (fd < 0)
			fd = open_path(-1, line + pos, &st);
		if (fd < 0) {
			pr_debug("cfi: %s: no table: no regular file, or gone\n", line + pos);
			continue;
		}
		pthread_mutex_lock(&record->lock);
		wanted = is_new(record, seen_key(&st));
		pthread_mutex_unlock(&record->lock);
		if (wanted)
			install(record, fd, line + pos);
		close(fd);
	}
	free(line);
	fclose(maps);
}

static void install_all_mapped(struct cfi_record *record)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	if (!proc)
		return;
	while ((entry = readdir(proc)) != NULL && !is_done(record)) {
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			install_mapped(record, atoi(entry->d_name));
	}
	closedir(proc);
}

static void process_item(struct cfi_record *record, struct item *item)
{
	struct stat st;

	if (!*item->path) {
		if (item->pid < 0)
			install_all_mapped(record);
		else
			install_mapped(record, item->pid);
		return;
	}

	if (item->fd < 0)
		item->fd = open_path(item->pid, item->path, &st);
	if (item->fd >= 0) {
		install(record, item->fd, item->path);
		return;
	}

	/* The process is gone. Another one may have the file. */
	pthread_mutex_lock(&record->lock);
	hashmap__delete(record->seen, item->key, NULL, NULL);
	pthread_mutex_unlock(&record->lock);
}

static void *cfi_thread(void *arg)
{
	struct cfi_record *record = arg;

	/* As the side-band thread does, for others that enter namespaces */
	unshare(CLONE_FS);

	pthread_mutex_lock(&record->lock);
	while (!record->done) {
		struct item *item;

		if (list_empty(&record->queue)) {
			record->busy = false;
			pthread_cond_broadcast(&record->idle);
			pthread_cond_wait(&record->work, &record->lock);
			continue;
		}

		record->busy = true;
		item = list_first_entry(&record->queue, struct item, list);
		list_del(&item->list);
		record->nr_open -= item->fd >= 0;
		pthread_mutex_unlock(&record->lock);

		if (!is_done(record))
			process_item(record, item);
		put_item(item);

		pthread_mutex_lock(&record->lock);
	}
	pthread_mutex_unlock(&record->lock);
	return NULL;
}

static void add_ms(struct timespec *ts, unsigned int ms)
{
	ts->tv_sec += ms / 1000;
	ts->tv_nsec += ms % 1000 * NSEC_PER_MSEC;
	if (ts->tv_nsec >= (long)NSEC_PER_SEC) {
		ts->tv_sec++;
		ts->tv_nsec -= NSEC_PER_SEC;
	}
}

/* Wait until the queue is empty or @done is set, for @ms at most unless it is 0 */
static void wait_idle(struct cfi_record *record, unsigned int ms, const volatile int *done)
{
	struct timespec until, begin, end;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	until = begin;
	add_ms(&until, ms ?: POLL_MS);

	pthread_mutex_lock(&record->lock);
	while ((record->busy || !list_empty(&record->queue)) && !(err && ms) && !*done) {
		err = pthread_cond_timedwait(&record->idle, &record->lock, &until);
		if (!err || ms)
			continue;
		add_ms(&until, POLL_MS);
		pthread_mutex_unlock(&record->lock);
		tell_progress(record);
		pthread_mutex_lock(&record->lock);
	}
	pthread_mutex_unlock(&record->lock);

	clock_gettime(CLOCK_MONOTONIC, &end);
	pr_debug("cfi: waited %ld ms%s\n", (long)((end.tv_sec - begin.tv_sec) * MSEC_PER_SEC +
		 (end.tv_nsec - begin.tv_nsec) / (long)NSEC_PER_MSEC),
		 err && ms ? ", the rest comes later" : "");
}

static int cfi_record__mmap(union perf_event *event, void *data)
{
	struct cfi_record *record = data;

	if (event->header.type == PERF_RECORD_MMAP2 && is_file_path(event->mmap2.filename))
		add_item(record, event->mmap2.pid, event->mmap2.filename);
	return 0;
}

/* Events of new executable mappings, of the targets and what they start */
static int watch_mappings(struct cfi_record *record, const struct target *target,
			  pid_t workload)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.size = sizeof(attr),
		.sample_id_all = 1,
		.watermark = 1,
		.wakeup_watermark = 1,
		.mmap = 1,
		.mmap2 = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	struct target watched = *target;
	char tid[16];

	/* A buffer for each CPU: one for a task cannot have the events of what it starts */
	watched.default_per_cpu = true;
	watched.per_thread = false;
	watched.uses_mmap = true;
	if (target__has_cpu(&watched)) {
		/* What runs on one of the CPUs may have been mapped on another one */
		watched.system_wide = true;
		watched.cpu_list = NULL;
	} else {
		attr.inherit = 1;
		if (workload > 0) {
			snprintf(tid, sizeof(tid), "%d", workload);
			watched.tid = tid;
		}
	}

	record->sb_evlist = evlist__new();
	if (!record->sb_evlist)
		return -ENOMEM;
	if (evlist__add_sb_event(record->sb_evlist, &attr, cfi_record__mmap, record)) {
		evlist__delete(record->sb_evlist);
		record->sb_evlist = NULL;
		return -ENOMEM;
	}
	/* Threads may end meanwhile */
	evlist__last(record->sb_evlist)->ignore_missing_thread = true;
	if (evlist__start_sb_thread(record->sb_evlist, &watched)) {
		/* It has deleted the events */
		record->sb_evlist = NULL;
		return -EINVAL;
	}
	return 0;
}

static pid_t leader_of(pid_t tid)
{
	char path[32], *status, *tgid;
	pid_t leader = tid;
	size_t size;

	snprintf(path, sizeof(path), "%d/status", tid);
	if (procfs__read_str(path, &status, &size))
		return tid;
	tgid = strstr(status, "\nTgid:");
	if (tgid)
		leader = atoi(tgid + 6);
	free(status);
	return leader;
}

/* A leader that has ended, before the other threads do, has nothing mapped. */
static bool has_maps(pid_t pid)
{
	char path[32], byte;
	bool has = false;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		has = read(fd, &byte, 1) == 1;
		close(fd);
	}
	return has;
}

/* All threads of a process have the same files mapped, and its leader is a target, too. */
static bool is_another_thread(pid_t tid, const struct target *target)
{
	pid_t leader = target->tid ? tid : leader_of(tid);

	return leader != tid && has_maps(leader);
}

static void add_needed(const char *path, void *data)
{
	add_item(data, -1, path);
}

static void add_targets(struct cfi_record *record, struct evlist *evlist,
			const struct target *target, const char *program)
{
	struct target copy = *target;
	int i;

	if (program)
		cfi_needed__for_each(program, add_needed, record);
	if (target__has_cpu(&copy))
		add_item(record, -1, "");
	if (program || target__has_cpu(&copy))
		return;

	for (i = 0; i < perf_thread_map__nr(evlist->core.threads); i++) {
		pid_t pid = perf_thread_map__pid(evlist->core.threads, i);

		if (pid > 0 && !is_another_thread(pid, target))
			add_item(record, pid, "");
	}
}

static struct cfi_record *cfi_record__new(void)
{
	struct cfi_record *record = zalloc(sizeof(*record));
	pthread_condattr_t attr;

	if (!record)
		return NULL;

	record->install.event = -1;
	record->seen = hashmap__new(hash_seen, equal_seen, NULL);
	if (IS_ERR(record->seen)) {
		free(record);
		return NULL;
	}
	INIT_LIST_HEAD(&record->queue);
	pthread_mutex_init(&record->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&record->work, &attr);
	pthread_cond_init(&record->idle, &attr);
	pthread_condattr_destroy(&attr);
	return record;
}

static void cfi_record__delete(struct cfi_record *record)
{
	struct item *item, *next;

	list_for_each_entry_safe(item, next, &record->queue, list)
		put_item(item);
	cfi_install__close(&record->install);
	hashmap__free(record->seen);
	pthread_cond_destroy(&record->work);
	pthread_cond_destroy(&record->idle);
	pthread_mutex_destroy(&record->lock);
	free(record);
}

static const char *why_off(int err)
{
	switch (err) {
	case -ENOTTY:
		return "this kernel takes none";
	case -EACCES:
	case -EPERM:
		return "they need root or CAP_PERFMON";
	case -ENODATA:
		return "no event defers them, see kernel.perf_event_defer";
	default:
		return strerror(-err);
	}
}

/**
 * cfi_record__start - give the kernel the unwinding tables of the targets
 * @evlist: the events, open and not enabled; its workload has not begun
 * @target: what is profiled
 * @program: the program that is started for it, or NULL
 * @done: becomes true when the user has seen enough
 *
 * Return: to be given to cfi_record__stop(); NULL when there are no tables, which is told when
 * they were asked for by name, else with -v.
 */
struct cfi_record *cfi_record__start(struct evlist *evlist, const struct target *target,
				     const char *program, const volatile int *done)
{
	struct cfi_record *record;
	struct target copy = *target;
	int err;

	if (!evlist__wants_cfi(evlist))
		return NULL;
	/* What runs while others are profiled is not profiled itself */
	if (target__has_task(&copy))
		program = NULL;

	err = perf_can_set_cfi();
	if (!err && !evlist__defers_callchains(evlist))
		err = -ENODATA;
	if (err) {
		evlist__no_cfi(evlist, why_off(err));
		return NULL;
	}

	record = cfi_record__new();
	err = record ? cfi_install__open(&record->install) : -ENOMEM;
	if (!err) {
		record->busy = true;
		cfi_install__vdso(&record->install);
		err = -pthread_create(&record->thread, NULL, cfi_thread, record);
	}
	if (err) {
		evlist__no_cfi(evlist, why_off(err));
		if (record)
			cfi_record__delete(record);
		return NULL;
	}

	/* Watch first, so that nothing is mapped in between */
	if (watch_mappings(record, target, program ? evlist->workload.pid : -1))
		pr_debug("cfi: no side-band events, files that are mapped later have no tables\n");

	add_targets(record, evlist, target, program);
	wait_idle(record, target__has_cpu(&copy) ? START_MS : 0, done);
	return record;
}

/**
 * cfi_record__stop - take back what is kept for a profile
 * @record: from cfi_record__start(), or NULL
 */
void cfi_record__stop(struct cfi_record *record)
{
	struct cfi_install *install;

	if (!record)
		return;

	evlist__stop_sb_thread(record->sb_evlist);

	pthread_mutex_lock(&record->lock);
	record->done = true;
	pthread_cond_signal(&record->work);
	pthread_mutex_unlock(&record->lock);
	pthread_join(record->thread, NULL);

	install = &record->install;
	pr_debug("cfi: tables of %u files made in %llu ms, %u loaded, %u known to the kernel, %u failed; %llu bytes, %llu rows that no table can say\n",
		 install->nr_made, (unsigned long long)install->made_ns / NSEC_PER_MSEC,
		 install->nr_loaded, install->nr_known, install->nr_failed,
		 (unsigned long long)install->size, (unsigned long long)install->nr_unsaid);
	cfi_record__delete(record);
}
