// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU that counts how often a guest executes each instruction
 * between the two marks of getppid.c.
 *
 * When QEMU ends it writes lines "address count" into the file that out= names.
 * Not every distribution with plugins packages QEMU's header: so the functions
 * that are used are declared here (plugin interface 1).
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
		void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
		void (*cb)(unsigned int cpu, void *data), int flags, void *data);
void qemu_plugin_register_atexit_cb(uint64_t id,
		void (*cb)(uint64_t id, void *data), void *data);

EXPORT int qemu_plugin_version = 1;

struct count {
	uint64_t	addr;
	uint64_t	nr;
};

#define SLOTS	(1U << 22)
static struct count counts[SLOTS];
static bool on;
static FILE *out;

static struct count *count_of(uint64_t addr)
{
	unsigned int at = (addr * 0x9e3779b97f4a7c15ULL) >> 42;

	while (counts[at].addr && counts[at].addr != addr)
		at = (at + 1) % SLOTS;
	counts[at].addr = addr;
	return &counts[at];
}

static void executed(unsigned int cpu, void *data)
{
	struct count *count = data;

	(void)cpu;
	count->nr += on;
}

static void started(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	on = true;
}

static void stopped(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	on = false;
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t nr = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t i = 0; i < nr; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const char *code = qemu_plugin_insn_data(insn);
		void (*cb)(unsigned int, void *) = executed;

		if (qemu_plugin_insn_size(insn) == 7) {
			if (!memcmp(code, "\x0f\x1f\x80\x69\x67\x65\x62", 7))
				cb = started;
			else if (!memcmp(code, "\x0f\x1f\x80\x65\x64\x6e\x65", 7))
				cb = stopped;
		}
		qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, 0,
				count_of(qemu_plugin_insn_vaddr(insn)));
	}
}

static void done(uint64_t id, void *data)
{
	(void)id;
	(void)data;
	for (unsigned int i = 0; i < SLOTS; i++)
		if (counts[i].nr)
			fprintf(out, "%" PRIx64 " %" PRIu64 "\n",
				counts[i].addr, counts[i].nr);
	fclose(out);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc,
			       char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "out=", 4))
			out = fopen(argv[i] + 4, "w");
	if (!out) {
		fprintf(stderr, "profile: out=FILE is missing or no good\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, done, NULL);
	return 0;
}
