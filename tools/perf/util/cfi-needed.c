// SPDX-License-Identifier: GPL-2.0
/*
 * The files that a program will map when it starts: itself, its interpreter, and the libraries
 * that these need. It is a guess that saves the first samples. A library that the dynamic
 * linker finds elsewhere is met when it is mapped.
 */
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/kernel.h>

#include "cfi-needed.h"
#include "strlist.h"

#define DEPTH_MAX	32

static const char * const library_dirs[] = {
	"/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib",
	"/usr/local/lib/x86_64-linux-gnu:/usr/local/lib64:/usr/local/lib",
};

struct needed {
	struct strlist	*seen;
	cfi_needed_fn	fn;
	void		*arg;
	int		depth;
};

static void visit(struct needed *n, const char *path);

static bool is_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* @dirs are separated by colons; $ORIGIN is the directory of @user. */
static bool find_in(char *path, size_t size, const char *dirs, const char *name, const char *user)
{
	const char *slash = user ? strrchr(user, '/') : NULL;

	while (dirs && *dirs) {
		int len = strcspn(dirs, ":");
		const char *dir = dirs;
		int origin = 0;

		dirs += len + (dirs[len] == ':');
		if (slash && !strncmp(dir, "$ORIGIN", 7))
			origin = 7;
		else if (slash && !strncmp(dir, "${ORIGIN}", 9))
			origin = 9;

		if (snprintf(path, size, "%.*s%.*s/%s", origin ? (int)(slash - user) : 0,
			     user ?: "", len - origin, dir + origin, name) < (int)size &&
		    is_file(path))
			return true;
	}
	return false;
}

static void visit_library(struct needed *n, const char *name, const char *dirs, const char *user)
{
	char path[PATH_MAX];
	size_t i;

	if (strchr(name, '/')) {
		visit(n, name);
		return;
	}
	if (find_in(path, sizeof(path), getenv("LD_LIBRARY_PATH"), name, NULL) ||
	    find_in(path, sizeof(path), dirs, name, user)) {
		visit(n, path);
		return;
	}
	for (i = 0; i < ARRAY_SIZE(library_dirs); i++) {
		if (find_in(path, sizeof(path), library_dirs[i], name, NULL)) {
			visit(n, path);
			return;
		}
	}
}

static void visit_dynamic(struct needed *n, Elf *elf, Elf_Scn *scn, const GElf_Shdr *shdr,
			  const char *user)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	int i, nr = data && shdr->sh_entsize ? shdr->sh_size / shdr->sh_entsize : 0;
	const char *dirs = NULL;
	GElf_Dyn dyn;

	for (i = 0; i < nr && gelf_getdyn(data, i, &dyn); i++) {
		if (dyn.d_tag == DT_RUNPATH || (dyn.d_tag == DT_RPATH && !dirs))
			dirs = elf_strptr(elf, shdr->sh_link, dyn.d_un.d_val);
	}
	for (i = 0; i < nr && gelf_getdyn(data, i, &dyn) && dyn.d_tag != DT_NULL; i++) {
		const char *name;

		if (dyn.d_tag != DT_NEEDED)
			continue;
		name = elf_strptr(elf, shdr->sh_link, dyn.d_un.d_val);
		if (name)
			visit_library(n, name, dirs, user);
	}
}

static void visit_interpreter(struct needed *n, int fd, Elf *elf)
{
	char path[PATH_MAX] = "";
	size_t nr, i;
	GElf_Phdr phdr;

	if (elf_getphdrnum(elf, &nr))
		return;
	for (i = 0; i < nr; i++) {
		if (!gelf_getphdr(elf, i, &phdr) || phdr.p_type != PT_INTERP)
			continue;
		if (phdr.p_filesz < sizeof(path) &&
		    pread(fd, path, phdr.p_filesz, phdr.p_offset) == (ssize_t)phdr.p_filesz)
			visit(n, path);
		return;
	}
}

static void visit_elf(struct needed *n, int fd, const char *path)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return;

	visit_interpreter(n, fd, elf);
	while ((scn = elf_nextscn(elf, scn)) != NULL) {
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_DYNAMIC)
			visit_dynamic(n, elf, scn, &shdr, path);
	}
	elf_end(elf);
}

static void visit_script(struct needed *n, const char *line)
{
	char path[PATH_MAX];

	line += strspn(line, " \t");
	if (snprintf(path, sizeof(path), "%.*s", (int)strcspn(line, " \t\n"), line) <
	    (int)sizeof(path))
		visit(n, path);
}

static void visit(struct needed *n, const char *path)
{
	char begin[256] = "";
	int fd;

	if (n->depth == DEPTH_MAX || !is_file(path) || strlist__add(n->seen, path))
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;

	n->depth++;
	n->fn(path, n->arg);
	if (pread(fd, begin, sizeof(begin) - 1, 0) > 2 && begin[0] == '#' && begin[1] == '!')
		visit_script(n, begin + 2);
	else
		visit_elf(n, fd, path);
	n->depth--;
	close(fd);
}

/**
 * cfi_needed__for_each - go through the files that a program will map
 * @program: as it would be typed: a path, or a name to be looked for in PATH
 * @fn: is called with each path and @arg
 * @arg: for @fn
 */
void cfi_needed__for_each(const char *program, cfi_needed_fn fn, void *arg)
{
	struct needed n = { .seen = strlist__new(NULL, NULL), .fn = fn, .arg = arg };
	char path[PATH_MAX];

	if (!n.seen)
		return;
	if (strchr(program, '/'))
		visit(&n, program);
	else if (find_in(path, sizeof(path), getenv("PATH"), program, NULL))
		visit(&n, path);
	strlist__delete(n.seen);
}
