// SPDX-License-Identifier: GPL-2.0
/* Pages that the test has to serve: by userfaultfd, FUSE, or a loop device on FUSE. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/loop.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../kselftest.h"
#include "unwind_test.h"

int ut_userfault(void *page)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	reg.range.start = (unsigned long)page;
	reg.range.len = sysconf(_SC_PAGESIZE);
	if (fd >= 0 && !ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &reg))
		return fd;
	return -errno;
}

/* A request for this attribute makes the server answer all reads, also earlier ones. */
#define FUSE_ANSWER	"user.answer"

static void fuse_pass_through(int fd, int backing, struct fuse_open_out *open)
{
	struct fuse_backing_map map = { .fd = backing };

	open->open_flags = FOPEN_PASSTHROUGH;
	open->backing_id = ioctl(fd, FUSE_DEV_IOC_BACKING_OPEN, &map);
}

/* The file system has one file, of one page. */
void ut_fuse_serve(int fd, struct ut_fuse *f)
{
	static char buf[1 << 18];
	struct fuse_in_header *in = (void *)buf;
	struct {
		struct fuse_out_header	hdr;
		union {
			struct fuse_init_out	init;
			struct fuse_attr_out	attr;
			struct fuse_open_out	open;
			struct fuse_write_out	write;
			char			page[4096];
			__u64			frame[2];
		};
	} out;
	bool answers = f->locked || f->before;
	unsigned int opened = 0, kept = 0;
	__u64 reads[16];

	while (1) {
		if (f->before)
			f->before(f);
		if (read(fd, buf, sizeof(buf)) < (ssize_t)sizeof(*in))
			break;
		if (in->opcode == FUSE_FORGET || in->opcode == FUSE_BATCH_FORGET ||
		    in->opcode == FUSE_INTERRUPT)
			continue;
		if (in->opcode == FUSE_READ && !answers) {
			if (kept < ARRAY_SIZE(reads))
				reads[kept++] = in->unique;
			continue;
		}
		memset(&out, 0, sizeof(out));
		out.hdr.unique = in->unique;
		out.hdr.len = sizeof(out.hdr);
		switch (in->opcode) {
		case FUSE_INIT:
			out.init.major = FUSE_KERNEL_VERSION;
			out.init.minor = FUSE_KERNEL_MINOR_VERSION;
			out.init.max_write = sizeof(out.page);
			/* Without readahead and FUSE_ASYNC_READ, no signal ends a fault's wait. */
			out.init.max_readahead = sizeof(out.page);
			out.init.flags = f->sync ? 0 : FUSE_ASYNC_READ;
			if (f->backing > 0) {
				out.init.flags |= FUSE_INIT_EXT;
				out.init.flags2 = FUSE_PASSTHROUGH >> 32;
				out.init.max_stack_depth = 1;
			}
			out.hdr.len += sizeof(out.init);
			break;
		case FUSE_GETATTR:
			out.attr.attr_valid = 1000;
			out.attr.attr.ino = 1;
			out.attr.attr.size = sizeof(out.page);
			out.attr.attr.mode = S_IFREG | 0644;
			out.attr.attr.nlink = 1;
			out.hdr.len += sizeof(out.attr);
			break;
		case FUSE_OPEN:
			/* The second open is for ut_fuse_lock(). */
			out.open.open_flags = opened++ ? FOPEN_DIRECT_IO : 0;
			if (f->backing > 0)
				fuse_pass_through(fd, f->backing, &out.open);
			out.hdr.len += sizeof(out.open);
			break;
		case FUSE_GETXATTR:
			out.hdr.error = -ENODATA;
			if (strcmp((char *)in + sizeof(*in) + sizeof(struct fuse_getxattr_in),
				   FUSE_ANSWER))
				break;
			answers = true;
			out.hdr.error = 0;
			out.hdr.len += sizeof(out.page);
			out.frame[1] = f->frame ?: UT_FUSE_RET;
			while (kept) {
				out.hdr.unique = reads[--kept];
				if (write(fd, &out, out.hdr.len) < 0)
					break;
			}
			out.hdr.error = -ENODATA;
			out.hdr.unique = in->unique;
			out.hdr.len = sizeof(out.hdr);
			break;
		case FUSE_READ:
			out.frame[1] = f->frame ?: UT_FUSE_RET;
			out.hdr.len += sizeof(out.page);
			break;
		case FUSE_WRITE:
			__atomic_store_n(f->locked, 1, __ATOMIC_RELEASE);
			if (f->ms < 0)
				continue;
			usleep(f->ms * 1000);
			out.write.size = ((struct fuse_write_in *)(in + 1))->size;
			out.hdr.len += sizeof(out.write);
			break;
		default:
			out.hdr.error = -EOPNOTSUPP;
			break;
		}
		if (write(fd, &out, out.hdr.len) < 0)
			break;
	}
}

int ut_fuse_mount(struct ut_fuse *f)
{
	char data[96];
	int fd, file;

	snprintf(f->path, sizeof(f->path), "/tmp/unwind_fuse.XXXXXX");
	file = mkstemp(f->path);
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(data, sizeof(data), "fd=%d,rootmode=100000,user_id=0,group_id=0", fd);
	if (file < 0 || fd < 0 || mount("fuse", f->path, "fuse", MS_NODEV, data)) {
		ut_diag("FUSE: %s; CONFIG_FUSE_FS?", strerror(errno));
		return -1;
	}
	close(file);
	return fd;
}

static int fuse_begin(struct ut_fuse *f)
{
	int fd = ut_fuse_mount(f);
	pid_t server;

	if (fd < 0)
		return -1;
	/* The server may share *f, so only the parent writes to it. */
	server = fork();
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ut_fuse_serve(fd, f);
		_exit(0);
	}
	f->server = server;
	/* Only the server has it open: when it dies, all pending requests fail. */
	close(fd);
	return 0;
}

void *ut_fuse_map(const struct ut_fuse *f, int prot, int flags)
{
	long size = sysconf(_SC_PAGESIZE);
	void *page = MAP_FAILED;
	struct stat st = {};
	int file;

	file = open(f->path, O_RDWR | O_CLOEXEC);
	/* fstat() makes the kernel ask for the size. */
	if (!fstat(file, &st) && st.st_size == size)
		page = mmap(NULL, size, prot, flags, file, 0);
	if (page == MAP_FAILED)
		ut_diag("FUSE: %s, %ld bytes", strerror(errno), (long)st.st_size);
	close(file);
	return page;
}

static int fuse_page(struct ut_fuse *f, int prot, int flags)
{
	f->direct = -1;
	f->page = MAP_FAILED;
	if (!fuse_begin(f)) {
		f->page = ut_fuse_map(f, prot, flags);
		f->direct = open(f->path, O_RDONLY | O_CLOEXEC);
	}
	if (f->page != MAP_FAILED && f->direct >= 0)
		return 0;
	ut_fuse_end(f);
	return -1;
}

int ut_fuse_page(struct ut_fuse *f, bool sync)
{
	*f = (struct ut_fuse){ .sync = sync };
	return fuse_page(f, PROT_READ, MAP_PRIVATE);
}

int ut_fuse_backed(struct ut_fuse *f, int backing)
{
	*f = (struct ut_fuse){ .direct = -1, .backing = backing };
	return fuse_begin(f);
}

/* Put a free loop device on top of the file. It is detached at its last close. */
static int fuse_loop(const struct ut_fuse *f)
{
	int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC), dev = -1, tries, nr;
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	char path[32];

	config.fd = open(f->path, O_RDONLY | O_CLOEXEC);
	/* Another process may take the free device first. */
	for (tries = 0; tries < 10 && dev < 0; tries++) {
		nr = ioctl(ctl, LOOP_CTL_GET_FREE);
		if (nr < 0)
			break;
		snprintf(path, sizeof(path), "/dev/loop%d", nr);
		dev = open(path, O_RDONLY | O_CLOEXEC);
		if (dev >= 0 && ioctl(dev, LOOP_CONFIGURE, &config)) {
			close(dev);
			dev = -1;
		}
	}
	if (dev < 0)
		ut_diag("loop: %s; CONFIG_BLK_DEV_LOOP?", strerror(errno));
	close(config.fd);
	close(ctl);
	return dev;
}

int ut_device_page(struct ut_fuse *f)
{
	long size = sysconf(_SC_PAGESIZE);
	struct stat st;
	int dev;

	*f = (struct ut_fuse){ .direct = -1, .page = MAP_FAILED };
	/* The device gets the size of the file, so the kernel must know the size first. */
	if (!fuse_begin(f) && !stat(f->path, &st) && st.st_size == size) {
		dev = fuse_loop(f);
		if (dev >= 0) {
			f->page = mmap(NULL, size, PROT_READ, MAP_PRIVATE, dev, 0);
			f->device = f->page != MAP_FAILED;
			close(dev);
		}
	}
	if (f->device)
		return 0;
	ut_fuse_end(f);
	return -1;
}

int ut_fuse_slow_page(struct ut_fuse *f, int ms)
{
	*f = (struct ut_fuse){ .ms = ms, .locked = ut_shared(sizeof(*f->locked)) };
	return f->locked ? fuse_page(f, PROT_READ | PROT_WRITE, MAP_SHARED) : -1;
}

void ut_fuse_lock(struct ut_fuse *f)
{
	__atomic_store_n((char *)f->page, 1, __ATOMIC_RELAXED);
	/*
	 * mmap() of a file without a cache first writes back dirty pages of the file, and
	 * holds the lock of the memory map meanwhile.
	 */
	mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_PRIVATE, f->direct, 0);
}

void ut_device_serve(struct ut_fuse *f)
{
	char value[8];

	getxattr(f->path, FUSE_ANSWER, value, sizeof(value));
}

void ut_fuse_end(struct ut_fuse *f)
{
	/* Without an answer the device's reads fail, with messages in the kernel's log. */
	if (f->device) {
		ut_device_serve(f);
		munmap(f->page, sysconf(_SC_PAGESIZE));
	}
	f->device = false;
	if (f->server > 0) {
		kill(f->server, SIGKILL);
		waitpid(f->server, NULL, 0);
	}
	f->server = 0;
	if (f->direct > 0)
		close(f->direct);
	f->direct = -1;
	umount2(f->path, MNT_DETACH);
	unlink(f->path);
}
